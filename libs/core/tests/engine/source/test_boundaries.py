"""Ends of transactions that a task defines: how a batch is cut, for any requests
(docs/reference/connect/offsets-topic.md, section 7).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.model.data import Header
from herdmesh.connect.spi.connector import SourceBatch
from herdmesh.engine import TaskFailed
from herdmesh.engine.source.boundaries import Boundaries, End


def batch_of(count: int, **columns: Any) -> SourceBatch:
    return SourceBatch("t", list(range(count)), {"p": 1}, {"next": count}, partition=3, **columns)


def ask(boundaries: Boundaries, end: End, at: int | None = None) -> None:
    if at is None:
        (boundaries.commit_transaction if end is End.COMMIT else boundaries.abort_transaction)()
    elif end is End.COMMIT:
        boundaries.commit_transaction_after(at, {"next": at + 1})
    else:
        boundaries.abort_transaction_after(at, {"next": at + 1})


_ends = st.sampled_from(list(End))


@given(st.integers(0, 30), st.dictionaries(st.integers(0, 29), _ends, max_size=6), st.none() | _ends)
def test_no_record_is_lost_and_each_transaction_ends_where_requested(
    count: int, asks: dict[int, End], whole: End | None
) -> None:
    asks = {at: end for at, end in asks.items() if at < count}
    boundaries = Boundaries()
    for at, end in asks.items():
        ask(boundaries, end, at)
    if whole is not None:
        ask(boundaries, whole)
    batch = batch_of(count)
    sent: list[int] = []
    ended: list[tuple[int, End]] = []
    for piece, end in boundaries.pieces(batch):
        if piece is not None:
            sent += piece.values
            assert (piece.topic, piece.partition, piece.source_partition) == ("t", 3, {"p": 1})
            assert piece.source_offset == {"next": len(sent)}
        if end is not None:
            ended.append((len(sent) - 1, end))
    assert sent == list(range(count))
    assert ended == [*sorted(asks.items()), *([] if whole is None else [(count - 1, whole)])]
    assert boundaries.pieces(batch) == [(batch, None)], "what was asked for is asked for once"


def test_every_column_is_cut() -> None:
    boundaries = Boundaries()
    ask(boundaries, End.COMMIT, 0)
    headers = [[Header("h", number)] for number in range(3)]
    (first, _), (rest, _) = boundaries.pieces(
        batch_of(3, keys=["a", "b", "c"], timestamps_ms=[1, None, 3], headers=headers)
    )
    assert first is not None
    assert rest is not None
    assert (first.keys, first.timestamps_ms, first.headers) == (["a"], [1], headers[:1])
    assert (rest.keys, rest.timestamps_ms, rest.headers) == (["b", "c"], [None, 3], headers[1:])


def test_an_uncut_batch_is_the_same_object() -> None:
    boundaries, batch = Boundaries(), batch_of(3)
    ask(boundaries, End.ABORT, 2)
    ((piece, end),) = boundaries.pieces(batch)
    assert (piece is batch, end) == (True, End.ABORT)
    assert boundaries.pieces(None) == []
    ask(boundaries, End.COMMIT)
    assert boundaries.pieces(None) == [(None, End.COMMIT)]


@pytest.mark.parametrize(
    ("asks", "count", "says"),
    [
        ([(End.COMMIT, None), (End.ABORT, None)], 3, "Connector requested both commit and abort of same transaction"),
        (
            [(End.COMMIT, 1), (End.ABORT, 1)],
            3,
            "Connector requested both commit and abort of same record against topic/partition t/3",
        ),
        ([(End.COMMIT, 3)], 3, "after record 3 of a batch of 3"),
        ([(End.ABORT, -1)], 3, "after record -1 of a batch of 3"),
        ([(End.COMMIT, 0)], None, "after record 0 and returned no batch"),
    ],
)
def test_contradicting_requests_end_the_run_as_fatal(
    asks: list[tuple[End, int | None]], count: int | None, says: str
) -> None:
    boundaries = Boundaries()
    for end, at in asks:
        ask(boundaries, end, at)
    with pytest.raises(TaskFailed) as refused:
        boundaries.pieces(None if count is None else batch_of(count))
    assert says in str(refused.value)
    assert refused.value.error_class is ErrorClass.FATAL
