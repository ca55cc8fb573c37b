"""Tests of positions in the log's order of changes, and of stored offsets: ours and Debezium's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError
from herdmesh.connect.topics import offsets_topic
from herdmesh.connectors.postgres.cdc.position import (
    LastChange,
    Position,
    Stored,
    TableAhead,
    lsn_of,
    lsn_text,
    offset_of,
    read,
    source_partition,
)

lsns = st.integers(0, (1 << 63) - 1)
positions = st.builds(Position, lsns, st.integers(0, 1_000_000))
aheads = st.dictionaries(st.text(max_size=6), st.builds(TableAhead, positions, positions), max_size=3)


@given(positions, aheads, st.booleans())
def test_an_offset_round_trips(position: Position, ahead: dict[str, TableAhead], is_snapshot: bool) -> None:
    offset = offset_of(position, LastChange(1, 2, 3), ahead, is_snapshot=is_snapshot)
    stored = offsets_topic.decode_value(offsets_topic.encode_value(offset))
    assert stored is not None
    assert read(stored) == Stored(position, ahead, is_snapshot)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
def test_a_position_covers_exactly_the_changes_before_it(counts: list[int], data: st.DataObject) -> None:
    changes = [(100 * number, event) for number, count in enumerate(counts, 1) for event in range(1, count + 1)]
    done = data.draw(st.integers(0, len(changes)))
    # The position after a change, or after the commit, which is before the next commit.
    reached = [Position(*changes[done - 1])] if done else [Position(0), Position(100)]
    if done and (done == len(changes) or changes[done][0] != changes[done - 1][0]):
        reached += [Position(changes[done - 1][0] + 1), Position(changes[done - 1][0] + 100)]
    for position in reached:
        assert [position.covers(*change) for change in changes] == [at < done for at in range(len(changes))]


def test_offsets_have_debeziums_keys() -> None:
    assert source_partition("app") == {"server": "app"}
    assert offset_of(Position(200), LastChange(150, 7, 1_700_000_000_000_000)) == {
        "lsn_commit": 200, "lsn": 150, "lsn_proc": 150, "txId": 7, "ts_usec": 1_700_000_000_000_000,
    }  # fmt: skip
    assert offset_of(Position(200), is_snapshot=True) == {
        "lsn_commit": 200, "lsn": 200, "lsn_proc": 200, "snapshot": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("offset", "wanted"),
    [
        ({"lsn_proc": 31, "lsn_commit": 30, "lsn": 31, "txId": 5, "ts_usec": 6}, Stored(Position(30), {}, False)),
        ({"lsn_proc": 31, "lsn": 31, "txId": 5}, Stored(Position(31), {}, False)),
        ({"lsn": 9, "snapshot": True, "last_snapshot_record": False}, Stored(Position(9), {}, True)),
        ({"lsn": 9, "snapshot": True, "last_snapshot_record": True}, Stored(Position(9), {}, False)),
        ({"lsn": 9, "snapshot": "INITIAL", "snapshot_completed": False}, Stored(Position(9), {}, True)),
        ({"lsn": 9, "snapshot": "INITIAL", "snapshot_completed": True}, Stored(Position(9), {}, False)),
    ],
)
def test_a_task_continues_from_debeziums_offsets(offset: dict[str, Any], wanted: Stored) -> None:
    assert read(offset) == wanted


@pytest.mark.parametrize(
    "offset",
    [{}, {"lsn_commit": "1"}, {"lsn_commit": -1}, {"lsn_commit": True}, {"lsn_commit": 1, "tx_events": 1.5},
     {"lsn_commit": 1, "ahead": "no"}, {"lsn_commit": 1, "ahead": '{"a":[1,2,3]}'},
     {"lsn_commit": 1, "ahead": '{"a":[1,2,3,-4]}'}, {"lsn_commit": 1, "ahead": "[1]"}, {"lsn_commit": 1, "ahead": 5}],
)  # fmt: skip
def test_an_offset_without_a_position_is_refused(offset: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="source offset"):
        read(offset)


@given(lsns)
def test_log_positions_have_postgresqls_form(lsn: int) -> None:
    assert lsn_of(lsn_text(lsn)) == lsn


def test_parsing_of_log_positions() -> None:
    assert (lsn_text(0x16B3748), lsn_of("1/A")) == ("0/16B3748", (1 << 32) + 10)
