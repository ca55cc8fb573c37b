"""Is there an order in which a register would have given these answers? Wing & Gong's search in Lowe's form.

Owns the sequential model of one connector's config (a register that can be absent) and the search. Knows no store and
no log: it judges by what clients were told alone. Linearizability is local, so each key is judged by itself; per key it
is compare-and-set by revision, because a revision names one record and a record one value.

Wing & Gong 1993: walk the calls and returns in time; try each pending operation as the next one; give up an order when
an operation returned that is not in it. Lowe 2017: remember every (set of operations done, value) already tried.
Invariant: operations that are not applied by promise are not in any order; unknown ones may be anywhere after their
call, or nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.support.history import Kind, Operation, Outcome, Seen

#: Configurations tried for one key before the search gives up and says so: a verdict must come in bounded time.
_TRIED_MAX = 200_000


class TooHard(Exception):
    """The search met its bound. Make the history smaller: this is no verdict."""


@dataclass(slots=True, eq=False)
class _Event:
    """A call, or (`call` set) the return of one, in a list from which done operations are lifted."""

    index: int
    operation: Operation
    call: _Event | None = None
    ret: _Event | None = None
    before: _Event | None = None
    after: _Event | None = None


def judge(operations: Iterable[Operation]) -> str | None:
    """None when the operations of one key are linearizable, else a text with those that fit into no order.

    Raises:
        TooHard: the search was given up.
    """
    judged = [operation for operation in operations if operation.outcome is not Outcome.NOT_APPLIED]
    head, required = _events(judged)
    value: str | None = None
    done = 0
    chosen: list[tuple[_Event, str | None]] = []
    tried: set[tuple[int, str | None]] = set()
    deepest = 0
    blocking: _Event | None = None
    event = head.after
    while required:
        assert event is not None, "a required operation returns somewhere"
        if event.call is None:
            fits, after = step(value, event.operation)
            key = (done | 1 << event.index, after)
            if fits and key not in tried:
                tried.add(key)
                if len(tried) > _TRIED_MAX:
                    raise TooHard(f"{len(tried)} orders tried for {len(judged)} operations")
                chosen.append((event, value))
                done, value = key
                required -= event.ret is not None
                _lift(event)
                event = head.after
            else:
                event = event.after
            continue
        # It returned and is in no order tried: take back the last choice.
        if len(chosen) >= deepest:
            deepest, blocking = len(chosen), event
        if not chosen:
            assert blocking is not None
            return _explain(judged, blocking.operation)
        last, value = chosen.pop()
        done &= ~(1 << last.index)
        required += last.ret is not None
        _unlift(last)
        event = last.after
    return None


def step(value: str | None, operation: Operation) -> tuple[bool, str | None]:
    """Can `operation` come next on `value` with the answer it got, and what is the value then?"""
    if operation.outcome is Outcome.REFUSED:
        return _refused(value, operation), value
    if operation.kind is Kind.READ:
        return operation.outcome is Outcome.UNKNOWN or operation.seen == value, value
    if operation.expected is not None and value != operation.expected:
        return False, value
    if operation.created is not None and operation.created != (value is None):
        return False, value
    match operation.kind:
        case Kind.PUT:
            return True, operation.value
        case Kind.CREATE:
            return value is None, operation.value
        case Kind.UPDATE:
            return value is not None, operation.value
        case _:
            return value is not None, None


def _refused(value: str | None, operation: Operation) -> bool:
    match operation.seen:
        case Seen.PRESENT:
            return value is not None
        case Seen.NOT_EXPECTED:
            return value != operation.expected
        case Seen.NOTHING:
            return True
        case seen:
            return value == seen


def _events(operations: Sequence[Operation]) -> tuple[_Event, int]:
    """The list's head, and how many operations must be in the order."""
    timed: list[tuple[float, int, int, _Event]] = []
    required = 0
    for index, operation in enumerate(operations):
        call = _Event(index, operation)
        timed.append((operation.invoked, 0, index, call))  # at equal times calls come first: concurrent
        if operation.outcome is not Outcome.UNKNOWN:
            call.ret = _Event(index, operation, call=call)
            timed.append((operation.returned, 1, index, call.ret))
            required += 1
    head = last = _Event(-1, Operation(-1, "", "", Kind.READ, 0))
    for *_, event in sorted(timed, key=lambda item: item[:3]):
        last.after, event.before = event, last
        last = event
    return head, required


def _lift(call: _Event) -> None:
    for event in (call, call.ret):
        if event is not None:
            assert event.before is not None
            event.before.after = event.after
            if event.after is not None:
                event.after.before = event.before


def _unlift(call: _Event) -> None:
    for event in (call.ret, call):
        if event is not None:
            assert event.before is not None
            event.before.after = event
            if event.after is not None:
                event.after.before = event


def _explain(operations: Sequence[Operation], blocking: Operation) -> str:
    around = [
        operation
        for operation in operations
        if operation.invoked <= blocking.returned and operation.returned >= blocking.invoked - 1.0
    ]
    lines = "\n  ".join(str(operation) for operation in around[-30:])
    return f"no order of the answers explains {blocking}\n  around it:\n  {lines}"
