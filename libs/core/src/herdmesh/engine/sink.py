"""The record loop of a sink task.

Owns one run: take over, read, convert and transform, put, commit under the fence, end. Where a run begins is decided in
`positions`, how a batch is grouped in `batches`, what happens to records in the connector's task and the chain.

Invariant: an offset is committed only after every record before it was put and made durable (flushed, or staged), or
given up and its dead letter acknowledged; what a commit names is published only after that commit succeeded.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping
from functools import partial

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from herdmesh.connect.chain import SinkChain
from herdmesh.connect.commit_scope import CommitScope
from herdmesh.connect.connector import PartitionId, SinkBatch, SinkTask, StagingSinkTask
from herdmesh.connect.data import Batch
from herdmesh.connect.errors import RecordError, RetriableError
from herdmesh.connect.lazy import LazyColumn
from herdmesh.engine import batches, claims, clients, failpoints, log_context, manifest, partitions
from herdmesh.engine.ahead import Ahead
from herdmesh.engine.contract import PartitionProgress, Progress, RunEnd, RunLink, RunOutcome, RunSpans, RunSpec
from herdmesh.engine.control import Control
from herdmesh.engine.errors import LedgerTaken, OffsetsLost, TaskFailed
from herdmesh.engine.fence import Fence
from herdmesh.engine.garbage import Garbage
from herdmesh.engine.hung import GroupFinisher
from herdmesh.engine.ledger import LedgerSinkTask, over_group
from herdmesh.engine.limits import Limits
from herdmesh.engine.meter import Meter
from herdmesh.engine.positions import starting_offsets
from herdmesh.engine.record_errors import SinkErrors
from herdmesh.engine.settings import OFFSETS_MISSING, SinkSettings
from herdmesh.engine.tolerance import RetryStopped
from herdmesh.kafka.contact import Contact

WAIT_S = 0.1
"""How long the loop waits for a record before it looks at commands, commits and the clock again."""
MISSING_TOPIC_INTERVAL_S = 1.0
"""How often to look for a topic that is named in the config and does not exist."""
WARM_REFRESH_INTERVAL_S = 5.0
"""How often a warm run looks for new partitions and topics, at most: for an idle task its worker looks as often."""
WARM_REFRESH_SHARE = 0.02
"""Of a warm run's time, so much goes into these looks at most."""
RECOMMIT_INTERVAL_S = 3_600.0
"""Offsets of a group without members are forgotten after the broker's retention, so they are committed hourly anew. Who
has no run is given one for it now and then (the worker's `idle_watch`)."""
_GONE = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION))

_log = logging.getLogger(__name__)


class SinkLoop:
    """One run of one sink task. Used once, from one thread."""

    def __init__(
        self,
        spec: RunSpec,
        settings: SinkSettings,
        link: RunLink,
        *,
        task: SinkTask,
        chain: SinkChain,
        fence: Fence,
        consumer: Consumer,
        contact: Contact,
        admin: AdminClient,
        errors: SinkErrors,
        spans: RunSpans | None = None,
    ) -> None:
        now_s = time.monotonic()
        self._spec = spec
        self._settings = settings
        self._link = link
        self._task = task
        self._staging = task if isinstance(task, StagingSinkTask) else None
        self._ledger = task if isinstance(task, LedgerSinkTask) else None
        self._chain = chain
        self._fence = fence
        self._consumer = consumer
        self._contact = contact
        self._admin = admin
        self._spans = spans
        self._errors = errors
        #: read from one partition, and on their way through the chain.
        self._reading: list[Message] = []
        self._is_putting = False
        errors.tolerance.origin = lambda _batch, at: self._reading[at]
        errors.tolerance.pause = lambda seconds, yields: self._control.pause(seconds, self._while_tried, yields=yields)
        self._hung = GroupFinisher(spec, settings.consumer, settings.group, fence, admin)
        self._meter = Meter(now_s)
        self._limits = Limits(settings.rate.records_per_second, settings.rate.bytes_per_second, spec.task_count, now_s)
        self._garbage = Garbage()
        self._control = Control(link, self._limits, now_s, stays_warm=spec.stays_warm)
        #: with nothing to do, and nothing uncommitted, but going on.
        self._warm = False
        self._positions: dict[PartitionId, int] = {}
        self._committed: dict[PartitionId, int] = {}
        self._at_end: set[PartitionId] = set()
        self._published: Mapping[PartitionId, str] = {}
        self._commit_scope = spec.commit_scope
        #: what the config subscribes to now, whoever owns it.
        self._topics = frozenset[str]()
        self._uncommitted_starts: dict[PartitionId, int] = {}
        self._config_offset: int | None = None
        self._commit_time_ms: int | None = None
        self._commit_s = now_s
        self._refresh_s = now_s
        self._record_s = now_s

    def run(self) -> RunOutcome:
        """Take over and move records until there is a reason to end.

        Raises:
            TaskFailed: with its class; TaskFenced when another owner took over.
            RecordError: a record that cannot be converted or transformed; everything before it is committed.
        """
        # Neither answer depends on the take-over; both need a connection, and those are made meanwhile.
        refuse = partial(partitions.refuse_members, self._admin, self._settings.group)
        with Ahead(self._owned) as owned, Ahead(refuse) as members:
            self._fence.take_over()
            self._config_offset = claims.ask(self._spec, self._admin, self._consumer).verify()
            self._link.progress(self.progress())  # the first word of a task that started and owns its id
            members.result()
            found = owned.result().partitions
        self._adopt(found, self._spec.commit_scope)
        try:
            reason = self._loop()
        except RetryStopped as ended:
            self._commit_as_told()
            return RunOutcome(ended.reason, self.progress())
        except RecordError:
            self._commit_before()
            raise
        except LedgerTaken:
            self._commit_again()  # raises TaskFenced where another owner took over
            raise
        except (TaskFailed, KafkaException):
            raise
        except Exception:
            # The connector's task failed, perhaps for days: where it began must not be forgotten meanwhile.
            self._commit_starts()
            raise
        if self._is_dirty() or self._published:  # else all it owns was committed by this run within the hour, as it is
            if reason is RunEnd.STOPPED:
                self._commit_as_told()
            else:
                self._commit()
        wake_after_ms = int(self._limits.wait_s(time.monotonic()) * 1000) if reason is RunEnd.YIELDED else 0
        return RunOutcome(reason, self.progress(), wake_after_ms)

    def progress(self) -> Progress:
        """How far the run is."""
        return Progress(
            records_in=self._meter.records_in,
            records_out=self._meter.records_out,
            records_dropped=self._meter.records_dropped,
            partitions=tuple(self._progress_of(partition) for partition in sorted(self._positions)),
            records_per_second=self._meter.rate(time.monotonic()),
            commit_time_ms=self._commit_time_ms,
            commit_scope=self._commit_scope,
            config_offset=self._config_offset,
            errors=self._errors.counts.so_far(),
            records_rate=self._limits.records.use(),
            bytes_rate=self._limits.bytes.use(),
            warm=self._warm,
            measures=self._meter.take_measures(),
        )

    def _progress_of(self, partition: PartitionId) -> PartitionProgress:
        topic, number = partition
        position = self._positions[partition]
        _, end = self._consumer.get_watermark_offsets(TopicPartition(topic, number), cached=True) or (-1, -1)
        return PartitionProgress(topic, number, self._committed.get(partition, -1), position, max(end, position))

    def _loop(self) -> RunEnd:
        while True:
            now_s = time.monotonic()
            end = self._control.wish(now_s, self._quiet_s(now_s))
            if end is not None:
                return end
            if self._rests(now_s) or self._is_lost():
                return RunEnd.QUIET
            wait_s = self._limits.wait_s(now_s)
            if wait_s > 0:
                time.sleep(min(wait_s, WAIT_S))
            else:
                self._take(self._read())
            now_s = time.monotonic()
            if now_s >= self._refresh_s and not self._contact.is_in_doubt:
                self._refresh()
            if self._commit_due(now_s):
                self._commit()
            self._report(now_s)

    def _rests(self, now_s: float) -> bool:
        """True when there is nothing to do and the run is to end for it. One that stays commits as if it ended."""
        if not self._is_quiet(now_s):
            self._warm = False
            return False
        if not self._control.stays_warm or not self._positions:
            return True
        if not self._warm:
            self._warm = True
            self._refresh_s = min(self._refresh_s, now_s + WARM_REFRESH_INTERVAL_S)
            if self._is_dirty() or self._published:
                self._commit()
            else:
                self._link.progress(self.progress())
        return False

    def _is_lost(self) -> bool:
        """True when the consumer will hear of nothing any more, and the run may rest, as all it read is committed.

        Raises:
            KafkaException: it may not; an outage.
        """
        if not self._contact.is_lost(self._consumer):
            return False
        if not self._warm or self._is_dirty() or self._published:
            raise clients.forgotten()
        _log.warning("a run that has nothing to do ends: %s", clients.forgotten())
        return True

    def _report(self, now_s: float) -> None:
        if self._limits.roll(now_s) or self._meter.report_due(now_s):
            self._link.progress(self.progress())
            clients.hear(self._fence.producer, self._admin)
            self._errors.hear()
            self._garbage.collect()

    def _while_tried(self, now_s: float) -> None:
        """While records wait to be tried again, for days perhaps."""
        if now_s - self._commit_s >= RECOMMIT_INTERVAL_S:
            self._commit_again()
        self._report(now_s)

    def _read(self) -> list[Message]:
        """Take what is there, or wait for one message: `consume(n, timeout)` would wait for all n."""
        room = self._limits.batch_size(self._settings.batch_records_max)
        if messages := self._consumer.consume(room, 0):
            return messages
        first = self._consumer.poll(WAIT_S)
        return [] if first is None else [first]

    def _take(self, messages: list[Message]) -> None:
        if not messages:
            return
        records, events = batches.without_errors(messages)
        if records:
            self._record_s = time.monotonic()
            self._warm = False
            topics = {topic for topic, _ in self._positions}
            for partition, group in batches.by_partition(records, topics):
                if partition in self._positions:
                    self._put(partition, group)
            byte_count = batches.byte_count(records) if self._limits.counts_bytes else 0
            self._limits.took(len(records), byte_count, time.monotonic())
        for event in events:
            self._heed(event)

    def _put(self, partition: PartitionId, messages: list[Message]) -> None:
        topic, number = partition
        begun_ns = 0 if self._spans is None else time.time_ns()
        offsets = LazyColumn(messages, batches.offsets_of)
        times = LazyColumn(messages, batches.timestamps_of)
        raw_keys = LazyColumn(messages, batches.keys_of)
        raw_headers = batches.headers_of(messages)  # read at once: that there are none spares a step for each record
        self._reading = messages
        made = self._chain.run(
            Batch(topic, number, raw_keys, batches.values_of(messages), offsets, times, headers=raw_headers),
            self._errors.tolerance,
        )
        if self._ledger is not None:
            self._errors.settle()  # its commits move past the records that the chain gave up
        first, last = messages[0].offset(), messages[-1].offset()
        assert first is not None
        assert last is not None
        begun_s = time.monotonic()
        failpoints.hit("before-write")
        self._is_putting = True
        originals = () if self._errors.reporter is None else messages
        for done, begin, end in batches.ranges(made, first, last):
            given = SinkBatch(
                done.topic, number, begin, end, done.values, done.keys, done.offsets, done.timestamps_ms,
                done.headers, done.key_schema, done.value_schema, topic, originals,
            )  # fmt: skip
            self._errors.tolerance.until_taken(partial(self._task.put, given))
            self._errors.raise_swallowed()
        self._is_putting = False
        self._positions[partition] = last + 1
        self._at_end.discard(partition)
        self._measure(messages, sum(len(done.values) for done in made), begun_s)
        if self._spans is not None:
            self._spans.batch(begun_ns, len(messages), f"{topic}-{number} {first}..{last}")

    def _measure(self, messages: list[Message], given: int, begun_s: float) -> None:
        now_s, now_ms = time.monotonic(), time.time_ns() // 1_000_000
        self._meter.count(len(messages), given, now_s)
        self._meter.called(now_s - begun_s)
        (known, first_ms), (_, last_ms) = messages[0].timestamp(), messages[-1].timestamp()
        if known != TIMESTAMP_NOT_AVAILABLE:
            self._meter.aged(len(messages), now_ms - first_ms, now_ms - last_ms)

    def _heed(self, event: Message) -> None:
        """An event that is no record: the end of a partition, or an error.

        Raises:
            OffsetsLost: the records at the position are gone.
            KafkaException: anything else.
        """
        error, topic, number, offset = event.error(), event.topic(), event.partition(), event.offset()
        assert error is not None
        partition = (topic or "", -1 if number is None else number)
        if error.code() == KafkaError._PARTITION_EOF:
            if partition in self._positions and offset is not None:
                # Transaction markers are no records: only the end tells that the position has moved past them.
                self._positions[partition] = max(self._positions[partition], offset)
                self._at_end.add(partition)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._reset(partition, error)
        elif error.code() in _GONE:
            self._refresh_s = -math.inf
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)
        else:
            _log.warning("reading goes on after: %s", error.str())

    def _reset(self, partition: PartitionId, error: KafkaError) -> None:
        position = self._positions.get(partition)
        if position is None:
            return
        known = partitions.ranges(self._admin, {partition: (position, "")})
        start = starting_offsets(
            known,
            group=self._settings.group,
            scope=None,
            reset_missing=self._settings.reset_missing,
            reset_to_latest=self._settings.reset_to_latest,
        )[partition]
        _log.warning("%s: the position goes from %d to %d (%s)", partition, position, start, error.str())
        self._commit()
        if self._ledger is not None:
            self._ledger.begin({partition: start})
        self._positions[partition] = start
        self._at_end.discard(partition)
        # The position may come to what was committed again, with records before it that nobody made durable.
        del self._committed[partition]
        self._uncommitted_starts[partition] = start
        self._consumer.seek(TopicPartition(*partition, start))

    def _owned(self) -> partitions.Owned:
        begun_s = time.monotonic()
        owned = partitions.owned_partitions(self._consumer, self._settings, self._spec.task, self._spec.task_count)
        self._topics = owned.topics
        now_s, interval_s = time.monotonic(), self._settings.metadata_max_age_ms / 1000
        if not owned.is_complete:
            interval_s = min(interval_s, MISSING_TOPIC_INTERVAL_S)
        elif self._warm:
            interval_s = min(interval_s, max(WARM_REFRESH_INTERVAL_S, (now_s - begun_s) / WARM_REFRESH_SHARE))
        self._refresh_s = now_s + interval_s
        return owned

    def _refresh(self) -> None:
        """Look for new partitions and topics, and let go of those that were deleted."""
        try:
            owned = self._owned()
        except KafkaException as error:
            if not self._warm:
                raise
            _log.warning("nothing is known of new partitions now: %s", error)
            self._refresh_s = time.monotonic() + WARM_REFRESH_INTERVAL_S
            return
        has = set(owned.partitions)
        gone = [p for p in self._positions if p not in has and p[0] not in owned.unclear]
        new = [partition for partition in owned.partitions if partition not in self._positions]
        if gone:
            _log.warning("partitions are gone: %s", gone)
            self._consumer.incremental_unassign([TopicPartition(*partition) for partition in gone])
            for partition in gone:
                del self._positions[partition]
                self._at_end.discard(partition)
                self._uncommitted_starts.pop(partition, None)
            # What was put of them is made durable; their offsets went with the topic, and no broker takes others.
            self._commit()
            if self._ledger is not None:
                self._ledger.forget(gone)
        if new:
            self._adopt(new, None)

    def _adopt(self, new: list[PartitionId], scope: CommitScope | None) -> None:
        """Begin with partitions: finish what an earlier owner committed, then commit where this one begins."""
        # Before the group is asked: what an owner remembers of it from before it stood still may have been reset since,
        # and would become the ledger's. Who claims nobody's row has it to itself until another claims it.
        claimed: Mapping[PartitionId, int] = {} if self._ledger is None else self._ledger.claim(new)
        offsets = over_group(partitions.committed(self._consumer, new, self._hung), claimed)
        starts = starting_offsets(
            partitions.ranges(self._admin, offsets),
            group=self._settings.group,
            scope=scope,
            forgotten=partitions.forgotten(self._consumer, self._hung, scope, offsets),
            reset_missing=self._settings.reset_missing,
            reset_to_latest=self._settings.reset_to_latest,
        )
        self._task.open(new)
        if self._staging is not None:
            self._recover(self._staging, {p: manifest.decode(text) for p, (_, text) in offsets.items()})
        if self._ledger is not None:
            self._ledger.begin(starts)
        self._positions.update(starts)
        if new:
            self._consumer.incremental_assign([TopicPartition(*partition, starts[partition]) for partition in new])
            if self._staging is not None or self._ledger is not None or self._settings.reset_to_latest:
                self._commit()
            else:
                # In one commit with the first records, due once it was looked whether there are any. Who comes after a
                # death before that begins at the same place; from the end, or beside staged files, it would not.
                self._uncommitted_starts.update({partition: starts[partition] for partition in new})
                self._commit_s = -math.inf

    def _recover(self, staging: StagingSinkTask, manifests: Mapping[PartitionId, str]) -> None:
        try:
            staging.recover(manifests)
        except OffsetsLost as error:
            if not self._settings.reset_missing:
                raise OffsetsLost(f"{error.message}; set {OFFSETS_MISSING}=reset to go on without it") from error
            _log.warning("going on without what was committed: %s", error.message)

    def _is_dirty(self) -> bool:
        return self._positions != self._committed

    def _commit_due(self, now_s: float) -> bool:
        elapsed_s = now_s - self._commit_s
        if elapsed_s >= RECOMMIT_INTERVAL_S:
            return True
        if not self._is_dirty():
            return False
        if elapsed_s >= self._settings.flush_interval_ms / 1000:
            return True
        return self._staging is not None and self._staging.commit_due()

    def _commit(self) -> None:
        """Make durable what was put, commit the positions of all partitions, publish."""
        begun_s, begun_ns = time.monotonic(), time.time_ns()
        try:
            with log_context.offsets_of(self._spec):
                manifests = self._commit_positions()
        except Exception:
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
        self._link.progress(self.progress())

    def _commit_before(self) -> None:
        """Commit what came before the batch under way, if there is one."""
        if self._staging is None or not self._is_putting:
            self._commit()
        else:  # it holds a part of the batch, whose offsets may not go along
            self._commit_starts()

    def _commit_as_told(self) -> None:
        """Commit at the end of a run that is told to end. That the task cannot flush or publish then is no failure, as
        in Connect: the next run goes on from what is committed."""
        try:
            self._commit_before()
        except RetriableError as error:
            _log.warning("the next run goes on from what is committed, as the task could not finish: %s", error)
            self._commit_starts()

    def _commit_positions(self) -> Mapping[PartitionId, str]:
        """Make durable what was put and commit; what is to be published now."""
        manifests: Mapping[PartitionId, str] = {}
        if self._staging is not None:
            manifests = self._staging.stage()
        elif self._ledger is not None:
            self._errors.settle()
            self._ledger.advance(self._positions)
        else:
            self._task.flush()
        if self._meter.records_in > 0:  # the commit of the starting positions is not what a fault test means
            failpoints.hit("after-write")
        self._errors.settle()
        positions = dict(self._positions)
        if positions:
            offsets = [
                TopicPartition(*partition, offset, manifest.encode(manifests.get(partition, "")))
                for partition, offset in positions.items()
            ]
            self._fence.commit_offsets(offsets, self._consumer.consumer_group_metadata())
            self._commit_time_ms = time.time_ns() // 1_000_000
            self._commit_scope = self._scope_of(positions)
            self._uncommitted_starts.clear()
        self._commit_s = time.monotonic()
        self._committed = positions
        return manifests

    def _scope_of(self, positions: Iterable[PartitionId]) -> CommitScope:
        """Of a commit: other topics that the connector committed stay named as long as the config subscribes to them
        and they exist, because any task may be given their partitions next."""
        scope, before = CommitScope.of(self._settings.group, (topic for topic, _ in positions)), self._commit_scope
        if before is None or before.group != scope.group:
            return scope
        return scope.beside(self._topics.intersection(before.topics + before.elsewhere))

    def _commit_starts(self) -> None:
        if self._uncommitted_starts:
            self._commit_again()

    def _commit_again(self) -> None:
        """Commit what is committed, and where partitions begin, without asking the task for what it was given since."""
        offsets = [
            TopicPartition(*partition, offset, manifest.encode(self._published.get(partition, "")))
            for partition, offset in (self._committed | self._uncommitted_starts).items()
        ]
        self._fence.commit_offsets(offsets, self._consumer.consumer_group_metadata())
        self._commit_s = time.monotonic()

    def _is_quiet(self, now_s: float) -> bool:
        """Nothing for so long, and every partition read to its end: a broker that is away is no quiet."""
        quiet_s = self._quiet_s(now_s)
        return quiet_s is not None and quiet_s * 1000 >= self._spec.linger_ms

    def _quiet_s(self, now_s: float) -> float | None:
        """Time since the last record while all is read; None while it is not, of a run that is never to rest, and while
        a rate limit lets it take nothing: the next run would know nothing of that."""
        if self._spec.continuous or len(self._at_end) < len(self._positions) or self._limits.wait_s(now_s) > 0:
            return None
        return now_s - self._record_s
