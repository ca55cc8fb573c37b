"""Tests of key identity: for any type of key and any form in records, a batch of upserts and deletions has the same
result as its records one by one. On a real server; batches of one record give the expected result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from herdmesh.connect.model.data import JavaDate, Struct
from herdmesh.connect.model.schemas import DECIMAL, Schema, date_schema, timestamp_schema
from herdmesh.connectors.postgres.sink.key_identity import KeyColumn, KeyType, proven
from herdmesh.connectors.postgres.sink.settings import TableName
from herdmesh.connectors.postgres.sink.table_catalog import looked_up
from herdmesh.connectors.postgres.sink.texts import TextForm, Texts, texts
from herdmesh.devstack.postgres import Postgres
from libs.connectors.tests.postgres.sink_driver import Driven, ask
from tests.support.sizes import soak_or

UPSERT: dict[str, Any] = {"insert_mode": "upsert", "pk_mode": "record_key", "pk_fields": "id", "delete_enabled": "true"}
UUID = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
MADE = (
    "CREATE EXTENSION IF NOT EXISTS citext; CREATE SCHEMA away; CREATE EXTENSION hstore SCHEMA away; "
    "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false); "
    "CREATE DOMAIN word AS citext; CREATE DOMAIN short AS varchar(3); CREATE TYPE mood AS ENUM ('sad', 'ok'); "
    "CREATE DOMAIN price AS numeric(6, 1); CREATE TYPE pair AS (a numeric, b citext); CREATE DOMAIN feeling AS mood; "
    "CREATE DOMAIN shorter AS word CHECK (length(value) < 9); CREATE DOMAIN numbers AS numeric[]"
)


@dataclass(frozen=True)
class Kind:
    """A type of key, and forms of its values."""

    sql: str
    one: Sequence[Any]
    """Forms of one key."""
    others: Sequence[Any]
    """Other keys."""


KINDS: Sequence[Kind] = (
    Kind("uuid", [UUID, UUID.upper(), "{" + UUID + "}", UUID.replace("-", "")], [UUID.replace("a", "b")]),
    Kind("uuid", [UUID, UUID], [UUID.replace("a", "b"), "{" + UUID.replace("a", "b").upper()[:-1] + "e}"]),
    Kind("numeric", ["1", "1.0", "1.00", "01", Decimal("1.000"), 1, "1e0"], [Decimal("1.01"), "-1", "NaN"]),
    Kind("numeric(4,1)", [Decimal("1.04"), "1.0", Decimal("0.96")], [Decimal("1.1"), 2]),
    Kind("price", [Decimal("1.04"), Decimal("1.00")], [Decimal("1.1")]),
    Kind("integer", ["1", "01", " 1 ", "+1", 1], ["2", 3]),
    Kind("bigint", [-5, "-5", "-05"], [5]),
    Kind("citext", ["ab", "AB", "Ab"], ["b"]),
    Kind("word", ["ab", "AB"], ["b"]),
    Kind('text COLLATE "any_case"', ["ab", "AB", "aB"], ["á"]),
    Kind("text", ["a"], ["A", "a ", "á", ""]),
    Kind("char(4)", ["ab", "ab ", "ab  "], ["AB", "ab c"[:4]]),
    Kind("varchar(3)", ["abc", "abc ", "abc   "], ["ab", "ab "]),
    Kind("short", ["abc", "abc  "], ["ab "]),
    Kind("timestamptz", ["2024-01-01 12:00+00", "2024-01-01T13:00:00+01", "2024-01-01 12:00Z"], ["2024-01-01 12:01Z"]),
    Kind("timestamp", ["2024-01-01 12:00", "2024-01-01T12:00:00.000", "Jan 1 2024 12:00"], ["infinity"]),
    Kind("timestamp(0)", ["2024-01-01 12:00", "2024-01-01 12:00:00.2"], ["2024-01-01 12:00:01"]),
    Kind("date", ["2024-02-29", "29 Feb 2024", "20240229"], ["2024-03-01", "4713-01-01 BC"]),
    Kind("time", ["13:00", "01:00 pm", "13:00:00.000"], ["24:00"]),
    Kind("timetz", ["13:00+00", "13:00:00Z"], ["14:00+01"]),
    Kind("interval", ["1 day", "24 hours", "1440 min"], ["1 mon", "29 days"]),
    Kind("boolean", [True, "t", "true", "yes", "1"], [False, "f"]),
    Kind("bytea", [b"ab", "\\x6162", "\\x61 62"], [b"AB"]),
    Kind("inet", ["192.168.0.1", "192.168.0.1/32"], ["192.168.0.0/24"]),
    Kind("inet", ["::1", "0:0:0:0:0:0:0:1", "::0001"], ["::2"]),
    Kind("cidr", ["10/8", "10.0.0.0/8"], ["10.1.0.0/16"]),
    Kind("macaddr", ["08:00:2b:01:02:03", "08002B010203", "08-00-2b-01-02-03"], ["08:00:2b:01:02:04"]),
    Kind("jsonb", ['{"a":1,"b":2}', '{"b": 2, "a": 1.0}'], ['{"a":1}']),
    Kind("float8", [0.0, -0.0, "0", "-0"], [float("nan"), 1.5, "Infinity"]),
    Kind("float8", [float("nan"), "NaN", "nan"], [0.0]),
    Kind("float4", [0.1, "0.1", "0.10000000149"], [0.2]),
    Kind("mood", ["sad"], ["ok"]),
    Kind("feeling", ["sad"], ["ok"]),
    Kind("shorter", ["ab", "AB"], ["b"]),
    Kind("numbers", ["{1,2}", "{1.0,2.00}"], ["{2,1}"]),
    Kind("integer[]", [[1, 2], "{1,2}", "{01, 2}"], [[2, 1], []]),
    Kind("citext[]", [["a"], ["A"]], [["b"]]),
    Kind("int4range", ["[1,3)", "[1,2]", "(0,3)"], ["empty", "[1,3]"]),
    Kind("numrange", ["[1,2)", "[1.0,2.00)"], ["[1,2]"]),
    Kind("bit(4)", ["1010", "B1010", "xA"], ["0101"]),
    Kind("money", ["1", "$1.00", "1.00"], ["2"]),
    Kind("pg_lsn", ["0/1", "0/01"], ["1/0"]),
    Kind("pair", ['(1,"a")', "(1.0,A)"], ["(2,a)"]),
    Kind("name", ["x" * 63, "x" * 70], ["y"]),
    Kind("oid", ["4294967295", "-1"], ["0"]),
    Kind("away.hstore", ['"a"=>"1","b"=>"2"', "b=>2, a=>1"], ["a=>1"]),
)
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.none() | st.dictionaries(st.sampled_from(["v", "w"]), st.text("xyz", max_size=2), min_size=1),
    ),
    min_size=2,
    max_size=14,
)


@pytest.fixture(scope="module")
def of_all_kinds(postgres: Postgres) -> str:
    """Return one database for all kinds, which need extensions."""
    ask(postgres.dsn, "CREATE DATABASE of_all_kinds")
    dsn = postgres.dsn.removesuffix("postgres") + "of_all_kinds"
    ask(dsn, MADE)
    return dsn


def written(kind: Kind, number: int) -> Any:
    """Return a key: most are the same key, each time in another form."""
    return kind.others[number % len(kind.others)] if number > 6 else kind.one[number % len(kind.one)]


@pytest.mark.parametrize("kind", KINDS, ids=[f"{at}-{one.sql}" for at, one in enumerate(KINDS)])
def test_a_batch_has_the_result_of_its_records_one_by_one(of_all_kinds: str, kind: Kind) -> None:
    table = f"(id {kind.sql} PRIMARY KEY, v text, w text DEFAULT 'w')"

    @given(events=EVENTS)
    @settings(max_examples=soak_or(5, 100), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    def check(events: list[tuple[int, Mapping[str, str] | None]]) -> None:
        ask(of_all_kinds, "TRUNCATE one_by_one, at_once")
        keys = [written(kind, number) for number, _ in events]
        values = [value for _, value in events]
        for key, value in zip(keys, values, strict=True):
            sink.put([value], [key], topic="one_by_one")
        sink.put(values, keys, topic="at_once")
        order = "SELECT id::text, v, w FROM {} ORDER BY 1, 2, 3"
        assert sink.rows(order.format("at_once")) == sink.rows(order.format("one_by_one"))
        assert sink.reporter.reported == []

    ask(of_all_kinds, f"DROP TABLE IF EXISTS one_by_one, at_once; CREATE TABLE one_by_one {table}; "
                      f"CREATE TABLE at_once {table}")  # fmt: skip
    with Driven(of_all_kinds, **UPSERT) as sink:
        check()


@pytest.mark.parametrize("kind", KINDS, ids=[f"{at}-{one.sql}" for at, one in enumerate(KINDS)])
def test_the_last_record_of_a_key_counts_and_deletions_keep_their_place(of_all_kinds: str, kind: Kind) -> None:
    ask(of_all_kinds, f"DROP TABLE IF EXISTS orders; CREATE TABLE orders (id {kind.sql} PRIMARY KEY, v text)")
    first, second = kind.one[0], kind.one[-1]
    with Driven(of_all_kinds, **UPSERT) as sink:
        sink.put([{"v": "v1"}, None, {"v": "v2"}], [first, second, first])
        assert sink.rows("SELECT v FROM orders") == [("v2",)]
        sink.put([{"v": "v3"}, None], [second, first])
        assert sink.rows("SELECT v FROM orders") == []
        sink.put([{"v": "a"}, {"v": "b"}, {"v": "c"}], [first, kind.others[0], second])
        assert sink.rows("SELECT v FROM orders ORDER BY v") == [("b",), ("c",)]
        assert sink.reporter.reported == []


def test_updates_use_the_last_record_of_a_key(tmp_database: str) -> None:
    ask(tmp_database, f"CREATE TABLE orders (id uuid PRIMARY KEY, v text); INSERT INTO orders VALUES ('{UUID}', 'old')")
    with Driven(tmp_database, insert_mode="update", pk_mode="record_value", pk_fields="id") as sink:
        for last in ("b", "a"):
            sink.put([{"id": UUID, "v": "x"}, {"id": UUID.upper(), "v": last}])
            assert sink.rows("SELECT v FROM orders") == [(last,)]


def test_keys_of_several_columns_are_equal_if_all_columns_are(tmp_database: str) -> None:
    ask(tmp_database, "CREATE TABLE orders (a uuid, b numeric, v text, PRIMARY KEY (a, b))")
    config: dict[str, Any] = {**UPSERT, "pk_fields": "a,b"}
    with Driven(tmp_database, **config) as sink:
        keys = [{"a": UUID, "b": "1"}, {"a": UUID.upper(), "b": "1.0"}, {"a": UUID, "b": "2"}, {"a": UUID, "b": "01"}]
        sink.put([{"v": "a"}, None, {"v": "b"}, {"v": "c"}], keys)
        assert sink.rows("SELECT b, v FROM orders ORDER BY v") == [(2, "b"), (1, "c")]


def test_keys_of_records_with_different_schemas_can_be_equal(tmp_database: str) -> None:
    ask(tmp_database, "CREATE TABLE orders (id numeric PRIMARY KEY, v text)")
    decimals = [Schema("BYTES", False, DECIMAL, 1, parameters={"scale": str(scale)}) for scale in (1, 2, 0)]
    schemas = [Schema("STRUCT", fields=(("id", one),)) for one in decimals]
    whole, half = [Decimal("2.0"), Decimal("2.00"), Decimal(2)], [Decimal("2.5"), Decimal("2.50")]
    with Driven(tmp_database, **UPSERT) as sink:
        for numbers in (whole, half):
            keys = [Struct(schema, [number]) for schema, number in zip(schemas, numbers, strict=False)]
            sink.put([{"v": "1"}, None, {"v": "2"}], [keys[0], keys[1], keys[0]])
            assert sink.rows("SELECT v FROM orders") == [("2",)]
            sink.put([None, {"v": "3"}, None], [keys[-1], keys[0], keys[-1]])
            assert sink.rows("SELECT v FROM orders") == []


TRIGGER = (
    "CREATE TABLE orders (id text PRIMARY KEY, v text, w text, at timestamptz); "
    "CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} END $$; "
    "CREATE TRIGGER changes {} INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION change()"
)


@pytest.mark.parametrize(
    "code",
    [
        "NEW.id := lower(NEW.id); RETURN NEW;",
        "new = jsonb_populate_record(NEW, jsonb_build_object('i' || 'd', lower(to_jsonb(new) ->> ('i' || 'd')))); "
        "RETURN NEW;",
    ],
)
def test_a_trigger_that_changes_keys_gets_the_records_in_order(tmp_database: str, code: str) -> None:
    ask(tmp_database, TRIGGER.format(code, "BEFORE"))
    with Driven(tmp_database, **UPSERT) as sink:
        sink.put([{"v": "1"}, None, {"v": "2"}], ["b", "a", "A"])
        sink.put([{"v": "3"}, {"w": "4"}, {"v": "5"}], ["B", "b", "B"])
        assert sink.rows("SELECT id, v, w FROM orders ORDER BY id") == [("a", "2", None), ("b", "5", "4")]


@pytest.mark.parametrize("table", ["DELETE FROM Orders", "EXECUTE format('DELETE FROM %I', TG_TABLE_NAME) ||"])
def test_a_trigger_that_changes_other_rows_gets_the_records_in_order(tmp_database: str, table: str) -> None:
    quote = "'" if "EXECUTE" in table else ""
    code = f"{table} {quote} WHERE id < {quote}{' || quote_literal(NEW.id)' if quote else 'NEW.id'}; RETURN NULL;"
    ask(tmp_database, TRIGGER.format(code, "AFTER"))
    with Driven(tmp_database, **UPSERT) as sink:
        sink.put([{"v": "1"}, {"w": "2"}, {"v": "3"}], ["c", "b", "a"])
        assert sink.rows("SELECT id FROM orders ORDER BY id") == [("a",), ("b",), ("c",)]


def test_a_trigger_that_sets_other_columns_does_not_divide_batches(tmp_database: str) -> None:
    ask(tmp_database, TRIGGER.format("NEW.at := now(); NEW.v := coalesce(NEW.v, 'x'); RETURN NEW;", "BEFORE"))
    with psycopg.connect(tmp_database) as connection:
        table = looked_up(connection, TableName("", "orders"))
    assert table is not None
    assert not table.is_strict


def test_a_null_in_a_key_equals_no_other(tmp_database: str) -> None:
    ask(tmp_database, "CREATE TABLE orders (a int, b int, v text, UNIQUE (a, b))")
    with Driven(tmp_database, insert_mode="upsert", pk_mode="record_value", pk_fields="a,b") as sink:
        sink.put([{"a": 1, "b": None, "v": "x"}, {"a": 1, "b": None, "v": "y"}, {"a": 1, "b": 1, "v": "z"}])
        assert sink.rows("SELECT v FROM orders ORDER BY v") == [("x",), ("y",), ("z",)]


def test_an_index_with_another_comparison_than_its_column_keeps_the_order(tmp_database: str) -> None:
    ask(tmp_database, MADE)
    ask(
        tmp_database,
        "CREATE TABLE orders (id text, v text, w text); CREATE UNIQUE INDEX ON orders (id COLLATE any_case)",
    )
    with Driven(tmp_database, **UPSERT) as sink:
        sink.put([{"w": "1"}, {"v": "2"}, {"w": "3"}, {"v": "4", "w": "4"}], ["q", "a", "A", "a"])
        assert sink.rows("SELECT id, v, w FROM orders ORDER BY id") == [("a", "4", "4"), ("q", None, "1")]


def test_an_invalid_key_for_its_type_costs_its_record(tmp_database: str) -> None:
    ask(tmp_database, MADE)
    ask(tmp_database, "CREATE TABLE orders (id inet PRIMARY KEY, v text)")
    with Driven(tmp_database, **UPSERT) as sink:
        sink.put([{"v": "a"}, {"v": "b"}, None, {"v": "c"}], ["::1", "x", "0::1", "::2"])
        assert sink.rows("SELECT v FROM orders") == [("c",)]
        assert [offset for offset, _ in sink.reporter.reported] == [1]


def test_a_deletion_that_affects_other_rows_keeps_its_place(tmp_database: str) -> None:
    ask(
        tmp_database,
        "CREATE TABLE orders (id int PRIMARY KEY, parent int REFERENCES orders ON DELETE CASCADE, v text); "
        "INSERT INTO orders VALUES (1, NULL, 'old'), (2, 1, 'old'), (3, NULL, 'old')",
    )
    with Driven(tmp_database, **UPSERT) as sink:
        sink.put([{"parent": None}, None, {"parent": None}], [3, 1, 2])
        assert sink.rows("SELECT id, v FROM orders ORDER BY id") == [(2, None), (3, "old")]


def column(name: str, schema: Schema | None = None, zone: Any = UTC, **more: Any) -> KeyColumn:
    return KeyColumn(KeyType(name, **more), TextForm(schema, zone=zone))


USUAL: Sequence[tuple[KeyColumn, Sequence[Any]]] = (
    (column("int8"), [1, 2]),
    (column("int4"), ["1", "-20", "0"]),
    (column("text"), ["a", "a ", "A"]),
    (column("varchar", typmod=7), ["abc", "d"]),
    (column("enum"), ["sad", "ok"]),
    (column("uuid"), [UUID, UUID.upper()]),
    (column("bytea"), [b"a", memoryview(b"b")]),
    (column("bool"), [True, False]),
    (column("numeric"), [Decimal("1.50"), Decimal("-0.05")]),
    (column("numeric"), [1, 1 << 100]),
    (column("numeric", typmod=(10 << 16 | 2) + 4), [Decimal("1.50")]),
    (column("date", date_schema()), [JavaDate(0)]),
    (column("timestamptz", timestamp_schema(), ZoneInfo("Asia/Tokyo")), [JavaDate(0)]),
    (column("timestamp", timestamp_schema()), [JavaDate(0)]),
)  # fmt: skip


def test_uuids_have_one_token_in_every_form() -> None:
    hyphens = UUID.replace("-", "")
    moved = "-".join(hyphens[at : at + 4] for at in (0, 4, 8, 12)) + "-" + hyphens[16:]
    assert len(moved) == len(UUID)
    tokens: set[Any] = set()
    groups: Sequence[Texts] = (
        [UUID],
        [UUID.upper()],
        [hyphens],
        ["{" + UUID + "}"],
        [moved],
        [UUID, moved],
        [UUID, None],
    )
    for group in groups:
        keys = proven([column("uuid")], [group], [group])
        assert keys is not None
        tokens.add(keys.identities[0])
    assert tokens == {UUID}


UNUSUAL: Sequence[tuple[KeyColumn, Sequence[Any]]] = (
    (column(""), ["a"]),
    (column("int8"), ["01"]),
    (column("text", compares_bytes=False), ["a"]),
    (column("varchar", typmod=7), ["abc "]),
    (column("bytea"), ["\\x61"]),
    (column("bool"), ["t"]),
    (column("numeric"), [Decimal("1.0"), Decimal("1.00")]),
    (column("numeric"), [Decimal("-0.0")]),
    (column("numeric", typmod=(10 << 16 | 2) + 4), [Decimal("1.500")]),
    (column("numeric", typmod=(10 << 16 | 0x7FE) + 4), [100]),
    (column("date", timestamp_schema()), [JavaDate(0)]),
    (column("timestamp", timestamp_schema(), ZoneInfo("Europe/Berlin")), [JavaDate(0)]),
    (column("timestamptz", timestamp_schema(), typmod=0), [JavaDate(0)]),
)  # fmt: skip


@pytest.mark.parametrize(("key", "values"), USUAL)
def test_usual_keys_need_no_query(key: KeyColumn, values: Sequence[Any]) -> None:
    found = proven([key], [values], [texts(values, key.form)])
    assert found is not None
    assert len(set(found.identities)) == (1 if key.type.name == "uuid" else len(values))


@pytest.mark.parametrize(("key", "values"), UNUSUAL)
def test_keys_that_texts_do_not_prove_need_a_query(key: KeyColumn, values: Sequence[Any]) -> None:
    assert proven([key], [values], [texts(values, key.form)]) is None


def test_struct_and_map_keys_can_be_equal(tmp_database: str) -> None:
    """Records of two shapes of keys in one batch."""
    ask(tmp_database, "CREATE TABLE orders (id uuid PRIMARY KEY, v text)")
    schema = Schema("STRUCT", fields=[("id", Schema("STRING"))])
    with Driven(tmp_database, **UPSERT) as sink:
        sink.put([{"v": "a"}, None, {"v": "b"}], [Struct(schema, [UUID]), {"id": UUID.upper()}, Struct(schema, [UUID])])
        assert sink.rows("SELECT v FROM orders") == [("b",)]
