"""Linearizability checker: is there an order in which a register would have given these answers? Wing & Gong's search
in Lowe's form.

Owns the sequential model of one connector's config (a register that can be absent) and the search. Knows no store and
no log: it judges by the clients' answers alone. Linearizability is local, so each key is judged by itself; per key it
is compare-and-set by revision, because a revision names one record and a record one value.

Wing & Gong 1993: walk the calls and returns in time; try each pending operation as the next one; abandon an order when
an operation returned that is not in it. Lowe 2017: remember every (set of operations done, value) already tried.
Beyond both: a read or a refusal that fits comes next, and no alternative is tried (whatever order explains the
rest, one that begins with it does too: it changes nothing wherever it is); an unknown write is not tried where it
changes nothing; and of unknown ones with the same request, the one called first comes first.
Invariant: operations that are not applied by promise are not in any order; unknown ones may be anywhere after their
call, or nowhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.support.history import Kind, Operation, Outcome, Seen

#: Configurations tried for one key before the search stops without a verdict: it must end in bounded time.
_TRIED_MAX = 200_000


class TooHard(Exception):
    """The search reached its bound. Make the history smaller: this is no verdict."""


@dataclass(slots=True, eq=False)
class _Event:
    """A call, or (`call` set) the return of one, in a linked list from which done operations are removed."""

    index: int
    operation: Operation
    call: _Event | None = None
    ret: _Event | None = None
    before: _Event | None = None
    after: _Event | None = None
    #: of an unknown operation: the indices of unknown ones called before it with the same request.
    alike_before: tuple[int, ...] = ()


@dataclass(slots=True)
class _Choice:
    """An operation put into the order, and the value before it. Beside a free one no alternative needs to be tried."""

    event: _Event
    before: str | None
    free: bool = False


def judge(operations: Iterable[Operation]) -> str | None:
    """None when the operations of one key are linearizable, else a text with those that fit into no order.

    Raises:
        TooHard: the search reached its bound.
    """
    judged = [operation for operation in operations if operation.outcome is not Outcome.NOT_APPLIED]
    head, required = _events(judged)
    value: str | None = None
    done = 0
    chosen: list[_Choice] = []
    tried: set[tuple[int, str | None]] = set()
    deepest = 0
    blocking: _Event | None = None
    event = head.after
    free = _free(event, value)
    while required:
        if free is not None:
            chosen.append(_Choice(free, value, free=True))
        else:
            assert event is not None, "a required operation returns somewhere"
            if event.call is None:
                fits, after = _fits(value, event, done)
                key = (done | 1 << event.index, after)
                if not fits or key in tried:
                    event = event.after
                    continue
                tried.add(key)
                if len(tried) > _TRIED_MAX:
                    raise TooHard(f"{len(tried)} orders tried for {len(judged)} operations")
                chosen.append(_Choice(event, value))
                value = after
            else:
                # It returned and is in no order tried: take back the last choice that has an untried alternative.
                if len(chosen) >= deepest:
                    deepest, blocking = len(chosen), event
                while chosen:
                    last = chosen.pop()
                    done &= ~(1 << last.event.index)
                    required += last.event.ret is not None
                    _unlift(last.event)
                    if not last.free:
                        value, event = last.before, last.event.after
                        break
                else:
                    assert blocking is not None
                    return _explain(judged, blocking.operation)
                continue
        last = chosen[-1].event
        done |= 1 << last.index
        required -= last.ret is not None
        _lift(last)
        event = head.after
        free = _free(event, value)
    return None


def _free(event: _Event | None, value: str | None) -> _Event | None:
    """A read or refusal that can come next: one called before the first return, that fits. Not a write that happens to
    leave the value as it is (an erasure of nothing): later it may be needed to explain the rest.
    """
    while event is not None and event.call is None:
        reads = event.operation.kind is Kind.READ or event.operation.outcome is Outcome.REFUSED
        if reads and event.ret is not None and step(value, event.operation)[0]:
            return event
        event = event.after
    return None


def _fits(value: str | None, event: _Event, done: int) -> tuple[bool, str | None]:
    """Whether the operation is worth trying next, and the value then."""
    fits, after = step(value, event.operation)
    useless = event.ret is None and (after == value or any(not done >> index & 1 for index in event.alike_before))
    return fits and not useless, after


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
    unknown: defaultdict[tuple[object, ...], list[tuple[float, _Event]]] = defaultdict(list)
    for index, operation in enumerate(operations):
        call = _Event(index, operation)
        timed.append((operation.invoked, 0, index, call))  # at equal times calls come first: concurrent
        if operation.outcome is not Outcome.UNKNOWN:
            call.ret = _Event(index, operation, call=call)
            timed.append((operation.returned, 1, index, call.ret))
            required += 1
        else:
            asked = (operation.kind, operation.value, operation.expected, operation.created)
            unknown[asked].append((operation.invoked, call))
    for alike in unknown.values():
        alike.sort(key=lambda item: item[0])
        indices = tuple(event.index for _, event in alike)
        for place, (_, event) in enumerate(alike):
            event.alike_before = indices[:place]
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
