"""Tests of the linearizability checker: histories by hand, good and bad, and random ones that are linearizable by
construction.

Hypothesis makes a history by running operations on a real register, each at a moment inside its interval: the
checker's verdict must be yes. Replacing one answer by one that the register never could have given must make it no.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import store_checks
from tests.support.history import History, Kind, Listing, Operation, Outcome, Read, Seen, Told, WatchLog
from tests.support.linearizability import TooHard, judge, step
from tests.support.store_checks import Granted, Logged, Privileged, StoreLog, Visible

NEVER = math.inf


def operation(
    kind: Kind,
    invoked: float,
    returned: float,
    value: str | None = None,
    outcome: Outcome = Outcome.OK,
    *,
    expected: str | None = None,
    seen: str | Seen | None = Seen.NOTHING,
) -> Operation:
    return Operation(
        0, "client", "key", kind, invoked, value, expected=expected, returned=returned, outcome=outcome, seen=seen
    )


def put(value: str | None, invoked: float, returned: float, outcome: Outcome = Outcome.OK) -> Operation:
    return operation(Kind.PUT, invoked, returned, value, outcome)


def read(value: str | None, invoked: float, returned: float) -> Operation:
    return operation(Kind.READ, invoked, returned, seen=value)


def cas(value: str, expected: str, invoked: float, returned: float, outcome: Outcome = Outcome.OK) -> Operation:
    seen = Seen.NOT_EXPECTED if outcome is Outcome.REFUSED else Seen.NOTHING
    return operation(Kind.PUT, invoked, returned, value, outcome, expected=expected, seen=seen)


GOOD: dict[str, Sequence[Operation]] = {
    "one after the other": [put("a", 0, 1), read("a", 2, 3), put("b", 4, 5), read("b", 6, 7)],
    "a read beside a write sees either": [put("a", 0, 1), put("b", 2, 9), read("a", 3, 4), read("b", 5, 6)],
    "an unknown write that happened late": [
        put("a", 0, 1),
        put("b", 2, NEVER, Outcome.UNKNOWN),
        read("a", 3, 4),
        read("b", 50, 51),
    ],
    "an unknown write that never happened": [
        put("a", 0, 1),
        put("b", 2, NEVER, Outcome.UNKNOWN),
        read("a", 50, 51),
        cas("c", "a", 52, 53),
    ],
    "a write that is not applied": [put("a", 0, 1), put("b", 2, 3, Outcome.NOT_APPLIED), read("a", 4, 5)],
    "one of two who compare the same wins": [
        put("a", 0, 1),
        cas("b", "a", 2, 5),
        cas("c", "a", 2, 5, Outcome.REFUSED),
        read("b", 6, 7),
    ],
    "an erasure that would fit before what it erased": [
        operation(Kind.CREATE, 0, 5, "a"),
        put(None, 0, 9),
        read("a", 6, 7),
        operation(Kind.CREATE, 10, 11, "b"),
    ],
    "create, delete, create": [
        operation(Kind.CREATE, 0, 1, "a"),
        operation(Kind.CREATE, 2, 3, "b", Outcome.REFUSED, seen=Seen.PRESENT),
        operation(Kind.DELETE, 4, 5),
        operation(Kind.UPDATE, 6, 7, "c", Outcome.REFUSED, seen=None),
        operation(Kind.CREATE, 8, 9, "d"),
        read("d", 10, 11),
    ],
}

BAD: dict[str, Sequence[Operation]] = {
    "a stale read": [put("a", 0, 1), put("b", 2, 3), read("a", 4, 5)],
    "a read that goes back": [put("a", 0, 1), put("b", 2, 9), read("b", 3, 4), read("a", 5, 6)],
    "a lost write": [put("a", 0, 1), read(None, 2, 3)],
    "two who compare the same both win": [put("a", 0, 1), cas("b", "a", 2, 5), cas("c", "a", 2, 5)],
    "a refusal from the past": [put("a", 0, 1), cas("b", "a", 2, 3, Outcome.REFUSED)],
    "a create over something": [put("a", 0, 1), operation(Kind.CREATE, 2, 3, "b")],
    "a create refused over nothing": [operation(Kind.CREATE, 0, 1, "b", Outcome.REFUSED, seen=Seen.PRESENT)],
    "an update of nothing": [operation(Kind.UPDATE, 0, 1, "a")],
    "a delete of nothing": [operation(Kind.DELETE, 0, 1)],
    "a write that was not applied is read": [put("b", 2, 3, Outcome.NOT_APPLIED), read("b", 4, 5)],
    "an unknown write happens twice": [
        put("b", 0, NEVER, Outcome.UNKNOWN),
        read("b", 1, 2),
        put("c", 3, 4),
        read("b", 5, 6),
    ],
    "an unknown write before its call": [put("a", 0, 1), read("b", 2, 3), put("b", 4, NEVER, Outcome.UNKNOWN)],
}


@pytest.mark.parametrize("name", GOOD)
def test_linearizable_histories_pass(name: str) -> None:
    assert judge(GOOD[name]) is None


@pytest.mark.parametrize("name", BAD)
def test_histories_that_are_not_linearizable_fail(name: str) -> None:
    assert judge(BAD[name]) is not None


def test_a_search_that_reaches_its_bound_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.linearizability._TRIED_MAX", 500)
    unknown = [put(f"v{number}", 0, NEVER, Outcome.UNKNOWN) for number in range(12)]
    with pytest.raises(TooHard):
        judge([*unknown, read("nobody wrote this", 1, 2)])


def test_writes_of_unknown_outcome_do_not_multiply_the_search() -> None:
    """A status store whose broker dies leaves such histories: erasures that any record could belong to, among answered
    reads and writes of many clients at once.
    """
    history: list[Operation] = []
    for moment in range(0, 60, 2):
        value = f"v{moment}"
        history += [put(None, moment, NEVER, Outcome.UNKNOWN), put(value, moment, moment + 9)]
        history += [read(value, moment, moment + 9) for _ in range(3)]
    assert judge(history) is None
    assert judge([*history, read("nobody wrote this", 90, 91)]) is not None


_ANSWERS_MAX = 6
_KINDS, _CREATED = st.sampled_from(list(Kind)), st.sampled_from([None, True, False])
_OUTCOMES = st.sampled_from([Outcome.OK, Outcome.OK, Outcome.REFUSED, Outcome.UNKNOWN])
#: by the number of the operation that may have seen them.
_VALUES = [st.sampled_from([None, *(f"v{other}" for other in range(number + 1))]) for number in range(_ANSWERS_MAX)]
_SEEN = [st.one_of(values, st.sampled_from(list(Seen))) for values in _VALUES]


@st.composite
def _answers(draw: st.DrawFn) -> list[Operation]:
    """A few operations with arbitrary answers: most of these histories are of no register."""
    made: list[Operation] = []
    for number in range(draw(st.integers(1, _ANSWERS_MAX))):
        kind = draw(_KINDS)
        invoked = draw(st.integers(0, 3))
        writes_value = kind in (Kind.CREATE, Kind.UPDATE) or (kind is Kind.PUT and draw(st.booleans()))
        outcome = draw(_OUTCOMES)
        asked = operation(
            kind,
            invoked,
            NEVER if outcome is Outcome.UNKNOWN else invoked + draw(st.integers(0, 4)),
            f"v{number}" if writes_value else None,
            outcome,
            expected=None if kind in (Kind.READ, Kind.CREATE) or draw(st.booleans()) else draw(_VALUES[number]),
        )
        if kind is Kind.READ:
            asked.seen = draw(_VALUES[number])
        elif outcome is Outcome.REFUSED:
            asked.seen = draw(_SEEN[number])
        if kind is Kind.PUT and outcome is Outcome.OK:
            asked.created = draw(_CREATED)
        made.append(asked)
    return made


def _some_order_explains(history: Sequence[Operation], value: str | None = None) -> bool:
    """Try every order."""
    left = [one for one in history if one.outcome is not Outcome.NOT_APPLIED]
    if all(one.outcome is Outcome.UNKNOWN for one in left):
        return True
    first_return = min(one.returned for one in left)
    for one in left:
        fits, after = step(value, one)
        rest = [other for other in left if other is not one]
        if one.invoked <= first_return and fits and _some_order_explains(rest, after):
            return True
    return False


@settings(max_examples=1_000, deadline=None)
@given(_answers())
def test_the_verdict_equals_that_of_trying_every_order(history: list[Operation]) -> None:
    assert (judge(history) is None) == _some_order_explains(history)


@st.composite
def _histories(draw: st.DrawFn) -> list[Operation]:
    """Operations that took effect on a register, each at its own moment between its call and its return."""
    count = draw(st.integers(1, 14))
    value: str | None = None
    made: list[Operation] = []
    written: list[str] = []
    for moment in range(1, count + 1):
        before, after = draw(st.floats(0, 4)), draw(st.floats(0, 4))
        kind = draw(_KINDS)
        compares = kind is not Kind.READ and kind is not Kind.CREATE and written and draw(st.booleans())
        asked = operation(
            kind,
            moment - before,
            moment + after,
            None if kind in (Kind.READ, Kind.DELETE) else f"v{moment}",
            expected=draw(st.sampled_from(written)) if compares else None,
        )
        if kind is Kind.READ:
            asked.seen = value
        else:
            fits, then = step(value, asked)
            if fits:
                value = then
                written += [then] if then is not None else []
            else:
                asked.outcome = Outcome.REFUSED
                asked.seen = value
            if (
                draw(st.integers(0, 4)) == 0
            ):  # its client never learned the outcome; a refused write may as well never have arrived
                asked.outcome, asked.returned, asked.seen = Outcome.UNKNOWN, NEVER, Seen.NOTHING
        made.append(asked)
    return made


@settings(max_examples=150, deadline=None)
@given(_histories())
def test_a_history_of_a_real_register_passes(history: list[Operation]) -> None:
    assert judge(history) is None


@settings(max_examples=150, deadline=None)
@given(_histories(), st.data())
def test_one_impossible_answer_fails(history: list[Operation], data: st.DataObject) -> None:
    flipped = [replace(one) for one in history]
    answered = [one for one in flipped if one.outcome is not Outcome.UNKNOWN]
    if not answered:
        return
    victim = data.draw(st.sampled_from(answered))
    victim.kind, victim.outcome, victim.seen = Kind.READ, Outcome.OK, "nobody wrote this"
    assert judge(flipped) is not None


@settings(max_examples=100, deadline=None)
@given(_histories(), st.data())
def test_a_read_of_an_overwritten_value_fails(history: list[Operation], data: st.DataObject) -> None:
    """After everything known has ended and one more write was read, no earlier value can be seen."""
    values = [one.value for one in history if one.outcome is Outcome.OK and one.value is not None]
    if not values:
        return
    last = [*history, put("last", 100, 101), read("last", 102, 103)]
    assert judge(last) is None
    assert judge([*last, read(data.draw(st.sampled_from(values)), 104, 105)]) is not None


# The other checkers, each on a history with the one violation it is for.


def _history() -> tuple[History, StoreLog]:
    """Two writes of one client, a read and a watch, without a violation."""
    clock = iter(range(1, 1000))
    history = History(lambda: float(next(clock)))
    first = history.invoke("client", "key", Kind.PUT, value="a", request_id="r1")
    first.revision, first.replica = 1, "s1/1"
    history.finish(first, Outcome.OK)
    second = history.invoke("client", "key", Kind.PUT, value="b", request_id="r2")
    second.revision, second.replica = 3, "s1/1"
    history.finish(second, Outcome.OK)
    history.reads.append(Read("client", "s1/1", 10, 11, (3,), {"key": "b"}, demanded=(3,), linearizable=True))
    told = [Told("key", "a", (1,)), Told("key", "b", (3,))]
    history.watches.append(WatchLog("watcher", [Listing((0,), {}, (3,), told)]))
    log = StoreLog(writes=[Logged("key", "a", 0, 0, 0, "r1"), Logged("key", "b", 0, 2, 1, "r2")])
    log.requests = store_checks.Counter(["r1", "r2"])
    log.granted = [Granted(1, "h1", 1, 1001), Granted(2, "h2", 1001, 2001)]
    log.visible = [Visible("s1", "s1"), Visible("s1", "s1")]
    return history, log


def test_a_correct_history_has_no_violation() -> None:
    assert store_checks.check(*_history()) == []


def _lose(_: History, log: StoreLog) -> None:
    del log.writes[1]


def _double(_: History, log: StoreLog) -> None:
    log.writes.append(Logged("key", "b", 0, 4, 2, "r2"))


def _double_request(_: History, log: StoreLog) -> None:
    assert log.requests is not None
    log.requests["r2"] += 1


def _apply_what_was_promised_never(history: History, _: StoreLog) -> None:
    history.operations[1].outcome = Outcome.NOT_APPLIED


def _wrong_revision(history: History, _: StoreLog) -> None:
    history.operations[1].revision = 2


def _below_demand(history: History, _: StoreLog) -> None:
    history.reads.append(replace(history.reads[0], demanded=(4,)))


def _stale_truth(history: History, _: StoreLog) -> None:
    history.reads.append(replace(history.reads[0], replica="s2/1", revision=(1,), values={"key": "a"}, demanded=None))


def _going_back(history: History, _: StoreLog) -> None:
    history.reads.append(replace(history.reads[0], invoked=12, revision=(1,), values={"key": "a"}, linearizable=False))
    history.reads[-1].demanded = None


def _wrong_snapshot(history: History, _: StoreLog) -> None:
    history.reads[0].values = {"key": "a"}


def _missed_change(history: History, _: StoreLog) -> None:
    del history.watches[0].listings[0].changes[0]


def _repeated_change(history: History, _: StoreLog) -> None:
    changes = history.watches[0].listings[0].changes
    changes.append(changes[-1])


def _swapped_changes(history: History, _: StoreLog) -> None:
    changes = history.watches[0].listings[0].changes
    changes[0], changes[1] = replace(changes[1], revision=(1,)), replace(changes[0], revision=(3,))


def _two_writers(_: History, log: StoreLog) -> None:
    log.visible[1] = Visible("s1", "s2")


def _one_epoch_twice(_: History, log: StoreLog) -> None:
    log.granted.append(Granted(2, "h1", 2001, 3001))


def _generations_again(_: History, log: StoreLog) -> None:
    log.granted[1] = Granted(2, "h2", 1000, 2000)


def _old_epoch_writes(_: History, log: StoreLog) -> None:
    log.privileged.append(Privileged("a task set", 1, 2))


@pytest.mark.parametrize(
    ("harm", "check"),
    [
        (_lose, "S2 acknowledged writes are there"),
        (_double, "S8 applied once"),
        (_double_request, "S8 applied once"),
        (_apply_what_was_promised_never, "S6 not applied means never"),
        (_wrong_revision, "S9 revisions"),
        (_below_demand, "S1 read your writes"),
        (_stale_truth, "S1 read your writes"),
        (_going_back, "S1 read your writes"),
        (_wrong_snapshot, "S10 a snapshot is the fold"),
        (_missed_change, "S9 watch"),
        (_repeated_change, "S9 watch"),
        (_swapped_changes, "S9 watch"),
        (_two_writers, "S3 one effective writer"),
        (_one_epoch_twice, "C4 epochs"),
        (_generations_again, "C4 epochs"),
        (_old_epoch_writes, "C4 epochs"),
    ],
)
def test_each_checker_finds_its_violation(harm: object, check: str) -> None:
    history, log = _history()
    assert callable(harm)
    harm(history, log)
    assert check in {violation.check for violation in store_checks.check(history, log)}
