"""Tests of the decoder against a second implementation
of the format, and against messages of PostgreSQL 15.

`pgoutput.jsonl` holds a replication stream of a real server, as hexadecimal digits: tables with every type, each
replica identity, a large value left out, a column added and dropped, a truncation, messages, and a COPY.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError
from herdmesh.connectors.postgres.cdc import pgoutput
from herdmesh.connectors.postgres.cdc.pgoutput import (
    DELETE,
    INSERT,
    UPDATE,
    Begin,
    Cell,
    Change,
    Commit,
    Decoded,
    Message,
    Origin,
    Relation,
    RelationColumn,
    Toast,
    Truncate,
    Type,
    decode,
)
from libs.connectors.tests.postgres.replicated import message

FRAME_BYTES = 25
"""Header of each message: `w`, three numbers of eight bytes."""
RECORDED = [bytes.fromhex(json.loads(line)) for line in (Path(__file__).parent / "pgoutput.jsonl").open()]
MESSAGES = [frame[FRAME_BYTES:] for frame in RECORDED if frame[:1] == b"w"]

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
full_names = names.filter(bool)
lsns = st.integers(0, (1 << 63) - 1)
oids = st.integers(0, (1 << 32) - 1)
times_us = st.integers(-(1 << 62), 1 << 62)
cells: st.SearchStrategy[Cell] = st.none() | st.just(Toast.UNCHANGED) | st.binary(max_size=12)
rows = st.lists(cells, max_size=5)
columns = st.builds(RelationColumn, names, oids, st.integers(-(1 << 31), (1 << 31) - 1), st.booleans())
messages: st.SearchStrategy[Decoded] = st.one_of(
    st.builds(Begin, lsns, times_us, oids.filter(lambda oid: oid < 1 << 31)),
    st.builds(Commit, lsns, lsns, times_us),
    st.builds(Origin, lsns, names),
    st.builds(Relation, oids, full_names, names, st.sampled_from("dfin"), st.lists(columns, max_size=4).map(tuple)),
    st.builds(Type, oids, full_names, names),
    st.builds(Change, st.just(INSERT), oids, st.none(), st.just(False), rows),
    st.builds(Change, st.just(UPDATE), oids, st.none(), st.just(False), rows),
    st.builds(Change, st.just(UPDATE), oids, rows, st.booleans(), rows),
    st.builds(Change, st.just(DELETE), oids, rows, st.booleans(), st.none()),
    st.builds(Truncate, st.lists(oids, max_size=3).map(tuple), st.booleans(), st.booleans()),
    st.builds(Message, st.booleans(), lsns, names, st.binary(max_size=9)),
)


@given(messages, st.binary(max_size=30))
def test_what_is_written_is_read(wanted: Decoded, before: bytes) -> None:
    assert decode(before + message(wanted), len(before)) == wanted


@given(messages, st.data())
def test_a_truncated_or_continued_message_is_refused(wanted: Decoded, data: st.DataObject) -> None:
    whole = message(wanted)
    cut = data.draw(st.integers(0, len(whole) - 1))
    for broken in (whole[:cut], whole + b"\0"):
        with pytest.raises(DataError, match="pgoutput"):
            decode(broken)


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_raise_data_error(data: bytes) -> None:
    try:
        decode(data)
    except DataError:
        pass


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(DataError, match=r"unknown kind b'S'"):
        decode(b"S\0\0")


def test_a_real_stream_is_decoded_and_encoded_completely() -> None:
    decoded = [decode(data) for data in MESSAGES]
    assert Counter(type(one).__name__ for one in decoded) == {
        "Begin": 17, "Commit": 17, "Type": 3, "Relation": 9, "Change": 20, "Truncate": 1, "Message": 2,
    }  # fmt: skip
    assert [message(one) for one in decoded] == MESSAGES


def test_a_real_stream_has_the_recorded_changes() -> None:
    decoded = [decode(data) for data in MESSAGES]
    relations = {one.oid: one.table for one in decoded if isinstance(one, Relation)}
    changes = [one for one in decoded if isinstance(one, Change)]

    def of(table: str) -> list[Change]:
        return [one for one in changes if relations[one.relation] == table]

    keys_only = of("types")[3]
    assert keys_only.old is not None
    assert (keys_only.old[0], set(keys_only.old[1:]), keys_only.old_is_whole) == (b"1", {None}, False)
    assert [(chr(one.kind), one.old, one.new) for one in of("full_")] == [
        ("I", None, [b"1", b"a"]),
        ("I", None, [b"2", None]),
        ("U", [b"1", b"a"], [b"1", b"c"]),
        ("D", [b"2", None], None),
        ("I", None, [b"3", b"z", b"2026-01-02"]),
        ("I", None, [b"4", b"2026-01-03"]),
    ]
    assert of("toast")[1].new == [b"1", Toast.UNCHANGED, b"2"]
    (truncate,) = [one for one in decoded if isinstance(one, Truncate)]
    assert ([relations[oid] for oid in truncate.relations], truncate.cascade, truncate.restart_identity) == (
        ["full_", "nokey"], True, True,
    )  # fmt: skip
    begins = [one for one in decoded if isinstance(one, Begin)]
    assert [one.final_lsn for one in begins] == sorted({one.final_lsn for one in begins})
    assert all(one.commit_us > pgoutput.EPOCH_US for one in begins)
