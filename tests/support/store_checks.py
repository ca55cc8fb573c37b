"""Checkers of a store's promises: a history of clients against the log the store left.

Owns the definition of a violation, beyond linearizability (`tests.support.linearizability`), which it also runs. Does
not know how history and log were produced: this code judges the simulator and the runs against a real broker alike.

Invariant: a checker reads `History` and `StoreLog` only, and a violation names the promise of
docs/reference/guarantees.md that it breaks (S1 to S11, C4).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tests.support import linearizability
from tests.support.history import History, Listing, Operation, Outcome

_SHOWN_MAX = 3
#: Keys of a producer outside the fence, for which compare-and-set is impossible: they are not judged as registers.
FOREIGN_PREFIX = "java-"


@dataclass(frozen=True, slots=True)
class Violation:
    """`check` is the name of the checker, `text` one finding."""

    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


@dataclass(frozen=True, slots=True)
class Logged:
    """One committed record that sets or removes (`value` None) a key, in the store's own topic.

    `transaction` numbers transactions in the order they became visible, -1 for a plain producer's record. `request_id`
    is the audit record's of the same transaction, when that is known.
    """

    key: str
    value: str | None
    partition: int
    offset: int
    transaction: int = -1
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Granted:
    """One epoch as granted to a herder, or as a record holds it: `first` <= generation < `limit`."""

    epoch: int
    leader: str
    first: int
    limit: int


@dataclass(frozen=True, slots=True)
class Privileged:
    """A committed write that was made under `epoch` while `in_force` was the epoch of the latest record before it."""

    what: str
    epoch: int
    in_force: int


@dataclass(frozen=True, slots=True)
class Visible:
    """A transaction that became visible: its writer, and the latest owner by take-over before that."""

    writer: str
    owner: str


@dataclass
class StoreLog:
    """Contents of the topic, without compaction. `requests` None: the store keeps no audit topic.

    `tells_empty_removals`: a watcher gets an event for a tombstone under a key that has no value then.
    """

    writes: list[Logged] = field(default_factory=lambda: list[Logged]())
    requests: Counter[str] | None = None
    granted: list[Granted] = field(default_factory=lambda: list[Granted]())
    privileged: list[Privileged] = field(default_factory=lambda: list[Privileged]())
    visible: list[Visible] = field(default_factory=lambda: list[Visible]())
    tells_empty_removals: bool = True

    def fold(self, revision: Sequence[int] | None = None) -> dict[str, str]:
        """The values of all keys at a revision; None = at the end."""
        values: dict[str, str] = {}
        for write in self.writes:
            if revision is not None and write.offset >= revision[write.partition]:
                continue
            if write.value is None:
                values.pop(write.key, None)
            else:
                values[write.key] = write.value
        return values

    def after(self, revision: Sequence[int], until: Sequence[int]) -> Iterator[Logged]:
        """Records written from one revision on and before the other."""
        return (
            write
            for write in self.writes
            if revision[write.partition] <= write.offset < max(until[write.partition], revision[write.partition])
        )


def check(history: History, log: StoreLog, granted: Iterable[Granted] = ()) -> list[Violation]:
    """Every violation of every promise; `granted` are the epochs granted to herders."""
    found: list[Violation] = []

    def note(name: str, texts: Iterable[str]) -> None:
        found.extend(Violation(name, text) for text in list(texts)[:_SHOWN_MAX])

    note("S7 compare and set", _linearizable(history, log))
    note("S7 compare and set (log)", _decided_on_truth(history, log))
    note("S2 acknowledged writes are there", _lost(history, log))
    note("S8 applied once", _doubled(history, log))
    note("S6 not applied means never", _never(history, log))
    note("S9 revisions", _revisions(history, log))
    note("S1 read your writes", _reads_see_writes(history))
    note("S10 a snapshot is the fold", _snapshots(history, log))
    note("S9 watch", _watches(history, log))
    note("S3 one effective writer", _one_writer(log))
    note("C4 epochs", _epochs([*log.granted, *granted], log))
    return found


def _resolved(operation: Operation, log: StoreLog, known: _Known) -> Operation:
    """The operation with the log's knowledge beyond its client: that an unknown write never happened, or by when it
    had, and the value of the revision named by a mismatch.
    """
    if operation.outcome is Outcome.UNKNOWN and operation.writes:
        if not _may_be_applied(operation, log):
            return replace(operation, outcome=Outcome.NOT_APPLIED)
        by = known.applied_by.get(operation.number, math.inf)
        return operation if math.isinf(by) else replace(operation, outcome=Outcome.OK, returned=by)
    if operation.outcome is Outcome.REFUSED and operation.revision is not None:
        seen = known.values.get((operation.key, operation.revision)) if operation.revision else None
        return replace(operation, seen=seen)
    return operation


@dataclass(frozen=True, slots=True)
class _Known:
    """Knowledge from a log about a history: the value of each revision, and for each write the time by which it had
    taken effect, because a write behind it in the log had been answered.
    """

    values: dict[tuple[str, int], str]
    applied_by: dict[int, float]


def _known(history: History, log: StoreLog) -> _Known:
    values = {(write.key, write.offset + 1): write.value for write in log.writes if write.value is not None}
    operation_of = _operations_by_write(history)
    bounds: dict[str, float] = {}
    applied_by: dict[int, float] = {}
    for write in reversed(log.writes):
        operation = operation_of(write)
        bound = bounds.get(write.key, math.inf)
        if operation is not None:
            applied_by[operation.number] = bound
            bounds[write.key] = min(bound, operation.returned)
    return _Known(values, applied_by)


def _operations_by_write(history: History) -> Callable[[Logged], Operation | None]:
    """The operation of a record: by its request id, or by its value."""
    by_value = {operation.value: operation for operation in history.operations if operation.value is not None}
    by_request = {operation.request_id: operation for operation in history.operations if operation.request_id}

    def operation_of(write: Logged) -> Operation | None:
        found = by_request.get(write.request_id) or (by_value.get(write.value) if write.value else None)
        return found if found is not None and found.key == write.key else None

    return operation_of


def _may_be_applied(operation: Operation, log: StoreLog) -> bool:
    if operation.request_id and log.requests is not None:
        return log.requests[operation.request_id] > 0
    return operation.value is None or any(write.value == operation.value for write in log.writes)


def _linearizable(history: History, log: StoreLog) -> Iterator[str]:
    known = _known(history, log)
    for key in history.keys:
        if key.startswith(FOREIGN_PREFIX):
            continue
        verdict = linearizability.judge(_resolved(operation, log, known) for operation in history.of_key(key))
        if verdict is not None:
            yield f"{key}: {verdict}"


def _decided_on_truth(history: History, log: StoreLog) -> Iterator[str]:
    """Each write, at its position in the log, found the value it demanded. Stricter than the search: the order is
    given.
    """
    operation_of = _operations_by_write(history)
    values: dict[str, str | None] = {}
    last: dict[str, Operation] = {}
    for write in log.writes:
        before, values[write.key] = values.get(write.key), write.value
        operation = operation_of(write)
        if operation is None or write.key.startswith(FOREIGN_PREFIX):
            continue
        applied = replace(operation, outcome=Outcome.OK)
        if not linearizability.step(before, applied)[0]:
            yield f"{operation} was applied at offset {write.offset} over {before!r}"
        previous = last.get(write.key)
        if previous is not None and previous is not operation and previous.invoked > operation.returned:
            yield f"{operation} lies behind {previous}, which began after it had ended"
        last[write.key] = operation


def _lost(history: History, log: StoreLog) -> Iterator[str]:
    values = {write.value for write in log.writes}
    for operation in history.operations:
        if operation.outcome is not Outcome.OK or not operation.writes:
            continue
        if operation.value is not None and operation.value not in values:
            yield f"{operation} is not in the log"
        if operation.request_id and log.requests is not None and not log.requests[operation.request_id]:
            yield f"{operation} is not in the audit topic"


def _doubled(history: History, log: StoreLog) -> Iterator[str]:
    for value, times in Counter(write.value for write in log.writes if write.value is not None).items():
        if times > 1:
            yield f"{value!r} was written {times} times"
    for request_id, times in (log.requests or Counter[str]()).items():
        if times > 1 and request_id:
            yield f"request {request_id!r} was applied {times} times"


def _never(history: History, log: StoreLog) -> Iterator[str]:
    values = {write.value for write in log.writes}
    for operation in history.operations:
        if operation.outcome in (Outcome.OK, Outcome.UNKNOWN) or not operation.writes:
            continue
        by_request = operation.request_id and log.requests is not None and log.requests[operation.request_id]
        if by_request or (operation.value is not None and operation.value in values):
            yield f"{operation} is in the log"


def _revisions(history: History, log: StoreLog) -> Iterator[str]:
    places: dict[int, int] = {}
    for write in log.writes:
        if write.offset < places.get(write.partition, 0):
            yield f"offset {write.offset} of partition {write.partition} was read twice"
        places[write.partition] = write.offset + 1
    offsets = {write.value: write.offset for write in log.writes if write.value is not None}
    for operation in history.operations:
        if operation.outcome is Outcome.OK and operation.revision is not None and operation.value in offsets:
            told, lies = operation.revision, offsets[operation.value]
            if told != lies + 1:
                yield f"{operation} was told revision {told}, its record lies at offset {lies}"


def _reads_see_writes(history: History) -> Iterator[str]:
    """Reads in time: a linearizable read includes every write acknowledged before; a replica never goes back."""
    for read in history.reads:
        if read.demanded is not None and not _includes(read.revision, read.demanded):
            yield f"{read.client} demanded {read.demanded} of {read.replica} and was answered at {read.revision}"
    # Answers with replica and revision; writes have a revision only in stores of one partition.
    answers = [(read.returned, read.replica, read.revision, False) for read in history.reads]
    answers += [
        (operation.returned, operation.replica, (operation.revision,), True)
        for operation in history.operations
        if operation.outcome is Outcome.OK and operation.writes and operation.revision is not None
    ]
    answers.sort(key=lambda answer: answer[0])
    at: dict[str, tuple[int, ...]] = {}
    acknowledged: tuple[int, ...] = ()
    place = 0
    for read in sorted(history.reads, key=lambda read: read.invoked):
        while place < len(answers) and answers[place][0] < read.invoked:
            _, replica, revision, is_write = answers[place]
            at[replica] = _later(at.get(replica, ()), revision)
            acknowledged = _later(acknowledged, revision) if is_write else acknowledged
            place += 1
        if not _includes(read.revision, at.get(read.replica, ())):
            yield f"{read.replica} answered {read.client} at {read.revision}, it had said {at[read.replica]} before"
        if read.linearizable and not _includes(read.revision, acknowledged):
            yield f"a linearizable read of {read.client} at {read.revision} lacks a write answered at {acknowledged}"


def _snapshots(history: History, log: StoreLog) -> Iterator[str]:
    folds: dict[tuple[int, ...], dict[str, str]] = {}
    for read in history.reads:
        if read.revision not in folds:
            folds[read.revision] = log.fold(read.revision)
        if read.values != folds[read.revision]:
            difference = _difference(read.values, folds[read.revision])
            yield f"{read.replica} told {read.client} {difference} at {read.revision}"


def _watches(history: History, log: StoreLog) -> Iterator[str]:
    for watch in history.watches:
        for listing in watch.listings:
            if listing.values != log.fold(listing.revision):
                difference = _difference(listing.values, log.fold(listing.revision))
                yield f"{watch.client}: the snapshot at {listing.revision} has {difference}"
            yield from (f"{watch.client}: {text}" for text in _stream(listing, log))


def _stream(listing: Listing, log: StoreLog) -> Iterator[str]:
    wanted: dict[int, list[Logged]] = defaultdict(list)
    present = set(log.fold(listing.revision))
    for write in log.after(listing.revision, listing.last):
        if write.value is not None:
            present.add(write.key)
        elif write.key in present:
            present.discard(write.key)
        elif not log.tells_empty_removals:
            continue
        wanted[write.partition].append(write)
    partition_of = {write.key: write.partition for write in log.writes}
    told: dict[int, list[tuple[str, str | None]]] = defaultdict(list)
    last = listing.revision
    for change in listing.changes:
        if not _includes(change.revision, last):
            yield f"the revision went back from {last} to {change.revision}"
        last = change.revision
        told[partition_of.get(change.key, 0)].append((change.key, change.value))
    for partition in wanted.keys() | told.keys():
        expected = [(write.key, write.value) for write in wanted[partition]]
        if told[partition] != expected:
            place = next(
                (i for i, (a, b) in enumerate(zip(told[partition], expected, strict=False)) if a != b),
                min(len(told[partition]), len(expected)),
            )
            yield (
                f"after {listing.revision} until {listing.last} it was told {told[partition][place : place + 3]} "
                f"as change {place}, the log has {expected[place : place + 3]}"
            )


def _one_writer(log: StoreLog) -> Iterator[str]:
    for number, transaction in enumerate(log.visible):
        if transaction.writer != transaction.owner:
            yield f"transaction {number} of {transaction.writer} became visible after {transaction.owner} took over"


def _epochs(granted: Sequence[Granted], log: StoreLog) -> Iterator[str]:
    by_epoch: dict[int, Granted] = {}
    for grant in granted:
        if by_epoch.setdefault(grant.epoch, grant) != grant:
            yield f"epoch {grant.epoch} was granted as {by_epoch[grant.epoch]} and as {grant}"
    ordered = [by_epoch[epoch] for epoch in sorted(by_epoch)]
    for one, other in itertools.pairwise(ordered):
        if other.first < one.limit:
            yield f"generations of epoch {other.epoch} begin at {other.first}, epoch {one.epoch} has up to {one.limit}"
    for write in log.privileged:
        if write.epoch != write.in_force:
            yield f"{write.what} of epoch {write.epoch} was applied under epoch {write.in_force}"


def _includes(one: Sequence[int], other: Sequence[int]) -> bool:
    return all(mine >= theirs for mine, theirs in zip(one, other, strict=bool(other)))


def _later(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(max, one, other)) if one else other


def _difference(found: dict[str, str], expected: dict[str, str]) -> str:
    keys = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    return ", ".join(f"{key}={found.get(key)!r} for {expected.get(key)!r}" for key in keys[:3])
