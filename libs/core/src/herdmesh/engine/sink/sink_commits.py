"""Commits of a sink run: what is committed, and when.

Owns the positions of a run, what is committed of them, and the order of a commit: make durable, commit under the fence,
publish. Reads nothing: `sink` does; which partitions there are is `sink_assignment`'s.

Invariant: an offset is committed only after every record before it was put and made durable (flushed, or staged), or
given up and its dead letter acknowledged; what a commit names is published only after that commit succeeded, and is
committed still when a later one does not. No commit goes beyond what the task allows, or wants to go back to.
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
from herdmesh.engine.sink.ledger import LedgerSinkTask
from herdmesh.engine.sink.task_requests import Reading

RECOMMIT_INTERVAL_S = 3_600.0
"""Offsets of a group without members are forgotten after the broker's retention, so they are committed hourly anew. Who
has no run is given one for it now and then (the worker's `idle_watch`)."""

_RESTATE_S = 10.0
"""A broker that comes back loads its groups, and may leave and load them once more, within a second or two."""
_RESTATE_PAUSE_S = 0.2

_log = logging.getLogger(__name__)


class SinkCommits:
    """Of one run. Used from the loop's thread only."""

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
        reading: Reading,
        spans: RunSpans | None,
        heed: Callable[[], None],
        tell: Callable[[], None],
        look: Callable[[], None],
    ) -> None:
        """
        Args:
            group: the consumer's group, as a transaction wants it.
            missing: those of some partitions that there are not any more; asks Kafka.
            heed: has positions go where the task asked for.
            tell: called after every commit.
            look: has partitions looked for soon, as some are gone.
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
        self._heed = heed
        self._tell = tell
        self._look = look
        self.positions: dict[PartitionId, int] = {}
        """The next offset to read."""
        self.committed: dict[PartitionId, int] = {}
        self.holds_back = False
        """The last commit was of less than was read by then, because the task did not allow more."""
        self.scope: CommitScope | None = spec.commit_scope
        self.time_ms: int | None = None
        """Of the last commit of positions."""
        self.topic_ids: dict[str, str] = {}
        """Kafka's ids of the topics that are read, as far as known."""
        self.topics = frozenset[str]()
        """What the config subscribes to now, whoever owns it."""
        self._published: Mapping[PartitionId, str] = {}
        #: where partitions begin that were not committed since they did.
        self._starts: dict[PartitionId, int] = {}
        #: a commit did not succeed, and what the task was asked to make durable by it is not.
        self._failed = False
        self._commit_s = time.monotonic()

    @property
    def is_settled(self) -> bool:
        """All that was read is committed, with nothing but its offsets, and the task has asked for nothing since."""
        return not (self._is_dirty() or self._published or self._reading.asks)

    def due(self, now_s: float) -> bool:
        """True when it is time to commit, or the task wants to."""
        if self._reading.wants_commit or self.again_due(now_s):
            return True
        if not self._is_dirty():
            return False
        if now_s - self._commit_s >= self._settings.flush_interval_ms / 1000:
            return True
        return self._staging is not None and self._staging.commit_due()

    def again_due(self, now_s: float) -> bool:
        """True when the broker had better hear again what is committed."""
        return now_s - self._commit_s >= RECOMMIT_INTERVAL_S

    def begin(self, starts: Mapping[PartitionId, int]) -> None:
        """Commit these with the first records, due once it was looked whether there are any. Who comes after a death
        before that begins at the same place; from the end, or beside staged files, it would not."""
        self._starts.update(starts)
        self._commit_s = -math.inf

    def move(self, partition: PartitionId, position: int) -> None:
        """Read on from another position. What was committed of it before it is moved to counts until the next commit.

        The position may come to what was committed again, with records before it that nobody made durable; and if it is
        moved forward, what was put and not flushed is not to be passed over by a commit that asks nobody.
        """
        kept = self.committed.pop(partition, self._starts.get(partition, position))
        self._starts[partition] = min(position, kept)
        self.positions[partition] = position

    def reset(self, partition: PartitionId, start: int) -> None:
        """Read on from another position, as there are no records at the last one."""
        self.committed.pop(partition, None)
        self._starts[partition] = self.positions[partition] = start

    def forget(self, partitions: Iterable[PartitionId]) -> None:
        """These are gone, and their offsets went with the topic."""
        partitions = list(partitions)
        for partition in partitions:
            del self.positions[partition]
            self._starts.pop(partition, None)
        gone = {topic for topic, _ in partitions} - {topic for topic, _ in self.positions}
        for topic in gone:
            self.topic_ids.pop(topic, None)
        if self.scope is not None:
            self.scope = self.scope.without(gone)

    def commit(self) -> None:
        """Make durable what was put, commit the positions of all partitions, publish."""
        begun_s, begun_ns = time.monotonic(), time.time_ns()
        self._reading.wants_commit = False
        try:
            with log_context.offsets_of(self._spec):
                manifests = self._commit_positions()
        except Exception:
            self._failed = True
            self._meter.commit_failed()
            raise
        if self.positions:
            self._meter.committed(time.monotonic() - begun_s)
            if self._spans is not None:
                self._spans.commit(begun_ns, self._meter.records_in)
        if self._meter.records_in > 0:
            failpoints.hit("after-offset-commit")
        if self._staging is not None and manifests:
            failpoints.hit("before-publish")
            self._staging.publish(manifests)
        self._published = manifests
        self._tell()

    def commit_to_rest(self) -> bool:
        """Ask a task that may hold something back, before the run rests; False = it does, and the run may not."""
        if self._asks and not self.is_settled:
            self.commit()
        return not self.holds_back

    def commit_before(self, *, is_putting: bool) -> None:
        """Commit what came before the batch under way, if there is one; nothing new where the run ends because a commit
        did not succeed."""
        if self._failed:  # the task may have let go of what it could not write, and would say yes the second time
            self.commit_starts()
        elif self._staging is None or not is_putting:
            self.commit()
        else:  # it holds a part of the batch, whose offsets may not go along
            self.commit_starts()

    def commit_as_told(self, *, is_putting: bool) -> None:
        """Commit at the end of a run that is told to end. That the task cannot flush or publish then is no failure, as
        in Connect: the next run goes on from what is committed."""
        try:
            self.commit_before(is_putting=is_putting)
        except RetriableError as error:
            why = error_text(error)
            _log.warning("the task could not finish, so the next run starts at the committed offsets: %s", why)
            self.commit_starts()

    def commit_starts(self) -> None:
        """Commit where partitions begin, if that is not known to Kafka yet."""
        if self._starts:
            self.commit_again()

    def commit_again(self) -> None:
        """Commit what is committed, and where partitions begin, without asking the task for what it was given since."""
        self._commit_offsets(self._named(self.committed | self._starts, self._published))
        self._commit_s = time.monotonic()

    def go_back(self) -> None:
        """The run ends: what the task holds back is where the next one begins, and is to be read."""
        if self.holds_back:
            self.positions.update((one, at) for one, at in self.committed.items() if one in self.positions)

    def _is_dirty(self) -> bool:
        return self.positions != self.committed

    def _commit_positions(self) -> Mapping[PartitionId, str]:
        """Make durable what was put and commit; what is to be published now."""
        manifests: Mapping[PartitionId, str] = {}
        self._heed()
        offsets: Mapping[PartitionId, int] = dict(self.positions)
        was_ending = self._errors.is_ending
        if self._staging is not None:
            manifests = checked_manifests(f"{type(self._staging).__name__}.stage", self._staging.stage())
        elif self._ledger is not None:
            self._errors.settle()
            self._ledger.advance(self.positions)
        else:
            allowed: Any = self._task.pre_commit(dict(offsets))
            if allowed is None:
                raise ConnectError(
                    f"{type(self._task).__name__}.pre_commit returned nothing: return the offsets that may be "
                    "committed, those it was given or less; {} for none"
                )
            self._heed()
            offsets = self._kept_to(checked_offsets(f"{type(self._task).__name__}.pre_commit", allowed), offsets)
        if not was_ending:
            self._errors.raise_swallowed()  # of a task that reports what it could not write when it is flushed
        if self._meter.records_in > 0:  # the commit of the starting positions is not what a fault test means
            failpoints.hit("after-write")
        self._errors.settle()
        if offsets:
            self._commit_offsets(self._named(offsets, manifests))
            self.time_ms = time.time_ns() // 1_000_000
            self.scope = self._scope_of(offsets)
            self._starts.clear()
        self._commit_s = time.monotonic()
        self.committed = dict(offsets)
        self.holds_back = self.committed != self.positions
        return manifests

    def _commit_offsets(self, offsets: list[TopicPartition]) -> None:
        try:
            with waits.on(kafka(self._spec.bootstrap_servers), "to commit offsets"):
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
        """What is left to commit where a topic was deleted since partitions were looked for: Kafka refuses the whole
        transaction for it, and its offsets went with it. The next look lets go of it."""
        deleted = self._missing([(one.topic, one.partition) for one in offsets])
        if deleted:
            _log.warning("partitions were deleted before their offsets were committed: %s", sorted(deleted))
            self._look()
        return [one for one in offsets if (one.topic, one.partition) not in deleted]

    def _restate(self) -> None:
        """Abort the transaction that did not succeed, and commit anew what was committed before it.

        A broker that died and came back may have lost the marker of a commit that succeeded (ADR 0006): the abort takes
        that along, which is open still. Its files are published, and from an older offset would be written twice.
        Partitions that the task moved since go where it moved them, at most to what was committed.
        """
        offsets = self._named(self.committed | self._starts, self._published)
        deadline_s = time.monotonic() + _RESTATE_S
        with waits.on(kafka(self._spec.bootstrap_servers), "to commit anew what was committed before a failed commit"):
            while offsets:
                try:
                    if self._fence.in_transaction:
                        self._fence.abort()
                    self._fence.commit_offsets(offsets, self._group())
                    return
                except TaskFenced:
                    return  # whoever took over has read what is committed
                except (TaskFailed, KafkaException) as error:
                    if time.monotonic() >= deadline_s:
                        _log.warning("the last offsets could not be committed again after a failed commit: %s", error)
                        return
                    progress_ticks.moved()
                    time.sleep(_RESTATE_PAUSE_S)

    def _kept_to(self, allowed: Mapping[PartitionId, int], asked: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
        """What was asked for, or less where the task allows less, or has just asked to go back; as in Connect what it
        says of other partitions, or beyond what was asked, is passed over (docs/reference/connect/offsets-topic.md,
        section 8)."""
        if allowed == asked == self.positions:
            return dict(asked)
        before = self._starts | self.committed
        found: dict[PartitionId, int] = {}
        for partition, position in self.positions.items():
            offset = allowed.get(partition)
            if offset is not None and not 0 <= offset <= asked[partition]:
                _log.warning(
                    "%s: ignored the task's offset %d: it is not from 0 to %d", partition, offset, asked[partition]
                )
                offset = None
            found[partition] = before.get(partition, position) if offset is None else min(offset, position)
        if foreign := sorted(set(allowed) - set(found)):
            _log.warning("ignored offsets of partitions that the task does not own: %s", foreign)
        return found

    def _named(self, offsets: Mapping[PartitionId, int], manifests: Mapping[PartitionId, str]) -> list[TopicPartition]:
        """Offsets as they are committed, each with what is to be published with it, and the id of its topic."""
        return [
            TopicPartition(*one, at, manifest.encode(manifests.get(one, ""), self.topic_ids.get(one[0], "")))
            for one, at in offsets.items()
        ]

    def _scope_of(self, positions: Iterable[PartitionId]) -> CommitScope:
        """Of a commit: other topics that the connector committed stay named as long as the config subscribes to them
        and they exist, because any task may be given their partitions next."""
        before = self.scope
        scope = CommitScope.of(self._settings.group, (topic for topic, _ in positions), self.topic_ids)
        if before is None or before.group != scope.group:
            return scope
        return scope.beside(self.topics.intersection(before.topics + before.elsewhere))


def _cause(error: TaskFailed) -> KafkaError | None:
    """What the client said, if it did."""
    cause = error.__cause__
    return cause.args[0] if isinstance(cause, KafkaException) else None
