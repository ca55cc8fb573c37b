"""Restart policy alone: backoff, budget, classes, and the restart history read back."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import DataError, RecordError
from herdmesh.herder.settings import HerderSettings
from herdmesh.herder.state.model import RestartNote, RestartPolicy, StatusEntry, restart_policy
from herdmesh.herder.state.model.restart_policy import RestartHistory, Verdict
from herdmesh.herder.wire import restart_notes, values
from herdmesh.session.model import Failure, RunState, UnitId

UNIT = UnitId("a", 0)
POLICIES = st.builds(
    RestartPolicy,
    attempts_max=st.integers(1, 12),
    window_ms=st.integers(1_000, 600_000),
    backoff_ms=st.integers(1, 20_000),
    backoff_max_ms=st.integers(1, 60_000),
    jitter=st.floats(0.0, 0.5),
)
#: (how long it ran before it failed, None = not at all; how much later than due the restart was done; class)
FAILURES = st.lists(
    st.tuples(
        st.none() | st.integers(0, 400_000),
        st.integers(0, 30_000),
        st.sampled_from(list(ErrorClass)),
    ),
    max_size=60,
)


def failure(error_class: ErrorClass) -> Failure:
    return Failure("it broke", "Traceback", error_class)


@given(POLICIES, FAILURES, st.integers(0, 2**32))
@settings(max_examples=300)
def test_no_window_holds_more_restarts_than_the_budget(
    numbers: RestartPolicy, story: list[tuple[int | None, int, ErrorClass]], seed: int
) -> None:
    """For any failures: at most attempts_max restarts in any window, none due before its failure, and a unit whose
    verdict is not RESTART has no restart scheduled.
    """
    history, now, began = RestartHistory("tag"), 1_000, list[int]()
    for ran_ms, late_ms, error_class in story:
        now += ran_ms or 0
        history.fail(numbers, failure(error_class), now, ran_ms, lambda attempt: (seed * attempt % 997) / 997)
        assert (history.next_ms is not None) == (history.verdict is Verdict.RESTART)
        if history.next_ms is None:
            continue
        assert history.next_ms >= now
        now = history.next_ms + late_ms
        history.begin(now)
        assert history.next_ms is None
        if error_class is not ErrorClass.UNREACHABLE:
            began.append(now)
    for last_ms in began:
        inside = [at_ms for at_ms in began if last_ms - numbers.window_ms < at_ms <= last_ms]
        assert len(inside) <= numbers.attempts_max


@given(POLICIES, st.integers(1, 100), st.floats(0.0, 1.0))
def test_backoff_grows_up_to_its_cap(numbers: RestartPolicy, attempt: int, chance: float) -> None:
    """Without chance it never shrinks; chance subtracts at most its share, and never adds."""
    wait_ms = restart_policy.backoff_ms(numbers, attempt, 0.0)
    assert wait_ms <= restart_policy.backoff_ms(numbers, attempt + 1, 0.0) <= numbers.backoff_max_ms
    assert wait_ms == min(numbers.backoff_ms * 2 ** (attempt - 1), numbers.backoff_max_ms)
    assert wait_ms * (1 - numbers.jitter) - 1 <= restart_policy.backoff_ms(numbers, attempt, chance) <= wait_ms


def test_default_backoffs_and_budget() -> None:
    waits = [restart_policy.backoff_ms(RestartPolicy(), attempt, 0.0) // 1_000 for attempt in range(1, 11)]
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]


@pytest.mark.parametrize(
    ("error_class", "verdict"),
    [
        (ErrorClass.RETRIABLE, Verdict.RESTART),
        (ErrorClass.UNKNOWN, Verdict.RESTART),
        (ErrorClass.FENCED, Verdict.RESTART),
        (ErrorClass.UNREACHABLE, Verdict.RESTART),
        (ErrorClass.FATAL, Verdict.HOPELESS),
        (ErrorClass.BAD_CONFIG, Verdict.HOPELESS),
        (ErrorClass.DATA_LOSS, Verdict.HOPELESS),
    ],
)
def test_verdict_of_each_error_class(error_class: ErrorClass, verdict: Verdict) -> None:
    history = RestartHistory()
    history.fail(RestartPolicy(), failure(error_class), 0, None, lambda _: 0.0)
    assert history.verdict is verdict
    text = restart_policy.explained(RestartPolicy(), history, None, "`herd restart a`", paused=False)
    assert error_class.value in text
    if verdict is Verdict.HOPELESS:
        assert "`herd restart a`" in text, "it says what to do"
    off = RestartHistory()
    off.fail(RestartPolicy(enabled=False), failure(error_class), 0, None, lambda _: 0.0)
    assert off.verdict is not Verdict.RESTART


def test_a_record_that_fails_a_task_has_a_dead_letter_queue_as_its_next_step() -> None:
    bad = RecordError("VALUE_CONVERTER", "a converter", "t", 0, 6, DataError("no JSON"))
    history = RestartHistory()
    history.fail(RestartPolicy(), Failure(str(bad), "", ErrorClass.FATAL), 0, None, lambda _: 0.0)
    text = restart_policy.explained(RestartPolicy(), history, None, "`herd restart a`", paused=False)
    assert "errors.tolerance=all and errors.deadletterqueue.topic.name" in text
    assert "remove the cause" not in text


@pytest.mark.parametrize("decided", ErrorClass)
@pytest.mark.parametrize("shown", [None, *ErrorClass])
def test_the_explanation_follows_the_verdict_and_not_the_status(decided: ErrorClass, shown: ErrorClass | None) -> None:
    for enabled in (True, False):
        numbers, history = RestartPolicy(enabled=enabled), RestartHistory("tag")
        history.fail(numbers, failure(decided), 1_000, None, lambda _: 0.0)
        told = restart_policy.explained(
            numbers, history, None if shown is None else failure(shown), "`herd restart a`", False
        )
        assert decided in told


def test_a_unit_that_stayed_up_resets_its_backoff_but_not_its_budget() -> None:
    numbers = RestartPolicy(attempts_max=3, jitter=0.0)
    history = RestartHistory()
    waits: list[int] = []
    for ran_ms in (None, 299_999, 300_000):
        history.fail(numbers, failure(ErrorClass.UNKNOWN), 0, ran_ms, lambda _: 0.0)
        assert history.next_ms is not None
        waits.append(history.next_ms)
        history.begin(0)
    assert waits == [1_000, 2_000, 1_000]
    history.fail(numbers, failure(ErrorClass.UNKNOWN), 0, 300_000, lambda _: 0.0)
    assert history.verdict is Verdict.SPENT
    text = restart_policy.explained(numbers, history, None, "`herd restart a --task 0`", paused=False)
    assert "3 restarts within 1 h" in text
    assert "`herd restart a --task 0`" in text
    shown = restart_policy.shown(numbers, history, failed=True, under_way=False, now=0)
    assert shown is not None
    assert (shown.attempt, shown.attempts_max, shown.next_ms) == (4, 3, None)


def test_two_owners_fence_each_other_once_a_minute_at_most() -> None:
    history, began = RestartHistory(), list[int]()
    now = 0
    for _ in range(4):
        history.fail(RestartPolicy(), failure(ErrorClass.FENCED), now, 0, lambda _: 1.0)
        assert history.next_ms is not None
        now = history.next_ms
        history.begin(now)
        began.append(now)
    assert began[0] >= restart_policy.FENCED_BACKOFF_MS
    assert min(later - earlier for earlier, later in itertools.pairwise(began)) >= restart_policy.FENCED_PAUSE_MS
    assert len(history.attempts_ms) == 4, "in the same history"


def test_a_connectors_own_keys_win_and_malformed_values_count_as_not_set() -> None:
    defaults = RestartPolicy(attempts_max=7)
    own = {
        "herdmesh.restart.enabled": "FALSE",
        "herdmesh.restart.attempts.max": "3",
        "herdmesh.restart.window.ms": "60000",
        "herdmesh.restart.backoff.ms": "10",
        "herdmesh.restart.backoff.max.ms": "100",
    }
    assert restart_policy.policy_of(defaults, own) == RestartPolicy(False, 3, 60_000, 10, 100, 0.2)
    assert restart_policy.policy_of(defaults, {}) == defaults
    assert restart_policy.policy_of(defaults, dict.fromkeys(own, "often")) == defaults
    assert restart_policy.policy_of(defaults, {"herdmesh.restart.attempts.max": None}) == defaults


def test_restart_settings_are_the_default_policy() -> None:
    rules = HerderSettings(restart_attempts_max=3, restart_backoff_ms=5, restart_jitter=0.0).rules("h1")
    assert rules.restart == RestartPolicy(attempts_max=3, backoff_ms=5, jitter=0.0)
    assert HerderSettings().rules("h1").restart == RestartPolicy()
    assert HerderSettings().rules("h1").seed != HerderSettings().rules("h2").seed
    with pytest.raises(ValueError, match="restart_backoff_max_ms"):
        HerderSettings(restart_backoff_ms=1_000, restart_backoff_max_ms=999)


TIMES = st.integers(-(10**9), 10**9)


@given(
    st.lists(TIMES, max_size=60),
    st.none() | TIMES,
    st.integers(1, 1_000),
    st.sampled_from([RunState.FAILED, RunState.RUNNING, RunState.RESTARTING]),
)
def test_a_restart_history_survives_its_conditions(
    times: list[int], next_ms: int | None, attempts_max: int, state: RunState
) -> None:
    """The conditions are read back as the same history; the next restart never becomes earlier."""
    attempts_ms = tuple(sorted(times))
    note = RestartNote("0a1b2c3d", attempts_ms, len(attempts_ms) + 1, attempts_max, next_ms, None)
    written = restart_notes.conditions(note, state)
    assert all(len(one.message) <= 1_000 and "\n" not in one.message for one in written)
    read, others = restart_notes.note([values.condition(one) for one in written])
    assert others == ()
    assert read is not None
    assert (read.tag, len(read.attempts_ms)) == (note.tag, len(attempts_ms))
    assert read.attempts_ms[-35:] == attempts_ms[-35:], "the latest to the millisecond"
    assert all(told >= at_ms for told, at_ms in zip(read.attempts_ms, attempts_ms, strict=True)), "never forgiven early"
    if next_ms is None:
        assert read.next_ms is None
    else:
        assert read.next_ms is not None
        assert next_ms <= read.next_ms < next_ms + 1_000
        assert (read.attempt, read.attempts_max) == (note.attempt, attempts_max)


def test_the_text_of_the_conditions_and_conditions_of_others() -> None:
    moment_ms = -restart_notes.values.wall_moment_ms(0) + 1_795_280_400_001  # 2026-11-21T17:00:00.001Z
    note = RestartNote("0a1b2c3d", (moment_ms, moment_ms + 5_000), 3, 10, moment_ms + 9_000)
    texts = {one.type: one.message for one in restart_notes.conditions(note, RunState.FAILED)}
    assert texts == {
        "RESTARTS": "2 restarts under config 0a1b2c3d: 2026-11-21T17:00:00.001Z 2026-11-21T17:00:05.001Z",
        "RESTARTING": "3 of 10, next at 2026-11-21T17:00:10Z",
    }
    under_way = restart_notes.conditions(replace(note, next_ms=None), RunState.RESTARTING)
    assert under_way[1].message == "3 of 10"
    foreign = [
        type(under_way[0])(type=kind, message=message)
        for kind, message in (
            ("STALLED", "no progress"),
            ("RESTARTS", "2 restarts under config 0a1b2c3d: yesterday"),
            ("RESTARTING", "soon"),
        )
    ]
    read, others = restart_notes.note([values.condition(one) for one in foreign])
    assert read is None
    assert [one.type for one in others] == ["STALLED", "RESTARTS", "RESTARTING"]


def stored(state: RunState, note: RestartNote | None, generation: int = 5) -> StatusEntry:
    return StatusEntry(UNIT, state, "w1", generation=generation, trace="Broken\n  at line 1", note=note)


def test_a_new_leader_reads_the_restart_history_back() -> None:
    waits = RestartNote("tag", (100, 200), 3, 10, 900)
    begun = RestartNote("tag", (100, 200, 900), 3, 10, None)
    # It still waits: due when it was.
    history = restart_policy.read_back(stored(RunState.FAILED, waits), "tag", 5, 500)
    assert (history.attempts_ms, history.next_ms, history.generation, history.attempt) == ([100, 200], 900, 5, 3)
    assert history.failure is not None
    assert history.failure.message == "Broken"
    # A newer generation is held: the restart took place, and is counted.
    history = restart_policy.read_back(stored(RunState.FAILED, waits), "tag", 6, 1_000)
    assert (history.attempts_ms, history.next_ms, history.generation) == ([100, 200, 900], None, 0)
    # It was begun and never carried out: due at once, counted already.
    history = restart_policy.read_back(stored(RunState.RESTARTING, begun), "tag", 5, 1_000)
    assert (history.attempts_ms, history.next_ms, history.attempt) == ([100, 200, 900], 1_000, 3)
    history.begin(1_000)
    assert history.attempts_ms == [100, 200, 900]
    # It runs under the generation of the status.
    history = restart_policy.read_back(stored(RunState.RUNNING, begun), "tag", 5, 1_000)
    assert (history.attempts_ms, history.next_ms, history.in_a_row) == ([100, 200, 900], None, 3)
    # Another config, or no status.
    assert restart_policy.read_back(stored(RunState.FAILED, waits), "other", 5, 500) == RestartHistory("other")
    assert restart_policy.read_back(None, "tag", 5, 500) == RestartHistory("tag")
    assert restart_policy.read_back(stored(RunState.FAILED, None), "tag", 5, 500) == RestartHistory("tag")
    # Clocks ahead of ours do not keep a history open for longer than its window.
    history = restart_policy.read_back(stored(RunState.RUNNING, begun), "tag", 5, 150)
    assert history.attempts_ms == [100, 150, 150]


def test_attempts_reported_after_the_history_was_read_are_added() -> None:
    rules = RestartPolicy(attempts_max=3, window_ms=10_000)
    history = restart_policy.read_back(stored(RunState.FAILED, RestartNote("tag", (100,), 2, 10, 900)), "tag", 6, 2_000)
    assert history.attempts_ms == [100, 900], "the second was begun, when it was due as far as the status says"
    later = RestartNote("tag", (100, 950, 1_500), 3, 10, None)
    for _ in range(2):
        restart_policy.add_status(history, stored(RunState.RUNNING, later, 6), rules, 2_000)
        assert (history.attempts_ms, history.in_a_row) == ([100, 950, 1_500], 3), "each once, as it was told"
    restart_policy.add_status(
        history, stored(RunState.RUNNING, replace(later, tag="other", attempts_ms=(7,)), 6), rules, 2_000
    )
    history.from_generation = 8
    restart_policy.add_status(history, stored(RunState.RUNNING, replace(later, attempts_ms=(7,)), 7), rules, 2_000)
    assert history.attempts_ms == [100, 950, 1_500], "that is of another history"
    assert history.is_overdrawn(rules, 2_000)
    assert not history.is_overdrawn(rules, 10_100), "the first is out of the window"


def test_a_herder_that_leads_again_adds_its_own_attempts_to_those_of_the_status() -> None:
    ours = RestartHistory("tag", [100, 950], begun=6, fenced_ms=40)
    told = stored(RunState.FAILED, RestartNote("tag", (100,), 2, 10, 900))
    history = restart_policy.read_back(told, "tag", 7, 2_000, ours)
    assert (history.attempts_ms, history.next_ms, history.fenced_ms) == ([100, 950], None, 40), "what it began is that"
    history = restart_policy.read_back(told, "tag", 6, 2_000, ours)
    assert (history.next_ms, history.counted) == (2_000, True), "it is held as it failed: nobody heard of that"
    history.begin(2_000)
    assert history.attempts_ms == [100, 950]
    assert restart_policy.read_back(None, "other", 6, 2_000, ours) == RestartHistory("other")


def test_the_explanation_of_a_bad_config_with_references_names_their_values() -> None:
    history = RestartHistory()
    history.fail(RestartPolicy(), failure(ErrorClass.BAD_CONFIG), 0, None, lambda _: 0.0)
    told = [
        restart_policy.explained(RestartPolicy(), history, None, "x", paused=False, refers=refers)
        for refers in (True, False)
    ]
    assert "ttl.ms" in told[0]
    assert "a restart does not help" not in told[0]
    assert "a restart does not help" in told[1]
