"""Record loop of a sink task.

Owns one run: take over, read, convert and transform, put, commit, end. `sink_assignment` determines the partitions,
`sink_positions` the offsets, `sink_commits` the commits, `batches` the offset ranges of batches; the connector's task
and the chain handle the records.

Invariant: a position moves past a record only after the record was put or skipped; committed offsets follow positions.
"""

from __future__ import annotations

import logging
import time
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from herdmesh.connect.chain import SinkChain
from herdmesh.connect.errors import RecordError
from herdmesh.connect.model import Batch
from herdmesh.connect.spi import PartitionId, SinkBatch, SinkTask, waits
from herdmesh.engine.bad_records import RetryStopped, SinkErrors
from herdmesh.engine.fencing import Fence, task_set_check
from herdmesh.engine.librdkafka import BatchConsumer, Heard, RecordColumns, clients
from herdmesh.engine.runtime import (
    BackgroundCall,
    GcSchedule,
    LedgerTaken,
    LoopWaits,
    Meter,
    PartitionProgress,
    ProgressReport,
    RateLimits,
    RunCommands,
    RunEnd,
    RunLink,
    RunOutcome,
    RunSpans,
    RunSpec,
    SinkSettings,
    TaskFailed,
    failpoints,
    kafka,
)
from herdmesh.engine.sink import batches, partitions
from herdmesh.engine.sink.consumer_control import ConsumerControl
from herdmesh.engine.sink.ledger import LedgerSinkTask
from herdmesh.engine.sink.refresh_schedule import RefreshSchedule
from herdmesh.engine.sink.sink_assignment import WARM_REFRESH_INTERVAL_S, SinkAssignment
from herdmesh.engine.sink.sink_commits import SinkCommits
from herdmesh.engine.sink.sink_positions import SinkPositions
from herdmesh.engine.sink.task_requests import SinkTaskRequests
from herdmesh.kafka.broker_reachability import Contact
from herdmesh.kafka.transient import STALE_TOPIC, is_transient

WAIT_S = 0.1
"""How long the loop waits for a record before it checks commands, commits and the clock again."""
#: The topic was deleted, or is another one under the same name, whose leaders' epochs begin anew.
_GONE = frozenset(
    (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        *STALE_TOPIC,
    )
)

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
        reading: SinkTaskRequests,
        spans: RunSpans | None = None,
    ) -> None:
        now_s = time.monotonic()
        self._spec = spec
        self._settings = settings
        self._link = link
        self._task = task
        self._keeps_ledger = isinstance(task, LedgerSinkTask)
        self._chain = chain
        self._fence = fence
        self._consumer = consumer
        self._contact = contact
        self._admin = admin
        self._spans = spans
        self._errors = errors
        self._tolerance = errors.tolerance(pause=self._pause, requested_delay_ms=reading.take_retry_after_ms)
        self._is_putting = False
        self._meter = Meter(now_s)
        self._limits = RateLimits(
            settings.rate.records_per_second, settings.rate.bytes_per_second, spec.task_count, now_s
        )
        self._waits = LoopWaits(spec.bootstrap_servers)
        self._garbage = GcSchedule()
        self._commands = RunCommands(link, self._limits, now_s, stays_warm=spec.stays_warm)
        #: True while the run has nothing to do and nothing uncommitted, but continues.
        self._warm = False
        self._positions = SinkPositions()
        self._refresh = RefreshSchedule()
        self._intake = BatchConsumer(consumer)
        link.wake_with(self._intake.wake)
        self._control = ConsumerControl(consumer, self._intake, reading, self._positions)
        self._commits = SinkCommits(
            spec, settings, task=task, fence=fence, group=consumer.consumer_group_metadata,
            missing=partial(partitions.missing, consumer), errors=errors, meter=self._meter, reading=reading,
            positions=self._positions, control=self._control, refresh=self._refresh, spans=spans, report=self._tell,
        )  # fmt: skip
        self._assignment = SinkAssignment(
            spec, settings, task=task, consumer=consumer, admin=admin, fence=fence, positions=self._positions,
            control=self._control, refresh=self._refresh, commits=self._commits, reading=reading,
        )  # fmt: skip
        self._config_offset: int | None = None
        self._record_s = now_s

    def run(self) -> RunOutcome:
        """Take over and move records until there is a reason to end.

        Raises:
            TaskFailed: with its class; TaskFenced when another owner took over.
            RecordError: a record that cannot be converted or transformed; everything before it is committed.
        """
        try:
            outcome = self._run()
        except Exception:
            try:
                self._close()
            except Exception:  # noqa: BLE001 - an author's code may raise anything, and the run ends with the first error
                _log.exception("the task failed in close, too")
            raise
        finally:
            self._intake.close()
        self._close()
        return outcome

    def _run(self) -> RunOutcome:
        # Neither query depends on the take-over; both need a connection, which is established meanwhile.
        refuse = partial(partitions.refuse_members, self._admin, self._settings.group)
        with waits.on(kafka(self._spec.bootstrap_servers), "taking over the task"):
            with BackgroundCall(self._assignment.owned) as owned, BackgroundCall(refuse) as members:
                self._fence.take_over()
                self._config_offset = task_set_check.begin_check(self._spec, self._admin, self._consumer).verify()
                self._link.progress(self.progress())  # first progress report of a task that started and owns its id
                members.result()
                found = owned.result()
            self._assignment.adopt(found.partitions, self._spec.commit_scope, found.ids)
            self._tell()  # the first put may never return; report the partitions that wait for it before
        try:
            reason = self._loop()
        except RetryStopped as ended:
            self._commits.commit_on_command(is_putting=self._is_putting)
            return RunOutcome(ended.reason, self._last_progress())
        except RecordError:
            self._commits.commit_before(is_putting=self._is_putting)
            raise
        except LedgerTaken:
            self._commits.commit_again()  # raises TaskFenced if another owner took over
            raise
        except (TaskFailed, KafkaException):
            raise
        except Exception:
            # The connector's task failed, perhaps for days: its starting offsets must not be forgotten meanwhile.
            self._commits.commit_starts()
            raise
        if (
            not self._commits.is_settled
        ):  # else this run committed all its partitions within the hour, at these positions
            if reason is RunEnd.STOPPED:
                self._commits.commit_on_command(is_putting=self._is_putting)
            else:
                self._commits.commit()
        wake_after_ms = int(self._limits.wait_s(time.monotonic()) * 1000) if reason is RunEnd.YIELDED else 0
        return RunOutcome(reason, self._last_progress(), wake_after_ms)

    def _last_progress(self) -> ProgressReport:
        self._commits.return_to_committed()
        return self.progress()

    def _close(self) -> None:
        if self._positions:
            self._task.close(sorted(self._positions))

    def _tell(self) -> None:
        self._link.progress(self.progress())

    def progress(self) -> ProgressReport:
        """The current progress of the run."""
        return ProgressReport(
            records_in=self._meter.records_in,
            records_out=self._meter.records_out,
            records_dropped=self._meter.records_dropped,
            partitions=tuple(self._progress_of(partition) for partition in sorted(self._positions)),
            records_per_second=self._meter.rate(time.monotonic()),
            commit_time_ms=self._commits.time_ms,
            commit_scope=self._commits.scope,
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
        committed = self._positions.committed(partition)
        end = max(end, self._assignment.ends.get(partition, -1), position)
        pending = self._positions.pending(partition)
        return PartitionProgress(topic, number, -1 if committed is None else committed, position, end, pending)

    def _loop(self) -> RunEnd:
        while True:
            self._control.carry_out_requests()
            now_s = time.monotonic()
            end = self._commands.wish(now_s, self._quiet_s(now_s))
            if end is not None:
                return end
            if self._rests(now_s) or self._is_lost():
                return RunEnd.QUIET
            wait_s = self._limits.wait_s(now_s)
            self._waits.note(wait_s, kafka_away=self._contact.is_in_doubt)
            if wait_s > 0:
                time.sleep(min(wait_s, WAIT_S))  # waits: reported by `self._waits.note`
            else:
                self._take(self._read())
            now_s = time.monotonic()
            if self._refresh.is_due(now_s) and not self._contact.is_in_doubt:
                self._assignment.refresh(is_warm=self._warm)
            if self._commits.due(now_s):
                self._commits.commit()
            self._report(now_s)

    def _rests(self, now_s: float) -> bool:
        """True when there is nothing to do and the run has to end. A run that stays warm commits as if it ended."""
        if not self._is_quiet(now_s):
            self._warm = False
            return False
        if not (self._commits.commit_to_rest() and self._is_all_read):  # the task may have sought back meanwhile
            return False
        if not self._commands.stays_warm or not self._positions:
            return True
        if not self._warm:
            self._warm = True
            self._refresh.no_later_than(now_s + WARM_REFRESH_INTERVAL_S)
            if self._commits.is_settled:
                self._tell()
            else:
                self._commits.commit()
        return False

    def _is_lost(self) -> bool:
        """True when the consumer or the fence's producer has lost its brokers for good, and the run may end because all
        that it read is committed. Check the consumer first; skip the check of the producer while the consumer is in
        doubt, as in an outage.

        Raises:
            KafkaException: the run has uncommitted work.
        """
        if not (self._contact.is_lost(self._consumer) or (not self._contact.is_in_doubt and self._fence.is_lost())):
            return False
        if not self._warm or not self._commits.is_settled:
            raise clients.forgotten()
        _log.warning("a run that has nothing to do ends: %s", clients.forgotten())
        return True

    def _report(self, now_s: float) -> None:
        if self._limits.roll(now_s) or self._meter.report_due(now_s):
            self._tell()
            clients.poll_clients(self._fence.producer, self._admin)
            self._errors.poll_producer()
            self._garbage.collect()

    @property
    def _is_all_read(self) -> bool:
        """True when each partition was read to its end, and none is paused."""
        return self._positions.is_all_read and not self._control.has_paused

    def _pause(self, seconds: float, yields: bool) -> RunEnd | None:
        """Wait before a retry of records, for `Tolerance`."""
        return self._commands.pause(seconds, self._while_retrying, yields=yields)

    def _while_retrying(self, now_s: float) -> None:
        """Commit and report while records wait to be retried, which may last for days."""
        if self._commits.again_due(now_s):
            self._commits.commit_again()
        self._report(now_s)

    def _read(self) -> Heard:
        return self._intake.take(self._limits.batch_size(self._settings.batch_records_max), WAIT_S)

    def _take(self, heard: Heard) -> None:
        taken, events = heard
        if taken:
            self._record_s = time.monotonic()
            self._warm = False
            for records in taken:
                if records.partition in self._positions:
                    self._put(records)
            byte_count = sum(records.byte_count for records in taken) if self._limits.counts_bytes else 0
            self._limits.took(sum(map(len, taken)), byte_count, time.monotonic())
        # End-of-partition events first: other events may change the assignment.
        for event in sorted(events, key=_is_no_end):
            self._heed(event)

    def _put(self, records: RecordColumns) -> None:
        topic, number = records.partition
        begun_ns = 0 if self._spans is None else time.time_ns()
        self._errors.begin(records)
        made = self._chain.run(
            Batch(
                topic, number, records.keys, records.values, records.offsets, records.times_ms, headers=records.headers
            ),
            self._tolerance,
        )
        if self._keeps_ledger:
            self._errors.flush_dead_letters()  # the ledger's commits move past the records that the chain skipped
        first, last = records.first_offset, records.last_offset
        begun_s = time.monotonic()
        failpoints.hit("before-write")
        self._is_putting = True
        for done, begin, end in batches.ranges(made, first, last):
            given = SinkBatch(
                done.topic, number, begin, end, done.values, done.keys, done.offsets, done.timestamps_ms,
                done.headers, done.key_schema, done.value_schema, topic, records,
            )  # fmt: skip
            self._tolerance.until_taken(partial(self._task.put, given))
            self._errors.raise_swallowed()
        self._is_putting = False
        self._positions.read_to(records.partition, last + 1)
        self._measure(records, sum(len(done.values) for done in made), begun_s)
        if self._spans is not None:
            self._spans.batch(begun_ns, len(records), f"{topic}-{number} {first}..{last}")

    def _measure(self, records: RecordColumns, given: int, begun_s: float) -> None:
        now_s, now_ms = time.monotonic(), time.time_ns() // 1_000_000
        self._meter.count(len(records), given, now_s)
        self._meter.called(now_s - begun_s)
        if (times := records.first_and_last_ms) is not None:
            self._meter.aged(len(records), now_ms - times[0], now_ms - times[1])

    def _heed(self, event: Message) -> None:
        """Handle an event that is not a record: the end of a partition, or an error.

        Raises:
            OffsetsLost: the records at the position are gone.
            KafkaException: anything else.
        """
        error, topic, number, offset = event.error(), event.topic(), event.partition(), event.offset()
        assert error is not None
        partition = (topic or "", -1 if number is None else number)
        if error.code() == KafkaError._PARTITION_EOF:
            if offset is not None:
                self._positions.ended(partition, offset)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._assignment.reset(partition, error)
        elif error.code() in _GONE:
            self._refresh.soon()
        elif not is_transient(error):
            raise KafkaException(error)
        else:
            _log.warning("transient error of the consumer, reading continues: %s", error.str())

    def _is_quiet(self, now_s: float) -> bool:
        """True when no record came for `linger_ms` and every partition was read to its end. An unreachable broker does
        not count.
        """
        quiet_s = self._quiet_s(now_s)
        return quiet_s is not None and quiet_s * 1000 >= self._spec.linger_ms

    def _quiet_s(self, now_s: float) -> float | None:
        """Time since the last record, if all is read. None if not, for a continuous run, and while a rate limit blocks
        the run or the task holds offsets back: the next run would not know about either.
        """
        is_busy = self._spec.continuous or not self._is_all_read or self._commits.holds_back
        if is_busy or self._limits.wait_s(now_s) > 0:
            return None
        return now_s - self._record_s


def _is_no_end(event: Message) -> bool:
    error = event.error()
    return error is None or error.code() != KafkaError._PARTITION_EOF
