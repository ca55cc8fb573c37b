"""The reader of single records of the audit topic, for the history of a config.

Owns one consumer, created on first use, in a thread of its own; the store's reader is not disturbed. Invariant: only
committed records are returned, each exactly as it is in the topic.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.logins import ready
from herdmesh.kafka.transient import is_transient
from herdmesh.topicstore.contract import StoredRecord
from herdmesh.topicstore.kafka.client_calls import CallThread, client_logger, on_client_error
from herdmesh.topicstore.kafka.reader import stored_record
from herdmesh.topicstore.log import LogUnavailable
from herdmesh.topicstore.settings import TopicSettings

_logger = logging.getLogger(__name__)
_TIMEOUT_S = 5.0
#: If the next wanted record is within this many offsets, reading on is faster than seeking.
_NEAR = 500


class AuditReader:
    """One call at a time; further callers wait for their turn. All methods run on the event loop."""

    def __init__(self, settings: TopicSettings) -> None:
        self._settings = settings
        self._thread = CallThread(f"{settings.client_id_base}-audit")
        self._turn = asyncio.Lock()
        self._consumer: Consumer | None = None

    async def read(self, offsets: Sequence[int]) -> list[StoredRecord]:
        """See `TopicStore.read_audit`. Raises `LogUnavailable`."""
        wanted = sorted(set(offsets))
        async with self._turn:
            return await self._thread.call(lambda: self._read(wanted))

    def close(self) -> None:
        """Discard the consumer without waiting for its close."""
        self._thread.stop()
        self._consumer = None

    def _read(self, wanted: Sequence[int]) -> list[StoredRecord]:
        assert self._settings.audit_topic is not None
        deadline_s = time.monotonic() + _TIMEOUT_S
        shard = TopicPartition(self._settings.audit_topic, 0)
        try:
            if self._consumer is None:
                self._consumer = self._open()
            first, end = self._consumer.get_watermark_offsets(shard, timeout=_TIMEOUT_S)
            scan = _Scan(self._consumer, shard, end, deadline_s)
            return [record for offset in wanted if first <= offset < end and (record := scan.at(offset)) is not None]
        except KafkaException as failure:
            raise LogUnavailable(str(failure)) from failure

    def _open(self) -> Consumer:
        configs: dict[str, Any] = {
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 500,
            **self._settings.client_configs,
            "bootstrap.servers": self._settings.bootstrap_servers,
            "client.id": f"{self._settings.client_id_base}-audit",
            "group.id": f"{self._settings.client_id_base}-audit-unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            # Retention may move the first offset between its query and the fetch.
            "auto.offset.reset": "earliest",
            **NO_AUTO_CREATION,
            "error_cb": on_client_error,
        }
        return Consumer(ready(configs), logger=client_logger)


class _Scan:
    """A scan through one partition by rising offsets. Raises `LogUnavailable` and `KafkaException`."""

    def __init__(self, consumer: Consumer, shard: TopicPartition, end: int, deadline_s: float) -> None:
        self._consumer = consumer
        self._shard = shard
        self._end = end
        self._deadline_s = deadline_s
        self._next: int | None = None  # no later message has a lower offset; None: no position yet
        self._last: StoredRecord | None = None

    def at(self, offset: int) -> StoredRecord | None:
        """Return the record at `offset`, or None when there is none. Call it with rising offsets."""
        if self._next is None or offset - self._next > _NEAR:
            self._consumer.assign([TopicPartition(self._shard.topic, self._shard.partition, offset)])
            self._next = offset
        while self._next <= offset:
            self._advance()
        return self._last if self._last is not None and self._last.offset == offset else None

    def _advance(self) -> None:
        message = self._consumer.poll(max(0.0, self._deadline_s - time.monotonic()))
        if message is None:
            raise LogUnavailable("the audit topic could not be read in time")
        error = message.error()
        if error is None:
            self._last = stored_record(message)
            self._next = self._last.offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]  # librdkafka's local code
            self._next = self._end
        # The client must be given a group name and never uses the group.
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED and not is_transient(error):
            raise KafkaException(error)
