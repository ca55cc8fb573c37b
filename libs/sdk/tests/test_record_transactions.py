"""Transactions whose ends a task of single records defines: the requests that the loop gets, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.engine import TaskFailed
from herdmesh.engine.source.boundaries import Boundaries, End
from herdmesh.sdk import (
    AsyncSourceTask,
    Config,
    RecordMetadata,
    RecordSourceTask,
    RecordTransactions,
    SourceBatch,
    SourceOffset,
    SourceRecord,
    SourceTask,
    SourceTaskContext,
)

Call = list[tuple[SourceRecord, str]]
"""The records one call returns, each with the request after it: "", "commit", "abort" or both."""


class Calls:
    """Records that a task returns, call by call; the last word of each call is the request for all its records."""

    def __init__(self, calls: Sequence[tuple[Call, str]]) -> None:
        self.left = list(calls)

    def next(self, transactions: RecordTransactions | None, *, each: bool) -> Iterable[SourceRecord]:
        """As a generator that makes its requests between records, or, `each` False, as a list."""
        assert transactions is not None
        if not self.left:
            return []
        found = self._records(transactions, *self.left.pop(0))
        return found if each else list(found)

    def _records(self, transactions: RecordTransactions, call: Call, last: str) -> Iterable[SourceRecord]:
        for record, asked in call:
            for one in asked.split():
                ask = transactions.commit_transaction_after if one == "commit" else transactions.abort_transaction_after
                ask(record)
            yield record
        for one in last.split():
            (transactions.commit_transaction if one == "commit" else transactions.abort_transaction)()


class Generating(RecordSourceTask):
    """Returns `calls`; as generators, or (config `list`) as lists."""

    def __init__(self, calls: Sequence[tuple[Call, str]]) -> None:
        self.calls = Calls(calls)

    def start(self, config: Config, context: SourceTaskContext) -> None:
        super().start(config, context)
        self.each = "list" not in config

    def poll_records(self) -> Iterable[SourceRecord]:
        return self.calls.next(self.transactions, each=self.each)


class Awaiting(AsyncSourceTask):
    """The same in coroutines."""

    def __init__(self, calls: Sequence[tuple[Call, str]]) -> None:
        self.calls = Calls(calls)

    async def start_async(self, config: Config, context: SourceTaskContext) -> None:
        return

    async def poll_async(self) -> Sequence[SourceRecord] | SourceBatch | None:
        return list(self.calls.next(self.transactions, each=False)) or None


def record(value: int, topic: str = "t") -> SourceRecord:
    return SourceRecord(topic, value, {"file": "a"}, {"line": value})


def context(asked: Boundaries | None, records_max: int = 3) -> SourceTaskContext:
    return SourceTaskContext(
        "c", 0, 1, "run", lambda _: None, poll_records_max=lambda: records_max, transactions=asked
    )  # fmt: skip


def told(task: SourceTask, asked: Boundaries, calls: Calls) -> list[tuple[int, Any] | End]:
    """Values that the loop sends (the last record of each part with its offset), and ends of transactions, in order.
    Polls again, like the loop, until nothing is left.
    """
    found: list[tuple[int, Any] | End] = []
    idle = 0
    while idle < 2:
        batch = task.poll()
        pieces = asked.pieces(batch)
        idle = 0 if batch is not None or pieces or calls.left else idle + 1
        for piece, end in pieces:
            if piece is not None:
                found += [(value, None) for value in piece.values[:-1]]
                found.append((piece.values[-1], piece.source_offset))
            if end is not None:
                found.append(end)
    return found


def wanted(calls: Sequence[tuple[Call, str]]) -> list[int | End]:
    """Values and ends in the order in which they were returned and requested."""
    found: list[int | End] = []
    for call, last in calls:
        for at, (one, asked) in enumerate(call):
            found.append(one.value)
            ends = {*asked.split(), *(last.split() if at == len(call) - 1 else ())}
            found += map(End, ends)
        if not call:
            found += map(End, last.split())
    return found


def merged(found: Iterable[int | End]) -> list[int | End]:
    """Drop the commit of an empty transaction: it adds nothing to the commit before it."""
    kept: list[int | End] = []
    for one in found:
        if not (one is End.COMMIT and (not kept or kept[-1] is End.COMMIT)):
            kept.append(one)
    return kept


CALLS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("tu"), st.sampled_from(("", "", "commit", "abort"))), max_size=8),
        st.sampled_from(("", "commit")),
    ),
    max_size=5,
)


@given(CALLS, st.integers(1, 4), st.sampled_from(("generator", "list", "async")))
def test_transactions_end_after_the_named_record_and_after_all_records_of_a_call(
    drawn: list[tuple[list[tuple[str, str]], str]], records_max: int, way: str
) -> None:
    """However the records are split into batches: by topic, and by the size that the loop requests."""
    numbers = iter(range(1_000))
    calls: list[tuple[Call, str]] = [
        ([(record(next(numbers), topic), asked) for topic, asked in call], last) for call, last in drawn
    ]
    # an abort and a commit at one place contradict each other; a separate test covers that
    calls = [(call, "" if call and call[-1][1] == "abort" else last) for call, last in calls]
    asked = Boundaries()
    task = Awaiting(calls) if way == "async" else Generating(calls)
    task.start({"list": "yes"} if way == "list" else {}, context(asked, records_max))
    try:
        found = told(task, asked, task.calls)
    finally:
        task.stop()
    assert merged(one if isinstance(one, End) else one[0] for one in found) == merged(wanted(calls))
    for at, one in enumerate(found):
        if isinstance(one, End) and at and not isinstance(before := found[at - 1], End):
            assert before[1] == {"line": before[0]}, "the offset that is committed is not the record's"


def test_contradicting_transaction_requests_raise_an_error() -> None:
    asked = Boundaries()
    task = Generating([([(record(1), "commit abort"), (record(2), "")], "")])
    task.start({}, context(asked))
    with pytest.raises(TaskFailed, match="both commit and abort of same record"):
        asked.pieces(task.poll())


def test_transaction_api_is_only_offered_with_connector_boundaries_and_not_per_batch_to_record_tasks() -> None:
    task = Generating([])
    task.start({}, context(None))
    assert task.transactions is None
    task.start({}, context(Boundaries()))
    assert task.transactions is not None
    assert task.context.transactions is None


def test_batch_made_by_a_coroutine_can_end_a_transaction() -> None:
    class Batches(AsyncSourceTask):
        async def start_async(self, config: Config, context: SourceTaskContext) -> None:
            return

        async def poll_async(self) -> Sequence[SourceRecord] | SourceBatch | None:
            assert self.transactions is not None
            self.transactions.commit_transaction()
            return SourceBatch("t", [1, 2], {}, {"n": 2})

    asked = Boundaries()
    task = Batches()
    task.start({}, context(asked))
    try:
        ((piece, end),) = asked.pieces(task.poll())
    finally:
        task.stop()
    assert piece is not None
    assert (list(piece.values), end) == ([1, 2], End.COMMIT)


def test_transactions_end_after_an_offset_without_a_record() -> None:
    """Each named offset ends one, also where no record lies between two of them."""
    asked = Boundaries()
    offsets = [SourceOffset({"file": "a"}, {"line": number}) for number in (2, 3, 4)]

    class Skipping(RecordSourceTask):
        def poll_records(self) -> Iterable[SourceRecord | SourceOffset]:
            assert self.transactions is not None
            self.transactions.commit_transaction_after(offsets[0])
            self.transactions.abort_transaction_after(offsets[1])
            self.transactions.commit_transaction()
            return [record(1), *offsets]

    task = Skipping()
    task.start({}, context(asked, 10))
    found = [piece for _ in range(4) for piece in asked.pieces(task.poll())]
    sent = [(None if batch is None else (list(batch.values), batch.source_offset), end) for batch, end in found]
    assert sent == [
        (([1], {"line": 1}), None),
        (([], {"line": 2}), End.COMMIT),
        (([], {"line": 3}), End.ABORT),
        (([], {"line": 4}), End.COMMIT),
    ]


class Placed(AsyncSourceTask):
    """Wants to be notified of each record's position, for records and batches; raises for the second record."""

    def __init__(self, given: Sequence[Sequence[SourceRecord] | SourceBatch]) -> None:
        self.given = list(given)
        self.heard: list[tuple[Any, Any]] = []

    async def start_async(self, config: Config, context: SourceTaskContext) -> None:
        return

    async def poll_async(self) -> Sequence[SourceRecord] | SourceBatch | None:
        return self.given.pop(0) if self.given else None

    async def commit_record_async(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        self.heard.append((record.value, metadata))
        if record.value == 2:
            raise ValueError("in commit_record_async")

    async def commit_batch_async(self, batch: SourceBatch, metadata: Sequence[RecordMetadata | None]) -> None:
        self.heard.append((list(batch.values), list(metadata)))

    async def commit_async(self, records: Sequence[SourceRecord]) -> None:
        self.heard.append(("commit", [one.value for one in records]))


def test_coroutine_tasks_are_notified_of_each_record_position(caplog: pytest.LogCaptureFixture) -> None:
    """In order and before the commit; for a batch that was split at the end of a transaction, part by part."""
    task = Placed([[record(1), record(2), record(3, "u")], SourceBatch("t", [4, 5], {}, {"n": 5})])
    task.start({}, context(None))
    try:
        batches = [batch for batch in (task.poll(), task.poll(), task.poll()) if batch is not None]
        places = [RecordMetadata("t", 0, at, 0) for at in range(5)]
        first, second, made = batches
        task.commit_batch(replace(first, values=first.values[:1]), places[:1])
        task.commit_batch(replace(first, values=first.values[1:]), places[1:2])
        task.commit_batch(second, [None])
        task.commit_batch(made, places[3:])
        task.commit()
    finally:
        task.stop()
    assert task.heard == [
        (1, places[0]), (2, places[1]), (3, None), ([4, 5], places[3:]), ("commit", [1, 2, 3]),
    ]  # fmt: skip
    assert "the task failed in commit_record_async" in caplog.text


def test_record_positions_are_reported_only_to_coroutine_tasks_that_override_the_method() -> None:
    makers: list[tuple[Callable[[], SourceTask], bool]] = [(lambda: Awaiting([]), False), (lambda: Placed([]), True)]
    assert [make().wants_metadata() for make, _ in makers] == [wants for _, wants in makers]
