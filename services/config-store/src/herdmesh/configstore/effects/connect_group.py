"""Connect's own group on the broker: the check for a live Java cluster that uses the topics of this store.

Owns an admin client for as long as the query takes. Decides only whether the group has members.

Invariant: if the broker gives no clear answer, the check raises, and the topic store does not take over. A broker shows
an empty list to a client that may not describe the group, so the permission is checked first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from herdmesh.kafka.groups import describe_group
from herdmesh.kafka.logins import ready
from herdmesh.topicstore import ForeignWriter, TopicSettings
from herdmesh.topicstore.kafka.access import Need, refused
from herdmesh.topicstore.kafka.client_calls import client_logger, on_client_error
from herdmesh.topicstore.kafka.topics import kafka_error

_TIMEOUT_S = 2.0


class _Member(Protocol):
    client_id: str
    client_host: str


class _Group(Protocol):
    id: str
    members: Sequence[_Member]


class _AdminCalls(Protocol):
    # The newer describe_consumer_groups refuses groups whose protocol is not the consumer's, such as Connect's.
    def list_groups(self, group: str, timeout: float) -> Sequence[_Group]: ...


class ConnectGroup:
    """The group `group_id` of Connect workers, on the broker of `topic`."""

    def __init__(self, topic: TopicSettings, group_id: str) -> None:
        self._configs: dict[str, Any] = {
            # The same value as in all clients of a store: with the default of 10 s nobody could write for that long
            # after the broker's return.
            "reconnect.backoff.max.ms": 500,
            **topic.client_configs,
            "bootstrap.servers": topic.bootstrap_servers,
            "client.id": f"herdmesh-config-store-{group_id}-group",
            "error_cb": on_client_error,
        }
        self._topic = topic
        self._group_id = group_id

    def _client(self) -> _AdminCalls:
        return cast(_AdminCalls, AdminClient(ready(self._configs), logger=client_logger))

    async def members(self) -> Sequence[str]:
        """The live members as `client id (host)`. Raises `NotAuthorized`, or `KafkaException` when the broker gives no
        answer.
        """
        # A new client for each query: a client that was idle while its broker was down times out on every later
        # description (librdkafka 2.16), and this query is made just after the broker's return. A client that first
        # fetches a token for its login takes a second: create it off the event loop.
        admin = [await asyncio.to_thread(self._client)]
        try:
            await self._require_described(admin[0])
            groups = await asyncio.to_thread(admin[0].list_groups, self._group_id, _TIMEOUT_S)
        finally:
            await asyncio.to_thread(admin.clear)  # destroying a client takes time: off the event loop
        return sorted(
            f"{member.client_id} ({member.client_host})"
            for group in groups
            if group.id == self._group_id
            for member in group.members
        )

    async def is_empty(self) -> bool:
        """`MayWrite` of the topic store: raises `ForeignWriter` while a Java cluster lives."""
        members = await self.members()
        if members:
            raise ForeignWriter(f"Connect's group {self._group_id!r} (a Java cluster)", members)
        return True

    async def _require_described(self, admin: _AdminCalls) -> None:
        try:
            await asyncio.to_thread(describe_group, admin, self._group_id, _TIMEOUT_S)
        except KafkaException as failure:
            error = kafka_error(failure)
            if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise refused(Need.DESCRIBE_GROUP, self._group_id, self._topic) from None
            # The client's error for a group whose protocol is not a consumer's, such as Connect's.
            if error is None or error.code() != KafkaError._INVALID_ARG:  # pyright: ignore[reportPrivateUsage]
                raise
