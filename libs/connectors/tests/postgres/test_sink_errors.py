"""Tests of a sink's reaction to each SQLSTATE, in every mode
and in the ledger: on a real server, raised by a trigger.

One table of codes holds for all modes: an error that costs one
record in one of them and ends the task in another is a bug.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from herdmesh.connect.errors import ConfigError, ConnectError, DataError, RetriableError
from libs.connectors.tests.postgres.sink_driver import Driven, ask

RECORD = DataError
CODES: Mapping[type[ConnectError], tuple[str, ...]] = {
    RECORD: (
        "09000", "21000", "22001", "22003", "22004", "22007", "22008", "22012", "22021", "22023", "22P02", "22P05",
        "23000", "23502", "23503", "23505", "23514", "23P01", "27000", "2F003", "38000", "39000", "40002", "428C9",
        "44000", "54000", "54001", "P0001", "P0002", "P0004", "UE001", "ZZ999", "99001",
    ),
    RetriableError: (
        "08000", "08006", "25006", "25P03", "40001", "40003", "40P01", "53100", "53200", "53300", "55006", "55P03",
        "57014", "57P01", "57P02", "57P03", "57P05", "58000", "58030", "72000",
    ),
    ConfigError: ("0A000", "28000", "3D000", "3F000", "42501", "42601", "42703", "42883", "42P01", "42P10", "55000"),
    ConnectError: ("25001", "0L000", "F0001", "HV000", "XX000", "XX001", "XX002"),
}  # fmt: skip
AS_CONFIG = ("22023", "428C9")
"""Codes of records that are errors of the config when no record is written."""
MADE = (
    "CREATE TABLE orders (id int PRIMARY KEY, note text); CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql "
    "AS $$ DECLARE code text := CASE TG_OP WHEN 'INSERT' THEN NEW.note ELSE coalesce(NEW.note, OLD.note) END; BEGIN "
    "IF length(code) = 5 THEN RAISE EXCEPTION 'told' USING ERRCODE = code; END IF; "
    "RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END; END $$; "
)
TRIGGER = "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION refuse(); "
KEYED: dict[str, Any] = {"pk_mode": "record_key", "pk_fields": "id"}
MODES: Mapping[str, dict[str, Any]] = {
    "insert": {},
    "upsert": {"insert_mode": "upsert"},
    "update": {"insert_mode": "update"},
    "delete": {"insert_mode": "upsert", "delete_enabled": "true"},
}


def codes() -> Iterator[tuple[str, type[ConnectError]]]:
    for kind, states in CODES.items():
        for state in states:
            yield state, kind


@pytest.mark.parametrize("mode", MODES)
def test_record_errors_cost_one_record_each_in_all_modes(tmp_database: str, mode: str) -> None:
    ask(tmp_database, MADE)
    states = CODES[RECORD]
    if mode in ("update", "delete"):
        notes = states if mode == "delete" else ["x"] * len(states)
        rows = ", ".join(f"({at}, '{note}'), ({-at - 1}, 'x')" for at, note in enumerate(notes))
        ask(tmp_database, f"INSERT INTO orders VALUES {rows}")
    ask(tmp_database, TRIGGER)
    values: list[Any] = []
    keys: list[int] = []
    for at, state in enumerate(states):
        values += [None if mode == "delete" else {"note": state}, {"note": "a"}]
        keys += [at, -at - 1]
    with Driven(tmp_database, **KEYED, **MODES[mode]) as sink:
        sink.put(values, keys)
        assert [at for at, _ in sink.reporter.reported] == list(range(0, 2 * len(states), 2))
        assert len(sink.rows("SELECT id FROM orders WHERE note = 'a'")) == len(states)
        assert sink.ledger() == 2 * len(states)


@pytest.mark.parametrize("mode", MODES)
def test_other_errors_cost_no_record_in_any_mode(tmp_database: str, mode: str) -> None:
    ask(tmp_database, MADE)
    for state, kind in codes():
        if kind is RECORD:
            continue
        before = f"'{state}'" if mode == "delete" else "'x'"
        there = f"INSERT INTO orders VALUES (1, 'x'), (2, {before})" if mode in ("update", "delete") else "SELECT 1"
        ask(tmp_database, f"DROP TRIGGER IF EXISTS refuse ON orders; TRUNCATE orders; {there}; {TRIGGER}")
        values: list[Any] = [{"note": "a"}, None if mode == "delete" else {"note": state}]
        with Driven(tmp_database, **KEYED, **MODES[mode]) as sink:
            with pytest.raises(kind, match="told") as told:
                sink.put(values, [1, 2])
            assert type(told.value) is kind, state
            assert sink.reporter.reported == [], state
            assert sink.rows("SELECT id FROM orders WHERE note = 'a'") == [], state
            assert sink.ledger() == 0, state


def test_errors_of_the_ledger_cost_no_record(tmp_database: str) -> None:
    ask(tmp_database, "CREATE TABLE orders (id int); CREATE TABLE code (state text)")
    with Driven(tmp_database):
        pass
    ask(
        tmp_database,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "DECLARE code text := (SELECT state FROM code); BEGIN "
        "IF code IS NOT NULL THEN RAISE EXCEPTION 'told' USING ERRCODE = code; END IF; RETURN NEW; END $$; "
        "CREATE TRIGGER refuse BEFORE UPDATE ON herdmesh_ledger FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    for state, kind in codes():
        ask(tmp_database, "TRUNCATE code")
        with Driven(tmp_database) as sink:
            ask(tmp_database, f"INSERT INTO code VALUES ('{state}')")
            expected = (
                kind if kind is not RECORD else ConfigError if state.startswith(("42", "22023")) else ConnectError
            )
            with pytest.raises(ConnectError) as told:
                sink.put([{"id": 1}, {"id": 2}])
            assert type(told.value) is expected, state
            assert (sink.reporter.reported, sink.rows("SELECT * FROM orders")) == ([], []), state


@pytest.mark.parametrize("mode", ["insert", "upsert", "update"])
def test_a_value_for_a_computed_column_costs_its_record(tmp_database: str, mode: str) -> None:
    ask(
        tmp_database,
        "CREATE TABLE orders (id int PRIMARY KEY, note text, big int GENERATED ALWAYS AS (id * 2) STORED, "
        "own int GENERATED ALWAYS AS IDENTITY)",
    )
    if mode == "update":
        ask(tmp_database, "INSERT INTO orders (id) VALUES (1), (2), (3)")
    with Driven(tmp_database, insert_mode=mode, **KEYED) as sink:
        sink.put([{"note": "a"}, {"note": "b", "big": 4}, {"note": "c"}], [1, 2, 3])
        assert [at for at, _ in sink.reporter.reported] == [1]
        assert "computes column big itself" in sink.reporter.reported[0][1]
        assert sink.rows("SELECT id FROM orders WHERE note IS NOT NULL ORDER BY id") == [(1,), (3,)]
        ask(tmp_database, "ALTER TABLE orders DROP note, ADD note text GENERATED ALWAYS AS ('x') STORED")
        sink.put([{"note": "d"}], [4])
        assert [at for at, _ in sink.reporter.reported] == [1, 3], "also where it came while the sink writes"


VALUES: list[tuple[str, str, str]] = [
    ("ltree", "a..b", "syntax"),
    ("tsquery", "a &", "no operand"),
    ("jsonpath", "$[", "syntax error"),
    ("regclass", "no_such_table", "does not exist"),
    ("regtype", "no_such_type", "does not exist"),
    ("text", "a\x00b", "column v: text in PostgreSQL cannot contain U+0000"),
    ("text", "\ud800", "column v: text in PostgreSQL cannot contain U+0000 or half a surrogate"),
    ("integer", "NaN", "invalid input syntax"),
    ("numeric(4,2)", "1e9", "numeric field overflow"),
    ("jsonb", '"\\u0000"', "unsupported Unicode escape"),
]


@pytest.mark.parametrize("mode", ["insert", "upsert", "update"])
@pytest.mark.parametrize(("kind", "value", "told"), VALUES)
def test_a_value_that_its_type_refuses_costs_its_record(
    tmp_database: str, kind: str, value: str, told: str, mode: str
) -> None:
    """With any error code of the type's own function."""
    ask(tmp_database, f"CREATE EXTENSION ltree; CREATE TABLE orders (id int PRIMARY KEY, w int, v {kind})")
    ask(tmp_database, "INSERT INTO orders SELECT n FROM generate_series(1, 3) n" if mode == "update" else "SELECT 1")
    with Driven(tmp_database, insert_mode=mode, **KEYED) as sink:
        sink.put([{"w": 1, "v": None}, {"w": 1, "v": value}, {"w": 1, "v": None}], [1, 2, 3])
        assert [at for at, _ in sink.reporter.reported] == [1]
        assert told in sink.reporter.reported[0][1]
        assert sink.rows("SELECT id FROM orders WHERE w = 1 ORDER BY id") == [(1,), (3,)]


def test_a_row_refused_by_a_policy_costs_its_record(tmp_database: str) -> None:
    ask(
        tmp_database,
        "DO $$ BEGIN CREATE ROLE plain LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$; "
        "CREATE TABLE orders (id int PRIMARY KEY); ALTER TABLE orders ENABLE ROW LEVEL SECURITY; "
        "CREATE POLICY small ON orders USING (true) WITH CHECK (id < 10); GRANT ALL ON orders TO plain",
    )
    with Driven(tmp_database):
        pass
    ask(tmp_database, "GRANT ALL ON herdmesh_ledger TO plain")
    with Driven(tmp_database, connection_user="plain") as sink:
        sink.put([{"id": 1}, {"id": 99}, {"id": 3}])
        assert [at for at, _ in sink.reporter.reported] == [1]
        assert sink.rows("SELECT id FROM orders ORDER BY id") == [(1,), (3,)]


@pytest.mark.parametrize(
    "table",
    [
        "TABLE orders (id int, v text)",
        "TABLE orders (id int, v text); CREATE UNIQUE INDEX ON orders (id) WHERE v IS NOT NULL",
        "TABLE orders (id int, v text); CREATE UNIQUE INDEX ON orders ((id + 0))",
        "TABLE orders (id int PRIMARY KEY DEFERRABLE, v text)",
        "TABLE orders (id int, b int, v text, PRIMARY KEY (id, b))",
        "TABLE orders (id int PRIMARY KEY, v text); CREATE RULE r AS ON INSERT TO orders DO ALSO NOTIFY x",
    ],
)
def test_a_table_without_support_for_upserts_is_refused_with_the_requirement(tmp_database: str, table: str) -> None:
    ask(tmp_database, f"CREATE {table}")
    with Driven(tmp_database, **KEYED, insert_mode="upsert") as sink:
        with pytest.raises(ConfigError) as refused:
            sink.put([{"v": "x"}], [1])
        assert refused.value.field == "pk.fields"
        assert "unique index of the columns in pk.fields" in refused.value.fix
        assert sink.reporter.reported == []
