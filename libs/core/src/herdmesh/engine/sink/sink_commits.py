"""Commits of a sink run: which offsets are committed, and when.

Owns the order of a commit: make durable, commit under the fence, publish. `SinkPositions` owns the positions,
`sink_assignment` decides which partitions the run has, `sink_loop` reads records.

Invariant: an offset is committed only after every record before it was put and made durable (flushed, or staged), or
skipped and its dead letter acknowledged. The files of a commit are published only after that commit succeeded, and stay
committed when a later commit fails. No commit goes beyond an offset that the task allows, or seeks back to.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from herdmesh.connect.errors import ConnectError, RetriableError, error_text
from herdmesh.connect.spi import PartitionId, SinkTask, StagingSinkTask, checked_manifests, checked_offsets, waits
from herdmesh.connect.topics import CommitScope
from herdmesh.engine.bad_records import SinkErrors
from herdmesh.engine.fencing import Fence
from herdmesh.engine.runtime import (
    Meter,
    RunSpans,
    RunSpec,
    SinkSettings,
    TaskFailed,
    TaskFenced,
    failpoints,
    kafka,
    log_context,
    progress_ticks,
)
from herdmesh.engine.sink import manifest
from herdmesh.engine.sink.consumer_control import ConsumerControl
from herdmesh.engine.sink.ledger import LedgerSinkTask
from herdmesh.engine.sink.refresh_schedule import RefreshSchedule
from herdmesh.engine.sink.sink_positions import SinkPositions
from herdmesh.engine.sink.task_requests import SinkTaskRequests

RECOMMIT_INTERVAL_S = 3_600.0
"""Offsets of a group without members expire after the broker's retention, so a run commits them again every hour. A
task without a run gets one for it now and then (the worker's `idle_watch`).
"""

_RESTATE_S = 10.0
"""A restarted broker loads its groups, and may lose and load them once more, within a second or two."""
_RESTATE_PAUSE_S = 0.2

_log = logging.getLogger(__name__)


class SinkCommits:
    """Commits of one run. Used from the loop's thread only."""

    def __init__(
        self,
        spec: RunSpec,
        settings: SinkSettings,
        *,
        task: SinkTask,
        fence: Fence,
        group: Callable[[], Any],
        missing: Callable[[Sequence[PartitionId]], set[PartitionId]],
        errors: SinkErrors,
        meter: Meter,
        reading: SinkTaskRequests,
        positions: SinkPositions,
        control: ConsumerControl,
        refresh: RefreshSchedule,
        spans: RunSpans | None,
        report: Callable[[], None],
    ) -> None:
        """Create the commits of a run.

        Args:
            group: the consumer's group, in the form that a transaction needs.
            missing: returns those of the given partitions that no longer exist; queries Kafka.
            report: sends the run's progress; called after every commit.
        """
        self._spec = spec
        self._settings = settings
        self._task = task
        self._staging = task if isinstance(task, StagingSinkTask) else None
        self._ledger = task if isinstance(task, LedgerSinkTask) else None
        self._asks = self._staging is None and self._ledger is None and type(task).pre_commit is not SinkTask.pre_commit
        self._fence = fence
        self._group = group
        self._missing = missing
        self._errors = errors
        self._meter = meter
        self._reading = reading
        self._spans = spans
        self._positions = positions
        self._control = control
        self._refresh = refresh
        self._report = report
        self.holds_back = False
        """The last commit covered less than was read by then, because the task did not allow more."""
        self.scope: CommitScope | None = spec.commit_scope
        self.time_ms: int | None = None
        """Time of the last commit of positions."""
        self.topic_ids: dict[str, str] = {}
        """Kafka's ids of the topics that are read, as far as known."""
        self.topics = frozenset[str]()
        """All topics that the config subscribes to now, whoever owns them."""
        self._published: Mapping[PartitionId, str] = {}
        #: a commit failed, so the records that the task should make durable for it are not.
        self._failed = False
        self._commit_s = time.monotonic()

    @property
    def is_settled(self) -> bool:
        """True when all records read are committed, with nothing to publish, and the task has no open requests."""
        return not (self._positions.is_dirty or self._published or self._reading.asks)

    def due(self, now_s: float) -> bool:
        """True when a commit is due, or the task requests one."""
        if self._reading.wants_commit or self.again_due(now_s):
            return True
        if not self._positions.is_dirty:
            return False
        if now_s - self._commit_s >= self._settings.flush_interval_ms / 1000:
            return True
        return self._staging is not None and self._staging.commit_due()

    def again_due(self, now_s: float) -> bool:
        """True when the committed offsets should be committed again, before the broker expires them."""
        return now_s - self._commit_s >= RECOMMIT_INTERVAL_S

    def begin(self, starts: Mapping[PartitionId, int]) -> None:
        """Commit these starts with the first records; due after the first check for records. A run after a death before
        that begins at the same offsets anyway. That does not hold for a start from the end, nor for staged files.
        """
        self._positions.commit_starts_later(starts)
        self._commit_s = -math.inf

    def forget_topics(self, topics: Iterable[str]) -> None:
        """Forget topics of which the run has no partition any more; their offsets were deleted with them."""
        gone = set(topics)
        for topic in gone:
            self.topic_ids.pop(topic, None)
        if self.scope is not None:
            self.scope = self.scope.without(gone)

    def commit(self) -> None:
        """Make the records put so far durable, commit the positions of all partitions, publish."""
        begun_s, begun_ns = time.monotonic(), time.time_ns()
        self._reading.wants_commit = False
        try:
            with log_context.offsets_of(self._spec):
                manifests = self._commit_positions()
        except Exception:
            self._failed = True
            self._meter.commit_failed()
            raise
        if self._positions:
            self._meter.committed(time.monotonic() - begun_s)
            if self._spans is not None:
                self._spans.commit(begun_ns, self._meter.records_in)
        if self._meter.records_in > 0:
            failpoints.hit("after-offset-commit")
        if self._staging is not None and manifests:
            failpoints.hit("before-publish")
            self._staging.publish(manifests)
        self._published = manifests
        self._report()

    def commit_to_rest(self) -> bool:
        """Before the run becomes warm or ends, commit with a task that may hold back offsets. False = it does, and the
        run must continue.
        """
        if self._asks and not self.is_settled:
            self.commit()
        return not self.holds_back

    def commit_before(self, *, is_putting: bool) -> None:
        """Commit the records before the current batch, if there is one; nothing new if the run ends because of a failed
        commit.
        """
        if self._failed:  # the task may have dropped failed records, and allow their offsets now
            self.commit_starts()
        elif self._staging is None or not is_putting:
            self.commit()
        else:  # the task holds a part of the batch, whose offsets must not be committed
            self.commit_starts()

    def commit_on_command(self, *, is_putting: bool) -> None:
        """Commit at the end of a run that was commanded to end. If the task cannot flush or publish then, that is no
        failure, as in Connect: the next run continues at the committed offsets.
        """
        try:
            self.commit_before(is_putting=is_putting)
        except RetriableError as error:
            why = error_text(error)
            _log.warning("the task could not finish, so the next run starts at the committed offsets: %s", why)
            self.commit_starts()

    def commit_starts(self) -> None:
        """Commit the starting offsets, if Kafka does not have them yet."""
        if self._positions.has_starts:
            self.commit_again()

    def commit_again(self) -> None:
        """Commit the committed offsets again, and the starting offsets, without a flush of the task."""
        self._commit_offsets(self._named(self._positions.to_commit_again(), self._published))
        self._commit_s = time.monotonic()

    def return_to_committed(self) -> None:
        """At the end of the run, set the positions back to the committed offsets if the task holds offsets back: the
        next run begins there.
        """
        if self.holds_back:
            self._positions.return_to_committed()

    def _commit_positions(self) -> Mapping[PartitionId, str]:
        """Make records durable and commit; return the manifests to publish now."""
        manifests: Mapping[PartitionId, str] = {}
        self._control.carry_out_requests()
        offsets: Mapping[PartitionId, int] = self._positions.to_commit()
        was_ending = self._errors.is_ending
        if self._staging is not None:
            manifests = checked_manifests(f"{type(self._staging).__name__}.stage", self._staging.stage())
        elif self._ledger is not None:
            self._errors.flush_dead_letters()
            self._ledger.advance(offsets)
        else:
            allowed: Any = self._task.pre_commit(dict(offsets))
            if allowed is None:
                raise ConnectError(
                    f"{type(self._task).__name__}.pre_commit returned nothing: return the offsets that may be "
                    "committed, those it was given or less; {} for none"
                )
            self._control.carry_out_requests()
            offsets = self._allowed(checked_offsets(f"{type(self._task).__name__}.pre_commit", allowed), offsets)
        if not was_ending:
            self._errors.raise_swallowed()  # for a task that reports failed records in its flush
        if self._meter.records_in > 0:  # fault tests do not want the commit of the starting offsets
            failpoints.hit("after-write")
        self._errors.flush_dead_letters()
        if offsets:
            self._commit_offsets(self._named(offsets, manifests))
            self.time_ms = time.time_ns() // 1_000_000
            self.scope = self._scope_of(offsets)
        self._commit_s = time.monotonic()
        self._positions.set_committed(offsets)
        self.holds_back = self._positions.is_dirty
        return manifests

    def _commit_offsets(self, offsets: list[TopicPartition]) -> None:
        try:
            with waits.on(kafka(self._spec.bootstrap_servers), "committing offsets"):
                self._fence.commit_offsets(offsets, self._group())
        except TaskFailed as error:
            cause = _cause(error)
            if cause is None or not cause.txn_requires_abort():  # no broker answered, or there is nothing to abort
                raise
            left = self._without_deleted(offsets) if cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART else offsets
            if len(left) == len(offsets):
                self._restate()
                raise
            self._fence.abort()
            if left:
                self._commit_offsets(left)

    def _without_deleted(self, offsets: list[TopicPartition]) -> list[TopicPartition]:
        """The offsets to commit after a topic was deleted since the last check: Kafka rejects the whole transaction
        because of it, and its offsets were deleted with it. The next check releases it.
        """
        deleted = self._missing([(one.topic, one.partition) for one in offsets])
        if deleted:
            _log.warning("partitions were deleted before their offsets were committed: %s", sorted(deleted))
            self._refresh.soon()
        return [one for one in offsets if (one.topic, one.partition) not in deleted]

    def _restate(self) -> None:
        """Abort the failed transaction, and repeat the commit before it.

        A broker that died and came back may have lost the marker of a commit that succeeded (ADR 0006): that commit is
        still open, and the abort undoes it. Its files are published; a start from an older offset would write them
        twice. Partitions that the task moved since are committed where the task moved them, at most at the committed
        offset.
        """
        offsets = self._named(self._positions.to_commit_again(), self._published)
        deadline_s = time.monotonic() + _RESTATE_S
        with waits.on(kafka(self._spec.bootstrap_servers), "committing again the offsets from before a failed commit"):
            while offsets:
                try:
                    if self._fence.in_transaction:
                        self._fence.abort()
                    self._fence.commit_offsets(offsets, self._group())
                    return
                except TaskFenced:
                    return  # the new owner has read the committed offsets
                except (TaskFailed, KafkaException) as error:
                    if time.monotonic() >= deadline_s:
                        _log.warning("the last offsets could not be committed again after a failed commit: %s", error)
                        return
                    progress_ticks.moved()
                    time.sleep(_RESTATE_PAUSE_S)

    def _allowed(
        self, allowed: Mapping[PartitionId, int], requested: Mapping[PartitionId, int]
    ) -> dict[PartitionId, int]:
        """The offsets to commit when the task got `requested` and allows `allowed`. As in Connect, offsets of other
        partitions, or beyond the requested ones, are ignored (docs/reference/connect/offsets-topic.md, section 8).
        """
        found, ignored = self._positions.allowed(allowed, requested)
        for partition, offset, most in ignored:
            _log.warning("%s: ignored the task's offset %d: it is not from 0 to %d", partition, offset, most)
        if foreign := sorted(set(allowed) - set(found)):
            _log.warning("ignored offsets of partitions that the task does not own: %s", foreign)
        return found

    def _named(self, offsets: Mapping[PartitionId, int], manifests: Mapping[PartitionId, str]) -> list[TopicPartition]:
        """Offsets in the form of a commit, each with its manifest and the id of its topic."""
        return [
            TopicPartition(*one, at, manifest.encode(manifests.get(one, ""), self.topic_ids.get(one[0], "")))
            for one, at in offsets.items()
        ]

    def _scope_of(self, positions: Iterable[PartitionId]) -> CommitScope:
        """The scope of a commit. Other topics that the connector committed stay in it while the config subscribes to
        them and they exist, because any task may get their partitions next.
        """
        before = self.scope
        scope = CommitScope.of(self._settings.group, (topic for topic, _ in positions), self.topic_ids)
        if before is None or before.group != scope.group:
            return scope
        return scope.beside(self.topics.intersection(before.topics + before.elsewhere))


def _cause(error: TaskFailed) -> KafkaError | None:
    """The client's error behind a failure, if there is one."""
    cause = error.__cause__
    return cause.args[0] if isinstance(cause, KafkaException) else None
