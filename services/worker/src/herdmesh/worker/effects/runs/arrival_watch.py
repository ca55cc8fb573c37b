"""Watch for records behind the end of a partition: the broker holds a fetch until one arrives.

Owns a consumer without a group, and the thread that polls it. An arrival is only a hint to check now; `IdleWatch`
checks and decides. Invariants: records are discarded, and at most one batch per partition is fetched for each end that
is watched. A missing hint costs time and nothing else, because `IdleWatch` checks without one, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog
from confluent_kafka import Consumer, TopicPartition

from herdmesh.connect.spi import PartitionId
from herdmesh.engine.fencing import GROUP_OFFSETS_TOPIC
from herdmesh.engine.librdkafka import opened
from herdmesh.engine.runtime import note_error
from herdmesh.kafka.broker_reachability import Contact

_POLL_S: Final = 0.25
"""Longest time until the thread sees a change of the watched partitions."""
_LOG_POLL_S: Final = 30.0
"""Interval at which an idle client's callbacks are polled: until then its log lines queue up."""
_RETRY_PAUSE_S: Final = 1.0
_CLOSE_TIMEOUT_S: Final = 2.0
PARTITIONS_MAX: Final = 1_000
"""Limit of the partitions watched: every fetch names them all."""
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Arrivals:
    """Watches from the first `listen` to `close`. Both are called from one thread, and neither blocks."""

    def __init__(self, bootstrap_servers: str, access: Mapping[str, str], heard: Callable[[], None]) -> None:
        """`heard` is called from the watching thread, once for each end that a record came behind."""
        self._bootstrap_servers = bootstrap_servers
        self._config = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": "herdmesh-arrivals",
            "group.id": "herdmesh-arrivals",  # the client requires one; it is never joined
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            # A new partition waits for the pending fetch: at most as long as the longest interval of the idle watch.
            "fetch.wait.max.ms": 500,
            # Kafka answers with one batch whatever its size; more is not needed.
            "fetch.message.max.bytes": 1,
            "queued.min.messages": 1,
            "queued.max.messages.kbytes": 1,
            "reconnect.backoff.max.ms": 500,
            **access,
        }
        self._on_arrival = heard
        self._wanted: Mapping[PartitionId, int] = {}
        self._changed = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def listen(self, ends: Mapping[PartitionId, int]) -> None:
        """Watch these ends and no others. A partition with an arrival is not reported again until a different end of it
        is given.
        """
        self._wanted = ends
        self._changed.set()
        if ends and self._thread is None:
            thread = threading.Thread(target=self._body, name="arrivals", daemon=True)
            thread.start()  # may fail, and is then tried again at the next call
            self._thread = thread

    def close(self) -> None:
        """Stop watching. The thread ends within a poll."""
        self._over.set()
        self._changed.set()

    def join(self) -> None:
        """Wait for the thread, at most `_CLOSE_TIMEOUT_S`. Blocks."""
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)

    def _body(self) -> None:
        """Watch, with a new client after each failure. Meanwhile idle tasks are woken only by periodic checks."""
        last = ""
        while not self._over.is_set():
            try:
                self._listen_once()
            except Exception as error:  # noqa: BLE001 - nobody would notice the end of this thread, whatever the error
                if str(error) != last:
                    _log.warning("arrival_consumer_failed", error=str(error), retry_s=_RETRY_PAUSE_S)
                last = str(error)
                self._over.wait(_RETRY_PAUSE_S)

    def _listen_once(self) -> None:
        contact = Contact(self._bootstrap_servers, GROUP_OFFSETS_TOPIC, note_error)
        consumer: Any = opened(Consumer, "consumer", self._config, contact.note)
        try:
            self._listen(consumer, contact)
        finally:
            consumer.close()

    def _listen(self, consumer: Any, contact: Contact) -> None:
        """Watch until `close`, or until the consumer cannot recover."""
        assigned: dict[PartitionId, int] = {}
        told: dict[PartitionId, int] = {}
        while not self._over.is_set():
            if contact.is_lost(consumer):
                _log.warning("arrival_consumer_replaced", reason="the old client lost its brokers")
                return
            self._changed.clear()
            wanted = self._wanted
            told = {partition: end for partition, end in told.items() if wanted.get(partition) == end}
            new = {p: end for p, end in wanted.items() if assigned.get(p) != end and p not in told}
            old = [p for p in assigned if p not in wanted or p in new]
            if old:
                consumer.incremental_unassign([TopicPartition(*partition) for partition in old])
            if new:
                consumer.incremental_assign([TopicPartition(*partition, end) for partition, end in new.items()])
            assigned = {p: end for p, end in {**assigned, **new}.items() if p in new or p not in old}
            if not assigned:
                self._changed.wait(_LOG_POLL_S)
                consumer.poll(0)
                continue
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            partition = (message.topic() or "", message.partition())
            if partition in assigned:
                told[partition] = assigned.pop(partition)
                consumer.incremental_unassign([TopicPartition(*partition)])
                if message.error() is None:
                    self._on_arrival()
