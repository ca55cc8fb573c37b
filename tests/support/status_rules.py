"""Checker of the rules of a status put on a history: generations, putSafe, the order of one process's requests,
batches.

Owns the violations of the contract of `StatusWriteService` (put modes, `sequence`, one transaction a batch)
beyond the rules of any store (`tests.support.store_checks`). Does not know how history and log were produced.

Invariant: rules are those of the proto's comments, checked on the log, in which every value names its put.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.support.history import Operation, Outcome
from tests.support.store_checks import Logged, StoreLog, Violation

_SHOWN_MAX = 3


@dataclass(slots=True)
class SentPut:
    """One put of a batch. `operation` has its key, value, times and outcome.

    `batch` is new for every request. `incarnation` "" and `sequence` 0: the leader on behalf of a gone worker. `alone`
    means that no other process writes this key. `refusal` is the answer's result where it is not APPLIED,
    `acknowledged` the revision of the answer.
    """

    operation: Operation
    batch: str
    worker_id: str
    incarnation: str
    generation: int
    sequence: int
    safe: bool = False
    unassigned: bool = False
    alone: bool = False
    refusal: str = ""
    acknowledged: tuple[int, ...] | None = None

    def __str__(self) -> str:
        who = f"{self.incarnation or 'the leader for ' + self.worker_id} generation {self.generation}"
        return f"{self.operation} by {who}, request {self.sequence}{', safe' if self.safe else ''}"


def judge(puts: Sequence[SentPut], log: StoreLog) -> list[Violation]:
    """Every violation of the rules of a put."""
    found: list[Violation] = []

    def note(name: str, texts: Iterator[str]) -> None:
        found.extend(Violation(name, text) for text in list(texts)[:_SHOWN_MAX])

    put_of = {put.operation.value: put for put in puts}
    written = [(write, put_of[write.value]) for write in log.writes if write.value in put_of]
    note("generations", _overtaken(written, lambda put: not put.safe, _by_another_process))
    note("putSafe", _overtaken(written, lambda put: put.safe, _by_another_worker))
    note("sequence", _out_of_order(written))
    note("a batch is one", _torn(puts, written))
    note("refusals", _unfounded(puts, written))
    note("S1 read your writes", _not_in_its_answer(written))
    return found


def _by_another_process(old: SentPut, new: SentPut) -> bool:
    return bool(old.incarnation) and old.incarnation != new.incarnation


def _by_another_worker(old: SentPut, new: SentPut) -> bool:
    """A status of no known process may be Java's, whose generations are not ours: ours overwrites it."""
    return old.worker_id != new.worker_id and (bool(old.incarnation) or not new.incarnation)


def _overtaken(
    written: Sequence[tuple[Logged, SentPut]],
    concerns: Callable[[SentPut], bool],
    others: Callable[[SentPut, SentPut], bool],
) -> Iterator[str]:
    """Find an older generation written over a newer one of another process."""
    before: dict[str, SentPut] = {}
    for write, put in written:
        old = before.get(write.key)
        if old is not None and concerns(put) and old.generation > put.generation and others(old, put):
            yield f"{put} was written over {old}"
        before[write.key] = put


def _out_of_order(written: Sequence[tuple[Logged, SentPut]]) -> Iterator[str]:
    latest: dict[tuple[str, str], SentPut] = {}
    for write, put in written:
        before = latest.get((put.incarnation, write.key))
        if put.sequence and before is not None and before.sequence > put.sequence:
            yield f"{put} was written after {before}"
        if put.sequence:
            latest[put.incarnation, write.key] = put


def _torn(puts: Sequence[SentPut], written: Sequence[tuple[Logged, SentPut]]) -> Iterator[str]:
    """Check that all puts of a batch are decided alike, for keys that no other process writes."""
    values = {write.value for write, _ in written}
    batches: dict[str, list[SentPut]] = defaultdict(list)
    for put in puts:
        if put.alone:
            batches[put.batch].append(put)
    for batch in batches.values():
        there = [put for put in batch if put.operation.value in values]
        if there and len(there) < len(batch):
            yield f"of {len(batch)} puts in one batch {len(there)} are there: {there[0]}"


def _unfounded(puts: Sequence[SentPut], written: Sequence[tuple[Logged, SentPut]]) -> Iterator[str]:
    """Find a put refused for a reason that nobody had written, or sent."""
    stored: dict[str, list[SentPut]] = defaultdict(list)
    for write, put in written:
        stored[write.key].append(put)
    for put in puts:
        until = put.operation.returned
        match put.refusal:
            case "":
                continue
            case "SUPERSEDED":
                founded = any(
                    other.incarnation == put.incarnation
                    and other.sequence > put.sequence
                    and other.operation.key == put.operation.key
                    and other.operation.invoked < until
                    for other in puts
                )
            case "STALE_GENERATION" | "STATUS_NEWER":
                founded = any(
                    other.generation + put.unassigned > put.generation
                    and _process(other) != _process(put)
                    and other.operation.invoked < until
                    for other in stored[put.operation.key]
                )
            case _:
                founded = False
        if not founded:
            yield f"{put} was refused as {put.refusal}"


def _process(put: SentPut) -> str:
    """The process a put speaks for: reports of two gone workers count as two processes."""
    return put.incarnation or put.worker_id


def _not_in_its_answer(written: Sequence[tuple[Logged, SentPut]]) -> Iterator[str]:
    """A reader that demands the revision of an answer reads the write: its record lies below that revision."""
    for write, put in written:
        told = put.acknowledged
        if put.operation.outcome is Outcome.OK and told is not None and told[write.partition] <= write.offset:
            yield f"{put} lies at offset {write.offset} of partition {write.partition}, its answer says {told}"
