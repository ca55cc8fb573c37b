"""The admin side of a store's topics: creation, checks, end offsets.

Owns the creation and check of a store's topics at start, later checks while it runs, and the fetch of end offsets
for barriers. Invariants: a store never starts on a topic whose cleanup policy or partition count is not exactly what it
needs; and only `open_topics` creates a topic, also on a broker that creates topics automatically.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclOperation,  # pyright: ignore[reportPrivateImportUsage]
    AdminClient,
    ConfigEntry,  # pyright: ignore[reportPrivateImportUsage]  # public by the client's documentation, here and below
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    DescribeClusterResult,  # pyright: ignore[reportPrivateImportUsage]
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
    OffsetSpec,  # pyright: ignore[reportPrivateImportUsage]
    TopicDescription,  # pyright: ignore[reportPrivateImportUsage]
)

from herdmesh.kafka.broker_reachability import accepts
from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.listed_offsets import KNOWN_S, Topics, list_offsets, read_topic_metadata
from herdmesh.kafka.logins import ready
from herdmesh.topicstore.errors import (
    BrokerUnreachable,
    NotAuthorized,
    StartError,
    TopicMisconfigured,
    TopicRecreated,
)
from herdmesh.topicstore.kafka.access import REFUSALS, Need, login_refused, refused
from herdmesh.topicstore.kafka.client_calls import CallThread, client_logger, on_client_error
from herdmesh.topicstore.log import LogUnavailable, Positions
from herdmesh.topicstore.settings import MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES_DEFAULT, MIN_COMPACTION_LAG, TopicSettings

_logger = logging.getLogger(__name__)
_REQUEST_TIMEOUT_S = 5.0
_REFRESH_TIMEOUT_S = 1.0
#: Seconds past its own timeout after which we stop waiting for the client.
_GRACE_S = 1.0
_RETRY_S = 0.1
#: A topic with another id is described once more after this time: brokers learn of a new topic one after the other.
_CONFIRM_S = 0.5
_POLICY = "cleanup.policy"

Shard = tuple[str, int]
_T = TypeVar("_T")


class _Described(Protocol):
    authorized_operations: Sequence[AclOperation] | None


class _AdminCalls(Protocol):
    """The calls of `AdminClient` that are used here, with types that its own annotations lack."""

    def create_topics(self, new_topics: list[NewTopic], *, request_timeout: float) -> dict[str, Future[None]]: ...

    def describe_topics(
        self, topics: TopicCollection, *, include_authorized_operations: bool, request_timeout: float
    ) -> dict[str, Future[TopicDescription]]: ...

    def describe_configs(
        self, resources: list[ConfigResource], *, request_timeout: float
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]: ...

    def describe_cluster(self, *, request_timeout: float) -> Future[DescribeClusterResult]: ...

    def list_topics(self, topic: str, timeout: float) -> object: ...

    def poll(self, timeout: float) -> int: ...


def kafka_error(exception: BaseException) -> KafkaError | None:
    """The error inside a `KafkaException`, or None for another exception."""
    if isinstance(exception, KafkaException) and exception.args and isinstance(exception.args[0], KafkaError):
        return exception.args[0]
    return None


class TopicAdmin:
    """One admin client for one store."""

    def __init__(self, settings: TopicSettings) -> None:
        self._settings = settings
        self._login_error = ""
        self._configs = configs = {
            **settings.client_configs,
            "bootstrap.servers": settings.bootstrap_servers,
            "client.id": f"{settings.client_id_base}-admin",
            **NO_AUTO_CREATION,
            "error_cb": self._on_error,
        }
        self._client = _client(configs)
        #: Topic metadata that a client received, and the time at which to request it again.
        self._known: Topics = {}
        self._known_until_s = 0.0
        self._former: _AdminCalls | None = None
        self._request_timeout_s = min(_REQUEST_TIMEOUT_S, settings.start_timeout_ms / 1000)
        self._thread = CallThread(f"{settings.client_id_base}-admin")
        self._wanted = [_Wanted(settings.topic, settings.partitions, "compact", settings.own_topic_configs)]
        if settings.audit_topic is not None:
            self._wanted.append(_Wanted(settings.audit_topic, 1, "delete", settings.audit_topic_configs))
        self._ids: dict[str, str] = {}

    async def open_topics(self, shards: Sequence[Shard]) -> tuple[str, Positions]:
        """Create absent topics and check existing ones. Raises `StartError`.

        Returns the store id, which is the id Kafka gave the topic, and the first offset of each shard.
        """
        settings = self._settings
        deadline_s = asyncio.get_running_loop().time() + settings.start_timeout_ms / 1000
        while True:
            try:
                for wanted in self._wanted:
                    self._ids[wanted.name] = await self._open_topic(wanted)
                return self._ids[settings.topic], await self.offsets(shards, first=True)
            except (KafkaException, LogUnavailable) as failure:
                error = kafka_error(failure)
                if error is not None and error.code() in _HOPELESS:
                    raise StartError(f"the broker refused to set up topic {settings.topic!r}: {error.str()}") from None
                if asyncio.get_running_loop().time() > deadline_s:
                    reason = error.str() if error is not None else str(failure)
                    raise self._login_refused() or BrokerUnreachable(settings.bootstrap_servers, reason) from None
                # No broker is up yet, or the topic was created a moment ago and its leader does not know it.
                _logger.info("topics are not ready, trying again: %s", failure)
                await asyncio.sleep(_RETRY_S)

    async def check(self) -> NotAuthorized | None:
        """See `Log.check`."""
        refusal: NotAuthorized | None = None
        try:
            for wanted in self._wanted:
                description = await self._same_topic(wanted.name)
                self._check_partitions(wanted, description)
                self._check_readable(wanted.name, description)
                await self._check_policy(wanted)
                if AclOperation.WRITE not in _allowed(description):
                    refusal = refusal or refused(Need.WRITE_TOPIC, wanted.name, self._settings)
        except KafkaException as failure:
            raise self._login_refused() or LogUnavailable(str(failure)) from failure
        return refusal

    async def _same_topic(self, name: str) -> TopicDescription:
        """Describe the topic. Raises `TopicRecreated` when it is not the topic that was opened."""
        found = await self._describe(name)
        if found is None or _id(found) != self._ids[name]:
            await asyncio.sleep(_CONFIRM_S)
            found = await self._describe(name)
        if found is None or _id(found) != self._ids[name]:
            raise TopicRecreated(name, self._ids[name], None if found is None else _id(found))
        return found

    async def _open_topic(self, wanted: _Wanted) -> str:
        description = await self._describe(wanted.name)
        if description is None:
            await self._create(wanted)
            description = await self._describe(wanted.name)
            if description is None:
                raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        self._check_partitions(wanted, description)
        await self._check_policy(wanted)
        self._check_readable(wanted.name, description)
        return _id(description)

    async def _create(self, wanted: _Wanted) -> None:
        new = NewTopic(
            wanted.name,
            num_partitions=wanted.partitions,
            replication_factor=self._settings.replication_factor,
            config={**wanted.configs, _POLICY: wanted.policy},
        )
        try:
            await _one(self._client.create_topics([new], request_timeout=self._request_timeout_s))
        except KafkaException as failure:
            # Another replica may have created it first: check it like any other topic.
            if _code(failure) != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._refused(failure, Need.CREATE_TOPIC, wanted.name) from None

    def _check_partitions(self, wanted: _Wanted, description: TopicDescription) -> None:
        found = len(cast(Sequence[object], description.partitions))
        if found != wanted.partitions:
            at = self._settings.bootstrap_servers
            raise TopicMisconfigured(wanted.name, "partitions", str(wanted.partitions), str(found), at)

    def _check_readable(self, name: str, description: TopicDescription) -> None:
        if AclOperation.READ not in _allowed(description):
            raise refused(Need.READ_TOPIC, name, self._settings)

    async def _check_policy(self, wanted: _Wanted) -> None:
        found = await self._policy(wanted.name)
        if {part.strip() for part in found.split(",")} != {wanted.policy}:
            at = self._settings.bootstrap_servers
            raise TopicMisconfigured(wanted.name, _POLICY, wanted.policy, found, at)

    async def _describe(self, name: str) -> TopicDescription | None:
        try:
            return await _one(
                self._client.describe_topics(
                    TopicCollection([name]),
                    include_authorized_operations=True,
                    request_timeout=self._request_timeout_s,
                )
            )
        except KafkaException as failure:
            if _code(failure) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise self._refused(failure, Need.DESCRIBE_TOPIC, name) from None

    async def _policy(self, name: str) -> str:
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        try:
            entries = await _one(self._client.describe_configs([resource], request_timeout=self._request_timeout_s))
        except KafkaException as failure:
            raise self._refused(failure, Need.DESCRIBE_TOPIC_CONFIGS, name) from None
        return str(cast(object, entries[_POLICY].value))

    async def cluster_id(self) -> str:
        """The id of the Kafka cluster; empty when the broker does not return it. A store starts without it."""
        try:
            found = await asyncio.wrap_future(self._client.describe_cluster(request_timeout=self._request_timeout_s))
        except KafkaException as failure:
            _logger.warning("the broker does not report its cluster's id: %s", failure)
            return ""
        return str(cast(object, found.cluster_id) or "")

    async def min_compaction_lag_ms(self) -> int:
        """The own topic's `min.compaction.lag.ms`; 0, which promises nothing, when the broker does not return it."""
        return await self._number(self._settings.topic, MIN_COMPACTION_LAG, 0)

    async def max_message_bytes(self) -> int:
        """The smallest `max.message.bytes` of the topics; Kafka's default when the broker does not return it."""
        found = [
            await self._number(wanted.name, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES_DEFAULT) for wanted in self._wanted
        ]
        return min(found)

    async def _number(self, topic: str, setting: str, default: int) -> int:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            entries = await _one(self._client.describe_configs([resource], request_timeout=self._request_timeout_s))
        except KafkaException as failure:
            _logger.warning("the broker does not report %s of topic %r: %s", setting, topic, failure)
            return default
        return int(str(cast(object, entries[setting].value)))

    async def unstable(self, shards: Sequence[Shard]) -> list[Shard]:
        """The shards in which a transaction is open. Raises `LogUnavailable`."""
        ends = await self.offsets(shards, first=False, isolation=IsolationLevel.READ_UNCOMMITTED)
        stable = await self.offsets(shards, first=False)  # fetched second: a write in between can only advance it
        return [shard for shard, first, end in zip(shards, stable, ends, strict=True) if first < end]

    async def offsets(
        self,
        shards: Sequence[Shard],
        *,
        first: bool,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> Positions:
        """The first offset, or the end offset, of each shard. Raises `LogUnavailable`.

        The end is the last stable offset by default. Past it are only records of open transactions, none of them
        acknowledged, because a writer acknowledges only records that its own reader has read.
        """
        spec = OffsetSpec.earliest() if first else OffsetSpec.latest()
        try:
            client, known = await self._leaders({topic for topic, _ in shards})
            futures = list_offsets(
                client,
                {TopicPartition(topic, partition): spec for topic, partition in shards},
                isolation_level=isolation,
                timeout_s=self._request_timeout_s,
                known=known,
            )
            async with asyncio.timeout(self._request_timeout_s + _GRACE_S):
                found = {
                    (key.topic, key.partition): await asyncio.wrap_future(future) for key, future in futures.items()
                }
        except (KafkaException, TimeoutError) as failure:
            self._known_until_s = 0.0
            raise LogUnavailable(str(failure) or "the client gave no answer") from failure
        offsets = tuple(int(found[shard].offset) for shard in shards)
        if min(offsets) < 0:  # a broker that has just started may return no offset; that is not the end of a log
            raise LogUnavailable(f"the broker does not know the offsets of {shards[offsets.index(min(offsets))]} yet")
        return offsets

    async def _leaders(self, topics: set[str]) -> tuple[_AdminCalls, Topics]:
        """A client, and the recent topic metadata it received. Raises KafkaException when the client returns none.

        Read again after every failure: the client sends the leader epoch it knows. After a broker's restart it
        continues to do so, and is rejected each time (FENCED_LEADER_EPOCH), until its next periodic refresh minutes
        later.
        """
        client, loop = self._client, asyncio.get_running_loop()
        if topics <= self._known.keys() and loop.time() < self._known_until_s:
            return client, self._known
        timeout_s = _REFRESH_TIMEOUT_S if self._known else self._request_timeout_s
        asked_s = loop.time()
        try:
            found = await self._thread.call(lambda: read_topic_metadata(client, topics, timeout_s))
        except KafkaException:
            there = await self._thread.call(lambda: accepts(self._settings.bootstrap_servers))
            if there and self._client is client:
                # The reason is in `herdmesh.kafka.broker_reachability`. Keep the former client alive for calls that
                # still wait for its replies.
                self._former, self._client, self._known_until_s = client, _client(self._configs), 0.0
            raise
        if self._client is client:
            self._known, self._known_until_s = found, asked_s + KNOWN_S
        return client, found

    def close(self) -> None:
        self._thread.stop()

    def _refused(self, failure: KafkaException, need: Need, name: str) -> Exception:
        return refused(need, name, self._settings) if _code(failure) in REFUSALS else failure

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:  # pyright: ignore[reportPrivateUsage]
            self._login_error = error.str()
        on_client_error(error)

    def _login_refused(self) -> NotAuthorized | None:
        """After a failed call: the authentication error of this client, if there was one. The client reports it only by
        its error callback.
        """
        self._login_error = ""
        self._client.poll(0)
        return login_refused(self._login_error, self._settings) if self._login_error else None


def _client(configs: Mapping[str, Any]) -> _AdminCalls:
    return cast(_AdminCalls, AdminClient(ready(configs), logger=client_logger))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A topic as a store requires it."""

    name: str
    partitions: int
    policy: str
    configs: Mapping[str, str]


def _id(description: TopicDescription) -> str:
    return str(cast(object, description.topic_id))


def _allowed(description: TopicDescription) -> Sequence[AclOperation]:
    """The operations that this client may perform on the topic; all of them on a broker without an authorizer
    (KIP-430).
    """
    return cast(_Described, description).authorized_operations or ()


def _code(failure: KafkaException) -> int | None:
    error = kafka_error(failure)
    return None if error is None else error.code()


async def _one(futures: Mapping[Any, Future[_T]]) -> _T:
    (future,) = futures.values()
    return await asyncio.wrap_future(future)


#: Error codes for which a retry does not help.
_HOPELESS = frozenset(
    {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
    }
)
