"""Assignment of a sink run: its partitions, and the offset from which it begins to read each.

Owns taking partitions over and releasing them. `partitions` queries which partitions the task owns, `positions` decides
where they begin, `consumer_control` moves the consumer, `sink_commits` commits.

Invariant: a partition is read only after every commit that an earlier owner left open was finished, and from its
position in `SinkPositions`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from herdmesh.connect.spi import PartitionId, SinkTask, StagingSinkTask, waits
from herdmesh.connect.topics import CommitScope
from herdmesh.engine.fencing import Fence, GroupFinisher
from herdmesh.engine.runtime import OFFSETS_MISSING, OffsetsLost, RunSpec, SinkSettings, no_topic
from herdmesh.engine.sink import manifest, partitions
from herdmesh.engine.sink.consumer_control import ConsumerControl
from herdmesh.engine.sink.ledger import LedgerSinkTask, over_group
from herdmesh.engine.sink.positions import made_again, of_topics_as_they_are, starting_offsets, within
from herdmesh.engine.sink.refresh_schedule import RefreshSchedule
from herdmesh.engine.sink.sink_commits import SinkCommits
from herdmesh.engine.sink.sink_positions import SinkPositions
from herdmesh.engine.sink.task_requests import SinkTaskRequests

MISSING_TOPIC_INTERVAL_S = 1.0
"""Interval of the check for a topic that is named in the config and does not exist."""
WARM_REFRESH_INTERVAL_S = 5.0
"""Minimum interval at which a warm run checks for new partitions and topics: the worker checks for an idle task as
often.
"""
WARM_REFRESH_SHARE = 0.02
"""Maximum share of a warm run's time for these checks."""

_log = logging.getLogger(__name__)


class SinkAssignment:
    """The assignment of one run. Used from the loop's thread only, except for the first `owned`."""

    def __init__(
        self,
        spec: RunSpec,
        settings: SinkSettings,
        *,
        task: SinkTask,
        consumer: Consumer,
        admin: AdminClient,
        fence: Fence,
        positions: SinkPositions,
        control: ConsumerControl,
        refresh: RefreshSchedule,
        commits: SinkCommits,
        reading: SinkTaskRequests,
    ) -> None:
        self._spec = spec
        self._settings = settings
        self._task = task
        self._staging = task if isinstance(task, StagingSinkTask) else None
        self._ledger = task if isinstance(task, LedgerSinkTask) else None
        self._consumer = consumer
        self._admin = admin
        self._positions = positions
        self._control = control
        self._refresh = refresh
        self._commits = commits
        self._reading = reading
        self._hung = GroupFinisher(spec, settings.consumer, settings.group, fence, admin)
        self.ends: dict[PartitionId, int] = {}
        """Their ends when the run began with them: the client knows no end before its first fetch."""
        self._no_topic = waits.Standing()

    def owned(self, *, is_warm: bool = False) -> partitions.Owned:
        """The partitions that the task owns now. Queries Kafka."""
        begun_s = time.monotonic()
        owned = partitions.owned_partitions(self._consumer, self._settings, self._spec.task, self._spec.task_count)
        self._commits.topics = owned.topics
        if owned.topics:
            self._no_topic.over()
        else:
            self._no_topic.goes_on(*no_topic(self._settings))
        owned = replace(owned, ids=partitions.topic_ids(self._admin, (topic for topic, _ in owned.partitions)))
        now_s, interval_s = time.monotonic(), self._settings.metadata_max_age_ms / 1000
        if not owned.is_complete:
            interval_s = min(interval_s, MISSING_TOPIC_INTERVAL_S)
        elif is_warm:
            interval_s = min(interval_s, max(WARM_REFRESH_INTERVAL_S, (now_s - begun_s) / WARM_REFRESH_SHARE))
        self._refresh.refreshed(now_s + interval_s)
        return owned

    def refresh(self, *, is_warm: bool) -> None:
        """Check for new partitions and topics, and release deleted ones."""
        try:
            owned = self.owned(is_warm=is_warm)
        except KafkaException as error:
            if not is_warm:
                raise
            _log.warning("cannot check for new partitions now: %s", error)
            self._refresh.refreshed(time.monotonic() + WARM_REFRESH_INTERVAL_S)
            return
        has = set(owned.partitions)
        positions = self._positions
        again = made_again(owned.ids, {topic: self._commits.topic_ids.get(topic, "") for topic, _ in positions})
        again = {topic for topic in again if self._commits.topic_ids.get(topic)}
        gone = [p for p in positions if (p not in has and p[0] not in owned.unclear) or p[0] in again]
        new = [one for one in owned.partitions if one not in positions or one[0] in again]
        if gone:
            if again:
                _log.warning("topics were deleted and created again, and are read from their start: %s", sorted(again))
            _log.warning("partitions were deleted: %s", gone)
            self._control.unassign(gone)
            positions.drop(gone)
            self._commits.forget_topics({topic for topic, _ in gone}.difference(positions.topics()))
            self._reading.assign(positions)
            # Make their last records durable; their offsets were deleted with the topic, and no broker accepts new
            # ones.
            self._commits.commit()
            if self._ledger is not None:
                self._ledger.forget(gone)
            self._task.close(gone)
        if new:
            self.adopt(new, None, owned.ids)

    def adopt(self, new: list[PartitionId], scope: CommitScope | None, ids: Mapping[str, str]) -> None:
        """Take partitions over: finish an earlier owner's commit, then commit the starting offsets. `ids`: of their
        topics, as in `Owned`.
        """
        # Before the query of the group: an owner that was stopped may remember an offset that was reset since, and it
        # would get into the ledger. A claim of a row without an owner keeps it until another task claims it.
        claimed: Mapping[PartitionId, int] = {} if self._ledger is None else self._ledger.claim(new)
        offsets = over_group(partitions.committed(self._consumer, new, self._hung), claimed)
        if scope is not None and scope.group == self._settings.group:
            ids_before = scope.ids()
            again = made_again(ids, ids_before)
            if again:
                _log.warning("topics were deleted and created again since the last commit: %s", sorted(again))
                scope = scope.without(again)
        else:
            ids_before, again = {}, set[str]()
        told = offsets
        offsets = of_topics_as_they_are(offsets, ids=ids, ids_before=ids_before, own_rows=claimed.keys())
        self._commits.topic_ids |= {topic: ids[topic] for topic, _ in new if topic in ids}
        ranges = partitions.ranges(self._admin, offsets, self._settings.reset)
        self.ends.update((partition, known.end) for partition, known in ranges.items())
        starts = starting_offsets(
            within(ranges, again),
            group=self._settings.group,
            scope=scope,
            forgotten=partitions.forgotten(self._consumer, self._hung, scope, offsets),
            reset_missing=self._settings.reset_missing,
            reset=self._settings.reset,
        )
        self._reading.assign([*self._positions, *new])
        self._task.open(new)
        if self._staging is not None:
            self._recover(self._staging, {p: manifest.decode(text) for p, (_, text) in told.items()})
        if self._ledger is not None:
            self._ledger.begin(starts)
        self._positions.assign(starts)
        if new:
            new_starts = {partition: starts[partition] for partition in new}
            self._control.assign(new_starts)
            if self._staging is not None or self._ledger is not None or self._settings.reset.depends_on_time:
                self._commits.commit()
            else:
                self._commits.begin(new_starts)

    def reset(self, partition: PartitionId, error: KafkaError) -> None:
        """Move the position, because the records there are gone. Raises OffsetsLost, unless the connector shall
        continue without them.
        """
        position = self._positions.get(partition)
        if position is None:
            return
        topic = partition[0]
        known_id = self._commits.topic_ids.get(topic)
        if known_id and partitions.topic_ids(self._admin, [topic]).get(topic) != known_id:
            self.refresh(is_warm=False)
            if self._commits.topic_ids.get(topic) != known_id:
                return  # the topic was deleted, and perhaps created again
        known = partitions.ranges(self._admin, {partition: (position, "")}, self._settings.reset)
        start = starting_offsets(
            known,
            group=self._settings.group,
            scope=None,
            reset_missing=self._settings.reset_missing,
            reset=self._settings.reset,
        )[partition]
        self.ends[partition] = known[partition].end
        _log.warning("%s: the position goes from %d to %d (%s)", partition, position, start, error.str())
        self._commits.commit()
        if self._ledger is not None:
            self._ledger.begin({partition: start})
        self._positions.reset(partition, start)
        self._control.seek(partition, start)

    def _recover(self, staging: StagingSinkTask, manifests: Mapping[PartitionId, str]) -> None:
        try:
            staging.recover(manifests)
        except OffsetsLost as error:
            if not self._settings.reset_missing:
                raise OffsetsLost(
                    f"{error.message}; set {OFFSETS_MISSING}=reset to continue without the lost data"
                ) from error
            _log.warning("continuing without the lost data, because herdmesh.offsets.missing=reset: %s", error.message)
