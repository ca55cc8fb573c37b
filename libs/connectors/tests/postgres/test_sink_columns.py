"""Tests of values whose plain text would have another meaning in the column: on a real server, whose database has
another time zone and language than the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.model.data import JavaDate, Struct
from herdmesh.connect.model.schemas import DECIMAL, Schema, date_schema, time_schema, timestamp_schema
from libs.connectors.tests.postgres.sink_driver import Driven, ask

DAY = 19_782  # 2024-02-29
DAY_MS, US = DAY * 86_400_000, DAY * 86_400_000_000 + 46_800_123_456
TIME_US = 46_800_123_456
DOUBLE, SINGLE, LONG, INT = (Schema(one, True) for one in ("FLOAT64", "FLOAT32", "INT64", "INT32"))


def decimal(scale: int) -> Schema:
    return Schema("BYTES", True, DECIMAL, 1, parameters={"scale": str(scale)})


def time_of(name: str, type: str = "INT64") -> Schema:
    return Schema(type, True, f"io.debezium.time.{name}", 1)


def written(dsn: str, columns: Sequence[tuple[str, Schema | None, Any]]) -> tuple[list[str | None], list[str]]:
    """Return a row that a table with a column for each of
    these holds after writing the values, and the refusals.
    """
    names = [f"c{at}" for at in range(len(columns))]
    made = ", ".join(f"{name} {type}" for name, (type, _, _) in zip(names, columns, strict=True))
    ask(dsn, f"DROP TABLE IF EXISTS orders; CREATE TABLE orders ({made})")
    values = [value for _, _, value in columns]
    schemas = [schema for _, schema, _ in columns if schema is not None]
    with Driven(dsn) as sink:
        if len(schemas) == len(columns):
            schema = Schema("STRUCT", fields=tuple(zip(names, schemas, strict=True)))
            sink.put([Struct(schema, values)], schema=schema)
        else:
            sink.put([dict(zip(names, values, strict=True))])
        shown = ", ".join(f"{name}::text" for name in names)
        rows = sink.rows(f"SET timezone = 'UTC'; SELECT {shown} FROM orders")
        return list(rows[0]) if rows else [], [message for _, message in sink.reporter.reported]


def test_values_without_a_time_zone_are_utc_in_a_column_with_one(tmp_database: str) -> None:
    ask(tmp_database, f"ALTER DATABASE \"{tmp_database.rpartition('/')[2]}\" SET timezone = 'America/New_York'")
    days = Schema("ARRAY", value_schema=date_schema(optional=True))
    cases: list[tuple[str, Schema, Any, str]] = [
        ("timestamptz", date_schema(), JavaDate(DAY_MS), "2024-02-29 00:00:00+00"),
        ("timestamptz", date_schema(), JavaDate(-62_135_596_800_000 - 86_400_000), "0001-12-31 00:00:00+00 BC"),
        ("timestamptz", date_schema(), JavaDate(((1 << 31) - 1) * 86_400_000), "infinity"),
        ("timestamptz[]", days, [JavaDate(DAY_MS), None], '{"2024-02-29 00:00:00+00",NULL}'),
        ("timetz", time_schema(), JavaDate(46_800_123), "13:00:00.123+00"),
        ("timestamptz", timestamp_schema(), JavaDate(DAY_MS), "2024-02-29 00:00:00+00"),
        ("timestamptz", time_of("Date", "INT32"), DAY, "2024-02-29 00:00:00+00"),
        ("timestamptz", time_of("Date", "INT32"), -719_528, "0001-01-01 00:00:00+00 BC"),
        ("timestamptz", time_of("Date", "INT32"), -(1 << 31), "-infinity"),
        ("timetz", time_of("Time", "INT32"), 46_800_123, "13:00:00.123+00"),
        ("timetz", time_of("MicroTime"), TIME_US, "13:00:00.123456+00"),
        ("timetz", time_of("NanoTime"), TIME_US * 1_000, "13:00:00.123456+00"),
        ("timestamptz", time_of("Timestamp"), US // 1_000, "2024-02-29 13:00:00.123+00"),
        ("timestamptz", time_of("MicroTimestamp"), US, "2024-02-29 13:00:00.123456+00"),
    ]
    held, refused = written(tmp_database, [case[:3] for case in cases])
    assert (held, refused) == ([text for *_, text in cases], [])


def test_times_are_written_to_columns_of_other_time_types(tmp_database: str) -> None:
    zoned = time_of("ZonedTimestamp", "STRING")
    cases: list[tuple[str, Schema, Any, str]] = [
        ("date", time_of("Timestamp"), US // 1_000, "2024-02-29"),
        ("date", time_of("MicroTimestamp"), US, "2024-02-29"),
        ("date", time_of("NanoTimestamp"), US * 1_000, "2024-02-29"),
        ("date", zoned, "2024-02-29T13:00:00.123Z", "2024-02-29"),
        ("date", zoned, "+10000-02-29T13:00:00Z", "10000-02-29"),
        ("timestamp", time_of("Date", "INT32"), DAY, "2024-02-29 00:00:00"),
        ("time", time_of("MicroTime"), 86_400_000_000, "24:00:00"),
        ("interval", time_of("MicroDuration"), 90_061_000_000, "25:01:01"),
        ("interval", time_of("NanoDuration"), 90_061_000_000_000, "25:01:01"),
        ("date", timestamp_schema(), JavaDate(US // 1_000), "2024-02-29"),
    ]
    held, refused = written(tmp_database, [case[:3] for case in cases])
    assert (held, refused) == ([text for *_, text in cases], [])


def test_a_number_without_a_unit_is_refused(tmp_database: str) -> None:
    """The server reads 130000 as 13:00, 20240101 as a day, any number as seconds, and its digits as bytes."""
    types = ["date", "time", "timetz", "timestamp", "timestamptz", "interval", "interval[]", "bytea"]
    ask(tmp_database, f"CREATE TABLE orders ({', '.join(f'c{at} {type}' for at, type in enumerate(types))})")
    with Driven(tmp_database) as sink:
        for at, type in enumerate(types):
            for schema in (None, LONG, DOUBLE, time_of("Year")):
                numbers: list[Any] = [float(one) if schema is DOUBLE else one for one in (130_000, 20_240_101)]
                values = [[one] for one in numbers] if type.endswith("[]") else numbers
                if schema is None:
                    sink.put([{f"c{at}": value} for value in values])
                else:
                    of_column = Schema("ARRAY", value_schema=schema) if type.endswith("[]") else schema
                    of_row = Schema("STRUCT", fields=((f"c{at}", of_column),))
                    sink.put([Struct(of_row, [value]) for value in values], schema=of_row)
                said = "is ambiguous as bytes" if type == "bytea" else "is ambiguous as a date, time or interval"
                assert [message.startswith(f"column c{at}: ") and said in message
                        for _, message in sink.reporter.reported] == [True, True], (type, schema)  # fmt: skip
                sink.reporter.reported.clear()
        assert sink.rows("SELECT 1 FROM orders") == []


def test_integers_of_any_type_are_written_to_integer_columns(tmp_database: str) -> None:
    cases: list[tuple[str, Schema, Any, str]] = [
        ("int", decimal(2), Decimal("5.00"), "5"),
        ("bigint", decimal(-2), Decimal("-5E+2"), "-500"),
        ("smallint", DOUBLE, -5.0, "-5"),
        ("bigint", DOUBLE, 2.0**62, "4611686018427387904"),
        ("int", SINGLE, 16_777_216.0, "16777216"),
        ("int[]", Schema("ARRAY", value_schema=decimal(1)), [Decimal("5.0"), None], "{5,NULL}"),
        ("numeric", decimal(2), Decimal("5.00"), "5.00"),
    ]
    held, refused = written(tmp_database, [case[:3] for case in cases])
    assert (held, refused) == ([text for *_, text in cases], [])
    assert written(tmp_database, [("int", None, 5.0), ("int[]", None, [6.0, 7])]) == (["5", "{6,7}"], [])


def test_a_text_without_the_form_of_bytes_is_refused_for_a_bytes_column(tmp_database: str) -> None:
    """JSON without schemas has bytes in Base64, and the server would store these characters."""
    texts = Schema("ARRAY", value_schema=Schema("STRING"))
    fine: list[tuple[str, Schema | None, Any]] = [("bytea", None, "\\x00FF"), ("bytea", Schema("STRING"), ""),
                                                  ("bytea[]", texts, ["\\x61"])]  # fmt: skip
    assert written(tmp_database, fine) == (["\\x00ff", "\\x", '{"\\\\x61"}'], [])
    for case in [("bytea", None, "AP9h"), ("bytea", Schema("STRING"), "abc"), ("bytea[]", texts, ["AP9h"])]:
        held, (refused,) = written(tmp_database, [case])
        assert held == []
        assert "is ambiguous as bytes (JSON without schemas has them in Base64)" in refused


def test_json_objects_and_maps_are_written_to_an_hstore(tmp_database: str) -> None:
    ask(tmp_database, "CREATE EXTENSION hstore")
    texts = Schema("MAP", key_schema=Schema("STRING"), value_schema=Schema("STRING", True))
    pair = '"a"=>"1", "b\\""=>NULL'
    cases: list[tuple[str, Schema | None, Any]] = [
        ("hstore", None, '{"a": "1", "b\\"": null}'), ("hstore", None, {"a": "1", 'b"': None}), ("hstore", None, pair),
        ("hstore[]", None, ['{"a": "1", "b\\"": null}']),
    ]  # fmt: skip
    found = [pair, pair, pair, '{"' + pair.replace("\\", "\\\\").replace('"', '\\"') + '"}']
    assert written(tmp_database, cases) == (found, [])
    assert written(tmp_database, [("hstore", texts, {"a": "1", 'b"': None})]) == ([pair], [])
    held, (refused,) = written(tmp_database, [("hstore", None, {"a": 1})])
    assert (held, "an hstore is a JSON object of strings and nulls" in refused) == ([], True)


@pytest.mark.parametrize(("schema", "value"), [(decimal(1), Decimal("5.5")), (DOUBLE, 5.5), (DOUBLE, float("nan"))])
def test_a_fraction_in_an_integer_column_is_refused(tmp_database: str, schema: Schema, value: Any) -> None:
    held, (refused,) = written(tmp_database, [("int", schema, value)])
    assert held == []
    assert "invalid input syntax for type integer" in refused


def test_money_is_equal_in_any_language_of_the_database(tmp_database: str) -> None:
    """In German 1234.50 is 123,450. (The server's operating system decides which languages it has.)"""
    ask(tmp_database, f"ALTER DATABASE \"{tmp_database.rpartition('/')[2]}\" SET lc_monetary = 'C.utf8'")
    ask(tmp_database, "CREATE TABLE orders (m money, language text DEFAULT current_setting('lc_monetary'))")
    with Driven(tmp_database) as sink:
        sink.put([{"m": 1234.5}])
        assert sink.rows("SELECT m::numeric::text, language FROM orders") == [("1234.50", "C")]


def test_defaults_have_the_configured_time_zone(tmp_database: str) -> None:
    moment = JavaDate(DAY_MS)
    with_default = timestamp_schema(optional=True).replace(default=moment)
    first = Schema("STRUCT", fields=(("at", with_default),))
    more = Schema("STRUCT", fields=(*((one.name, one.schema) for one in first.fields),
                                    ("added", with_default)))  # fmt: skip
    with Driven(tmp_database, auto_create="true", auto_evolve="true", db_timezone="Asia/Tokyo") as sink:
        sink.put([Struct(first, [moment])], schema=first)
        sink.put([Struct(more, [None, None])], schema=more)
        ask(tmp_database, "INSERT INTO orders DEFAULT VALUES")
        assert sink.rows("SELECT DISTINCT at::text, added::text FROM orders") == [("2024-02-29 09:00:00",) * 2]


@pytest.mark.parametrize("evolves", ["true", "false"])
def test_a_name_in_another_case_is_no_new_column(tmp_database: str, evolves: str) -> None:
    ask(tmp_database, 'CREATE TABLE orders (id int PRIMARY KEY, name text, "Id" int)')
    schema = Schema("STRUCT", fields=(("id", INT), ("NAME", Schema("STRING", True)), ("ID", INT)))
    with Driven(tmp_database, auto_evolve=evolves) as sink:
        sink.put([Struct(schema, [1, "a", None])], schema=schema)
        ((_, message),) = sink.reporter.reported
    assert "has no column NAME, but name, which to PostgreSQL is a different column" in message
    assert "quote.sql.identifiers=never" in message
    assert len(ask(tmp_database, "SELECT 1 FROM pg_attribute WHERE attrelid = 'orders'::regclass AND attnum > 0")) == 3


@pytest.mark.parametrize("name", ["ctid", "xmin", "tableoid"])
def test_a_system_columns_name_is_not_created(tmp_database: str, name: str) -> None:
    schema = Schema("STRUCT", fields=(("id", INT), (name, INT)))
    with Driven(tmp_database, auto_create="true", auto_evolve="true") as sink:
        for made in ("", "CREATE TABLE orders (id int)"):
            ask(tmp_database, made or "SELECT")
            sink.put([Struct(schema, [1, 2])], schema=schema)
    assert [f"column {name} cannot be created: PostgreSQL reserves the name in every table" in message
            for _, message in sink.reporter.reported] == [True, True]  # fmt: skip


@pytest.mark.parametrize(
    ("made", "kind"),
    [("CREATE SEQUENCE orders", "a sequence"), ("CREATE TYPE orders AS (a int)", "a composite type"),
     ("CREATE TABLE t (id int); CREATE INDEX orders ON t (id)", "an index"),
     ("CREATE MATERIALIZED VIEW orders AS SELECT 1 AS id", "a materialized view")],
)  # fmt: skip
def test_a_non_table_is_a_config_error_without_bad_records(tmp_database: str, made: str, kind: str) -> None:
    ask(tmp_database, made)
    with Driven(tmp_database, auto_create="true") as sink:
        with pytest.raises(ConfigError, match=f"orders is not a table but {kind}") as refused:
            sink.put([{"id": 1}])
        assert (refused.value.field, sink.reporter.reported) == ("table.name.format", [])


@pytest.mark.parametrize("format", ["${topic}", "PUBLIC.${topic}"])
def test_a_missing_table_is_reported_with_one_in_another_case(tmp_database: str, format: str) -> None:
    ask(tmp_database, "CREATE TABLE orders (id int)")
    with Driven(tmp_database, table_name_format=format) as sink:
        with pytest.raises(
            ConfigError, match="Orders is missing; to PostgreSQL, orders is a different table"
        ) as refused:
            sink.put([{"id": 1}], topic="Orders")
        assert (refused.value.field, "quote.sql.identifiers=never" in refused.value.fix) == ("table.name.format", True)
