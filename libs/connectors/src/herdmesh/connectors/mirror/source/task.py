"""Task of `MirrorSourceConnector`: reads partitions of the
source cluster and passes their records on unchanged.

Owns the position in each partition; `offset_syncs` writes the records' offsets at the target. A batch belongs to one
partition and goes to the partition of the same number, with the keys, values, headers and timestamps that were read.

Offsets have MirrorMaker's own form (`MirrorUtils.wrapPartition`, `wrapOffset`; `start_positions`). So a Java
MirrorMaker can take a connector over, and return it.

Invariant: the batches of a partition are sent in its order, each with the offset of its own last record.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from typing import Any

from herdmesh.connect.clients import Start
from herdmesh.connect.java import matches
from herdmesh.connect.model import OPTIONAL_BYTES
from herdmesh.connectors.mirror import topic_naming
from herdmesh.connectors.mirror.keys import ASSIGNED
from herdmesh.connectors.mirror.source.offset_syncs import OffsetSyncs
from herdmesh.connectors.mirror.source.settings import MirrorSettings, settings_of
from herdmesh.connectors.mirror.source.start_positions import Places
from herdmesh.engine.librdkafka import RecordColumns
from herdmesh.engine.source import BEGINNING, PlaceLost, SourceClusterReader
from herdmesh.sdk import (
    Config,
    ConfigError,
    Header,
    OffsetsLost,
    PartitionId,
    SourceBatch,
    SourceTask,
    SourceTaskContext,
)

WAIT_S = 0.02
"""Time for which a poll waits for a first record; without one the record loop sleeps longer than that."""
_log = logging.getLogger(__name__)


class MirrorSourceTask(SourceTask):
    """Copies some partitions. Contacts the source first at the first poll, which is retried."""

    _reader: SourceClusterReader | None = None
    _syncs: OffsetSyncs | None = None

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self._settings = settings_of(config)
        self._context = context
        self._ready: deque[SourceBatch] = deque()
        #: a batch was handed over and is not committed; and it must not be committed.
        self._is_open = self._is_disowned = False
        owned = _assigned(config)
        self._remote = {topic: self._settings.naming.remote(topic) for topic, _ in owned}
        syncs = self._settings.syncs
        self._syncs = None if syncs is None else OffsetSyncs(syncs, self._settings.naming.remote)
        self._source_partitions = {one: source_partition(self._settings.naming.source, one) for one in owned}
        self._places = Places(
            self._settings.source,
            self._settings.reset,
            owned,
            lambda one: context.committed_offset(self._source_partitions[one]),
        )

    def poll(self) -> SourceBatch | None:
        if self._reader is None:
            self._reader = self._opened()
        if not self._ready:
            self._look(self._reader)
        if not self._ready or self._is_disowned:
            return None
        batch = self._ready.popleft()
        self._is_open = True
        if self._syncs is not None:
            self._syncs.took(*_copied(batch))
        return batch

    def may_commit(self) -> bool:
        """False for records that may belong to a recreated topic,
        because their offsets would be of its predecessor.
        """
        self._is_disowned |= not self._places.vouched()
        return not self._is_disowned

    def commit(self) -> None:
        """Note that all polled records are committed at the target."""
        self._is_open = False
        if self._syncs is not None:
            self._syncs.committed()

    def wake_after_ms(self) -> int:
        """0: the connector's sign shows the worker that there are new records."""
        return 0

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._syncs is not None:
            self._syncs.close()

    def _opened(self) -> SourceClusterReader:
        """Open the reader. A start at the end, or at a time, is resolved once and stored
        as an offset, so that records that arrive while the task is idle are not
        skipped. A deleted partition gets none, and a later run resolves it again.
        """
        places, stored = self._places.begin()
        # Create the reader first, because it fetches while the topics are created.
        reader = self._settings.source.reader(places, self._settings.batch_records)
        try:
            made = _make_topics(self._settings, self._remote, self._context)
            if self._syncs is not None:
                self._syncs.begin((one for one in self._source_partitions if one[0] in made), self._context)
        except BaseException:
            reader.close()
            raise
        self._ready.extend(self._moved_to(one, place) for one, place in stored.items())
        return reader

    def _begin_anew(self, reader: SourceClusterReader, topics: set[str], unsure: set[str]) -> None:
        """Restart recreated topics by `auto.offset.reset`; the next
        run does it if records of unknown origin were handed over.
        """
        self._is_disowned |= self._is_open and bool(unsure)
        if not topics or self._is_disowned:
            return
        places = self._places.anew(self._places.partitions_of(topics))
        reader.restart(places)
        if self._settings.reset.depends_on_time:
            self._ready.extend(self._moved_to(one, place) for one, place in places.items())

    def _moved_to(self, partition: PartitionId, place: int) -> SourceBatch:
        """Return a batch without records that stores the offset of a position."""
        offset = self._places.offset(partition, place - 1)
        return SourceBatch(self._remote[partition[0]], (), self._source_partitions[partition], offset)

    def _look(self, reader: SourceClusterReader) -> None:
        """Read available records into `_ready`."""
        self._begin_anew(reader, *self._places.made_again())
        while not self._is_disowned:
            try:
                found = reader.read(self._context.poll_records_max(), WAIT_S)
            except PlaceLost as lost:
                self._lost(reader, lost)
            else:
                for one in found:
                    self._places.read_of(one.partition[0])
                self._ready.extend(map(self._batch, found))
                return

    def _lost(self, reader: SourceClusterReader, lost: PlaceLost) -> None:
        topic, number = lost.partition
        again, unsure = self._places.made_again(beyond=topic)
        self._begin_anew(reader, again, unsure)
        if topic in again or self._is_disowned:
            return
        message = (
            f"offset {lost.offset} of {topic}-{number} in the source cluster {self._settings.naming.source} is gone: "
            "deleted before it was copied"
        )
        if not self._settings.reset_lost:
            raise OffsetsLost(
                f"{message}; set herdmesh.offsets.missing=reset to continue with the first available record"
            )
        place = BEGINNING
        if self._settings.reset.start in (Start.BY_DURATION, Start.NONE):
            place = self._places.anew([lost.partition]).get(lost.partition, BEGINNING)
        _log.warning("%s; continuing %s", message, "at the beginning" if place == BEGINNING else f"at {place}")
        reader.restart({lost.partition: place})

    def _batch(self, read: RecordColumns) -> SourceBatch:
        topic, number = read.partition
        return SourceBatch(
            self._remote[topic],
            read.values,
            self._source_partitions[read.partition],
            self._places.offset(read.partition, read.last_offset),
            keys=read.keys if read.has_keys else (),
            timestamps_ms=read.times_ms,
            key_schema=OPTIONAL_BYTES,
            value_schema=OPTIONAL_BYTES,
            partition=number,
            headers=[[Header(name, value, OPTIONAL_BYTES) for name, value in one] for one in read.headers],
        )


def source_partition(alias: str, partition: PartitionId) -> dict[str, Any]:
    """Return the source partition of a partition; the order of the members matters."""
    topic, number = partition
    return {"cluster": alias, "partition": number, "topic": topic}


def _assigned(config: Config) -> list[PartitionId]:
    text = config.get(ASSIGNED) or ""
    try:
        return topic_naming.read(text)
    except ValueError as error:
        raise ConfigError.for_value(ASSIGNED, text, f"{error} is not a topic-partition") from error


def _copied(batch: SourceBatch) -> tuple[PartitionId, int, int]:
    """Return the partition at the source, the number of records, and the offset of the last one."""
    partition, offset = batch.source_partition, batch.source_offset
    assert partition is not None
    assert offset is not None
    return (partition["topic"], partition["partition"]), len(batch), offset["offset"]


def _make_topics(
    settings: MirrorSettings, remote: Mapping[str, str], context: SourceTaskContext
) -> Mapping[str, dict[str, str]]:
    """Create every copied topic at the target before its first record, with at least as many partitions. Returns the
    topics, without deleted ones.
    """
    counts = settings.source.partition_counts()
    configs = settings.source.topic_configs(topic for topic in remote if topic in counts)
    excluded = "|".join(settings.properties_exclude)
    for topic, set_for_it in configs.items():
        kept = {name: value for name, value in set_for_it.items() if not matches(excluded, name)}
        try:
            context.make_topic(remote[topic], counts[topic], settings.replication_factor, kept)
        except ConfigError as error:
            fix = "write at most the number of brokers in the workers' cluster, or -1 for its default"
            raise ConfigError(str(error), field="replication.factor", fix=fix) from error
    return configs
