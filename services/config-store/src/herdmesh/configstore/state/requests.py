"""The outcomes of mutations by request id, so that a retry is answered and not applied again (design 4).

Owns the memory of the audit topic that `request_id` needs: what was asked and how it ended. Knows no clock: the age of
an entry is told by record timestamps and by the `now_ms` a caller brings.

Invariant: an outcome is found for `KEPT_MS`; after that the id is refused for as long as it is remembered at all
(`REMEMBERED_MS`, or `_CHUNKS_MAX` x `_CHUNK_SIZE` newer requests), never applied anew. Memory is bounded by both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from herdmesh.connect.audit_topic import AuditRecord
from herdmesh.rpc.errors import RequestIdExpired, RequestInvalid

KEPT_MS = 24 * 3_600_000
REMEMBERED_MS = 7 * KEPT_MS
# Sealed chunks are shared between copies; only the open one is copied, so a copy costs the same with any history.
_CHUNK_SIZE = 512
_CHUNKS_MAX = 512


@dataclass(frozen=True, slots=True)
class Request:
    """One applied mutation. `outcome` is what its first answer said beyond the state it can be read from."""

    operation: str
    connector: str
    timestamp_ms: int
    outcome: Mapping[str, Any]


class RequestLog:
    """Requests by id, oldest chunk first. Not thread-safe, like all state."""

    def __init__(self) -> None:
        self._sealed: tuple[Mapping[str, Request], ...] = ()
        self._open: dict[str, Request] = {}
        self._newest_ms = 0

    def add(self, record: AuditRecord, timestamp_ms: int) -> None:
        """Remember one audit record; one without request id has nothing to find it by."""
        self._newest_ms = max(self._newest_ms, timestamp_ms)
        if not record.request_id:
            return
        self._open[record.request_id] = Request(record.operation, record.connector, timestamp_ms, record.outcome)
        if len(self._open) >= _CHUNK_SIZE:
            oldest_ms = self._newest_ms - REMEMBERED_MS
            kept = tuple(chunk for chunk in self._sealed if _newest_ms(chunk) >= oldest_ms)
            self._sealed = (*kept, self._open)[-_CHUNKS_MAX:]
            self._open = {}

    def find(self, request_id: str, operation: str, connector: str, now_ms: int) -> Request | None:
        """The first outcome of `request_id`, None if it is new.

        Raises:
            RequestIdExpired: applied so long ago that its outcome is no longer told.
            RequestInvalid: the id was used for something else.
        """
        if not request_id:
            return None
        chunks = (self._open, *reversed(self._sealed))
        request = next((chunk[request_id] for chunk in chunks if request_id in chunk), None)
        if request is None:
            return None
        if (request.operation, request.connector) != (operation, connector):
            raise RequestInvalid(
                f"request_id {request_id!r} was used for {request.operation} of {request.connector!r}",
                "options.request_id",
            )
        if now_ms - request.timestamp_ms > KEPT_MS:
            raise RequestIdExpired(f"request_id {request_id!r} is older than {KEPT_MS // 3_600_000} h")
        return request

    def copy(self) -> RequestLog:
        """An independent copy, sharing what is sealed."""
        copied = RequestLog()
        copied._sealed = self._sealed
        copied._open = dict(self._open)
        copied._newest_ms = self._newest_ms
        return copied


def _newest_ms(chunk: Mapping[str, Request]) -> int:
    return max(request.timestamp_ms for request in chunk.values())
