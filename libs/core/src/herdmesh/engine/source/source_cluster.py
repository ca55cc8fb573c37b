"""Source cluster: another Kafka cluster that a source connector reads, and a reader of some of its partitions.

Owns the clients of that cluster. Knows neither which data is copied nor its target; the cluster that records go to is
the run's (`engine.librdkafka.clients`).

Invariant: a reader begins only at the given offsets: a missing offset raises `PlaceLost`, the reader never jumps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource  # the package re-exports these, but not for type checkers
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import RetriableError, UnreachableError
from herdmesh.connect.spi import PartitionId
from herdmesh.engine.fencing import GROUP_OFFSETS_TOPIC
from herdmesh.engine.librdkafka import (
    CALL_TIMEOUT_S,
    RECONNECT,
    BatchConsumer,
    RecordColumns,
    close_in_background,
    offset_of,
    opened,
)
from herdmesh.engine.runtime import FETCH_PARTITION_BYTES, ClientConfig, TaskFailed, kafka, note_error, progress_ticks
from herdmesh.engine.sink import answered_ids
from herdmesh.kafka.broker_reachability import Contact, accepts
from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.listed_offsets import list_offsets
from herdmesh.kafka.transient import UNANSWERED, is_transient

BEGINNING: Final = OFFSET_BEGINNING
_TOPIC_CONFIG_SOURCE: Final = 1
"""`DYNAMIC_TOPIC_CONFIG`: a setting of the topic itself."""
_GONE: Final = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION))
_REFUSED: Final = frozenset((KafkaError._INVALID_ARG, KafkaError.TOPIC_AUTHORIZATION_FAILED))
_FIRST_ANSWER_S: Final = 1.0
"""How long a read waits for a partition that has not sent anything yet."""
_GONE_AFTER_S: Final = 10.0
"""A new topic is not known to all brokers at once; a topic that is unknown after this time counts as deleted."""
_log = logging.getLogger(__name__)


class PlaceLost(Exception):
    """The next offset of a partition does not exist: deleted, or past the end."""

    def __init__(self, partition: PartitionId, offset: int) -> None:
        super().__init__(partition, offset)
        self.partition = partition
        self.offset = offset


@dataclass(frozen=True, slots=True)
class SourceCluster:
    """Address and client settings of the cluster, in librdkafka's terms."""

    name: str
    """The user's name of the cluster; for messages."""
    bootstrap_servers: str
    consumer: ClientConfig
    admin: ClientConfig
    client_id: str
    read_committed: bool = True
    """False = records of open and aborted transactions are read too."""

    def partition_counts(self) -> dict[str, int]:
        """Number of partitions of each existing topic.

        Raises:
            RetriableError: the cluster does not answer, or not for all of its topics: an omitted topic would count as
            deleted.
        """
        counts: dict[str, int] = {}
        for name, one in self._topics().items():
            if one.error is None:
                counts[name] = len(one.partitions)
            elif one.error.code() not in _GONE and one.error.code() not in _REFUSED:
                raise RetriableError(f"{self._called()}: topic {name}: {one.error.str()}", waits_for=self._waits_for())
        return counts

    def topic_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """The settings of each topic itself. Raises RetriableError when the cluster does not answer."""
        client = self._admin()
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not asked:
            return {}
        futures = client.describe_configs(asked, request_timeout=CALL_TIMEOUT_S)
        found: dict[str, dict[str, str]] = {}
        for resource, future in futures.items():
            entries = self._asked(future.result)
            found[resource.name] = {
                name: entry.value for name, entry in entries.items() if entry.source == _TOPIC_CONFIG_SOURCE
            }
        return found

    def topic_ids(self, topics: Iterable[str], timeout_s: float | None = None) -> dict[str, str]:
        """Kafka's ids of these topics (KIP-516); omits deleted topics and those whose id the broker does not return.
        Raises RetriableError when the cluster does not answer.
        """
        return self._asked(lambda: answered_ids(self._admin(), topics, timeout_s or CALL_TIMEOUT_S))

    def ends(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """The end of each partition for the reader; omits deleted ones. Raises RetriableError when the cluster does not
        answer.
        """
        return self._listed(partitions, OffsetSpec.latest(), offset_of)

    def offsets_at(self, partitions: Iterable[PartitionId], time_ms: int) -> dict[PartitionId, int]:
        """The first record of each partition that is not older than `time_ms`; omits partitions without one, and
        deleted ones. Raises RetriableError when the cluster does not answer.
        """
        found = self._listed(partitions, OffsetSpec.for_timestamp(time_ms), lambda told: told.offset)
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def _listed(
        self, partitions: Iterable[PartitionId], spec: Any, read: Callable[[Any], int]
    ) -> dict[PartitionId, int]:
        client = self._admin()
        level = IsolationLevel.READ_COMMITTED if self.read_committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(*one): spec for one in partitions}
        if not asked:
            return {}
        futures = list_offsets(client, asked, isolation_level=level, timeout_s=CALL_TIMEOUT_S)
        found: dict[PartitionId, int] = {}
        failure: KafkaException | None = None
        for one, future in futures.items():
            try:
                found[(one.topic, one.partition)] = read(future.result())
            except KafkaException as error:
                if error.args[0].code() not in _GONE:
                    failure = error
        if failure is not None:
            # After a broker's restart the client sends the leader epoch it remembers, and is rejected until metadata
            # has the new one.
            self._topics()
            raise self._failed(failure) from failure
        return found

    def reader(self, places: Mapping[PartitionId, int], records_max: int) -> SourceClusterReader:
        """A reader of these partitions from these offsets (`BEGINNING` is one). The caller closes it. Raises
        RetriableError when the cluster does not answer.
        """
        return SourceClusterReader(self, dict(places), records_max)

    def consumer_at(self, places: Mapping[PartitionId, int]) -> tuple[Consumer, BatchConsumer, Contact]:
        """The clients of a reader, with partitions assigned. Raises RetriableError when the cluster does not answer."""
        config = self.client_config("consumer")
        topic = next((topic for topic, _ in places), GROUP_OFFSETS_TOPIC)
        contact = Contact(str(config["bootstrap.servers"]), topic, note_error)
        consumer = self._asked(lambda: opened(Consumer, "consumer", config, contact.note))
        # If partitions are assigned before it is connected, the client looks for their leaders only after half a
        # second.
        try:
            self._asked(lambda: consumer.list_topics(timeout=CALL_TIMEOUT_S))
        except BaseException:
            consumer.close()
            raise
        intake = BatchConsumer(consumer)
        intake.follow(places)
        consumer.assign([TopicPartition(*one, offset) for one, offset in places.items()])
        return consumer, intake, contact

    def client_config(self, kind: str) -> ClientConfig:
        """The settings of a `consumer` or `admin` client of the cluster."""
        if kind == "admin":
            return {
                "bootstrap.servers": self.bootstrap_servers,
                "client.id": self.client_id,
                **NO_AUTO_CREATION,
                **RECONNECT,
                **self.admin,
            }
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": self.client_id,
            "queued.min.messages": 200_000,
            "queued.max.messages.kbytes": 65_536,
            "fetch.message.max.bytes": FETCH_PARTITION_BYTES,
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 5,
            **RECONNECT,
            **self.consumer,
            "group.id": self.client_id,  # required by the client; it never joins the group
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed" if self.read_committed else "read_uncommitted",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }

    def _shared(self) -> _SharedAdmin:
        config = self.client_config("admin")
        return self._asked(lambda: _shared_admin(tuple(config.items())))

    def _admin(self) -> Any:
        client: Any = self._shared().client
        client.poll(0)  # to run its log callbacks
        return client

    def _topics(self) -> dict[str, Any]:
        shared = self._shared()
        client: Any = shared.client
        client.poll(0)
        try:
            return self._asked(lambda: client.list_topics(timeout=CALL_TIMEOUT_S)).topics
        except RetriableError:
            shared.renew(client)
            raise

    def _asked(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except KafkaException as error:
            raise self._failed(error) from error

    def _failed(self, error: KafkaException) -> TaskFailed | RetriableError:
        """The error for the task: BAD_CONFIG if waiting cannot fix it."""
        cause: KafkaError = error.args[0]
        message = f"{self._called()}: {cause.str()}"
        if cause.code() in _REFUSED:
            return TaskFailed(message, ErrorClass.BAD_CONFIG)
        kind = UnreachableError if cause.code() in UNANSWERED else RetriableError
        return kind(message, waits_for=self._waits_for())

    def _waits_for(self) -> str:
        return kafka(self.bootstrap_servers)

    def _called(self) -> str:
        return f"the source cluster {self.name} ({self.bootstrap_servers})"


class _SharedAdmin:
    """One admin client for all callers in this process with the same settings: a connection costs more than a
    request."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._lock = Lock()
        #: kept alive for callers that still wait for its replies.
        self._former: AdminClient | None = None
        self.client = opened(AdminClient, "admin", config)

    def renew(self, silent: AdminClient) -> None:
        """Replace the client if a broker accepts connections although `silent` got no reply: it may have forgotten the
        brokers (`herdmesh.kafka.broker_reachability`).
        """
        if not accepts(str(self._config["bootstrap.servers"])):
            return
        with self._lock:
            if self.client is silent:
                self._former, self.client = silent, opened(AdminClient, "admin", self._config)


@lru_cache(maxsize=16)
def _shared_admin(config: tuple[tuple[str, Any], ...]) -> _SharedAdmin:
    return _SharedAdmin(dict(config))


class SourceClusterReader:
    """Reads records of several partitions, in order within each."""

    def __init__(self, cluster: SourceCluster, places: dict[PartitionId, int], records_max: int) -> None:
        self._cluster = cluster
        self._consumer, self._intake, self._contact = cluster.consumer_at(places)
        self._places = places
        self._records_max = records_max
        self._begun_s = time.monotonic()
        #: partitions of which it is not known yet whether they have records.
        self._unheard = set(places)

    def read(self, records_max: int, wait_s: float) -> list[RecordColumns]:
        """The available records, by partition. Waits `wait_s` for a first record, and longer for the first reply of the
        cluster. Empty when there are none.

        Raises:
            PlaceLost: a partition does not have the offset to be read next.
            RetriableError: the cluster has not answered yet.
            KafkaException: an error from which the client does not recover by itself.
        """
        if self._contact.is_lost(self._consumer):
            self._renew()
        wanted = min(records_max, self._records_max)
        deadline_s = time.monotonic() + _FIRST_ANSWER_S
        while True:
            found, events = self._intake.take(wanted, wait_s)
            for event in events:
                self._told(event)
            if found or not self._unheard:
                break
            if time.monotonic() >= deadline_s:
                raise RetriableError(
                    f"the source cluster {self._cluster.name} ({self._cluster.bootstrap_servers}) does not answer for "
                    f"{len(self._unheard)} of {len(self._places)} partitions",
                    waits_for=kafka(self._cluster.bootstrap_servers),
                )
        progress_ticks.moved()
        for one in found:
            self._places[one.partition] = one.last_offset + 1
            self._unheard.discard(one.partition)
        return found

    def restart(self, places: Mapping[PartitionId, int]) -> None:
        """Continue at these offsets in these partitions, which the reader already reads."""
        self._places |= places
        self._unheard = set(self._places)
        self._intake.follow(self._places)
        self._consumer.assign([TopicPartition(*one, offset) for one, offset in self._places.items()])

    def _renew(self) -> None:
        """Continue at the current positions with another client."""
        former, intake = self._consumer, self._intake
        self._consumer, self._intake, self._contact = self._cluster.consumer_at(self._places)
        intake.close()
        close_in_background(former)
        self._unheard, self._begun_s = set(self._places), time.monotonic()
        _log.warning(
            "%s: reading continues with a new client, because the previous one lost its brokers", self._cluster.name
        )

    def close(self) -> None:
        """Close the clients."""
        self._intake.close()
        self._consumer.close()

    def _told(self, event: Message) -> None:
        error = event.error()
        assert error is not None
        partition = event.topic() or "", event.partition() or 0
        if error.code() == KafkaError._PARTITION_EOF:
            self._unheard.discard(partition)
            return
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise PlaceLost(partition, self._places[partition])
        if error.code() in _GONE:
            if time.monotonic() - self._begun_s > _GONE_AFTER_S:
                self._unheard.discard(partition)
            _log.warning("topic %s of the source cluster cannot be read now: %s", event.topic(), error.str())
        elif not is_transient(error):
            raise KafkaException(error)
