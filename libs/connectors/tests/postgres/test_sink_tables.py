"""Tests of a PostgreSQL sink's writes, on a real server:
modes, created and evolved tables, types, bad records.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import errors

from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.model.data import Float32, JavaDate
from herdmesh.connect.model.schemas import DATE, DECIMAL, OPTIONAL_STRING, STRING, TIME, TIMESTAMP, Schema
from herdmesh.connect.model.struct_column import StructColumn
from herdmesh.connectors.postgres.sink.ledger import ensure_table, ledger_of
from herdmesh.connectors.postgres.sink.settings import TableName
from libs.connectors.tests.postgres.sink_driver import Driven, ask
from tests.support.sizes import soak_or

UPSERT: dict[str, Any] = {"insert_mode": "upsert", "pk_mode": "record_key", "pk_fields": "id", "delete_enabled": "true"}
LEAP_MS = 1_709_211_600_123  # 2024-02-29 13:00:00.123 UTC


def struct(**fields: Schema) -> Schema:
    return Schema("STRUCT", fields=list(fields.items()))


def column(schema: Schema, *rows: tuple[Any, ...]) -> StructColumn:
    return StructColumn(schema, list(zip(*rows, strict=True)), len(rows))


ORDER = struct(id=Schema("INT64"), note=OPTIONAL_STRING)


def test_a_table_is_created_with_every_type_and_holds_the_values(tmp_database: str) -> None:
    schema = struct(
        i8=Schema("INT8"), i16=Schema("INT16"), i32=Schema("INT32"), i64=Schema("INT64"), f32=Schema("FLOAT32"),
        f64=Schema("FLOAT64"), yes=Schema("BOOLEAN"), text=STRING, bin=Schema("BYTES"),
        dec=Schema("BYTES", name=DECIMAL, parameters={"scale": "2"}), day=Schema("INT32", name=DATE),
        at=Schema("INT32", name=TIME), ts=Schema("INT64", name=TIMESTAMP),
        many=Schema("ARRAY", value_schema=Schema("INT32", True)), maybe=Schema("STRING", True),
        seven=Schema("INT32", True, default=7), moment=Schema("INT64", True, name=TIMESTAMP, default=JavaDate(LEAP_MS)),
    )  # fmt: skip
    row = (
        -5, 300, 1 << 30, 1 << 62, 0.5, 1e300, True, "tab\tquote'\\", b"\x00\xff", Decimal("-12.30"),
        JavaDate(LEAP_MS - LEAP_MS % 86_400_000), JavaDate(46_800_123), JavaDate(LEAP_MS), [1, None, 3],
        None, None, None,
    )  # fmt: skip
    with Driven(tmp_database, auto_create="true") as sink:
        sink.put(column(schema, row), schema=schema)
        moment = datetime.datetime(2024, 2, 29, 13, 0, 0, 123_000)  # noqa: DTZ001 - a column without a time zone
        assert sink.rows("SELECT * FROM orders") == [(
            -5, 300, 1 << 30, 1 << 62, 0.5, 1e300, True, "tab\tquote'\\", b"\x00\xff", Decimal("-12.30"),
            moment.date(), moment.time(), moment, [1, None, 3], None, 7, moment,
        )]  # fmt: skip
        assert sink.rows(
            "SELECT column_name, column_default, is_nullable FROM information_schema.columns "
            "WHERE table_name = 'orders' AND (column_default IS NOT NULL OR is_nullable = 'YES') ORDER BY 1"
        ) == [
            ("maybe", None, "YES"),
            ("moment", "'2024-02-29 13:00:00.123'::timestamp without time zone", "YES"),
            ("seven", "7", "YES"),
        ]


def test_the_last_upsert_or_tombstone_of_each_key_counts(tmp_database: str) -> None:
    with Driven(tmp_database, auto_create="true", **UPSERT) as sink:
        more: dict[str, Any] = {"schema": ORDER, "key_schema": Schema("INT64")}
        sink.put(column(ORDER, (9, "a"), (9, "b"), (9, "c")), [1, 2, 1], **more)
        assert sink.rows("SELECT id, note FROM orders ORDER BY id") == [(1, "c"), (2, "b")]
        structs = list(column(ORDER, (9, "d"), (9, "e"), (9, "f")))
        sink.put([None, structs[0], structs[1], None, None, structs[2]], [1, 1, 2, 2, 3, 4], **more)
        assert sink.rows("SELECT id, note FROM orders ORDER BY id") == [(1, "d"), (4, "f")]
        assert sink.rows("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'orders'::regclass") == [
            ("PRIMARY KEY (id)",)
        ]
        assert (sink.ledger(), sink.reporter.reported) == (9, [])


def test_a_tombstone_for_a_missing_table_deletes_nothing(tmp_database: str) -> None:
    with Driven(tmp_database, auto_create="true", **UPSERT) as sink:
        sink.put([None, *column(ORDER, (1, "a"))], [1, 1], schema=ORDER, key_schema=Schema("INT64"))
        assert sink.rows("SELECT * FROM orders") == [(1, "a")]


def test_update_writes_existing_rows_and_insert_refuses_them(tmp_database: str) -> None:
    ask(tmp_database, "CREATE TABLE orders (id int PRIMARY KEY, note text); INSERT INTO orders VALUES (1, 'old')")
    with Driven(tmp_database, insert_mode="update", pk_mode="record_value", pk_fields="id") as sink:
        sink.put([{"id": 1, "note": "a"}, {"id": 2, "note": "b"}, {"id": 1, "note": "c"}, {"id": 1}])
        assert sink.rows("SELECT * FROM orders") == [(1, "c")]
    with Driven(tmp_database) as sink:
        sink.put([{"id": 2, "note": "x"}, {"id": 1, "note": "y"}, {"id": 3, "note": "z"}, {"id": 3, "note": "again"}])
        assert sink.rows("SELECT * FROM orders ORDER BY id") == [(1, "c"), (2, "x"), (3, "z")]
        assert [offset for offset, _ in sink.reporter.reported] == [5, 7]
        assert all("orders_pkey" in error for _, error in sink.reporter.reported)


def test_maps_are_written_by_name_with_the_tables_types(tmp_database: str) -> None:
    ask(
        tmp_database,
        "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n numeric(6,2), made timestamptz "
        "DEFAULT '2020-01-01Z', tags text[], doc jsonb, uid uuid, mood text)",
    )
    uid = "00000000-0000-0000-0000-000000000001"
    with Driven(tmp_database, insert_mode="upsert", pk_mode="record_value", pk_fields="id") as sink:
        sink.put([
            {"id": 1, "n": 1.5, "tags": ["a", None], "doc": {"x": [1]}, "uid": uid},
            {"id": 2, "mood": "good", "doc": [1, "b"]},
            {"id": 2, "n": 3, "made": "2024-02-29 13:00:00+01:00", "doc": None},
            {"id": 1, "mood": ""},
        ])  # fmt: skip
        assert sink.rows(
            "SELECT id, n, made AT TIME ZONE 'UTC', tags, doc, uid::text, mood FROM orders ORDER BY id"
        ) == [
            (1, Decimal("1.50"), datetime.datetime(2020, 1, 1), ["a", None], {"x": [1]}, uid, ""),  # noqa: DTZ001
            (2, Decimal("3.00"), datetime.datetime(2024, 2, 29, 12), None, None, None, "good"),  # noqa: DTZ001
        ]


def test_any_names_views_and_partitions(tmp_database: str) -> None:
    ask(
        tmp_database,
        'CREATE SCHEMA "S%"; CREATE TABLE "S%"."a\'b""c{}" ("x y%" int PRIMARY KEY, "SELECT" text) '
        'PARTITION BY RANGE ("x y%"); CREATE TABLE part PARTITION OF "S%"."a\'b""c{}" FOR VALUES FROM (0) TO (9); '
        'CREATE VIEW v AS SELECT * FROM "S%"."a\'b""c{}"',
    )
    with Driven(tmp_database, herdmesh_ledger_table='S%.led{}"ger') as sink:
        sink.put([{"x y%": 1, "SELECT": "a"}, {"x y%": 10, "SELECT": "no partition"}], topic="S%.a'b\"c{}")
        sink.put([{"x y%": 2, "SELECT": "b"}], topic="v")
        assert sink.rows("SELECT * FROM v ORDER BY 1") == [(1, "a"), (2, "b")]
        assert [offset for offset, _ in sink.reporter.reported] == [1]
        assert sink.rows('SELECT next_offset FROM "S%"."led{}""ger"') == [(3,)]


def test_timestamps_have_the_configured_zone_in_columns_without_one(tmp_database: str) -> None:
    ask(tmp_database, "CREATE TABLE orders (with_zone timestamptz, without timestamp)")
    schema = struct(with_zone=Schema("INT64", name=TIMESTAMP), without=Schema("INT64", name=TIMESTAMP))
    with Driven(tmp_database, db_timezone="Asia/Kolkata") as sink:
        sink.put(column(schema, (JavaDate(LEAP_MS), JavaDate(LEAP_MS))), schema=schema)
        assert sink.rows("SELECT with_zone AT TIME ZONE 'UTC', without FROM orders") == [(
            datetime.datetime(2024, 2, 29, 13, 0, 0, 123_000),  # noqa: DTZ001
            datetime.datetime(2024, 2, 29, 18, 30, 0, 123_000),  # noqa: DTZ001
        )]  # fmt: skip


def test_a_table_evolves_by_nullable_columns(tmp_database: str) -> None:
    wider = struct(
        id=Schema("INT64"), note=OPTIONAL_STRING, n=Schema("INT32", True, default=7), b=Schema("BYTES", True)
    )
    required = struct(id=Schema("INT64"), must=STRING)
    narrow = struct(id=Schema("INT64"))
    with Driven(tmp_database, auto_create="true", auto_evolve="true") as sink:
        sink.put(column(ORDER, (1, "a")), schema=ORDER)
        sink.put(column(wider, (2, "b", None, b"x"), (3, None, 4, None)), schema=wider)
        sink.put(column(narrow, (4,)), schema=narrow)
        sink.put(column(required, (5, "c"), (6, "d")), schema=required)
        assert sink.rows("SELECT * FROM orders ORDER BY id") == [
            (1, "a", 7, None), (2, "b", 7, b"x"), (3, None, 4, None), (4, None, 7, None),
        ]  # fmt: skip
        assert [offset for offset, _ in sink.reporter.reported] == [4, 5]
        assert "table orders has no column must" in sink.reporter.reported[0][1]


def test_missing_tables_and_columns_are_named(tmp_database: str) -> None:
    with Driven(tmp_database) as sink, pytest.raises(ConfigError, match="table orders is missing") as refused:
        sink.put([{"id": 1}])
    assert refused.value.field == "auto.create"
    with Driven(tmp_database, auto_create="true") as sink, pytest.raises(ConfigError, match="have no schema"):
        sink.put([{"id": 1}])
    keyed: Any = {"auto_create": "true", "pk_mode": "record_key", "pk_fields": "at"}
    with Driven(tmp_database, **keyed) as sink, pytest.raises(ConfigError, match=r"keys have no schema \(at\)") as keys:
        sink.put(column(ORDER, (1, "a")), [5], schema=ORDER)
    assert "key.converter" in keys.value.fix
    ask(tmp_database, "CREATE TABLE orders (id int)")
    with Driven(tmp_database) as sink:
        sink.put([{"id": 1}, {"id": 2, "b": 1, "c": 2}, {"id": 3}])
        assert sink.rows("SELECT * FROM orders ORDER BY id") == [(1,), (3,)]
        assert sink.reporter.reported == [(1, "table orders has no column b, c, and auto.evolve is false")]
    with (
        Driven(tmp_database, insert_mode="upsert", pk_mode="record_value", pk_fields="id") as sink,
        pytest.raises(ConfigError, match="no unique or exclusion constraint"),
    ):
        sink.put([{"id": 1}])


def test_a_missing_key_column_is_reported_as_the_keys(tmp_database: str) -> None:
    """Not "the record has no schema": its value has one."""
    ask(tmp_database, "CREATE TABLE orders (id bigint, note text)")
    keyed: Any = {"auto_evolve": "true", "pk_mode": "record_key", "pk_fields": "at"}
    with Driven(tmp_database, **keyed) as sink:
        sink.put(column(ORDER, (1, "a")), [5], schema=ORDER)
        [(_, why)] = sink.reporter.reported
    assert why == "table orders has no column at, and the record's key has no schema"


@pytest.mark.parametrize("topic", ["..", "", "x" * 250])
def test_an_invalid_table_name_from_a_transformation_fails_only_its_records(tmp_database: str, topic: str) -> None:
    with Driven(tmp_database, auto_create="true") as sink:
        sink.put(column(ORDER, (1, "a")), schema=ORDER)
        sink.put(column(ORDER, (2, "b")), schema=ORDER, topic=topic)
        assert sink.rows("SELECT id FROM orders") == [(1,)]
        [(_, why)] = sink.reporter.reported
        assert "which a transformation made" in why
        with pytest.raises(ConfigError, match=r"a\.b\.c is not a table name"):
            sink.put(column(ORDER, (3, "c")), schema=ORDER, topic="a.b.c")


def test_a_table_altered_during_the_session_is_read_again(tmp_database: str) -> None:
    ask(tmp_database, "CREATE TABLE orders (id int, note text)")
    with Driven(tmp_database, auto_create="true", auto_evolve="true") as sink:
        sink.put(column(ORDER, (1, "a")), schema=ORDER)
        ask(tmp_database, "DROP TABLE orders")
        sink.put(column(ORDER, (2, "b")), schema=ORDER)
        ask(tmp_database, "ALTER TABLE orders DROP note")
        sink.put(column(ORDER, (3, "c")), schema=ORDER)
        assert sink.rows("SELECT * FROM orders ORDER BY id") == [(2, None), (3, "c")]


BAD: list[tuple[str, Any, str]] = [
    ("a text for a number", {"id": "x"}, "invalid input syntax"),
    ("a number out of range", {"id": 1 << 40}, "out of range"),
    ("null where none may be", {"id": None}, "null value in column"),
    ("a check", {"id": -1}, "orders_id_check"),
    ("half a character", {"id": 1, "note": "\ud800"}, "invalid byte sequence"),
    ("a character that no text may have", {"id": 1, "note": "a\x00"}, "invalid byte sequence"),
    ("a foreign key that is checked at the end", {"id": 1, "other": 5}, "orders_other_fkey"),
    ("an error of a trigger", {"id": 13}, "not thirteen"),
    ("no row at all", 5, "must be a struct or a map"),
    ("a value without text", {"id": 1, "note": object()}, "a value of type object cannot be written"),
    ("a moment that no timestamp holds", {"id": 1, "moment": JavaDate(1 << 60)}, "out of range"),
]


@pytest.mark.parametrize(("bad", "told"), [one[1:] for one in BAD], ids=[one[0] for one in BAD])
@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_a_bad_record_costs_one_record(tmp_database: str, mode: str, bad: Any, told: str) -> None:
    ask(
        tmp_database,
        "CREATE TABLE others (id int PRIMARY KEY); CREATE TABLE orders (id int NOT NULL CHECK (id >= 0), note text, "
        "other int REFERENCES others DEFERRABLE INITIALLY DEFERRED, at int PRIMARY KEY, moment timestamp); "
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = 13 THEN "
        "RAISE EXCEPTION 'not thirteen'; END IF; RETURN NEW; END $$; "
        "CREATE TRIGGER refuse BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    values: list[Any] = [{"id": at} for at in range(20, 40)]
    values[7] = values[16] = bad
    with Driven(tmp_database, insert_mode=mode, pk_mode="record_key", pk_fields="at") as sink:
        sink.put(values, list(range(20)))
        assert sink.rows("SELECT array_agg(at ORDER BY at) FROM orders") == [
            ([at for at in range(20) if at not in (7, 16)],)
        ]
        assert [offset for offset, _ in sink.reporter.reported] == [7, 16]
        assert all(told in error for _, error in sink.reporter.reported)
        assert (sink.reporter.settled, sink.ledger()) == (2, 20)


ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, parent int REFERENCES orders DEFERRABLE INITIALLY DEFERRED)"


def test_a_bad_record_costs_no_other_with_a_deferred_constraint(tmp_database: str) -> None:
    ask(tmp_database, ORDERS)
    with Driven(tmp_database) as run:
        run.put([{"id": 4, "parent": 3}, {"id": 3, "parent": None}, {"id": "x", "parent": None}])
        assert [offset for offset, _ in run.reporter.reported] == [2]
        assert [row[0] for row in run.rows("SELECT id FROM orders ORDER BY 1")] == [3, 4]


def test_a_record_is_reported_once_when_a_deferred_constraint_refuses_another(tmp_database: str) -> None:
    ask(tmp_database, ORDERS)
    with Driven(tmp_database) as run:
        run.put([{"id": 1, "parent": None}, None, {"id": 2, "parent": 99}])
        assert [offset for offset, _ in run.reporter.reported] == [1, 2]
        assert [row[0] for row in run.rows("SELECT id FROM orders")] == [1]


def test_nothing_is_written_without_a_reporter_for_bad_records(tmp_database: str) -> None:
    ask(tmp_database, "CREATE TABLE orders (id int)")
    with Driven(tmp_database, tolerant=False) as sink:
        with pytest.raises(DataError, match=r"invalid input syntax.*\(record of orders-0 at offset 1\)"):
            sink.put([{"id": 1}, {"id": "x"}])
        assert sink.rows("SELECT * FROM orders") == []
        assert sink.ledger() == 0


EVENTS = st.lists(
    st.tuples(st.integers(0, 3), st.none() | st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), max_size=3)),
    min_size=1,
    max_size=15,
)


@given(batches=st.lists(EVENTS, min_size=1, max_size=3))
@settings(max_examples=soak_or(30, 1_000), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_table_has_the_result_of_the_records_one_by_one(
    tmp_database: str, batches: list[list[tuple[int, dict[str, int] | None]]]
) -> None:
    ask(
        tmp_database,
        "DROP TABLE IF EXISTS orders; CREATE TABLE orders (id int PRIMARY KEY, a int, b int, c int DEFAULT 5)",
    )
    expected: dict[int, dict[str, int | None]] = {}
    with Driven(tmp_database, **UPSERT) as sink:
        for events in batches:
            for key, value in events:
                if value is None:
                    expected.pop(key, None)
                else:
                    expected.setdefault(key, {"a": None, "b": None, "c": 5}).update(value)
            sink.put([value for _, value in events], [key for key, _ in events])
        rows = sink.rows("SELECT * FROM orders ORDER BY id")
    assert rows == [(key, *row.values()) for key, row in sorted(expected.items())]


class _Beaten:
    """A session whose CREATE fails because another session just
    created the object, and the server found its type first.
    """

    def __init__(self, connection: psycopg.Connection[Any], dsn: str) -> None:
        self._connection, self._dsn = connection, dsn
        self.made = list[bytes]()

    def execute(self, statement: bytes, *given: Any) -> Any:
        if statement.startswith(b"CREATE TABLE") and not self.made:
            self.made.append(statement)
            ask(self._dsn, statement.decode())
            raise errors.DuplicateObject
        return self._connection.execute(statement, *given)


def test_tables_created_concurrently_by_another_task_are_used(tmp_database: str) -> None:
    table = TableName("", "ledger")
    with psycopg.connect(tmp_database, autocommit=True) as connection:
        beaten: Any = _Beaten(connection, tmp_database)
        ledger = ledger_of(lambda: beaten, table, "c", "run")
        ensure_table(beaten, table, ledger)
        assert beaten.made
        assert not ledger.all_owners()


@pytest.mark.parametrize("name", ["herdmesh_ledger", "orders"])
def test_a_type_with_the_tables_name_is_reported(tmp_database: str, name: str) -> None:
    ask(tmp_database, f"CREATE TYPE {name} AS ENUM ('a')")
    with (
        pytest.raises(ConfigError, match=f'type "{name}" already exists'),
        Driven(tmp_database, auto_create="true") as sink,
    ):
        sink.put(column(ORDER, (1, None)), schema=ORDER)


def test_a_user_without_the_right_to_create_the_ledger_is_told_the_grant(tmp_database: str) -> None:
    ask(tmp_database, "DO $$ BEGIN CREATE ROLE plain LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    with pytest.raises(ConfigError, match="herdmesh_ledger cannot be used: permission denied") as refused:
        Driven(tmp_database, connection_user="plain").take()
    assert refused.value.field == "herdmesh.ledger.table"
    assert "CREATE TABLE IF NOT EXISTS" in refused.value.fix
    with Driven(tmp_database):
        pass
    ask(tmp_database, "GRANT SELECT, INSERT, UPDATE, DELETE ON herdmesh_ledger TO plain; CREATE TABLE orders (id int)")
    with Driven(tmp_database, connection_user="plain") as sink, pytest.raises(ConfigError, match="permission denied"):
        sink.put([{"id": 1}])
    with psycopg.connect(tmp_database, autocommit=True) as connection:
        connection.execute("GRANT INSERT ON orders TO plain")
    with Driven(tmp_database, connection_user="plain") as sink:
        sink.put([{"id": 1}])
        assert sink.rows("SELECT * FROM orders") == [(1,)]


YEARS: list[tuple[Schema, JavaDate, str, str, str]] = [
    (Schema("INT64", name=TIMESTAMP), JavaDate(253_402_300_799_000), "timestamp", "Asia/Tokyo", "10000-01-01 08:59:59"),
    (Schema("INT64", name=TIMESTAMP), JavaDate(-62_135_596_800_000), "timestamp", "America/New_York",
     "0001-12-31 19:03:58 BC"),
    (Schema("INT64", name=TIMESTAMP), JavaDate(-210_866_803_200_000), "timestamp", "UTC", "4714-11-24 00:00:00 BC"),
    (Schema("INT64", name=TIMESTAMP), JavaDate(9_224_318_015_999_999), "timestamp", "UTC",
     "294276-12-31 23:59:59.999"),
    (Schema("INT64", name=TIMESTAMP), JavaDate(9_224_318_015_999_999), "timestamptz", "Asia/Tokyo",
     "294276-12-31 23:59:59.999+00"),
    (Schema("INT32", name=DATE), JavaDate(-210_866_803_200_000), "date", "UTC", "4714-11-24 BC"),
    (Schema("INT32", name=DATE), JavaDate(185_331_706_992_000_000), "date", "UTC", "5874897-12-31"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "kind", "zone", "held"), YEARS)
def test_dates_of_any_year_of_postgresql(
    tmp_database: str, schema: Schema, value: JavaDate, kind: str, zone: str, held: str
) -> None:
    ask(tmp_database, f"CREATE TABLE orders (at {kind}, whole {kind}[])")
    fields = struct(at=schema, whole=Schema("ARRAY", value_schema=schema))
    with Driven(tmp_database, db_timezone=zone) as sink:
        sink.put(column(fields, (value, [value])), schema=fields)
        assert sink.reporter.reported == []
        assert sink.rows("SET timezone = 'UTC'; SELECT at::text, whole[1]::text FROM orders") == [(held, held)]


DAYS = st.integers(-2_440_588, 106_751_991)
"""From 4714-11-24 BC to 294247-01-10, counted from 1970."""


@given(moments=st.lists(st.tuples(DAYS, st.integers(0, 86_399_999)), min_size=1, max_size=20), zone=st.sampled_from(
    ["UTC", "Asia/Tokyo", "America/New_York", "Europe/Berlin", "Pacific/Apia", "Australia/Lord_Howe"]
))  # fmt: skip
@settings(max_examples=soak_or(20, 1_000), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_moments_and_days_round_trip(tmp_database: str, moments: list[tuple[int, int]], zone: str) -> None:
    """Checked with the server's own arithmetic."""
    ask(tmp_database, "DROP TABLE IF EXISTS orders; CREATE TABLE orders (n int, with_zone timestamptz, day date)")
    fields = struct(
        n=Schema("INT32"), with_zone=Schema("INT64", True, name=TIMESTAMP), day=Schema("INT32", True, name=DATE)
    )
    with Driven(tmp_database, db_timezone=zone) as sink:
        rows = [
            (at, JavaDate(days * 86_400_000 + of_day), JavaDate(days * 86_400_000))
            for at, (days, of_day) in enumerate(moments)
        ]
        sink.put(column(fields, *rows), schema=fields)
        assert sink.rows(
            "SELECT n, (extract(epoch FROM with_zone) * 1000)::bigint, (day - '1970-01-01')::bigint * 86400000 "
            "FROM orders ORDER BY n"
        ) == [(at, int(moment), int(day)) for at, moment, day in rows]


FLOATS = struct(n=Schema("FLOAT32", True), t=Schema("FLOAT32"), r=Schema("FLOAT32"), many=Schema(
    "ARRAY", value_schema=Schema("FLOAT32")
))  # fmt: skip


def test_32_bit_floats_are_not_widened_before_printing(tmp_database: str) -> None:
    ask(tmp_database, "CREATE TABLE orders (n numeric, t text, r real, many numeric[])")
    tenth = 0.10000000149011612
    with Driven(tmp_database) as sink:
        sink.put(column(FLOATS, (tenth, tenth, tenth, [tenth])), schema=FLOATS)
        sink.put([{"n": Float32(tenth), "t": Float32(tenth), "r": Float32(tenth), "many": [Float32(tenth)]}])
        assert (
            sink.rows("SELECT n, t, r::text, many FROM orders")
            == [(Decimal("0.1"), "0.1", "0.1", [Decimal("0.1")])] * 2
        )
