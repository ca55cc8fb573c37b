"""Client of one of a mirror's two clusters: consumer groups, ends and settings of topics,
MirrorMaker's own topics.

Owns these clients. `engine.source_cluster` reads the copied records, and the run writes them. Does not know the content
of MirrorMaker's topics.

Invariant: no call waits longer than `CALL_TIMEOUT_S`; a missing response is an UnreachableError.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import (  # the package re-exports these, but not for type checkers
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from herdmesh.connect.errors import ConfigError, RetriableError, UnreachableError
from herdmesh.connect.spi import PartitionId
from herdmesh.engine.librdkafka import CALL_TIMEOUT_S, RECONNECT, group_offsets, offset_of, opened
from herdmesh.engine.runtime import ClientConfig, kafka
from herdmesh.engine.sink import answered_ids
from herdmesh.kafka.checked_producer import CheckedProducer
from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.groups import alter_group_offsets, describe_group, find_coordinator
from herdmesh.kafka.listed_offsets import list_offsets

COMPACTED: Mapping[str, str] = {"cleanup.policy": "compact"}
"""Topic settings of MirrorMaker's own topics; each has one partition."""
_GONE = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION))
_NO_GROUP = frozenset((KafkaError.GROUP_ID_NOT_FOUND,))
#: A broker's errors about a group with active members.
_IN_USE = frozenset((KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.NON_EMPTY_GROUP))
_SILENT = frozenset((KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN))
_SET, _TAKE_BACK = AlterConfigOpType.SET, AlterConfigOpType.DELETE
_OF_THE_TOPIC = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
_BATCH = 5_000
_POLL_S = 0.2
_FLUSH_S = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Address and client settings of a cluster, in librdkafka's terms."""

    name: str
    """The user's name for it, for messages."""
    bootstrap_servers: str
    admin: ClientConfig
    consumer: ClientConfig
    producer: ClientConfig
    client_id: str

    def groups(self) -> list[str]:
        """Return all consumer groups, sorted. Raises RetriableError, also when a broker does not list its groups."""
        found = self.call_client(lambda: self._client().list_consumer_groups(request_timeout=CALL_TIMEOUT_S).result())
        for error in found.errors:
            raise RetriableError(f"{self._called()}: {error}", waits_for=self._waits_for())
        return sorted(one.group_id for one in found.valid)

    def group_offsets(self, group: str) -> dict[PartitionId, tuple[int, str]]:
        """Return a group's committed offsets and their metadata;
        partitions without an offset are missing. Raises RetriableError.
        """
        try:
            found = group_offsets(self._member(), self._client(), group, CALL_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() in _NO_GROUP:
                return {}
            raise self._failed(error) from error
        return {one.partition: (one.offset, one.metadata) for one in found}

    def is_idle(self, group: str) -> bool:
        """True when the group has no active member or does not exist. Raises RetriableError."""
        try:
            found = describe_group(self._client(), group, CALL_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() in _NO_GROUP:
                return True
            raise self._failed(error) from error
        return found.state in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)

    def set_group_offsets(self, group: str, offsets: Mapping[PartitionId, tuple[int, str]]) -> bool:
        """Set the committed offsets of a group; False when it has active
        members by now, which the brokers check. Raises RetriableError.
        """
        wanted = [TopicPartition(*one, offset, metadata) for one, (offset, metadata) in offsets.items()]
        client = self._client()
        try:
            find_coordinator(client, group, CALL_TIMEOUT_S)
            altered = alter_group_offsets(client, ConsumerGroupTopicPartitions(group, wanted), CALL_TIMEOUT_S)
            refused = [one.error for one in altered.topic_partitions if one.error is not None]
        except KafkaException as error:
            if error.args[0].code() in _IN_USE:
                return False
            raise self._failed(error) from error
        if any(error.code() not in _IN_USE for error in refused):
            text = f"{self._called()}: offsets of group {group}: {refused[0].str()}"
            raise RetriableError(text, waits_for=self._waits_for())
        return not refused

    def ends(self, partitions: Iterable[PartitionId], timeout_s: float) -> dict[PartitionId, int]:
        """Return the end of each partition for readers of committed
        records; missing partitions are left out. Raises RetriableError.
        """
        asked = {TopicPartition(*one): OffsetSpec.latest() for one in partitions}
        if not asked:
            return {}
        futures = self.call_client(
            lambda: list_offsets(
                self._client(), asked, isolation_level=IsolationLevel.READ_COMMITTED, timeout_s=timeout_s
            )
        )
        ends: dict[PartitionId, int] = {}
        for one, future in futures.items():
            try:
                ends[(one.topic, one.partition)] = offset_of(future.result())
            except KafkaException as error:
                if error.args[0].code() not in _GONE:
                    raise self._failed(error) from error
        return ends

    def topic_ids(self, topics: Iterable[str], timeout_s: float) -> dict[str, str]:
        """Return Kafka's ids of these topics; missing topics are left out. Raises RetriableError."""
        return self.call_client(lambda: answered_ids(self._client(), topics, timeout_s))

    def topic_settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings that each topic itself has; missing topics are left out. Raises RetriableError."""
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not asked:
            return {}
        futures = self.call_client(lambda: self._client().describe_configs(asked, request_timeout=CALL_TIMEOUT_S))
        found: dict[str, dict[str, str]] = {}
        for resource, future in futures.items():
            try:
                entries = future.result()
            except KafkaException as error:
                if error.args[0].code() not in _GONE:
                    raise self._failed(error) from error
            else:
                found[resource.name] = {
                    name: entry.value for name, entry in entries.items() if entry.source == _OF_THE_TOPIC
                }
        return found

    def set_topic_settings(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Change a topic's settings; None = return to the brokers' default. Raises RetriableError, also for changes
        that the brokers refuse, because they may accept them later.
        """
        entries = [
            ConfigEntry(name, value, incremental_operation=_TAKE_BACK if value is None else _SET)
            for name, value in changes.items()
        ]
        asked = [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)]
        futures = self.call_client(
            lambda: self._client().incremental_alter_configs(asked, request_timeout=CALL_TIMEOUT_S)
        )
        for future in futures.values():
            self.call_client(future.result)

    def make_compacted_topic(self, topic: str, replication_factor: int) -> None:
        """Create one of MirrorMaker's own topics, unless it exists.
        Raises ConfigError if the brokers refuse it, RetriableError.
        """
        new = NewTopic(topic, 1, replication_factor, config=dict(COMPACTED))
        client: Any = self._client()
        try:
            client.create_topics([new], request_timeout=CALL_TIMEOUT_S)[topic].result()
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() == KafkaError.INVALID_REPLICATION_FACTOR:
                raise ConfigError(f"topic {topic} of {self._called()}: {cause.str()}") from error
            if cause.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._failed(error) from error

    def writer(self, topic: str) -> Writer:
        """Return a writer of one of MirrorMaker's own topics; the caller closes it. Raises RetriableError."""
        config: dict[str, Any] = {
            **self.client_config("producer"),
            "on_delivery": _not_written,
            "delivery.report.only.error": True,
        }
        return Writer(self.call_client(lambda: opened(CheckedProducer, "producer", config)), topic)

    def log(self, topic: str) -> Log:
        """Return a reader of one of MirrorMaker's own topics, from its beginning; the caller closes it."""
        return Log(self, self.call_client(lambda: opened(Consumer, "consumer", self.client_config("consumer"))), topic)

    def client_config(self, kind: str) -> ClientConfig:
        """Return the config of a client: an `admin`, a `consumer` of MirrorMaker's topics, or their `producer`."""
        base: ClientConfig = {"bootstrap.servers": self.bootstrap_servers, "client.id": self.client_id}
        match kind:
            case "admin":
                return {**base, **NO_AUTO_CREATION, **RECONNECT, **self.admin}
            case "producer":
                return {**base, "linger.ms": 5, **RECONNECT, **self.producer, "enable.idempotence": True}
            case _:
                return {
                    **base,
                    "fetch.wait.max.ms": 20,
                    **RECONNECT,
                    **self.consumer,
                    "group.id": self.client_id,  # required by the client; it never joins the group
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "earliest",
                    "enable.partition.eof": True,
                }

    def _client(self) -> Any:
        config = self.client_config("admin")
        client: Any = self.call_client(lambda: _shared_admin(tuple(config.items())))
        client.poll(0)  # serves the client's log callbacks
        return client

    def _member(self) -> Consumer:
        """Return the shared consumer for queries about groups
        (`engine.librdkafka.group_offsets`); it is in no group itself.
        """
        config = {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": self.client_id,
            "enable.auto.commit": False,
            **RECONNECT,
            **self.admin,
            "group.id": self.client_id,  # required by the client; it never joins the group
        }
        consumer: Consumer = self.call_client(lambda: _shared_consumer(tuple(config.items())))
        consumer.poll(0)  # serves the client's log callbacks
        return consumer

    def call_client(self, call: Callable[[], Any]) -> Any:
        """Return the result of a client call. Raises RetriableError for its errors."""
        try:
            return call()
        except KafkaException as error:
            raise self._failed(error) from error

    def _failed(self, error: KafkaException) -> RetriableError:
        message = f"{self._called()}: {error.args[0].str()}"
        if error.args[0].code() in _SILENT:
            _shared_admin.cache_clear()  # the client may have lost its brokers (`herdmesh.kafka.broker_reachability`)
            return UnreachableError(message, waits_for=self._waits_for())
        return RetriableError(message, waits_for=self._waits_for())

    def _waits_for(self) -> str:
        return kafka(self.bootstrap_servers)

    def _called(self) -> str:
        return f"the cluster {self.name} ({self.bootstrap_servers})"


@lru_cache(maxsize=16)
def _shared_admin(config: tuple[tuple[str, Any], ...]) -> AdminClient:
    """Return the admin client that all users of the same cluster and settings in this process share."""
    return opened(AdminClient, "admin", dict(config))


@lru_cache(maxsize=16)
def _shared_consumer(config: tuple[tuple[str, Any], ...]) -> Consumer:
    """Return the shared consumer for queries about groups."""
    return opened(Consumer, "consumer", dict(config))


class Writer:
    """Writer to partition 0 of a topic. Logs records that cannot be written."""

    def __init__(self, producer: CheckedProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    def write(self, key: bytes, value: bytes) -> None:
        """Queue a record. A record that cannot be written is logged and discarded."""
        try:
            self._producer.produce(self._topic, value, key, 0)
            self._producer.poll(0)
        except (KafkaException, BufferError) as error:
            _log.warning("cannot write a record to %s: %s", self._topic, error)

    def close(self) -> None:
        """Wait until all records are written, at most `_FLUSH_S`."""
        if self._producer.flush(_FLUSH_S):  # waits: at most `_FLUSH_S`; the log names the rest
            _log.warning("records were not written to %s within %g s and are discarded", self._topic, _FLUSH_S)
        self._producer.poll(0)
        if self._producer.guess is not None:
            _log.warning("records may not have been written to %s: %s", self._topic, self._producer.guess)


def _not_written(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        _log.warning("cannot write a record to %s: %s", message.topic(), error.str())


class Log:
    """Reader of partition 0 of a topic. Each call reads to the end at that time."""

    def __init__(self, cluster: Cluster, consumer: Consumer, topic: str) -> None:
        self._cluster = cluster
        self._consumer = consumer
        self._topic = topic
        self._next: int | None = None

    def read(self) -> list[tuple[bytes, bytes]]:
        """Return keys and values since the last call; none while the topic does not exist. Raises RetriableError when
        the end is not reached in time; the next call reads the same records again.
        """
        partition = self._topic, 0
        end = self._cluster.ends([partition], CALL_TIMEOUT_S).get(partition)
        if end is None:
            return []
        if self._next is None:
            # Connect first: a client that is assigned partitions before it is connected looks up their leaders half a
            # second later.
            self._cluster.call_client(lambda: self._consumer.list_topics(self._topic, timeout=CALL_TIMEOUT_S))
            self._next = 0
            self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
        found: list[tuple[bytes, bytes]] = []
        at, deadline_s = self._next, time.monotonic() + CALL_TIMEOUT_S
        while at < end:
            if time.monotonic() > deadline_s:
                self._consumer.assign([TopicPartition(self._topic, 0, self._next or OFFSET_BEGINNING)])
                raise RetriableError(
                    f"topic {self._topic} of the cluster {self._cluster.name} could not be read to its end",
                    waits_for=kafka(self._cluster.bootstrap_servers),
                )
            # Read what has arrived first: a call for many records waits until there are that many.
            for message in self._consumer.consume(_BATCH, 0) or self._consumer.consume(1, _POLL_S):
                at = self._taken(message, found, at)
        self._next = at
        return found

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _taken(self, message: Message, found: list[tuple[bytes, bytes]], at: int) -> int:
        """Add a message to `found` and return the next offset to read."""
        error, offset = message.error(), message.offset()
        if error is not None:
            is_end = error.code() == KafkaError._PARTITION_EOF
            return at if offset is None or not is_end else max(at, offset)
        key, value = message.key(), message.value()
        if isinstance(key, bytes) and value is not None:
            found.append((key, value))
        assert offset is not None
        return offset + 1
