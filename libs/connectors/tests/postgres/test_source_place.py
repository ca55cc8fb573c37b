"""Tests of the PostgreSQL source's offsets: Confluent's form, to the microsecond, in both directions."""

from __future__ import annotations

import logging
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.topics import offsets_topic
from herdmesh.connectors.postgres.source.connector import PostgresSourceConnector
from herdmesh.connectors.table_source import QUERY_PARTITION, TablePlace, table_partition
from herdmesh.connectors.table_source.offsets import rewound
from libs.connectors.tests.postgres.reading import Reader, config_of
from libs.connectors.tests.postgres.sink_driver import ask

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
#: The range of a `timestamptz`: 4713 BC to 294276.
MOMENTS = st.integers(-210_863_520_000_000_000, 9_224_318_015_999_999_999)


@given(st.builds(TablePlace, st.none() | INT64, st.none() | MOMENTS))
def test_a_stored_place_round_trips(place: TablePlace) -> None:
    stored = offsets_topic.encode_value(place.offset())
    assert TablePlace.of(offsets_topic.decode_value(stored)) == place


@pytest.mark.parametrize(
    ("offset", "place"),
    [
        ({"incrementing": 7}, TablePlace(7)),
        # java.sql.Timestamp: getTime() and getNanos(), which contains everything below the second
        ({"timestamp": 1_700_000_000_123, "timestamp_nanos": 123_456_000}, TablePlace(None, 1_700_000_000_123_456)),
        ({"timestamp": -1, "timestamp_nanos": 999_999_000}, TablePlace(None, -1)),
        ({"incrementing": 7, "timestamp": 5, "timestamp_nanos": 5_000_000}, TablePlace(7, 5_000)),
        # of versions that stored no nanoseconds
        ({"timestamp": 1_700_000_000_123}, TablePlace(None, 1_700_000_000_123_000)),
        ({}, TablePlace()),
        (None, TablePlace()),
    ],
)
def test_javas_offsets(offset: dict[str, Any] | None, place: TablePlace) -> None:
    assert TablePlace.of(offset) == place
    if offset and len(offset) != 1:
        assert place.offset() == offset


def test_javas_partitions() -> None:
    """With a HashMap's order, which is part of the key of a record in the offsets topic."""
    key = offsets_topic.encode_key("c", table_partition("db.public.orders"))
    assert key == b'["c",{"protocol":"1","table":"db.public.orders"}]'
    assert offsets_topic.encode_key("c", QUERY_PARTITION) == b'["c",{"query":"query"}]'


TABLE = {"protocol": "1", "table": "db.public.orders"}


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        (None, {"incrementing": 1}),
        ({"table": "db.public.orders"}, {"incrementing": 1}),
        ({"query": "other"}, {"incrementing": 1}),
        (TABLE, {"incrementing": "1"}),
        (TABLE, {"incrementing": True}),
        (TABLE, {"timestamp": 1, "timestamp_nanos": -1}),
        (TABLE, {"timestamp_nanos": 1}),
        (TABLE, {"incrementing": 1 << 63}),
        (TABLE, {"other": 1}),
    ],
)
def test_other_offsets_are_refused(partition: dict[str, Any] | None, offset: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PostgresSourceConnector().alter_offsets({}, [(partition, offset)])


def test_its_own_offsets_can_be_set_and_deleted() -> None:
    offsets = [(TABLE, {"incrementing": 1}), (TABLE, None), (QUERY_PARTITION, {"timestamp": 1})]
    assert PostgresSourceConnector().alter_offsets({}, offsets)


def test_a_place_is_rewound_by_its_moment_and_never_forward() -> None:
    a, b, number = {"protocol": "1", "table": "d.s.a"}, {"protocol": "1", "table": "d.s.b"}, {"query": "query"}
    committed = [
        (a, TablePlace(7, 5_000_000).offset() or {}), (b, TablePlace(None, 999_999).offset() or {}),
        (number, TablePlace(3).offset() or {}),
    ]  # fmt: skip
    assert rewound(1_000, committed, has_timestamp=False) is None
    found = rewound(1_000, committed, has_timestamp=True)
    assert found is not None
    # right before the first row of that moment; an earlier place, and one without a moment, stays
    assert [(partition, TablePlace.of(offset)) for partition, offset in found] == [(a, TablePlace(7, 999_999))]


def test_the_earliest_moments_are_places(tmp_database: str) -> None:
    with psycopg.connect(tmp_database, autocommit=True) as admin:
        for type in ("timestamptz", "timestamp", "date"):
            for at, first in enumerate(("-infinity", "4713-01-01 BC")):
                table = f"{type}_{at}"
                made = f"CREATE TABLE {table} (id int, ts {type} NOT NULL); INSERT INTO {table} VALUES (1, '{first}')"
                admin.execute(made.encode())
                given = {"mode": "timestamp", "timestamp.column.name": "ts", "table.whitelist": table}
                reader = Reader(config_of(tmp_database, **given))
                assert [row["id"] for row in reader.rows()] == [1]
                admin.execute(f"INSERT INTO {table} VALUES (2, '2024-02-29'), (3, 'infinity')".encode())
                assert [row["id"] for row in reader.rows()] == [2]


def test_renumbered_rows_have_a_warning(tmp_database: str, caplog: pytest.LogCaptureFixture) -> None:
    ask(tmp_database, "CREATE TABLE t (id serial PRIMARY KEY, v text); INSERT INTO t (v) VALUES ('a'), ('b'), ('c')")
    reader = Reader(config_of(tmp_database, mode="incrementing", incrementing__column__name="id", table__whitelist="t"))
    with caplog.at_level(logging.WARNING):
        assert len(reader.rows()) == 3
        assert reader.rows() == []
        assert caplog.text == ""
        ask(tmp_database, "TRUNCATE t RESTART IDENTITY; INSERT INTO t (v) VALUES ('again')")
        assert reader.rows() == []
    assert "its highest number is 1, and rows up to 3 count as read: rows that are numbered again from 1" in caplog.text
    assert "herd offsets reset" in caplog.text
