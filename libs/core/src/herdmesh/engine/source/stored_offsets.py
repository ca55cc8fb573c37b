"""Stored offsets of one source connector, from all offsets topics that have some.

Owns the list of topics and their precedence: the worker's and, over it, the connector's own
(docs/reference/connect/offsets-topic.md, section 3). `source_offsets` reads a topic.

Invariant: a caller with the fence gets all offsets that the connector's earlier owners committed; a caller without it
gets the decided ones, and waits for no transaction.
"""

from __future__ import annotations

import logging
from contextlib import closing
from functools import partial
from typing import Final

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from herdmesh.connect.error_class import ErrorClass
from herdmesh.engine.fencing import Fence, OffsetsFinisher
from herdmesh.engine.librdkafka import clients, ensure_topic
from herdmesh.engine.runtime import ClientConfig, RunSpec, SourceSettings, TaskFailed, offsets_topic_settings
from herdmesh.engine.source import source_offsets
from herdmesh.engine.source.source_offsets import SourceOffsets
from herdmesh.engine.source.unstable_offsets import OpenTransactionScan

_log = logging.getLogger(__name__)
_NO_WAIT: ClientConfig = {"fetch.wait.max.ms": 3}
"""The broker sends the end-of-partition event after waiting this long for more records: short, so that a task's start
does not wait; the client is closed when everything is read. Not 0, because records of an open transaction may be
awaited for up to a minute.
"""


def topics(settings: SourceSettings) -> list[str]:
    """The topics with the offsets; the last one takes precedence."""
    return [topic for topic in (settings.offsets_copy, settings.offsets_topic) if topic is not None]


def refuse_records(spec: RunSpec, settings: SourceSettings, topic: str) -> None:
    """Refuse records of the connector for its own offsets topic. Raises TaskFailed: BAD_CONFIG, with Connect's text."""
    if topic == settings.offsets_topic and spec.source_offsets is None:
        raise TaskFailed(
            "Source tasks may not produce to their own offsets topics when exactly-once support is enabled: "
            f"{topic} has the offsets of {spec.connector}; send its records to another topic",
            ErrorClass.BAD_CONFIG,
        )


def read(spec: RunSpec, settings: SourceSettings, admin: AdminClient, fence: Fence | None) -> SourceOffsets:
    """The committed offsets, for a worker. `fence`: taken by a caller that continues from them; a missing topic is then
    created. None = the caller only reads, while the connector may run; a missing topic has no offsets.

    Raises:
        ConfigError: a topic that is not only compacted, or cannot be created.
        TaskFailed: RETRIABLE when the end is not reached in time.
    """
    with closing(StoredOffsetsReader(spec, settings, admin, creates=fence is not None, for_worker=True)) as reader:
        reader.prepare()
        return reader.read(fence)


_DELETED: Final = (
    "offsets topic %s was deleted, and %s had committed offsets to it: it is created again without them, so the "
    "source starts from the beginning, as with Connect, and may send records a second time; `herd offsets set` sets "
    "the position to continue from"
)


class StoredOffsetsReader:
    """Reads the offsets once. During a take-over another thread runs `prepare`: its clients need a connection, and none
    of its queries depends on the owner.
    """

    def __init__(
        self, spec: RunSpec, settings: SourceSettings, admin: AdminClient, *, creates: bool, for_worker: bool = False
    ) -> None:
        """`creates`: create a missing topic. `for_worker`: as in `clients.consumer`."""
        self._spec = spec
        self._settings = settings
        self._admin = admin
        self._creates = creates
        self._for_worker = for_worker
        self._consumers: dict[str, Consumer] = {}
        """By topic, in the order in which they are read."""

    def prepare(self) -> None:
        """Create or find the topics, and connect the clients. Raises as `read`."""
        self._consumers = {
            topic: self._consumer() for topic in topics(self._settings)
        }  # they connect in the background
        for topic, consumer in list(self._consumers.items()):
            if self._creates:
                made = ensure_topic(self._admin, topic, *offsets_topic_settings(self._spec))
                if made and (scope := self._spec.commit_scope) is not None and topic in scope.topics:
                    _log.warning(_DELETED, topic, self._spec.connector)
            elif topic not in clients.retried(lambda: self._admin.list_topics(timeout=clients.CALL_TIMEOUT_S)).topics:
                clients.close_in_background(self._consumers.pop(topic))
                continue
            if topic != self._spec.offset_storage_topic:
                source_offsets.refuse_forgetful(self._admin, topic)
            source_offsets.partitions(consumer, topic)  # the consumer is connected when this returns

    def read(self, fence: Fence | None) -> SourceOffsets:
        """Like the function `read`. Call it after `prepare`."""
        spec, offsets = self._spec, SourceOffsets(self._spec.connector)
        unstable = partial(self._consumer, isolation_level="read_uncommitted")
        for topic, consumer in self._consumers.items():
            beyond = OpenTransactionScan(topic, spec.connector, self._admin, unstable)
            if fence is None:
                source_offsets.read_decided(consumer, topic, beyond, offsets)
            else:
                hung = OffsetsFinisher(topic, spec.connector, spec.transactional_id, fence, unstable)
                source_offsets.read(consumer, topic, spec.connector, beyond, hung, offsets)
        return offsets

    def close(self) -> None:
        """Close the clients in the background. Not while `prepare` runs."""
        for consumer in self._consumers.values():
            clients.close_in_background(consumer)

    def _consumer(self, isolation_level: str = "read_committed") -> Consumer:
        access = {**_NO_WAIT, **self._settings.offsets_consumer}
        return clients.consumer(
            self._spec,
            f"connect-{self._spec.connector}",
            access,
            isolation_level=isolation_level,
            for_worker=self._for_worker,
        )
