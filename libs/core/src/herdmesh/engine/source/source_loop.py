"""Record loop of a source task.

Owns one run: take over, read the committed offsets, poll, transform and convert, produce, commit, end. `source_poller`
knows the task's position.

Records and their offsets share a transaction (ADR 0003): the fence is a transactional producer anyway, so a stale
owner's records never become visible, and nothing is sent twice to readers of committed records. Or records are sent at
least once, visible at once, and only their offsets are committed under the fence (ADR 0012, `source_delivery`): a
transaction here is then everything that the next commit of offsets covers.

In standalone mode the offsets are not in Kafka but in the worker's file: they are stored there once the transaction
of their records is committed, so that a crash between the two sends records again and never loses one.

Invariant: an offset is in the offsets topic exactly when every record before it is in its topic; an offset is in the
file only when every record before it is in its topic.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import partial

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from herdmesh.connect.chain import SourceChain, checked_times
from herdmesh.connect.errors import ConnectError, RecordError
from herdmesh.connect.model import Batch
from herdmesh.connect.spi import SourceBatch, SourceTask, SourceTaskContext, waits
from herdmesh.connect.topics import CommitScope, why_no_topic
from herdmesh.engine.bad_records import KAFKA_PRODUCE, RetryStopped, SourceErrors
from herdmesh.engine.delivery import DeliveryFailures, DeliveryReports, SourceDelivery
from herdmesh.engine.fencing import task_set_check
from herdmesh.engine.librdkafka import clients, ensure_topic
from herdmesh.engine.runtime import (
    PRODUCED_MAX,
    BackgroundCall,
    GcSchedule,
    LoopWaits,
    Meter,
    ProgressReport,
    RateLimits,
    RunCommands,
    RunEnd,
    RunLink,
    RunOutcome,
    RunSpans,
    RunSpec,
    SourceSettings,
    failpoints,
    kafka,
    log_context,
)
from herdmesh.engine.source import source_offsets, stored_offsets, topics
from herdmesh.engine.source.boundaries import Boundaries, End
from herdmesh.engine.source.record_check import check_given
from herdmesh.engine.source.source_poller import SourcePoller
from herdmesh.engine.source.source_transaction import SourceTransaction

POLL_RECORDS_MAX = 10_000
"""Maximum number of records a task should return at once, unless a rate limit sets a lower one."""
WARM_S_MAX = 86_400.0
"""Maximum age of a run without records. A broker forgets a transactional id after seven days without use."""
WAIT_S = 0.1
"""How long an idle loop waits before it polls, and checks commands, again."""

_log = logging.getLogger(__name__)


class _Disowned(Exception):
    """The task states that its polled records do not match its offsets (`SourceTask.may_commit`)."""


class SourceLoop:
    """One run of one source task. Used once, from one thread."""

    def __init__(
        self,
        spec: RunSpec,
        settings: SourceSettings,
        link: RunLink,
        *,
        task: SourceTask,
        chain: SourceChain,
        outlet: SourceDelivery,
        failures: DeliveryFailures,
        admin: AdminClient,
        errors: SourceErrors,
        spans: RunSpans | None = None,
    ) -> None:
        now_s = time.monotonic()
        self._spec = spec
        self._settings = settings
        self._link = link
        self._task = task
        self._chain = chain
        self._outlet = outlet
        self._admin = admin
        self._spans = spans
        self._errors = errors
        self._failures = failures
        self._tolerance = errors.tolerance(pause=self._pause)
        #: None = the loop ends transactions, else only the task does.
        self._boundaries = Boundaries() if settings.connector_boundaries else None
        #: records sent so far are a part of one poll, which must be one transaction (`transaction.boundary=poll`).
        self._within_poll = False
        heard = DeliveryReports(task, failures.add) if task.wants_metadata() else None
        self._transaction = SourceTransaction(spec, settings, link, outlet, failures, heard)
        self._meter = Meter(now_s)
        self._limits = RateLimits(
            settings.rate.records_per_second, settings.rate.bytes_per_second, spec.task_count, now_s
        )
        self._waits = LoopWaits(spec.bootstrap_servers)
        self._kafka = kafka(spec.bootstrap_servers)
        self._garbage = GcSchedule()
        self._control = RunCommands(link, self._limits, now_s, stays_warm=spec.stays_warm)
        #: True while the run has nothing to do and nothing uncommitted, but continues.
        self._warm = False
        self._counts_bytes = self._limits.counts_bytes or settings.transaction_bytes_max is not None
        #: bytes in the open transaction, if bytes are counted.
        self._transaction_bytes = 0
        self._polls = SourcePoller(task, spec.connector)
        self._topics: set[str] = set()
        #: committed records by topic.
        self._produced: Counter[str] = Counter()
        self._commit_scope = spec.commit_scope
        self._config_offset: int | None = None
        self._commit_time_ms: int | None = None
        #: set by each new command of the worker.
        self._commanded = threading.Event()
        link.wake_with(self._commanded.set)
        #: no transaction was committed for being full since the source last had nothing.
        self._is_first = True
        #: when the first and the last batch of the open transaction were polled.
        self._first_poll_s = self._last_poll_s = 0.0
        #: when the last poll began, and the first of the open transaction. Both include the wait for records.
        self._poll_began_s = self._began_s = now_s
        self._record_s = now_s
        #: when the task was last notified that all its polled records are committed.
        self._told_s = now_s

    def run(self) -> RunOutcome:
        """Take over and move records until there is a reason to end.

        Raises:
            TaskFailed: with its class; TaskFenced when another owner took over.
            RecordError: a record that cannot be transformed or converted; everything before it is committed.
        """
        try:
            return self._run()
        except KafkaException as error:
            self._transaction.raise_refused(error)
            self._outlet.raise_fatal(error)
            raise

    def _run(self) -> RunOutcome:
        with waits.on(self._kafka, "taking over the task"):
            self._take_over()
        self._task.start(
            self._spec.task_config,
            SourceTaskContext(
                connector=self._spec.connector,
                task=self._spec.task,
                task_count=self._spec.task_count,
                run_id=self._spec.run_id,
                committed_offset=self._polls.offsets.committed_offset,
                poll_records_max=partial(self._limits.batch_size, POLL_RECORDS_MAX),
                make_topic=partial(topics.make_topic, self._admin),
                transactions=self._boundaries,
            ),
        )
        self._link.progress(self.progress())  # first progress report of a task that owns its id and started
        try:
            reason = self._until_end()
        except _Disowned:
            self._transaction.abandon()
            is_stopped = self._control.wish(time.monotonic()) is RunEnd.STOPPED
            return RunOutcome(RunEnd.STOPPED if is_stopped else RunEnd.YIELDED, self.progress(), 0)
        debt_s = self._limits.wait_s(time.monotonic())
        if reason is RunEnd.YIELDED and self._polls.found_nothing and debt_s == 0:
            reason = RunEnd.QUIET  # it requests a slot again when its task wants it, not at once
        wake_after_ms = 0
        if reason is RunEnd.QUIET:
            wake_after_ms = self._task.wake_after_ms()
        elif reason is RunEnd.YIELDED:
            wake_after_ms = int(debt_s * 1000)
        return RunOutcome(reason, self.progress(), wake_after_ms)

    def _until_end(self) -> RunEnd:
        """Move records until there is a reason to end, and commit them. Raises as `run`, and _Disowned."""
        try:
            reason = self._loop()
            self._commit_unasked()
        except RetryStopped as ended:
            reason = ended.reason
            if self._errors.letters is not None:
                self._errors.letters.forget()  # its batch was not sent
            self._commit_unasked(all_polled=False)
        except RecordError as error:
            self._commit_before(error)
            raise
        return reason

    def progress(self) -> ProgressReport:
        """The current progress of the run."""
        return ProgressReport(
            records_in=self._meter.records_in,
            records_out=self._meter.records_out,
            records_dropped=self._meter.records_dropped,
            records_per_second=self._meter.rate(time.monotonic()),
            commit_time_ms=self._commit_time_ms,
            commit_scope=self._commit_scope,
            produced=tuple(sorted(self._produced.items())),
            config_offset=self._config_offset,
            errors=self._errors.counts.so_far(),
            records_rate=self._limits.records.use(),
            bytes_rate=self._limits.bytes.use(),
            warm=self._warm,
            measures=self._meter.take_measures(),
        )

    def _take_over(self) -> None:
        spec, fence = self._spec, self._outlet.fence
        if spec.source_offsets is not None:
            fence.take_over()
            claim = task_set_check.begin_check(spec, self._admin)
            offsets = source_offsets.SourceOffsets(spec.connector)
            for key, value in spec.source_offsets.items():
                offsets.apply(key, value)
        else:
            reader = stored_offsets.StoredOffsetsReader(spec, self._settings, self._admin, creates=True)
            with log_context.offsets_of(spec), closing(reader), BackgroundCall(reader.prepare) as prepared:
                fence.take_over()
                claim = task_set_check.begin_check(spec, self._admin)
                prepared.result()
                offsets = reader.read(fence)
        self._polls.go_on_from(offsets)
        self._config_offset = claim.verify()

    def _loop(self) -> RunEnd:
        while True:
            now_s = time.monotonic()
            end = self._control.wish(now_s)
            if end is not RunEnd.STOPPED and self._is_held():
                self._transaction.refuse_overdue()
                end = None  # yielding would discard the transaction, and the next run would begin it again, endlessly
            if end is RunEnd.YIELDED and not self._task.may_yield():
                end = None
            if end is not None:
                return end
            if self._rests(now_s) or self._is_lost():
                return RunEnd.QUIET
            self._poll_began_s = now_s
            limit_s = self._limits.wait_s(now_s)
            self._waits.note(limit_s, kafka_away=self._outlet.is_in_doubt)
            batch = self._polls.poll() if limit_s == 0 else None
            now_s = time.monotonic()
            if batch is not None:
                self._record_s = now_s
                self._warm = False
                self._meter.called(now_s - self._poll_began_s)
                self._limits.took(len(batch), self._hand_over(batch), now_s)
                self._within_poll = self._settings.poll_boundaries and self._task.has_rest()
            else:
                self._within_poll = self._settings.poll_boundaries and self._task.has_rest()
                self._commit_unasked()
                self._tell_of_nothing(now_s)
                self._is_first |= self._polls.found_nothing
                # waits: for a rate limit, reported by `self._waits.note`, or only for the next poll
                self._commanded.wait(min(WAIT_S, self._limits.wait_s(now_s) or WAIT_S))
                self._commanded.clear()
            if self._transaction_is_full():
                self._commit()
                self._is_first = False
            self._report(now_s)

    def _rests(self, now_s: float) -> bool:
        """True when there is nothing to do and the run has to end.

        If the task says when it wants to be polled again, the run need not stay warm; no run stays warm for ever.
        """
        quiet_s = now_s - self._record_s
        # The next run would not know about a rate limit that blocks this one.
        busy = (
            not self._polls.found_nothing or self._spec.continuous or self._limits.wait_s(now_s) > 0 or self._is_held()
        )
        if busy or quiet_s * 1000 < self._spec.linger_ms:
            self._warm = False
            return False
        if not self._control.stays_warm or quiet_s >= WARM_S_MAX or self._task.wake_after_ms() > 0:
            return True
        if not self._warm:
            self._warm = True
            self._link.progress(self.progress())
        return False

    def _is_lost(self) -> bool:
        """True when the producer has lost its brokers for good, and the run may end because nothing is uncommitted.

        Raises:
            KafkaException: the run has uncommitted work.
        """
        if not self._outlet.is_lost():
            return False
        if not self._warm:
            raise clients.forgotten()
        _log.warning("a run that has nothing to do ends: %s", clients.forgotten())
        return True

    def _report(self, now_s: float) -> None:
        if self._limits.roll(now_s) or self._meter.report_due(now_s):
            self._link.progress(self.progress())
            self._outlet.poll_clients(self._admin)
            self._garbage.collect()

    def _pause(self, seconds: float, yields: bool) -> RunEnd | None:
        """Wait before the retry of a record. First commit the records polled before: a broker ends a transaction that
        is open for long.
        """
        self._commit_unasked(all_polled=False)
        return self._control.pause(seconds, self._report, yields=yields and self._task.may_yield())

    def _transaction_is_full(self) -> bool:
        if self._boundaries is not None or self._within_poll or not self._transaction.is_open:
            return False
        bytes_max = self._settings.transaction_bytes_max
        if bytes_max is not None and self._transaction_bytes >= bytes_max:
            return True
        settings = self._settings
        interval_ms = settings.first_transaction_ms if self._is_first else settings.transaction_interval_ms
        return (time.monotonic() - self._began_s) * 1000 >= interval_ms

    def _is_held(self) -> bool:
        """True while a transaction is open that only the task may end, or that awaits the rest of its poll."""
        return (self._boundaries is not None or self._within_poll) and self._transaction.is_open

    def _hand_over(self, batch: SourceBatch | None) -> int:
        """Send the polled batch, and end transactions where the task requested it. Returns the bytes, as `_send`
        does."""
        if self._boundaries is None:
            return 0 if batch is None else self._sent(batch)
        byte_count, pieces = 0, self._boundaries.pieces(batch)
        for number, (piece, end) in enumerate(pieces, 1):
            if piece is not None:
                byte_count += self._sent(piece)
            if end is End.ABORT:
                self._abort()
            if end is not None:
                self._commit(all_polled=all(later is None for later, _ in pieces[number:]))
        return byte_count

    def _sent(self, batch: SourceBatch) -> int:
        """Like `_send`; if it fails because of a field of a wrong type, raises DataError that names the field."""
        try:
            return self._send(batch)
        except (TypeError, AttributeError, ValueError, OverflowError, ConnectError):
            check_given(batch)
            raise

    def _send(self, batch: SourceBatch) -> int:
        """Convert a batch and produce it in the open transaction. Returns its bytes, 0 if bytes are not counted."""
        begun_ns = 0 if self._spans is None else time.time_ns()
        self._last_poll_s = time.monotonic()
        self._errors.begin(batch)
        given = Batch(
            batch.topic, batch.partition, batch.keys, batch.values, timestamps_ms=checked_times(batch.timestamps_ms),
            key_schema=batch.key_schema, value_schema=batch.value_schema, headers=batch.headers,
        )  # fmt: skip
        made = self._chain.run(given, self._tolerance)
        for raw in made:
            if raw.topic not in self._topics:
                self._ensure_topic(raw.topic)
        self._begin()
        self._transaction.take(batch)
        failpoints.hit("before-write")
        with waits.on(self._kafka, "sending records"):
            sent = self._produce(given, made)
        self._transaction.move(*self._polls.reached(batch))
        self._meter.count(len(batch), sent, time.monotonic())
        if self._spans is not None:
            self._spans.batch(begun_ns, len(batch), batch.topic)
        failpoints.hit("after-write")
        byte_count = sum(map(_byte_count, made)) if self._counts_bytes else 0
        self._transaction_bytes += byte_count
        return byte_count

    def _begin(self) -> None:
        if not self._transaction.is_open:
            self._transaction.begin()
            self._began_s = self._poll_began_s
            self._transaction_bytes = 0
            self._first_poll_s = self._last_poll_s

    def _produce(self, given: Batch, made: Sequence[Batch]) -> int:
        """Queue the converted batch, and its dead letters. Returns the number of records."""
        sent = 0
        for raw in made:
            refused = self._transaction.produce(raw)
            for place, error in refused:
                size = sum(len(column[place] or b"") for column in (raw.keys, raw.values) if len(column))
                self._errors.refused(given, raw.places[place], error, raw.topic, size)
            sent += len(raw.values) - len(refused)
        if self._errors.letters is not None:
            self._errors.letters.send(self._outlet, self._failures)
        return sent

    def _commit_before(self, error: RecordError) -> None:
        """Commit the records before the batch of a record that ends the run, with the dead letters of the batch."""
        # A part of the batch is in the transaction, and would be sent again; or only the task may commit it.
        if error.stage == KAFKA_PRODUCE or self._is_held():
            self._transaction.abandon()
        letters = self._errors.letters
        if letters is not None and len(letters):
            self._begin()
            letters.send(self._outlet, self._failures)
        self._commit(all_polled=False)

    def _ensure_topic(self, topic: str) -> None:
        if why_no_topic(topic):
            return  # its records are refused when they are produced
        settings = self._settings
        stored_offsets.refuse_records(self._spec, settings, topic)
        if settings.topic_creation:
            wanted = settings.new_topic(topic)
            ensure_topic(self._admin, topic, wanted.partitions, wanted.replication_factor, wanted.config)
        self._topics.add(topic)

    def _abort(self) -> None:
        """Abort as the task requested: discard the records; the next commit has only their offsets."""
        if not self._transaction.is_open:
            _log.warning("the task requested the abort of a transaction, and none is open")
            return
        _log.info("the task aborted its transaction: %d records are discarded", self._transaction.sent.total())
        self._transaction.discard_records()

    def _commit_unasked(self, *, all_polled: bool = True) -> None:
        """Commit everything, unless the task sets the boundaries: then fulfil only its requests since its last poll.
        Never commits a part of a poll that must be committed as a whole.
        """
        if self._boundaries is not None:
            self._hand_over(None)
        elif not self._within_poll:
            self._commit(all_polled=all_polled)

    def _commit(self, *, all_polled: bool = True) -> None:
        """Commit the records produced so far together with their offsets. `all_polled`: every polled record is among
        them, which is the meaning of the task's `commit`.
        """
        if not self._transaction.is_open:
            return
        if self._task.may_commit() is False:
            raise _Disowned
        begun_s, begun_ns = time.monotonic(), time.time_ns()
        try:
            with waits.on(self._kafka, "committing records and their offsets"):
                self._transaction.commit()
        except Exception:
            self._meter.commit_failed()
            raise
        now_s, sent = time.monotonic(), self._transaction.sent
        records = sent.total()
        self._meter.committed(now_s - begun_s, records)
        if records:
            self._meter.aged(records, (now_s - self._first_poll_s) * 1000, (now_s - self._last_poll_s) * 1000)
        if self._spans is not None:
            self._spans.commit(begun_ns, self._meter.records_in)
        for topic, count in sent.items():
            if topic in self._produced or len(self._produced) < PRODUCED_MAX:
                self._produced[topic] += count
        sent.clear()
        self._commit_scope = CommitScope.of("", self._transaction.offsets_topics)
        self._commit_time_ms = time.time_ns() // 1_000_000
        failpoints.hit("after-offset-commit")
        self._transaction.report_commit()
        if all_polled:
            self._tell_task()
        self._link.progress(self.progress())

    def _tell_of_nothing(self, now_s: float) -> None:
        """Notify the task of a commit without records, as Connect does at each flush interval."""
        if self._transaction.is_open:
            self._told_s = now_s
        elif (now_s - self._told_s) * 1000 >= self._settings.flush_interval_ms:
            self._tell_task()

    def _tell_task(self) -> None:
        self._told_s = time.monotonic()
        try:
            self._task.commit()
        except Exception:  # noqa: BLE001 - an author's code may raise anything, and the commit is done
            _log.exception("the task failed in commit; its offsets are committed all the same")


def _byte_count(batch: Batch) -> int:
    """The size of keys and values in bytes, as they are produced."""
    columns = (batch.keys, batch.values)
    return sum(len(each) for column in columns for each in column if each is not None)
