"""Tests of rows that are older than today's catalog: the
table was altered while the CDC source was stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from herdmesh.connect.errors import ConfigError
from libs.connectors.tests.postgres.cdc_driving import Database, Driven, Event


@pytest.fixture
def database(tmp_database: str) -> Iterator[Database]:
    made = Database(tmp_database)
    try:
        yield made
    finally:
        made.close()


def told(database: Database, *while_stopped: str) -> tuple[list[Event], Driven]:
    """Return a source's events of statements that were run while it was stopped."""
    with Driven(database.config()) as run:
        run.drain()
    database.released()
    database.run(*while_stopped)
    with Driven(database.config(), run.offset) as run:
        return run.drain(), run


def optional_fields(run: Driven) -> list[set[str]]:
    """Return the optional fields of the rows in each batch of records."""
    rows = [batch.value_schema.fields[1].schema for batch in run.batches if batch.value_schema is not None]
    return [{field.name for field in row.fields if field.schema.optional} for row in rows]


def test_a_null_from_before_not_null_stays_null(database: Database) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY, a int, s text, n numeric, ts timestamp)")
    events, run = told(
        database,
        "INSERT INTO t VALUES (1)",
        "UPDATE t SET a = 5, s = 'x', n = 1.5, ts = '2024-02-29'",
        "ALTER TABLE t ALTER a SET NOT NULL, ALTER s SET NOT NULL, ALTER n SET NOT NULL, ALTER ts SET NOT NULL",
        "INSERT INTO t VALUES (2, 6, 'y', 2, '2024-03-01')",
        "DELETE FROM t WHERE id = 1",
    )
    nothing: dict[str, Any] = {"id": 1, "a": None, "s": None, "n": None, "ts": None}
    later = {"id": 1, "a": 5, "s": "x", "n": {"scale": 1, "value": b"\x0f"}, "ts": 1_709_164_800_000_000}
    assert events[:2] == [("c", {"id": 1}, None, nothing), ("u", {"id": 1}, None, later)]
    # After the change the fields are required, so a deletion has a default for the missing value, as in Debezium.
    assert [event[0] for event in events[2:]] == ["c", "d", "tombstone"]
    assert events[3][2] == {"id": 1, "a": 0, "s": "", "n": {"scale": 0, "value": b"\0"}, "ts": 0}
    assert optional_fields(run) == [{"a", "s", "n", "ts"}, set()]


def test_nulls_of_whole_rows_before_a_change_stay_null(database: Database) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "ALTER TABLE t REPLICA IDENTITY FULL",
                 "INSERT INTO t VALUES (1)")  # fmt: skip
    events, _ = told(database, "UPDATE t SET a = 5", "ALTER TABLE t ALTER a SET NOT NULL")
    assert events == [("u", {"id": 1}, {"id": 1, "a": None}, {"id": 1, "a": 5})]


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_renamed_key_keeps_its_earlier_name(database: Database, identity: str) -> None:
    database.run("CREATE TABLE t (junk int, id int, other int, v text, PRIMARY KEY (other, id))",
                 "ALTER TABLE t DROP junk", f"ALTER TABLE t REPLICA IDENTITY {identity}")  # fmt: skip
    events, _ = told(
        database,
        "INSERT INTO t VALUES (1, 2, 'a')",
        "UPDATE t SET v = 'b'",
        "ALTER TABLE t RENAME id TO number",
        "INSERT INTO t VALUES (3, 4, 'c')",
        "ALTER TABLE t DROP v",
        "INSERT INTO t VALUES (5, 6)",
    )
    assert [event[:2] for event in events] == [
        ("c", {"other": 2, "id": 1}), ("u", {"other": 2, "id": 1}), ("c", {"other": 4, "number": 3}),
        ("c", {"other": 6, "number": 5}),
    ]  # fmt: skip


def test_earlier_rows_have_the_columns_of_their_time(database: Database) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY, a int NOT NULL, b text NOT NULL)")
    events, _ = told(
        database,
        "INSERT INTO t VALUES (1, 7, 'x')",
        "ALTER TABLE t ALTER a TYPE text USING 'was ' || a",
        "INSERT INTO t VALUES (2, 'new', 'y')",
        "ALTER TABLE t DROP b, ADD c int NOT NULL DEFAULT 9, ALTER id TYPE bigint",
        "INSERT INTO t VALUES (3, 'newer')",
        "ALTER TABLE t RENAME TO u",
    )
    assert [event[1:] for event in events] == [
        ({"id": 1}, None, {"id": 1, "a": 7, "b": "x"}),
        ({"id": 2}, None, {"id": 2, "a": "new", "b": "y"}),
        ({"id": 3}, None, {"id": 3, "a": "newer", "c": 9}),
    ]


def test_a_dropped_table_has_the_key_in_the_log(database: Database) -> None:
    database.run("CREATE TYPE mood AS ENUM ('sad')", "CREATE TABLE t (id int PRIMARY KEY, m mood NOT NULL)",
                 "CREATE TABLE other (id int PRIMARY KEY)")  # fmt: skip
    events, _ = told(database, "INSERT INTO t VALUES (1, 'sad')", "DROP TABLE t", "DROP TYPE mood")
    assert events == [("c", {"id": 1}, None, {"id": 1, "m": "sad"})]


@pytest.mark.parametrize(
    ("then", "why"),
    [
        ("DROP TABLE t", "the table no longer exists"),
        ("ALTER TABLE t DROP id, ADD number int GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "the column number"),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (v)", "created or changed after that"),
        (
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, v)",
            "created or changed after that",
        ),
        ("ALTER TABLE t DROP id, ADD id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "the column id"),
    ],
)
def test_a_key_that_cannot_be_determined_is_an_error(database: Database, then: str, why: str) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "ALTER TABLE t REPLICA IDENTITY FULL",
                 "CREATE TABLE other (id int PRIMARY KEY)")  # fmt: skip
    with pytest.raises(ConfigError, match=why) as refused:
        told(database, "INSERT INTO t VALUES (1, 'x')", then)
    assert refused.value.field == "table.exclude.list"
    assert "REPLICA IDENTITY FULL" in str(refused.value)


def test_a_key_older_than_the_rows_is_their_key(database: Database) -> None:
    """Also a key that was recreated with its column's type."""
    database.run("CREATE TABLE t (a int, v text)", "ALTER TABLE t REPLICA IDENTITY FULL")
    events, _ = told(
        database,
        "ALTER TABLE t ADD PRIMARY KEY (a)",
        "INSERT INTO t VALUES (1, 'x')",
        "ALTER TABLE t RENAME CONSTRAINT t_pkey TO other",
        "INSERT INTO t VALUES (2, 'y')",
        "ALTER TABLE t ALTER a TYPE bigint",
    )
    assert [event[1] for event in events if event[1] is not None] == [{"a": 1}, {"a": 2}]


def test_a_null_in_a_later_key_column_gives_a_record_without_a_key(database: Database) -> None:
    database.run("CREATE TABLE t (a int, v text)", "ALTER TABLE t REPLICA IDENTITY FULL")
    with Driven(database.config()) as run:
        run.drain()
        database.run("INSERT INTO t VALUES (NULL, 'x')", "UPDATE t SET a = 1", "ALTER TABLE t ADD PRIMARY KEY (a)",
                     "INSERT INTO t VALUES (2, 'y')")  # fmt: skip
        events = run.drain()
    assert events == [
        ("c", None, None, {"a": None, "v": "x"}),
        ("u", None, {"a": None, "v": "x"}, {"a": 1, "v": "x"}),
        ("c", {"a": 2}, None, {"a": 2, "v": "y"}),
    ]


def test_tables_and_operations_that_a_publication_does_not_send_have_a_warning(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """To a publication a recreated table is another table."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)",
                 "CREATE PUBLICATION dbz_publication FOR TABLE t, u WITH (publish = 'insert, update')")  # fmt: skip
    events, _ = told(database, "DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    assert events == []
    assert 'added "public"."t"; earlier changes of these tables are captured only by a snapshot' in caplog.text
    assert "dbz_publication does not send delete, so these are not captured" in caplog.text
