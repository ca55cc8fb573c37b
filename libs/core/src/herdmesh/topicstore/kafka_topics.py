"""Topics and offsets as the admin client sees them.

Owns creation and checking of a store's topics at start, and the fetch of end offsets for barriers. Invariant: a
store never runs on a topic whose cleanup policy or partition count is not exactly what it needs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar, cast

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigEntry,  # pyright: ignore[reportPrivateImportUsage]  # public by the client's documentation, here and below
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
    OffsetSpec,  # pyright: ignore[reportPrivateImportUsage]
    TopicDescription,  # pyright: ignore[reportPrivateImportUsage]
)

from herdmesh.topicstore.calls import CallThread, client_logger, on_client_error
from herdmesh.topicstore.errors import BrokerUnreachable, StartError, TopicMisconfigured
from herdmesh.topicstore.log import LogUnavailable, Positions
from herdmesh.topicstore.settings import TopicSettings

_logger = logging.getLogger(__name__)
_REQUEST_TIMEOUT_S = 5.0
_REFRESH_TIMEOUT_S = 1.0
_RETRY_S = 0.1
_POLICY = "cleanup.policy"

Shard = tuple[str, int]
_T = TypeVar("_T")


class _Offset(Protocol):
    offset: int


class _AdminCalls(Protocol):
    """What is used of `AdminClient`, with the types its own annotations leave open."""

    def create_topics(self, new_topics: list[NewTopic], *, request_timeout: float) -> dict[str, Future[None]]: ...

    def describe_topics(
        self, topics: TopicCollection, *, request_timeout: float
    ) -> dict[str, Future[TopicDescription]]: ...

    def describe_configs(
        self, resources: list[ConfigResource], *, request_timeout: float
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]: ...

    def list_offsets(
        self,
        topic_partition_offsets: dict[TopicPartition, OffsetSpec | None],
        *,
        isolation_level: IsolationLevel,
        request_timeout: float,
    ) -> dict[TopicPartition, Future[_Offset]]: ...

    def list_topics(self, topic: str, timeout: float) -> object: ...


def kafka_error(exception: BaseException) -> KafkaError | None:
    """The error inside a `KafkaException`, if that is what this is."""
    if isinstance(exception, KafkaException) and exception.args and isinstance(exception.args[0], KafkaError):
        return exception.args[0]
    return None


class TopicAdmin:
    """One admin client for one store."""

    def __init__(self, settings: TopicSettings) -> None:
        self._settings = settings
        configs: dict[str, Any] = {
            **settings.client_configs,
            "bootstrap.servers": settings.bootstrap_servers,
            "client.id": f"{settings.client_id_base}-admin",
            "error_cb": on_client_error,
        }
        self._client = cast(_AdminCalls, AdminClient(configs, logger=client_logger))
        self._request_timeout_s = min(_REQUEST_TIMEOUT_S, settings.start_timeout_ms / 1000)
        self._thread = CallThread(f"{settings.client_id_base}-admin")

    async def open_topics(self, shards: Sequence[Shard]) -> tuple[str, Positions]:
        """Create what is absent and check what is there. Raises `StartError`.

        Returns the store id, which is the id Kafka gave the topic, and the first offset of each shard.
        """
        settings = self._settings
        deadline_s = asyncio.get_running_loop().time() + settings.start_timeout_ms / 1000
        while True:
            try:
                store_id = await self._open_topic(
                    settings.topic, settings.partitions, {**settings.topic_configs, _POLICY: "compact"}
                )
                if settings.audit_topic is not None:
                    await self._open_topic(settings.audit_topic, 1, {**settings.audit_topic_configs, _POLICY: "delete"})
                return store_id, await self.offsets(shards, first=True)
            except (KafkaException, LogUnavailable) as failure:
                error = kafka_error(failure)
                if error is not None and error.code() in _HOPELESS:
                    raise StartError(f"the broker refused to set up topic {settings.topic!r}: {error.str()}") from None
                if asyncio.get_running_loop().time() > deadline_s:
                    reason = error.str() if error is not None else str(failure)
                    raise BrokerUnreachable(settings.bootstrap_servers, reason) from None
                # No broker yet, or the topic was made a moment ago and its leader does not know.
                _logger.info("topics are not ready, trying again: %s", failure)
                await asyncio.sleep(_RETRY_S)

    async def _open_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> str:
        description = await self._describe(name)
        if description is None:
            new = NewTopic(
                name,
                num_partitions=partitions,
                replication_factor=self._settings.replication_factor,
                config=dict(configs),
            )
            try:
                await _one(self._client.create_topics([new], request_timeout=self._request_timeout_s))
            except KafkaException as failure:
                error = kafka_error(failure)
                # Another replica was faster: check what it made like any other topic.
                if error is None or error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            description = await self._describe(name)
            if description is None:
                raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        found = len(cast(Sequence[object], description.partitions))
        if found != partitions:
            raise TopicMisconfigured(name, "partitions", str(partitions), str(found))
        policy = await self._policy(name)
        if {part.strip() for part in policy.split(",")} != {configs[_POLICY]}:
            raise TopicMisconfigured(name, _POLICY, configs[_POLICY], policy)
        return str(cast(object, description.topic_id))

    async def _describe(self, name: str) -> TopicDescription | None:
        try:
            return await _one(
                self._client.describe_topics(TopicCollection([name]), request_timeout=self._request_timeout_s)
            )
        except KafkaException as failure:
            error = kafka_error(failure)
            if error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise

    async def _policy(self, name: str) -> str:
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        entries = await _one(self._client.describe_configs([resource], request_timeout=self._request_timeout_s))
        return str(cast(object, entries[_POLICY].value))

    async def offsets(self, shards: Sequence[Shard], *, first: bool) -> Positions:
        """The first, or the end of the readable, offsets of each shard. Raises `LogUnavailable`.

        The end is the last stable offset: beyond it are only records of transactions that have not ended, and nothing
        acknowledged, because a writer acknowledges what its own reader has read.
        """
        spec = OffsetSpec.earliest() if first else OffsetSpec.latest()
        try:
            futures = self._client.list_offsets(
                {TopicPartition(topic, partition): spec for topic, partition in shards},
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=self._request_timeout_s,
            )
            found = {(key.topic, key.partition): await asyncio.wrap_future(future) for key, future in futures.items()}
        except KafkaException as failure:
            await self._refresh({topic for topic, _ in shards})
            raise LogUnavailable(str(failure)) from failure
        return tuple(int(found[shard].offset) for shard in shards)

    async def _refresh(self, topics: set[str]) -> None:
        """Look the leaders up again. The client asks with the leader epoch it knows, and after a broker's restart it
        goes on doing so, refused each time (FENCED_LEADER_EPOCH), until its next periodic refresh minutes later."""
        for topic in topics:
            try:
                await self._thread.call(lambda topic=topic: self._client.list_topics(topic, timeout=_REFRESH_TIMEOUT_S))
            except KafkaException as failure:
                _logger.debug("cannot refresh the metadata of %s: %s", topic, failure)

    def close(self) -> None:
        self._thread.stop()


async def _one(futures: Mapping[Any, Future[_T]]) -> _T:
    (future,) = futures.values()
    return await asyncio.wrap_future(future)


#: Asking again will not help.
_HOPELESS = frozenset(
    {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
    }
)
