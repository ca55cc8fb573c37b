"""The filters of lists and watches of statuses.

Owns the four filters that the requests share. Invariant: an empty filter passes everything; a status must pass all
filters. Active topics have neither worker nor state nor condition, so a filter by those passes no topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from herdmesh.api.statusstore.v1 import status_read_service_pb2 as pb2
from herdmesh.connect.topics import State
from herdmesh.statusstore.service import wire
from herdmesh.statusstore.state.statuses import AnyStatus


@dataclass(frozen=True, slots=True)
class StatusFilter:
    """The filters of one request. Empty sets pass everything."""

    connectors: frozenset[str]
    worker_ids: frozenset[str]
    states: frozenset[State]
    condition_types: frozenset[str]

    @classmethod
    def of(cls, request: pb2.ListStatusesRequest | pb2.WatchStatusesRequest) -> Self:
        """The filters of a request. Raises `RequestInvalid` for an invalid state."""
        return cls(
            frozenset(request.connectors),
            frozenset(request.worker_ids),
            frozenset(wire.state_from(number, "states") for number in request.states),
            frozenset(request.condition_types),
        )

    def takes(self, status: AnyStatus, state: State) -> bool:
        """True if the status passes. `state` is the state to compare: as written, or joined with the worker's lease."""
        return (
            (not self.connectors or status.connector in self.connectors)
            and (not self.worker_ids or status.worker_id in self.worker_ids)
            and (not self.states or state in self.states)
            and (not self.condition_types or any(item.type in self.condition_types for item in status.conditions))
        )

    def takes_topics_of(self, connector: str) -> bool:
        return (not self.connectors or connector in self.connectors) and not (
            self.worker_ids or self.states or self.condition_types
        )
