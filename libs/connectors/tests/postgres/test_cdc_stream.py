"""Tests of assembling changes to chunks, and chunks to batches: for any log and any cut of a run, each change has its
record once and in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError
from herdmesh.connect.spi.connector import SourceBatch
from herdmesh.connectors.postgres.cdc.events import Events
from herdmesh.connectors.postgres.cdc.pgoutput import (
    DELETE,
    INSERT,
    UPDATE,
    Begin,
    Change,
    Commit,
    Decoded,
    Relation,
    Toast,
    Truncate,
)
from herdmesh.connectors.postgres.cdc.position import Position, Stored, read
from herdmesh.connectors.postgres.cdc.settings import CdcSettings
from herdmesh.connectors.postgres.cdc.stream import Assembler
from herdmesh.connectors.postgres.cdc.tables import Table
from libs.connectors.tests.postgres import replicated
from libs.connectors.tests.postgres.replicated import message

TABLES = ("a", "b", "c")
"""The last table is not captured."""
Seen = list[tuple[str, Any, Any]]
"""Operation (also `tombstone`), key, and the written value."""


@dataclass
class Log:
    """A database's log: transactions of (table, operation, key, second key of an update)."""

    transactions: Sequence[Sequence[tuple[str, str, int, int]]]
    idle: int = 1
    """Number of transactions between keepalives."""
    added: int = 0
    """Number of transactions after which the tables have another column."""

    def frames(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Return the frames that a server sends from a position on; b"" = a keepalive."""
        told: set[Relation] = set()
        number = 0
        for place, changes in enumerate(self.transactions, 1):
            final = place * 1_000
            if final < start:
                number += len(changes)
                continue
            yield final - 500, message(Begin(final, 1_700_000_000_000_000 + place, place))
            for at, change in enumerate(changes):
                relation = self.relation(change[0], place)
                if relation not in told:
                    told.add(relation)
                    yield 0, message(relation)
                number += 1
                yield final - 400 + at, message(_change(relation, change, number))
            yield final + 50, message(Commit(final, final + 50, 1_700_000_000_000_000 + place))
            if place % self.idle == 0:
                yield final + 80, b""

    def relation(self, table: str, place: int) -> Relation:
        """Return the description of a table in a transaction."""
        found = replicated.relation(TABLES.index(table) + 1, table)
        if self.added and place > self.added:
            found = found._replace(columns=(*found.columns, found.columns[1]._replace(name="more")))
        return found

    def expected(self) -> dict[str, Seen]:
        """Return the records that each topic must have."""
        found: dict[str, Seen] = defaultdict(list)
        number = 0
        for changes in self.transactions:
            for table, operation, key, second in changes:
                number += 1
                if table == TABLES[-1]:
                    continue
                seen, text = found[f"app.public.{table}"], f"{number}"
                if operation == "move" and key != second:
                    seen += [("d", key, None), ("tombstone", key, None), ("c", second, text)]
                elif operation == "delete":
                    seen += [("d", key, None), ("tombstone", key, None)]
                else:
                    seen.append(("c" if operation == "insert" else "u", key, text))
        return dict(found)


def _change(relation: Relation, of: tuple[str, str, int, int], number: int) -> Change:
    _, operation, key, second = of
    more = [b"more"] * (len(relation.columns) - 2)
    old = [b"%d" % key, None, *[None for _ in more]]
    new = [b"%d" % key, b"%d" % number, *more]
    match operation:
        case "insert":
            return Change(INSERT, relation.oid, None, False, new)
        case "delete":
            return Change(DELETE, relation.oid, old, False, None)
        case "move":
            moved = [b"%d" % second, *new[1:]]
            return Change(UPDATE, relation.oid, old if key != second else None, False, moved)
        case _:
            return Change(UPDATE, relation.oid, None, False, new)


@dataclass
class Run:
    """A task between two crashes: its batches, from a stored offset on."""

    log: Log
    to: CdcSettings
    offset: Mapping[str, Any] | None
    batches: list[SourceBatch] = field(default_factory=list[SourceBatch])

    def __iter__(self) -> Iterator[SourceBatch]:
        stored = Stored(Position(0), {}, False) if self.offset is None else read(self.offset)
        assembler = Assembler(stored.position, stored.ahead, self._table, self.to)
        events = Events(self.to)
        frames = self.log.frames(stored.position.lsn)
        for lsn, data in frames:
            if not data:
                assembler.on_keepalive(lsn)
            elif not assembler.take(lsn, data):
                yield from events.of_chunk(assembler.chunk())
                assert assembler.take(lsn, data)
            if assembler.is_full:
                yield from events.of_chunk(assembler.chunk())
        yield from events.of_chunk(assembler.chunk())

    def _table(self, relation: Relation) -> Table | None:
        return None if relation.table == TABLES[-1] else replicated.table(relation, self.to)


def seen_in(batches: Sequence[SourceBatch]) -> dict[str, Seen]:
    """Return the records by topic."""
    found: dict[str, Seen] = defaultdict(list)
    for batch in batches:
        for key, value in zip(batch.keys, batch.values, strict=True):
            number = replicated.plain(key)["id"]
            if value is None:
                found[batch.topic].append(("tombstone", number, None))
                continue
            event = replicated.plain(value)
            after = event["after"]
            found[batch.topic].append((event["op"], number, None if after is None else after["text"]))
            assert (event["before"] is None) == (event["op"] != "d")
    return dict(found)


def by_key(seen: Seen) -> dict[Any, Seen]:
    found: dict[Any, Seen] = defaultdict(list)
    for one in seen:
        found[one[1]].append(one)
    return dict(found)


def without_tombstones(seen: Seen) -> Seen:
    return [one for one in seen if one[0] != "tombstone"]


changes = st.tuples(
    st.sampled_from(TABLES), st.sampled_from(["insert", "update", "delete", "move"]), st.integers(0, 2),
    st.integers(0, 2),
)  # fmt: skip
logs = st.builds(
    Log, st.lists(st.lists(changes, max_size=6), max_size=6), st.integers(1, 3), st.integers(0, 4)
)  # fmt: skip


@settings(max_examples=300)
@given(logs, st.integers(1, 9), st.lists(st.integers(0, 4), max_size=8))
def test_each_change_has_its_record_once_wherever_runs_are_cut(log: Log, changes_max: int, cuts: Sequence[int]) -> None:
    """At a cut the first batches of a run are committed. The last run is not cut."""
    to = replicated.settings(max_batch_size=str(changes_max))
    committed: list[SourceBatch] = []
    offset: Mapping[str, Any] | None = None
    for cut in (*cuts, None):
        done = list(islice(Run(log, to, offset), cut))
        committed += done
        if done:
            offset = done[-1].source_offset
    wanted, seen = log.expected(), seen_in(committed)
    assert seen.keys() == wanted.keys()
    for topic, records in wanted.items():
        assert without_tombstones(seen[topic]) == without_tombstones(records)
        assert by_key(seen[topic]) == by_key(records)
    if offset is not None:
        assert not list(Run(log, to, offset))


@given(logs, st.integers(1, 9))
def test_no_offset_is_ahead_of_its_records_without_tombstones(log: Log, changes_max: int) -> None:
    """In addition the settings change from run to run, as after an edit of the config."""
    committed: list[SourceBatch] = []
    offset: Mapping[str, Any] | None = None
    for number in range(50):
        to = replicated.settings(max_batch_size=str(changes_max + number % 3), tombstones_on_delete="false")
        done = list(islice(Run(log, to, offset), 1))
        if not done:
            break
        committed += done
        offset = done[-1].source_offset
    wanted, seen = log.expected(), seen_in(committed)
    assert {topic: without_tombstones(records) for topic, records in wanted.items()} == seen


def test_mixed_tables_give_one_batch_each() -> None:
    mixed = [[("a", "insert", at, 0), ("b", "insert", at, 0)] for at in range(500)]
    batches = list(Run(Log(mixed, idle=1_000), replicated.settings(), None))
    assert [(batch.topic, len(batch)) for batch in batches] == [("app.public.a", 500), ("app.public.b", 500)]


def test_deletions_give_one_batch_and_their_tombstones_another() -> None:
    batches = list(Run(Log([[("a", "delete", at, 0) for at in range(300)]]), replicated.settings(), None))
    assert [(len(batch), batch.value_schema is None) for batch in batches] == [(300, False), (300, True)]
    first, last = (batch.source_offset for batch in batches)
    assert first is not None
    assert last is not None
    assert (first["lsn_commit"], "ahead" in first) == (0, True)
    assert (last["lsn_commit"], "ahead" in last) == (1_080, False)


def test_a_reused_key_waits_for_its_tombstone() -> None:
    log = Log([[("a", "delete", 1, 0), ("a", "insert", 2, 0), ("a", "insert", 1, 0)]])
    batches = list(Run(log, replicated.settings(), None))
    assert [[one[:2] for one in seen_in([batch])["app.public.a"]] for batch in batches] == [
        [("d", 1), ("c", 2)], [("tombstone", 1)], [("c", 1)],
    ]  # fmt: skip


def test_a_table_with_another_column_has_another_schema() -> None:
    log = Log([[("a", "insert", 1, 0)], [("a", "insert", 2, 0)]], added=1)
    first, last = Run(log, replicated.settings(), None)
    assert first.value_schema is not last.value_schema
    assert replicated.plain(last.values[0])["after"] == {"id": 2, "text": "2", "more": "more"}


def stream(frames: Sequence[Decoded], to: CdcSettings, key: Sequence[str] = ("id",)) -> list[SourceBatch]:
    """Return the batches of these messages, in one transaction."""
    assembler = Assembler(Position(0), {}, lambda relation: replicated.table(relation, to, key), to)
    batches: list[SourceBatch] = []
    for one in (Begin(90, 0, 5), *frames, Commit(90, 95, 0)):
        if not assembler.take(70, message(one)):
            batches += Events(to).of_chunk(assembler.chunk())
            assert assembler.take(70, message(one))
    return [*batches, *Events(to).of_chunk(assembler.chunk())]


def test_an_event_has_debeziums_form() -> None:
    to = replicated.settings()
    (batch,) = stream([replicated.relation(1, "a"), Change(INSERT, 1, None, False, [b"4", None])], to)
    event = replicated.plain(batch.values[0])
    assert batch.value_schema is not None
    assert batch.key_schema is not None
    assert (batch.value_schema.name, batch.key_schema.name) == ("app.public.a.Envelope", "app.public.a.Key")
    assert list(event) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert (event["before"], event["after"], event["transaction"], event["op"]) == (
        None, {"id": 4, "text": None}, None, "c",
    )  # fmt: skip
    assert event["ts_ms"] * 1_000_000 <= event["ts_us"] * 1_000 <= event["ts_ns"]
    source = event["source"]
    assert source.pop("version")
    assert source == {
        "connector": "postgresql", "name": "app", "ts_ms": 0, "snapshot": "false", "db": "postgres",
        "sequence": '["0","70"]', "ts_us": 0, "ts_ns": 0, "schema": "public", "table": "a", "txId": 5, "lsn": 70,
        "xmin": None,
    }  # fmt: skip


def test_a_changed_key_is_a_deletion_and_a_creation_that_name_each_other() -> None:
    moved = Change(UPDATE, 1, [b"4", None], False, [b"5", b"x"])
    records, tombstones = stream([replicated.relation(1, "a"), moved], replicated.settings())
    assert [(replicated.plain(key), replicated.plain(value)["op"]) for key, value in
            zip(records.keys, records.values, strict=True)] == [({"id": 4}, "d"), ({"id": 5}, "c")]  # fmt: skip
    assert [[(one.key, replicated.plain(one.value)) for one in headers] for headers in records.headers] == [
        [("__debezium.newkey", {"id": 5})], [("__debezium.oldkey", {"id": 4})],
    ]  # fmt: skip
    assert list(map(replicated.plain, tombstones.keys)) == [{"id": 4}]


def test_whole_old_rows_are_sent_and_fill_in_unchanged_values() -> None:
    relation = replicated.relation(1, "a", identity="f", key=("id", "text"))
    update = Change(UPDATE, 1, [b"4", b"long"], True, [b"4", Toast.UNCHANGED])
    (batch,) = stream([relation, update], replicated.settings())
    event = replicated.plain(batch.values[0])
    assert (event["op"], event["before"], event["after"]) == ("u", {"id": 4, "text": "long"}, {"id": 4, "text": "long"})


def test_an_unsent_value_has_a_placeholder() -> None:
    update = Change(UPDATE, 1, None, False, [b"4", Toast.UNCHANGED])
    (batch,) = stream([replicated.relation(1, "a"), update], replicated.settings(unavailable_value_placeholder="?"))
    assert replicated.plain(batch.values[0])["after"] == {"id": 4, "text": "?"}


def test_a_table_without_a_key_has_records_without_a_key() -> None:
    relation = replicated.relation(1, "a", identity="f", key=("id", "text"))
    (batch,) = stream([relation, Change(DELETE, 1, [b"4", b"x"], True, None)], replicated.settings(), ())
    assert (batch.keys, batch.key_schema, len(batch)) == ((), None, 1)


def test_the_key_of_an_index_identity_is_the_index() -> None:
    relation = replicated.relation(1, "a", identity="i", key=("text",))
    batches = stream([relation, Change(DELETE, 1, [None, b"x"], False, None)], replicated.settings())
    assert [replicated.plain(batch.keys[0]) for batch in batches] == [{"text": "x"}] * 2
    assert replicated.plain(batches[0].values[0])["before"] == {"id": 0, "text": "x"}


def test_truncations_are_sent_if_configured() -> None:
    frames = [
        replicated.relation(1, "a"), replicated.relation(2, "b"), Change(INSERT, 1, None, False, [b"1", b"x"]),
        Truncate((1, 2), False, False), Change(INSERT, 1, None, False, [b"2", b"y"]),
    ]  # fmt: skip

    def told(skipped: str) -> list[tuple[str, str]]:
        batches = stream(frames, replicated.settings(skipped_operations=skipped))
        return [(batch.topic[-1], replicated.plain(value)["op"]) for batch in batches for value in batch.values]

    assert told("none") == [("a", "c"), ("a", "t"), ("b", "t"), ("a", "c")]
    assert told("t") == [("a", "c"), ("a", "c")]
    assert told("c") == [("a", "t"), ("b", "t")]


def test_a_change_of_an_undescribed_table_is_refused() -> None:
    with pytest.raises(DataError, match="not described"):
        stream([Change(INSERT, 1, None, False, [b"1", b"x"])], replicated.settings())
