"""Restart policy: when a FAILED unit is started again automatically, by class of error, backoff and budget.

Owns the rule and each unit's restart history. Owns neither the restart (`restarts.py`) nor how the history outlives a
leader (`leader_statuses.py`). Times are the herder's, random numbers come from the caller.

The rule:
- By class: RETRIABLE and UNKNOWN are restarted. FENCED (its id was taken over, though by our knowledge it is the owner)
  is restarted too, so that a fence that hit the rightful owner heals, but once a minute at most, so that two owners do
  not fence each other in a loop. FATAL is not: the same input fails again, and each attempt would read it anew.
  BAD_CONFIG is not: the config must change. DATA_LOSS is not: an operator decides. UNREACHABLE (no broker of the
  cluster, or no other system of the connector, answered) is restarted for as long as that lasts.
- Backoff: attempt n in a row waits backoff_ms x 2^(n-1), at most backoff_max_ms, less a share of up to `jitter`, so
  that tasks that failed together do not come back together. Attempts are in a row until the unit has stayed RUNNING for
  backoff_max_ms: a unit that never stays up for so long counts as failing again, whatever it did in between.
- Budget: at most attempts_max restarts within any window_ms. It counts restarts, whether the unit ran well in between
  or not. Once it is spent the unit stays FAILED until an operator acts, also after the window: a unit that fails so
  often needs an operator. A restart after UNREACHABLE is not counted: no restart makes the outage better or worse, and
  once it is over no operator is needed. Its attempts are counted apart from the others, from 1 again once the unit was
  RUNNING for OUTAGE_OVER_MS or failed for another reason; their wait is at most OUTAGE_BACKOFF_MAX_MS: a second outage
  within minutes is another one, and a unit that failed for other reasons waits no longer for it. A unit that failed
  before this leader knew it is restarted at once: a leader is granted its epoch by a write to the cluster, so that the
  outage is over. If the leader changes meanwhile, one such restart may be counted.
- A new history begins with a requested restart, a changed config, stop and resume. Not counted: the death, leave or
  drain of a worker, a move, a pause, another leader. While its connector is paused a unit waits.
- Another leader knows the attempts that statuses record, also those recorded late. One case is not counted: a restart
  begun while no status store could write, by a leader that was lost before one could. A herder that leads again knows
  its own restarts.

Invariants: a restart is scheduled only while the verdict is RESTART; no window holds more than attempts_max attempts.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum, unique
from typing import assert_never

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import OF_RECORD
from herdmesh.herder.state.model.values import AutoRestart, ConnectorEntry, RestartNote, RestartPolicy, StatusEntry
from herdmesh.session.model import Failure, Properties, RunState, UnitId

ENABLED_KEY = "herdmesh.restart.enabled"
ATTEMPTS_MAX_KEY = "herdmesh.restart.attempts.max"
WINDOW_MS_KEY = "herdmesh.restart.window.ms"
BACKOFF_MS_KEY = "herdmesh.restart.backoff.ms"
BACKOFF_MAX_MS_KEY = "herdmesh.restart.backoff.max.ms"
_KEYS = (ENABLED_KEY, ATTEMPTS_MAX_KEY, WINDOW_MS_KEY, BACKOFF_MS_KEY, BACKOFF_MAX_MS_KEY)

FENCED_BACKOFF_MS = 1_000
FENCED_PAUSE_MS = 60_000
#: An attempt without a broker costs little; all tasks stay down for up to this time after an outage.
OUTAGE_BACKOFF_MAX_MS = 30_000
#: A unit that was RUNNING for so long had reached the cluster, and not only started.
OUTAGE_OVER_MS = 3_000

_BY_ITSELF = frozenset({ErrorClass.RETRIABLE, ErrorClass.UNKNOWN, ErrorClass.FENCED, ErrorClass.UNREACHABLE})
_DOUBLINGS_MAX = 40


@unique
class Verdict(StrEnum):
    """Decision about a failure."""

    RESTART = "RESTART"
    #: automatic restarts are switched off.
    OFF = "OFF"
    #: a restart would not help, by its class.
    HOPELESS = "HOPELESS"
    #: the budget is spent.
    SPENT = "SPENT"


@dataclass(slots=True)
class RestartHistory:
    """Restarts of one unit and the policy's last decision."""

    #: the config of this history: another config has another history.
    tag: str = ""
    #: the times when its restarts began, oldest first; older ones than the window are dropped at the next failure.
    attempts_ms: list[int] = field(default_factory=list[int])
    #: restarts since it last stayed up, except those after UNREACHABLE.
    in_a_row: int = 0
    #: restarts after UNREACHABLE since it last reached the cluster.
    outages_in_a_row: int = 0
    #: the generation whose failure was decided last, and the decision.
    generation: int = 0
    verdict: Verdict = Verdict.RESTART
    failure: Failure | None = None
    failed_ms: int | None = None
    #: when the restart is due; None = none is.
    next_ms: int | None = None
    #: the due restart is in `attempts_ms` already: an earlier leader began it and could not finish.
    counted: bool = False
    fenced_ms: int | None = None
    #: the generation whose restart was begun last.
    begun: int = 0
    #: statuses of earlier generations belong to another history.
    from_generation: int = 0
    #: start times of the known restarts, by the clocks of the herders that began them.
    known_ms: set[int] = field(default_factory=set[int])
    #: the due time of an inferred restart; None = none, or a status has confirmed it.
    inferred_ms: int | None = None

    def fail(
        self,
        policy: RestartPolicy,
        failure: Failure,
        now: int,
        ran_ms: int | None,
        chance: Callable[[int], float],
        *,
        before_us: bool = False,
    ) -> None:
        """Decide about a failure. The caller has added the attempts in statuses before (`add_status`). `ran_ms` = how
        long it was RUNNING, None = not at all; `chance(attempt)` is a number from 0 to 1; `before_us` = a worker
        brought the unit along, FAILED before this leader knew it.
        """
        self.attempts_ms = policy.within(self.attempts_ms, now)
        self.known_ms.intersection_update(policy.within(self.known_ms, now))
        if self.inferred_ms not in self.attempts_ms:
            self.inferred_ms = None
        self.failure, self.failed_ms = failure, now
        self.next_ms, self.counted = None, False
        if ran_ms is not None and ran_ms >= policy.backoff_max_ms:
            self.in_a_row = 0
        if not self.is_free or (ran_ms is not None and ran_ms >= OUTAGE_OVER_MS):
            self.outages_in_a_row = 0
        self.verdict = self._verdict(policy, failure)
        if self.verdict is not Verdict.RESTART:
            return
        row = self.outages_in_a_row if self.is_free else self.in_a_row
        wait_ms = backoff_ms(policy, row + 1, chance(len(self.attempts_ms) + 1))
        if self.is_free:
            wait_ms = 0 if before_us else min(wait_ms, OUTAGE_BACKOFF_MAX_MS)
        self.next_ms = now + wait_ms
        if failure.error_class is ErrorClass.FENCED:
            pause_ms = FENCED_BACKOFF_MS if self.fenced_ms is None else self.fenced_ms + FENCED_PAUSE_MS - now
            self.next_ms = now + max(wait_ms, pause_ms)

    def begin(self, now: int) -> None:
        """The due restart begins."""
        if not self.counted and self.is_free:
            self.outages_in_a_row += 1
        elif not self.counted:
            self.in_a_row += 1
            self.attempts_ms.append(now)
            self.known_ms.add(now)
        self.next_ms, self.counted, self.begun = None, False, self.generation
        if self.failure is not None and self.failure.error_class is ErrorClass.FENCED:
            self.fenced_ms = now

    def resume_failed(self, generation: int, failure: Failure | None, now: int) -> None:
        """The unit is still held, FAILED under this generation, and no restart is scheduled: its worker never received
        the restart, or was unreachable when it was due. It is due now, and counts once.
        """
        self.generation, self.failure = generation, self.failure or failure
        self.next_ms, self.counted = now, self.begun == generation

    def add_attempts(self, attempts_ms: Sequence[int], now: int) -> None:
        """Add the unknown restarts of this history that a status has, or that this herder began during an earlier
        leadership.
        """
        news = [at_ms for at_ms in attempts_ms if at_ms not in self.known_ms]
        if not news:
            return
        if self.inferred_ms is not None:
            self.attempts_ms.remove(self.inferred_ms)
            self.inferred_ms = None
            self.in_a_row -= 1
        self.known_ms.update(news)
        self.attempts_ms = sorted([*self.attempts_ms, *(min(at_ms, now) for at_ms in news)])
        self.in_a_row += len(news)

    @property
    def is_free(self) -> bool:
        """True when the due restart does not count for the budget."""
        return self.failure is not None and self.failure.error_class is ErrorClass.UNREACHABLE

    def is_overdrawn(self, policy: RestartPolicy, now: int) -> bool:
        """True when the due restart exceeds the budget: other restarts became known after it was decided."""
        paid = self.counted or self.is_free
        return not paid and len(policy.within(self.attempts_ms, now)) >= policy.attempts_max

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to remember."""
        return not self.attempts_ms and self.next_ms is None

    @property
    def attempt(self) -> int:
        """The number of the attempt that is due, under way or was last; of the next one when there was none."""
        waits = self.next_ms is not None and not self.counted
        return max(1, len(self.attempts_ms) + (1 if waits else 0))

    def _verdict(self, policy: RestartPolicy, failure: Failure) -> Verdict:
        if failure.error_class not in _BY_ITSELF:
            return Verdict.HOPELESS
        if not policy.enabled:
            return Verdict.OFF
        spent = len(self.attempts_ms) >= policy.attempts_max and failure.error_class is not ErrorClass.UNREACHABLE
        return Verdict.SPENT if spent else Verdict.RESTART


def backoff_ms(policy: RestartPolicy, attempt: int, chance: float) -> int:
    """The wait before attempt n (from 1) in a row. The longest wait is never exceeded; chance only shortens."""
    doubled = policy.backoff_ms * 2 ** min(attempt - 1, _DOUBLINGS_MAX)
    return int(min(doubled, policy.backoff_max_ms) * (1.0 - policy.jitter * chance))


def tag_of(entry: ConnectorEntry, unit: UnitId) -> str:
    """Tag of the history: changed by every update, re-creation, new task set and requested restart, and by nothing
    else. So each of these begins a new history, whichever herder leads.
    """
    what = entry.digest_of(unit.task) if unit.task is not None else str(entry.config_revision)
    asked = entry.restarts.get(unit.task, 0)
    return f"{zlib.crc32(f'{entry.incarnation}/{what}/{asked}'.encode()):08x}"


def note_of(history: RestartHistory | None, attempts_max: int) -> RestartNote | None:
    """The history as a status carries it; None when there is nothing to remember."""
    if history is None or history.is_empty:
        return None
    attempts_ms, since_ms = tuple(history.attempts_ms), history.failed_ms
    return RestartNote(history.tag, attempts_ms, history.attempt, attempts_max, history.next_ms, since_ms)


def read_back(
    stored: StatusEntry | None, tag: str, generation: int, now: int, ours: RestartHistory | None = None
) -> RestartHistory:
    """The history that earlier leaders left in a unit's status, joined with `ours` from an earlier leadership of this
    herder: a status may lack our last restart. `generation` = the one that a worker holds, or 0.

    A newer generation than the status's proves that the announced restart was carried out: it is counted, and not due
    again. A status RESTARTING of the very generation that is still held means that the restart was counted and not
    carried out: it is due at once, and not counted again.
    """
    history = _read_note(stored, tag, generation, now)
    if ours is None or ours.tag != tag:
        return history
    history.add_attempts(ours.attempts_ms, now)
    history.fenced_ms, history.begun = ours.fenced_ms, ours.begun
    if generation and ours.begun == generation:
        history.resume_failed(generation, ours.failure, now)
    return history


def _read_note(stored: StatusEntry | None, tag: str, generation: int, now: int) -> RestartHistory:
    note = stored.note if stored is not None else None
    if stored is None or note is None or note.tag != tag:
        return RestartHistory(tag)
    history = RestartHistory(tag, failed_ms=note.since_ms)
    history.add_attempts(note.attempts_ms, now)
    if note.next_ms is not None and generation > stored.generation:
        history.inferred_ms = min(note.next_ms, now)
        history.attempts_ms.append(history.inferred_ms)
    history.in_a_row = len(history.attempts_ms)
    if generation == stored.generation and stored.state in (RunState.FAILED, RunState.RESTARTING):
        history.counted = stored.state is RunState.RESTARTING
        history.next_ms = now if history.counted else note.next_ms
        history.generation = generation if history.next_ms is not None else 0
    if stored.trace:
        history.failure = Failure(next(iter(stored.trace.splitlines()), "failed"), stored.trace)
    return history


def add_status(history: RestartHistory, stored: StatusEntry | None, policy: RestartPolicy, now: int) -> None:
    """Add the restarts from a status that was written after the history was read back: for instance the last restart by
    an earlier leader, which its worker could not report while the store was unreachable. A restart that the status
    shows under way is due still, and counted, when the unit is held FAILED.
    """
    if stored is None or stored.generation < history.from_generation:
        return
    if stored.note is None or stored.note.tag != history.tag:
        return
    history.add_attempts(policy.within(stored.note.attempts_ms, now), now)
    if stored.state is RunState.RESTARTING and stored.generation > history.begun:
        history.begun = stored.generation
        if history.generation == stored.generation:
            history.verdict, history.next_ms = Verdict.RESTART, None


def policy_of(defaults: RestartPolicy, config: Properties) -> RestartPolicy:
    """The policy of one connector: its own keys, else the herder's settings.

    Validation refuses values that are no numbers, but other writers of the config topic need not validate: such a value
    counts as not set.
    """
    if not any(key in config for key in _KEYS):
        return defaults
    enabled = str(config.get(ENABLED_KEY) or "").strip().lower()
    return replace(
        defaults,
        enabled=enabled == "true" if enabled in ("true", "false") else defaults.enabled,
        attempts_max=_number(config, ATTEMPTS_MAX_KEY, defaults.attempts_max),
        window_ms=_number(config, WINDOW_MS_KEY, defaults.window_ms),
        backoff_ms=_number(config, BACKOFF_MS_KEY, defaults.backoff_ms),
        backoff_max_ms=_number(config, BACKOFF_MAX_MS_KEY, defaults.backoff_max_ms),
    )


def shown(
    policy: RestartPolicy, history: RestartHistory, failed: bool, under_way: bool, now: int
) -> AutoRestart | None:
    """The history as users see it; None when the unit neither failed within the window nor is FAILED."""
    recent = any(at_ms > now - policy.window_ms for at_ms in history.attempts_ms)
    if not (recent or failed or under_way) or history.failed_ms is None:
        return None
    spent = failed and history.verdict is Verdict.SPENT
    attempt = policy.attempts_max + 1 if spent else history.attempt
    return AutoRestart(attempt, policy.attempts_max, history.next_ms, history.failure, under_way)


def explained(
    policy: RestartPolicy,
    history: RestartHistory,
    failure: Failure | None,
    cure: str,
    paused: bool,
    *,
    refers: bool = False,
) -> str:
    """Why a FAILED unit is not RUNNING and what happens next, in one line. The time of a restart is added where times
    are written as text. `failure` = the one in its status, `cure` = the command that restarts it, `refers` = the config
    has references, whose values may change without it.
    """
    # The verdict belongs to the history's failure; a status read since may have another one, or none.
    failed = history.failure or failure
    error_class = failed.error_class if failed is not None else ErrorClass.UNKNOWN
    match history.verdict:
        case Verdict.RESTART if history.next_ms is None:
            return ""
        case Verdict.RESTART if paused:
            return (
                f"failed ({error_class}); restart {history.attempt} of {policy.attempts_max} waits until it is resumed"
            )
        case Verdict.RESTART if history.is_free:
            return (
                "failed (UNREACHABLE): Kafka, or the other system, does not respond; bring it back, or correct its "
                "address: restarts go on until then, and the next one follows"
            )
        case Verdict.RESTART:
            return f"failed ({error_class}); restart {history.attempt} of {policy.attempts_max} follows"
        case Verdict.SPENT:
            times = f"{len(history.attempts_ms)} restarts within {span_text(policy.window_ms)}"
            return f"failed again after {times}: no more automatic restarts; fix the cause and {cure}"
        case Verdict.OFF:
            return f"failed ({error_class}); it is not restarted automatically, {ENABLED_KEY} is off: {cure}"
        case Verdict.HOPELESS:
            if refers and error_class is ErrorClass.BAD_CONFIG:
                return _REFERS.format(cure=cure)
            if error_class is ErrorClass.FATAL and failed is not None and failed.message.startswith(OF_RECORD):
                return _BAD_RECORD
            return _HOPELESS[error_class].format(cure=cure)
        case _:
            assert_never(history.verdict)


_REFERS = (
    "failed (BAD_CONFIG): correct the config, or the value that a reference of it names, and {cure}; where the "
    "reference's provider has a ttl (ttl.ms), a changed value restarts it by itself"
)
_BAD_RECORD = (
    "failed (FATAL): the same record would fail again; set errors.tolerance=all and errors.deadletterqueue.topic.name "
    "to put such records aside (docs/how-to/bad-records.md), or correct the config: both restart it"
)
_HOPELESS = {
    ErrorClass.BAD_CONFIG: "failed (BAD_CONFIG): a restart does not help; correct the config and {cure}",
    ErrorClass.FATAL: "failed (FATAL): the same input would fail again; remove the cause and {cure}",
    ErrorClass.DATA_LOSS: "failed (DATA_LOSS): decide where it continues (herdmesh.offsets.missing), then {cure}",
}


def span_text(ms: int) -> str:
    """A time for people, in the largest unit that divides it: `1 h`, `90 s`, `1500 ms`."""
    for unit, length_ms in (("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms % length_ms == 0:
            return f"{ms // length_ms} {unit}"
    return f"{ms} ms"


def _number(config: Properties, key: str, default: int) -> int:
    text = str(config.get(key) or "").strip()
    return int(text) if text.isdecimal() and int(text) > 0 else default
