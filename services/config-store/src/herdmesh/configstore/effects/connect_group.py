"""Connect's own group on the broker: whether a Java cluster is alive on the topics we want to write.

Owns one admin client, used only for this question. Decides nothing but yes or no.

Invariant: not being able to tell raises, and the topic store then does not take over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol, cast

import structlog
from confluent_kafka.admin import AdminClient

from herdmesh.rpc.errors import ForeignWriter

_TIMEOUT_S = 2.0
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class _Member(Protocol):
    client_id: str
    client_host: str


class _Group(Protocol):
    id: str
    members: Sequence[_Member]


class _AdminCalls(Protocol):
    # The newer describe_consumer_groups refuses groups of another protocol than the consumer's, such as Connect's.
    def list_groups(self, group: str, timeout: float) -> Sequence[_Group]: ...


class ConnectGroup:
    """The group `group_id` of Connect workers."""

    def __init__(self, bootstrap_servers: str, group_id: str) -> None:
        configs: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": f"herdmesh-config-store-{group_id}-group",
            # What fails is raised by the call; the client's own lines would stand between ours in another format.
            "log_level": 2,
        }
        self._admin = cast(_AdminCalls, AdminClient(configs))
        self._group_id = group_id
        self._told: Sequence[str] = ()

    async def members(self) -> Sequence[str]:
        """The live members as `client id (host)`. Raises `KafkaException` when the broker does not say."""
        groups = await asyncio.to_thread(self._admin.list_groups, self._group_id, _TIMEOUT_S)
        return sorted(
            f"{member.client_id} ({member.client_host})"
            for group in groups
            if group.id == self._group_id
            for member in group.members
        )

    async def is_empty(self) -> bool:
        """`MayWrite` of the topic store: False, with one warning per set of members, while a Java cluster lives."""
        members = await self.members()
        if members and members != self._told:
            error = ForeignWriter(members)
            _log.warning("not_writing", reason=error.reason, error=error.message, group_id=self._group_id)
        elif self._told and not members:
            _log.info("connect_group_is_empty", group_id=self._group_id)
        self._told = members
        return not members
