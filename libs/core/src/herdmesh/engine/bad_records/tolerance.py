"""Error policy for a record that fails: retry, skip, report, or end the run (`errors.tolerance`, `errors.retry.*`).

Owns Connect's execute algorithm (docs/reference/connect/data-model.md, section 5.2), the settings it reads, and the
counts. The reports are `error_reports` and `dead_letters`; the chain continues with the good records of a batch.

A record is skipped when its retries are exhausted, even with `errors.tolerance=none`: that is Connect's rule 2, and it
is logged here. A ConfigError is never tolerated (ADR 0007): a wrong configuration is wrong for every record.

Invariant: a failure is counted, and every reporter has received it, before the record is skipped or the run ends; a
run that ends never skips a record for that reason.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from confluent_kafka import Message

from herdmesh.connect.chain import RecordSkipped, Step, record_error
from herdmesh.connect.errors import ConfigError, RecordError, RetriableError, error_text
from herdmesh.connect.model import Batch
from herdmesh.connect.spi import waits
from herdmesh.connect.task_counts import ErrorCounts
from herdmesh.connect.validation import ERRORS
from herdmesh.engine.runtime import RunEnd

T = TypeVar("T")

KAFKA_PRODUCE = "KAFKA_PRODUCE"
FIRST_DELAY_MS = 300
_ENDS_ANYWAY = (ConfigError, MemoryError)
_TELL_EVERY = 1_000
"""Of records skipped with tolerance none, the first is logged, and then one of this many."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ErrorSettings:
    """Settings `errors.*` of a connector."""

    tolerate: bool
    retry_timeout_ms: int
    """-1 = no limit."""
    retry_delay_max_ms: int
    log: bool
    log_messages: bool
    dead_letters: str
    """The topic; empty = none."""
    replication_factor: int
    context_headers: bool

    @property
    def reports(self) -> bool:
        """True when failures are reported; a sink task then has an errant-record reporter."""
        return self.log or bool(self.dead_letters)


_FACTOR = "errors.deadletterqueue.topic.replication.factor"


def error_settings(
    config: Mapping[str, str | None], worker: Mapping[str, str | None] = MappingProxyType({})
) -> ErrorSettings:
    """Read `errors.*`. Raises ConfigError naming the key. `worker`: its config, which has the replication factor of
    dead letter queues for connectors that do not set it.
    """
    found = ERRORS.parse({_FACTOR: worker.get(_FACTOR), **config} if worker.get(_FACTOR) else config)
    return ErrorSettings(
        tolerate=found["errors.tolerance"] == "all",
        retry_timeout_ms=found["errors.retry.timeout"],
        retry_delay_max_ms=found["errors.retry.delay.max.ms"],
        log=found["errors.log.enable"],
        log_messages=found["errors.log.include.messages"],
        dead_letters=found["errors.deadletterqueue.topic.name"].strip(),
        replication_factor=found[_FACTOR],
        context_headers=found["errors.deadletterqueue.context.headers.enable"],
    )


@dataclass(slots=True)
class Counts:
    """`task-error-metrics` of one run, mutable."""

    failures: int = 0
    errors: int = 0
    skipped: int = 0
    retries: int = 0
    logged: int = 0
    dead_letters: int = 0
    dead_letters_failed: int = 0
    last_error_ms: int = 0
    dead_letters_cut: int = 0

    def so_far(self) -> ErrorCounts:
        """The counts as an immutable value."""
        return ErrorCounts(
            self.failures, self.errors, self.skipped, self.retries, self.logged, self.dead_letters,
            self.dead_letters_failed, self.last_error_ms, self.dead_letters_cut,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record as the source's task returned it, before the chain: its batch and its index there."""

    batch: Batch
    at: int
    source_partition: Mapping[str, Any] | None
    source_offset: Mapping[str, Any] | None
    """Offset of the batch, that is of its last record."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One record that failed, with the details for reports."""

    stage: str
    class_name: str
    """The failed class: the Java class of a converter or transformation."""
    error: BaseException
    record: Message | SourceRecord


class Reporter(Protocol):
    """Receiver of failures."""

    def report(self, failure: Failure) -> None:
        """Called once for each failure, in the order of the records."""
        ...


class RetryStopped(Exception):
    """The run must end while a record waits for its retry; the record is neither passed on nor skipped."""

    def __init__(self, reason: RunEnd) -> None:
        super().__init__(reason)
        self.reason = reason


class FailedRecords:
    """Counts and reports of the failed records of a run. Used from the loop's thread only."""

    def __init__(self, settings: ErrorSettings, counts: Counts, reporters: Sequence[Reporter]) -> None:
        self.counts = counts
        self._tolerate = settings.tolerate
        self._reporters = reporters

    def add(self, failure: Failure) -> None:
        """Count a failed record and report it."""
        self.counts.errors += 1
        self._report(failure)

    def add_outside(self, failure: Failure) -> None:
        """Count and report a record that failed where there are no retries: in the task, or on its way to Kafka.

        Raises RecordError unless errors are tolerated.
        """
        self.counts.failures += 1
        if self._tolerate:
            self._report(failure)
            return
        self.add(failure)
        raise outside_error(failure) from failure.error

    def _report(self, failure: Failure) -> None:
        self.counts.last_error_ms = time.time_ns() // 1_000_000
        for reporter in self._reporters:
            reporter.report(failure)


class Tolerance:
    """The `Attempts` of a run (`connect.chain`). Used from the loop's thread only."""

    def __init__(
        self,
        settings: ErrorSettings,
        failed: FailedRecords,
        *,
        origin: Callable[[Batch, int], Message | SourceRecord],
        pause: Callable[[float, bool], RunEnd | None],
        requested_delay_ms: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """Create the error policy.

        Args:
            origin: the record, as it was read, at this index of the batch that the chain works on.
            pause: waits so many seconds while the run reports and commits; returns the reason to end the run, None =
                the wait is over. With True it also returns when the run's share of its slot is used: retries without a
                limit would keep the slot from other tasks forever. Retries with a limit would begin again in the next
                run, so that the record might never be skipped.
            requested_delay_ms: the delay that a sink task requested when it refused a batch; None = it set none.
        """
        self.counts = failed.counts
        self.eager = settings.tolerate or settings.reports
        self._settings = settings
        self._failed = failed
        self._origin = origin
        self._pause = pause
        self._requested_delay_ms = requested_delay_ms
        self._clock = clock
        self._chance = chance
        #: the wait of a record that is retried.
        self._wait = waits.Standing()

    def attempt(self, call: Callable[[], T], stage: str, step: object, batch: Batch, at: int) -> T:
        """See `Attempts.attempt`.

        Raises:
            RecordSkipped: the record is skipped.
            RecordError: the record is not skipped, and ends the run.
            RetryStopped: the run must end first.
        """
        begun_s, tries = self._clock(), 0
        while True:
            tries += 1
            try:
                result = call()
            except RetriableError as error:
                self.counts.failures += 1
                if not self._again(begun_s, tries, error.waits_for or executing_class(step), error):
                    self._wait.over()
                    self._skip(stage, step, batch, at, error)
                    if not self._settings.tolerate and self.counts.skipped % _TELL_EVERY == 1:
                        _log.warning(
                            "a record is skipped although errors.tolerance is none, as in Connect, because its error "
                            "is retriable and errors.retry.timeout has expired; skipped so far: %d; error: %s",
                            self.counts.skipped, record_error(stage, step, batch, at, error),
                        )  # fmt: skip
                    raise RecordSkipped from error
                self.counts.retries += 1
            except Exception as error:
                self._wait.over()
                self.counts.failures += 1
                if self._settings.tolerate and not isinstance(error, _ENDS_ANYWAY):
                    self._skip(stage, step, batch, at, error)
                    raise RecordSkipped from error
                self._failed.add(Failure(stage, executing_class(step), error, self._origin(batch, at)))
                raise record_error(stage, step, batch, at, error) from error
            else:
                if tries > 1:
                    self._wait.over()
                return result

    def until_taken(self, put: Callable[[], None]) -> None:
        """Pass a batch to the sink task. While the task raises RetriableError, it gets the same batch again, without a
        limit, as in Connect (docs/reference/connect/data-model.md, sections 3.3 and 3.4). These retries are not
        counted, and no record is skipped.

        Raises RetryStopped: the run must end first; the task has not taken the batch.
        """
        try:
            return put()
        except RetriableError as error:
            refused = error
        with waits.Standing() as wait:
            while True:
                asked_ms = self._requested_delay_ms()
                delay_ms = self._delay_ms(wait.tries + 1) if asked_ms is None else asked_ms
                of, why = refused.waits_for or "the target of its task", error_text(refused)
                _log.warning("the task cannot accept a batch now; retrying in %.0f ms: %s", delay_ms, why)
                wait.goes_on(of, why, tried=True, next_try_s=delay_ms / 1000)
                if (end := self._pause(delay_ms / 1000, True)) is not None:
                    raise RetryStopped(end) from refused
                try:
                    return put()
                except RetriableError as error:
                    refused = error

    def _again(self, begun_s: float, tries: int, waits_for: str, error: RetriableError) -> bool:
        """Wait before the next retry; False = the retry timeout is over. Raises RetryStopped."""
        timeout_ms = self._settings.retry_timeout_ms
        elapsed_ms = (self._clock() - begun_s) * 1000
        if 0 <= timeout_ms <= elapsed_ms:
            return False
        # The failed service may set the delay itself (Retry-After).
        delay_ms = max(self._delay_ms(tries), (error.next_try_s or 0) * 1000)
        if timeout_ms >= 0:
            delay_ms = min(delay_ms, timeout_ms - elapsed_ms)
        self._wait.goes_on(waits_for, error_text(error), tried=True, next_try_s=delay_ms / 1000)
        if (end := self._pause(delay_ms / 1000, timeout_ms < 0)) is not None:
            self._wait.over()
            raise RetryStopped(end)
        return True

    def _delay_ms(self, tries: int) -> float:
        """The delay after so many tries."""
        delay_ms, most_ms = FIRST_DELAY_MS << min(tries - 1, 40), self._settings.retry_delay_max_ms
        return delay_ms if delay_ms <= most_ms else self._chance(0, max(0, most_ms))

    def _skip(self, stage: str, step: object, batch: Batch, at: int, error: Exception) -> None:
        self.counts.skipped += 1
        self._failed.add(Failure(stage, executing_class(step), error, self._origin(batch, at)))


def executing_class(step: object) -> str:
    """The class reported for a failure: Java's name of a converter or transformation."""
    if isinstance(step, Step):
        return step.transformation.class_name
    return getattr(step, "java_class", None) or str(step)


def outside_error(failure: Failure) -> RecordError:
    """The error that ends a run for a record that failed outside of the chain."""
    record, cause = failure.record, failure.error
    if isinstance(record, SourceRecord):
        return RecordError(failure.stage, failure.class_name, record.batch.topic, record.batch.partition, None, cause)
    return RecordError(failure.stage, failure.class_name, record.topic(), record.partition(), record.offset(), cause)
