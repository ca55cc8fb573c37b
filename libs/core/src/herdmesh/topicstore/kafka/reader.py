"""The reader of a store: one consumer on every shard, in a thread of its own.

Owns the thread and its consumers, one after the other. It delivers batches to the event loop, at most a few ahead of
it, so a slow loop slows the reader and never fills memory (backpressure). It uses no consumer group: the store keeps
the positions. Invariant: a reported position is past all delivered records and past all transaction markers read so
far. So a barrier at the end of the log is reached even if the last offset there is a marker, not a record.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from herdmesh.kafka.broker_reachability import Contact
from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.logins import ready
from herdmesh.topicstore.contract import StoredRecord
from herdmesh.topicstore.errors import NotAuthorized, StoreClosed
from herdmesh.topicstore.kafka.access import REFUSALS, Need, refused
from herdmesh.topicstore.kafka.client_calls import client_logger, close, on_client_error, post
from herdmesh.topicstore.kafka.topics import Shard, kafka_error
from herdmesh.topicstore.log import LogEvents, Positions
from herdmesh.topicstore.settings import TopicSettings

_logger = logging.getLogger(__name__)

_BATCH_RECORDS = 500
#: Batches delivered to the loop and not applied yet.
_BATCHES_AHEAD = 4
#: Also the time until a transaction marker without later records is noticed; records are noticed at once.
_POLL_S = 0.05

_ASK_S = 5.0
#: Error code: the position is outside the log.
_OUTSIDE = KafkaError._AUTO_OFFSET_RESET  # pyright: ignore[reportPrivateUsage]  # librdkafka's local codes are named so

#: Error codes after which the consumer cannot continue: position outside the log (truncated, recreated), or no
#: permission to read.
_FAULTS = frozenset(
    {
        _OUTSIDE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._FATAL,  # pyright: ignore[reportPrivateUsage]
    }
)


class KafkaReader:
    """Reads `shards` from `beginnings` and calls `events` on the loop that `start` ran on."""

    def __init__(self, settings: TopicSettings, shards: Sequence[Shard], beginnings: Positions) -> None:
        self._settings = settings
        self._shards = list(shards)
        self._index = {shard: index for index, shard in enumerate(self._shards)}
        self._positions = list(beginnings)
        self._ahead = threading.Semaphore(_BATCHES_AHEAD)
        self._stop = threading.Event()
        self._stopped = asyncio.Event()

    def start(self, events: LogEvents) -> None:
        loop = asyncio.get_running_loop()

        def tell(callback: Callable[[], object]) -> None:
            post(loop, callback)

        threading.Thread(
            target=self._run, args=(events, tell), name=f"{self._settings.client_id_base}-reader", daemon=True
        ).start()

    async def stop(self) -> None:
        """End the thread. The caller bounds the time."""
        self._stop.set()
        await self._stopped.wait()

    def _run(self, events: LogEvents, tell: Callable[[Callable[[], object]], None]) -> None:
        try:
            while not self._stop.is_set():
                contact = Contact(self._settings.bootstrap_servers, self._settings.topic, on_client_error)
                consumer = self._open(contact)
                is_lost = False
                try:
                    is_lost = self._read(consumer, contact, events, tell)
                finally:
                    close(consumer, is_lost=is_lost)
        except Exception as error:  # the supervisor of this thread: no error may end it without a log line
            _logger.exception("the reader failed")
            fault = self._fault(error)
            tell(lambda: events.on_fault(fault))
        finally:
            tell(self._stopped.set)

    def _fault(self, error: Exception) -> StoreClosed | NotAuthorized:
        cause = kafka_error(error)
        if cause is not None and cause.code() in REFUSALS:
            return refused(Need.READ_TOPIC, self._settings.topic, self._settings)
        return StoreClosed(f"the reader failed: {error}")

    def _open(self, contact: Contact) -> Consumer:
        configs: dict[str, Any] = {
            "fetch.wait.max.ms": 100,
            # Limit of the client's prefetch. Its default of 64 MiB would be most of a store's memory, and no replay
            # needs it.
            "queued.max.messages.kbytes": 4_096,
            "fetch.queue.backoff.ms": 2,
            "reconnect.backoff.max.ms": 500,
            **self._settings.client_configs,
            "bootstrap.servers": self._settings.bootstrap_servers,
            "client.id": f"{self._settings.client_id_base}-reader",
            "group.id": f"{self._settings.client_id_base}-reader-unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            **NO_AUTO_CREATION,
            "error_cb": contact.note,
        }
        consumer = Consumer(ready(configs), logger=client_logger)
        self._assign(consumer)
        return consumer

    def _assign(self, consumer: Consumer) -> None:
        """Continue reading at our positions."""
        consumer.assign(
            [
                TopicPartition(topic, partition, offset)
                for (topic, partition), offset in zip(self._shards, self._positions, strict=True)
            ]
        )

    def _read(
        self,
        consumer: Consumer,
        contact: Contact,
        events: LogEvents,
        tell: Callable[[Callable[[], object]], None],
    ) -> bool:
        """Read until `stop` is called (return False) or the client has forgotten its brokers (return True)."""
        told: Positions | None = None
        while not self._stop.is_set():
            if contact.is_lost(consumer):
                _logger.warning("the reader continues with a new client, because the previous one lost its brokers")
                return True
            records = self._take(consumer)
            positions = tuple(self._positions)
            if not records and positions == told:
                continue
            while not self._ahead.acquire(timeout=_POLL_S):
                if self._stop.is_set():
                    return False
            told = positions

            def deliver(records: list[StoredRecord] = records, positions: Positions = positions) -> None:
                try:
                    events.on_records(records, positions)
                finally:
                    self._ahead.release()

            tell(deliver)
        return False

    def _take(self, consumer: Consumer) -> list[StoredRecord]:
        """Wait for one message, then take all that are buffered: `consume(n, timeout)` alone would wait its whole
        timeout.
        """
        first = consumer.poll(_POLL_S)
        messages = [] if first is None else [first, *consumer.consume(_BATCH_RECORDS, 0)]
        records: list[StoredRecord] = []
        skipped = False
        for message in messages:
            error = message.error()
            if error is None:
                records.append(stored_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]
                self._reach((message.topic() or "", message.partition() or 0), message.offset() or 0)
            elif error.code() == _OUTSIDE and self._skip_expired(consumer, message):
                skipped = True
            elif error.code() in _FAULTS or error.fatal():
                raise KafkaException(error)
            elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                pass  # the client must be given a group name, looks for its coordinator and never uses the group
            else:
                _logger.warning("topic reader: transient error, continuing: %s", error)
        # The client's own position includes the markers it skipped, for which there is no message.
        for position in consumer.position([TopicPartition(*shard) for shard in self._shards]):
            self._reach((position.topic, position.partition), position.offset)
        if skipped:
            self._assign(consumer)
        return records

    def _skip_expired(self, consumer: Consumer, message: Message) -> bool:
        """Move the position to the first offset of the audit topic when its retention has passed the position. True
        then. (The own topic is compacted: its first offset does not move.)
        """
        shard = (message.topic() or "", message.partition() or 0)
        if shard[0] != self._settings.audit_topic:
            return False
        first, _ = consumer.get_watermark_offsets(TopicPartition(*shard), timeout=_ASK_S)
        if first <= self._positions[self._index[shard]]:
            return False
        _logger.warning("records of %r expired before they were read, up to offset %d", shard[0], first)
        self._reach(shard, first)
        return True

    def _reach(self, shard: Shard, offset: int) -> None:
        index = self._index[shard]
        self._positions[index] = max(self._positions[index], offset)  # logical offsets are negative


def stored_record(message: Message) -> StoredRecord:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return StoredRecord(topic, partition, offset, message.key(), message.value(), message.timestamp()[1])
