"""Client of one of a mirror's two clusters: consumer groups, ends and settings of topics, MirrorMaker's own topics.

Owns these clients. Copied records are read by `engine.source_cluster` and written by the run. Does not know the content
of MirrorMaker's topics.

Invariant: no call waits longer than `CALL_TIMEOUT_S`; a missing answer is a RetriableError.
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

from herdmesh.connect.errors import ConfigError, RetriableError
from herdmesh.connect.spi import PartitionId
from herdmesh.engine.librdkafka import CALL_TIMEOUT_S, RECONNECT, group_offsets, offset_of, opened
from herdmesh.engine.runtime import ClientConfig, kafka
from herdmesh.engine.sink import answered_ids
from herdmesh.kafka.checked_producer import CheckedProducer
from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.groups import alter_group_offsets, describe_group, find_coordinator
from herdmesh.kafka.listed_offsets import list_offsets

COMPACTED: Mapping[str, str] = {"cleanup.policy": "compact"}
"""What MirrorMaker's own topics are made with; each has one partition."""
_GONE = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION))
_NO_GROUP = frozenset((KafkaError.GROUP_ID_NOT_FOUND,))
#: What a broker says of a group whose members are there.
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
    """Where it is and how it is reached, in librdkafka's words."""

    name: str
    """What the user calls it; for messages."""
    bootstrap_servers: str
    admin: ClientConfig
    consumer: ClientConfig
    producer: ClientConfig
    client_id: str

    def groups(self) -> list[str]:
        """The consumer groups there are, sorted. Raises RetriableError, also when a broker does not tell of its own."""
        found = self.asked(lambda: self._client().list_consumer_groups(request_timeout=CALL_TIMEOUT_S).result())
        for error in found.errors:
            raise RetriableError(f"{self._called()}: {error}", waits_for=self._waits_for())
        return sorted(one.group_id for one in found.valid)

    def group_offsets(self, group: str) -> dict[PartitionId, tuple[int, str]]:
        """Where a group is, with what it put beside that; without partitions it has no offset of. Raises
        RetriableError."""
        try:
            found = group_offsets(self._member(), self._client(), group, CALL_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() in _NO_GROUP:
                return {}
            raise self._failed(error) from error
        return {one.partition: (one.offset, one.metadata) for one in found}

    def is_idle(self, group: str) -> bool:
        """True when nobody consumes with it, or there is no such group. Raises RetriableError."""
        try:
            found = describe_group(self._client(), group, CALL_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() in _NO_GROUP:
                return True
            raise self._failed(error) from error
        return found.state in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)

    def set_group_offsets(self, group: str, offsets: Mapping[PartitionId, tuple[int, str]]) -> bool:
        """Have a group go on there; False when somebody consumes with it by now, which the brokers see to. Raises
        RetriableError."""
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
        """Where each partition ends for readers of committed records; without those there are not. Raises
        RetriableError."""
        asked = {TopicPartition(*one): OffsetSpec.latest() for one in partitions}
        if not asked:
            return {}
        futures = self.asked(
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
        """Kafka's ids of these topics, without those there are not. Raises RetriableError."""
        return self.asked(lambda: answered_ids(self._client(), topics, timeout_s))

    def topic_settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """What is set for each topic itself; without those there are not. Raises RetriableError."""
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not asked:
            return {}
        futures = self.asked(lambda: self._client().describe_configs(asked, request_timeout=CALL_TIMEOUT_S))
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
        """Change what is set for a topic; None = what the brokers have holds again. Raises RetriableError, also for
        what the brokers refuse: another time they may not."""
        entries = [
            ConfigEntry(name, value, incremental_operation=_TAKE_BACK if value is None else _SET)
            for name, value in changes.items()
        ]
        asked = [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)]
        futures = self.asked(lambda: self._client().incremental_alter_configs(asked, request_timeout=CALL_TIMEOUT_S))
        for future in futures.values():
            self.asked(future.result)

    def make_compacted_topic(self, topic: str, replication_factor: int) -> None:
        """One of MirrorMaker's own, unless it is there. Raises ConfigError for what the brokers refuse of it,
        RetriableError."""
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
        """A writer of one of MirrorMaker's own topics. To be closed. Raises RetriableError."""
        config: dict[str, Any] = {
            **self.client_config("producer"),
            "on_delivery": _not_written,
            "delivery.report.only.error": True,
        }
        return Writer(self.asked(lambda: opened(CheckedProducer, "producer", config)), topic)

    def log(self, topic: str) -> Log:
        """A reader of one of MirrorMaker's own topics, from its beginning. To be closed."""
        return Log(self, self.asked(lambda: opened(Consumer, "consumer", self.client_config("consumer"))), topic)

    def client_config(self, kind: str) -> ClientConfig:
        """What a client of it is made with: an `admin`, a `consumer` of MirrorMaker's topics, their `producer`."""
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
                    "group.id": self.client_id,  # wanted by the client, and never joined
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "earliest",
                    "enable.partition.eof": True,
                }

    def _client(self) -> Any:
        config = self.client_config("admin")
        client: Any = self.asked(lambda: _shared_admin(tuple(config.items())))
        client.poll(0)  # for what it has to log
        return client

    def _member(self) -> Consumer:
        """Of no group that matters: to ask about others with (`engine.librdkafka.group_offsets`)."""
        config = {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": self.client_id,
            "enable.auto.commit": False,
            **RECONNECT,
            **self.admin,
            "group.id": self.client_id,  # wanted by the client, and never joined
        }
        consumer: Consumer = self.asked(lambda: _shared_consumer(tuple(config.items())))
        consumer.poll(0)  # for what it has to log
        return consumer

    def asked(self, call: Callable[[], Any]) -> Any:
        """What a client answers. Raises RetriableError for what it raises."""
        try:
            return call()
        except KafkaException as error:
            raise self._failed(error) from error

    def _failed(self, error: KafkaException) -> RetriableError:
        if error.args[0].code() in _SILENT:
            _shared_admin.cache_clear()  # it may have forgotten its brokers (`herdmesh.kafka.broker_reachability`)
        return RetriableError(f"{self._called()}: {error.args[0].str()}", waits_for=self._waits_for())

    def _waits_for(self) -> str:
        return kafka(self.bootstrap_servers)

    def _called(self) -> str:
        return f"the cluster {self.name} ({self.bootstrap_servers})"


@lru_cache(maxsize=16)
def _shared_admin(config: tuple[tuple[str, Any], ...]) -> AdminClient:
    """One for all in this process who ask the same cluster the same way."""
    return opened(AdminClient, "admin", dict(config))


@lru_cache(maxsize=16)
def _shared_consumer(config: tuple[tuple[str, Any], ...]) -> Consumer:
    """Likewise, to ask about groups with."""
    return opened(Consumer, "consumer", dict(config))


class Writer:
    """Writes to partition 0 of a topic, and logs what could not be written."""

    def __init__(self, producer: CheckedProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    def write(self, key: bytes, value: bytes) -> None:
        """Queue a record. A record that cannot be written is logged and dropped."""
        try:
            self._producer.produce(self._topic, value, key, 0)
            self._producer.poll(0)
        except (KafkaException, BufferError) as error:
            _log.warning("a record is not written to %s: %s", self._topic, error)

    def close(self) -> None:
        """Wait until all records are written, at most `_FLUSH_S`."""
        if self._producer.flush(_FLUSH_S):  # waits: at most `_FLUSH_S`, and the log names what is not written then
            _log.warning("records were not written to %s within %g s and are discarded", self._topic, _FLUSH_S)
        self._producer.poll(0)
        if self._producer.guess is not None:
            _log.warning("records may not be written to %s: %s", self._topic, self._producer.guess)


def _not_written(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        _log.warning("a record is not written to %s: %s", message.topic(), error.str())


class Log:
    """Reads partition 0 of a topic, each time to the end it then has."""

    def __init__(self, cluster: Cluster, consumer: Consumer, topic: str) -> None:
        self._cluster = cluster
        self._consumer = consumer
        self._topic = topic
        self._next: int | None = None

    def read(self) -> list[tuple[bytes, bytes]]:
        """Keys and values since the last call; none while there is no such topic. Raises RetriableError when the end is
        not reached in time: what was read by then comes with the next call."""
        partition = self._topic, 0
        end = self._cluster.ends([partition], CALL_TIMEOUT_S).get(partition)
        if end is None:
            return []
        if self._next is None:
            # Given partitions before it is connected, the client looks for their leaders only after half a second.
            self._cluster.asked(lambda: self._consumer.list_topics(self._topic, timeout=CALL_TIMEOUT_S))
            self._next = 0
            self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
        found: list[tuple[bytes, bytes]] = []
        at, deadline_s = self._next, time.monotonic() + CALL_TIMEOUT_S
        while at < end:
            if time.monotonic() > deadline_s:
                self._consumer.assign([TopicPartition(self._topic, 0, self._next or OFFSET_BEGINNING)])
                raise RetriableError(
                    f"topic {self._topic} of the cluster {self._cluster.name} is not read to its end",
                    waits_for=kafka(self._cluster.bootstrap_servers),
                )
            # What is there first: to ask for many waits until there are so many.
            for message in self._consumer.consume(_BATCH, 0) or self._consumer.consume(1, _POLL_S):
                at = self._taken(message, found, at)
        self._next = at
        return found

    def close(self) -> None:
        """Let go of the cluster."""
        self._consumer.close()

    def _taken(self, message: Message, found: list[tuple[bytes, bytes]], at: int) -> int:
        """The offset to be read next."""
        error, offset = message.error(), message.offset()
        if error is not None:
            is_end = error.code() == KafkaError._PARTITION_EOF
            return at if offset is None or not is_end else max(at, offset)
        key, value = message.key(), message.value()
        if isinstance(key, bytes) and value is not None:
            found.append((key, value))
        assert offset is not None
        return offset + 1
