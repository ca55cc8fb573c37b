"""Task of `MirrorCheckpointConnector`: translates the offsets of some groups, writes checkpoints, and sets the offsets
of idle groups at the target.

Owns the schedule of these steps. The translation: `offset_translation`; the clusters: `cluster`. Checkpoints are
records of the run; the source offset of each holds the checkpoint written last, so that none is written twice.

Source partitions have MirrorMaker's form (`Checkpoint.connectPartition`); offsets have its `{"offset": 0}`, and the two
offsets of the checkpoint beside it.

Invariant: a group's checkpoint, and the offset set for it, never exceed the translation of its last committed offset at
the source, and a group is never moved back.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from herdmesh.connectors.mirror import base_connector
from herdmesh.connectors.mirror.checkpoint.settings import ASSIGNED, REPLICATION, settings_of
from herdmesh.connectors.mirror.cluster import Cluster, Log
from herdmesh.connectors.mirror.offset_translation import Checkpoint, Translation, is_news, read_sync, to_set
from herdmesh.sdk import Config, PartitionId, RetriableError, SourceBatch, SourceTask, SourceTaskContext

_log = logging.getLogger(__name__)


class MirrorCheckpointTask(SourceTask):
    """Translates the offsets of some groups. Contacts the clusters first at the first poll, which is retried."""

    _syncs: Log | None = None

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self._settings = settings_of(config)
        self._context = context
        self._groups = [group for group in (config.get(ASSIGNED) or "").split(",") if group]
        self._ready: deque[SourceBatch] = deque()
        self._translation = Translation()
        #: the last checkpoints written, by group and partition of the copy.
        self._told: dict[str, dict[PartitionId, Checkpoint]] = {group: {} for group in self._groups}
        self._emit_at_s = self._set_at_s = time.monotonic()

    def poll(self) -> SourceBatch | None:
        if not self._ready:
            self._look(time.monotonic())
        return self._ready.popleft() if self._ready else None

    def wake_after_ms(self) -> int:
        """Return the time until the next step is due."""
        until_s = self._emit_at_s if self._settings.set_s is None else min(self._emit_at_s, self._set_at_s)
        return max(1, int((until_s - time.monotonic()) * 1000))

    def stop(self) -> None:
        if self._syncs is not None:
            self._syncs.close()

    def _look(self, now_s: float) -> None:
        settings = self._settings
        if now_s >= self._emit_at_s:
            self._read_syncs()
            for group in self._groups:
                self._ready.extend(self._news_of(group))
            self._emit_at_s = now_s + settings.emit_s
        if settings.set_s is not None and settings.target is not None and now_s >= self._set_at_s:
            for group, told in self._told.items():
                _take_forward(settings.target, group, told)
            self._set_at_s = now_s + settings.set_s

    def _read_syncs(self) -> None:
        """Read the new offset syncs. Raises RetriableError."""
        settings = self._settings
        if self._syncs is None:
            topic = settings.naming.checkpoints()
            base_connector.make_topic(self._context, topic, settings.replication_factor, REPLICATION)
            self._syncs = settings.syncs_in.log(settings.naming.offset_syncs(settings.syncs_at_target))
        for key, value in self._syncs.read():
            try:
                self._translation.add(read_sync(key, value))
            except ValueError as error:
                _log.warning("an unreadable record of the offset-syncs topic is ignored: %s", error)

    def _news_of(self, group: str) -> list[SourceBatch]:
        """Return batches of the checkpoints of a group that are to be written. Raises RetriableError."""
        told, found = self._told[group], list[SourceBatch]()
        for (topic, number), (upstream, metadata) in self._settings.source.group_offsets(group).items():
            downstream = self._translation.of((topic, number), upstream)
            if downstream is None or not self._settings.selection.has(topic):
                continue
            copy = self._settings.naming.remote(topic), number
            one = Checkpoint(group, copy, upstream, downstream, metadata)
            last = told.get(copy) or self._told_before(one)
            if last is not None:
                told[copy] = last
            if is_news(one, last):
                told[copy] = one
                found.append(self._batch(one))
        return found

    def _told_before(self, like: Checkpoint) -> Checkpoint | None:
        """Return the checkpoint that an earlier run wrote for the same group
        and partition; None = none, or its offset is not Herdmesh's.
        """
        offset = self._context.committed_offset(source_partition(like)) or {}
        upstream, downstream = offset.get("upstreamOffset"), offset.get("downstreamOffset")
        if not isinstance(upstream, int) or not isinstance(downstream, int):
            return None
        return Checkpoint(like.group, like.partition, upstream, downstream, like.metadata)

    def _batch(self, one: Checkpoint) -> SourceBatch:
        topic = self._settings.naming.checkpoints()
        offset = {"upstreamOffset": one.upstream, "downstreamOffset": one.downstream}
        now_ms = time.time_ns() // 1_000_000
        return base_connector.emitted_batch(topic, one.key(), one.value(), source_partition(one), offset, now_ms)


def source_partition(one: Checkpoint) -> dict[str, Any]:
    """Return the source partition of a group and partition; the order of the members matters."""
    topic, number = one.partition
    return {"partition": number, "topic": topic, "group": one.group}


def _take_forward(target: Cluster, group: str, told: Mapping[PartitionId, Checkpoint]) -> None:
    """Move an idle group forward to its checkpoints, except in partitions where it is already further."""
    try:
        if not told or not target.is_idle(group):
            return
        there = {partition: offset for partition, (offset, _) in target.group_offsets(group).items()}
        wanted = to_set(told.values(), there)
        if wanted and not target.set_group_offsets(
            group, {one.partition: (one.downstream, one.metadata) for one in wanted}
        ):
            _log.info("group %s has active members in the target cluster, so its offsets are not changed", group)
    except RetriableError as error:
        _log.warning("cannot set the offsets of group %s now, retrying later: %s", group, error)
