"""Tests of every type of PostgreSQL in both directions:
values of a real server, read in both of their forms.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError
from herdmesh.connect.model.checks import check_value
from herdmesh.connect.model.data import JavaDate
from herdmesh.connect.model.logical import decimal_of
from herdmesh.connect.model.schemas import (
    BOOLEAN,
    BYTES,
    DECIMAL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    Schema,
    date_schema,
    decimal_schema,
    time_schema,
    timestamp_schema,
)
from herdmesh.connectors.postgres.connection import Connection
from herdmesh.connectors.postgres.source.catalog import TableId, columns_of_query, columns_of_table
from herdmesh.connectors.postgres.types import (
    Granularity,
    NumericMapping,
    PgType,
    SourceColumn,
    TypeOptions,
    numeric_shape,
    read_raw,
    reading_of,
    schema_of,
    sql_type,
)
from herdmesh.devstack.postgres import Postgres
from libs.connectors.tests.postgres.text_values import elements, text_reader

PLAIN = TypeOptions()
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Case:
    """A type, values for it, and Connect's value for each."""

    type: str
    values: st.SearchStrategy[Any]
    expected: Callable[[Any], Any]
    schema: Schema
    options: TypeOptions = PLAIN


def same(value: Any) -> Any:
    return value


def us_of(value: datetime) -> int:
    """Return microseconds since 1970; a time without a zone is UTC."""
    return ((value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)


def ms_of(value: datetime) -> JavaDate:
    return JavaDate(us_of(value) // 1_000)


def time_of(value: time) -> JavaDate:
    shift = value.utcoffset() or timedelta()
    of_day = timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
    return JavaDate((of_day - shift) % timedelta(days=1) // timedelta(milliseconds=1))


def ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def numerics(digits: int, places: int) -> st.SearchStrategy[Decimal]:
    bound = 10**digits - 1
    return st.integers(-bound, bound).map(lambda unscaled: decimal_of(unscaled, places))


ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
#: A day inside Python's first and last day, so that they are valid in every zone.
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 29))  # noqa: DTZ001 - without a zone
#: Dates whose nanoseconds fit INT64.
NEAR = st.datetimes(datetime(1701, 1, 1), datetime(2249, 12, 31))  # noqa: DTZ001
FLOATS = st.floats(allow_nan=False)
PRECISION, BEST = TypeOptions(NumericMapping.PRECISION_ONLY), TypeOptions(NumericMapping.BEST_FIT)
EAGER = TypeOptions(NumericMapping.BEST_FIT_EAGER_DOUBLE)
MICROS, NANOS = (
    TypeOptions(granularity=granularity) for granularity in (Granularity.MICROS_LONG, Granularity.NANOS_STRING)
)
CASES = [
    Case("boolean", st.booleans(), same, BOOLEAN),
    Case("bit(1)", st.booleans(), same, BOOLEAN),
    Case("smallint", ints(16), same, INT16),
    Case("integer", ints(32), same, INT32),
    Case("bigint", ints(64), same, INT64),
    Case("oid", st.integers(0, (1 << 32) - 1), same, INT64),
    Case("real", st.floats(allow_nan=False, width=32), same, FLOAT32),
    Case("double precision", FLOATS, same, FLOAT64),
    Case("numeric(12,3)", numerics(12, 3), same, decimal_schema(3)),
    Case("numeric(40)", numerics(40, 0), same, decimal_schema(0)),
    Case("numeric", numerics(40, 7), lambda one: f"{one:f}", STRING),
    Case("numeric(2)", numerics(2, 0), int, INT8, PRECISION),
    Case("numeric(4)", numerics(4, 0), int, INT16, PRECISION),
    Case("numeric(9)", numerics(9, 0), int, INT32, PRECISION),
    Case("numeric(18)", numerics(18, 0), int, INT64, PRECISION),
    Case("numeric(19)", numerics(19, 0), same, decimal_schema(0), PRECISION),
    Case("numeric(12,3)", numerics(12, 3), same, decimal_schema(3), PRECISION),
    Case("numeric(12,3)", numerics(12, 3), float, FLOAT64, BEST),
    Case("numeric(30,3)", numerics(30, 3), same, decimal_schema(3), BEST),
    Case("numeric(30,3)", numerics(30, 3), float, FLOAT64, EAGER),
    Case("text", TEXTS, same, STRING),
    Case("varchar(30)", TEXTS, same, STRING),
    Case("char(20)", TEXTS, lambda one: one.ljust(20), STRING),
    Case("name", st.text("abcÄ€", max_size=15), same, STRING),
    Case("bytea", st.binary(max_size=40), same, BYTES),
    Case("date", st.dates(), lambda one: JavaDate((one - EPOCH.date()).days * DAY_MS), date_schema()),
    Case("time", st.times(), time_of, time_schema()),
    Case("timetz", st.builds(time.replace, st.times(), tzinfo=ZONES), time_of, time_schema()),
    Case("timestamp", MOMENTS, ms_of, timestamp_schema()),
    Case("timestamptz", st.builds(datetime.replace, MOMENTS, tzinfo=ZONES), ms_of, timestamp_schema()),
    Case("timestamp", MOMENTS, us_of, INT64, MICROS),
    Case("timestamp", NEAR, lambda one: str(us_of(one) * 1000), STRING, NANOS),
    Case("uuid", st.uuids(), str, STRING),
    Case("jsonb", st.integers().map(str), same, STRING),
    Case("json", st.dictionaries(st.text("ab", max_size=3), st.integers()).map(json.dumps), same, STRING),
    Case("pg_temp.mood", st.sampled_from(["so so", "O'K", '"']), same, STRING),
    Case("pg_temp.positive", st.integers(1, 99), same, INT32),
    Case("integer[]", st.lists(st.none() | ints(32)), same, Schema("ARRAY", value_schema=OPTIONAL_INT32)),
    Case("text[]", st.lists(st.none() | TEXTS), same, Schema("ARRAY", value_schema=OPTIONAL_STRING)),
    Case("pg_temp.mood[]", st.lists(st.sampled_from(["so so", '"'])), same,
         Schema("ARRAY", value_schema=OPTIONAL_STRING)),
    Case("date[]", st.lists(st.dates()), lambda days: [JavaDate((one - EPOCH.date()).days * DAY_MS) for one in days],
         Schema("ARRAY", value_schema=date_schema(optional=True))),
    Case("numeric(5,2)[]", st.lists(numerics(5, 2)), same,
         Schema("ARRAY", value_schema=decimal_schema(2, optional=True))),
]  # fmt: skip


@pytest.fixture(scope="module")
def connection(postgres: Postgres) -> Iterator[Connection]:
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        read_raw(connection)
        connection.execute("""CREATE TYPE pg_temp.mood AS ENUM ('so so', 'O''K', '"')""")
        connection.execute("CREATE DOMAIN pg_temp.positive AS integer CHECK (VALUE > 0)")
        yield connection


def type_of(connection: Connection, name: str) -> PgType:
    (column,) = columns_of_query(connection, f"SELECT NULL::{name} AS c", field="query")
    assert column.nullable
    return column.type


def read(connection: Connection, type: PgType, name: str, values: list[Any], options: TypeOptions) -> list[Any]:
    """Return the values of a binary cursor; checks that their texts give the same values."""
    reading = reading_of(type, options)
    source = f"FROM (VALUES {', '.join(f'(%s::{name})' for _ in values)}) AS v (c)"
    with connection.cursor(binary=True) as cursor:
        raw = [one for (one,) in cursor.execute(f"SELECT {reading.sql('c')} {source}".encode(), values).fetchall()]
    with connection.cursor() as cursor:
        result = cursor.execute(f"SELECT c {source}".encode(), values).pgresult
        assert result is not None
        texts = [result.get_value(row, 0) for row in range(result.ntuples)]
    read_text = text_reader(type, options)
    assert repr([None if text is None else read_text(text.decode()) for text in texts]) == repr(raw)
    return list(reading.values(raw))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.type}-{case.schema.type}-{case.options.numeric}")
def test_values_round_trip(connection: Connection, case: Case) -> None:
    type = type_of(connection, case.type)
    schema = schema_of(SourceColumn("c", type, nullable=False), case.options)
    assert schema is case.schema
    assert schema_of(SourceColumn("c", type, nullable=True), case.options) is case.schema.replace(optional=True)

    @settings(max_examples=10)
    @given(st.lists(st.none() | case.values, min_size=1, max_size=20))
    def check(values: list[Any]) -> None:
        given_as = [str(int(one)) if case.type == "bit(1)" and one is not None else one for one in values]
        found = read(connection, type, case.type, given_as, case.options)
        expected = [None if one is None else case.expected(one) for one in values]
        assert found == expected
        assert repr(found) == repr(expected), "to the scale of a decimal"
        for one in found:
            check_value(case.schema.replace(optional=True), one)

    check()


@pytest.mark.parametrize(
    ("type", "text"),
    [
        ("inet", "10.0.0.1/8"),
        ("interval", "1 day 02:03:04"),
        ("int4range", "[1,5)"),
        ("bit(3)", "101"),
        ("point", "(1,2)"),
        ("money", "$1.00"),
        ("xml", "<a/>"),
        ("tsvector", "'a' 'b'"),
    ],
)
def test_types_without_a_connect_type_are_read_as_text(connection: Connection, type: str, text: str) -> None:
    assert read(connection, type_of(connection, type), type, [text], PLAIN) == [text]


@pytest.mark.parametrize(
    ("type", "text", "expected"),
    [
        ("timestamptz", "infinity", 9_223_372_036_825_200_000),
        ("timestamptz", "-infinity", -9_223_372_036_832_400_000),
        ("timestamp", "0044-03-15 12:00:00 BC", None),
        ("timestamp", "294276-12-31 23:59:59.999999", 9_224_318_015_999_999),
        ("date", "4713-01-01 BC", -2_440_550 * DAY_MS),
        ("date", "0001-01-01", -719_162 * DAY_MS),
        ("time", "24:00:00", DAY_MS),
    ],
)
def test_times_beyond_pythons_range(connection: Connection, type: str, text: str, expected: int | None) -> None:
    (found,) = read(connection, type_of(connection, type), type, [text], PLAIN)
    assert isinstance(found, JavaDate)
    if expected is None:  # the server computes them
        row = connection.execute("SELECT (extract(epoch FROM %s::timestamp) * 1000)::int8", (text,)).fetchone()
        assert row == (found,)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("type", "text", "options", "said"),
    [
        ("numeric(5,2)", "NaN", PLAIN, "NaN"),
        ("integer[]", "{{1,2},{3,4}}", PLAIN, "more than one dimension"),
        ("timestamp", "9999-01-01", TypeOptions(granularity=Granularity.NANOS_LONG), "too far"),
        ("timestamp", "infinity", MICROS, "too far"),
    ],
)
def test_values_that_connect_cannot_represent_are_refused(
    connection: Connection, type: str, text: str, options: TypeOptions, said: str
) -> None:
    with pytest.raises(DataError, match=said):
        read(connection, type_of(connection, type), type, [text], options)


def test_a_timestamp_without_a_zone_has_the_configured_one(connection: Connection) -> None:
    berlin = TypeOptions(zone="Europe/Berlin")
    reading = reading_of(type_of(connection, "timestamp"), berlin)
    with connection.cursor(binary=True) as cursor:
        text = "SELECT " + reading.sql("c") + " FROM (VALUES (TIMESTAMP '2024-07-01 12:00'), ('2024-01-01')) AS v (c)"
        raw = [one for (one,) in cursor.execute(text.encode()).fetchall()]
    assert reading.values(raw) == [
        ms_of(datetime(2024, 7, 1, 10, tzinfo=UTC)), ms_of(datetime(2023, 12, 31, 23, tzinfo=UTC)),
    ]  # fmt: skip


@given(st.lists(st.none() | st.lists(st.none() | TEXTS, min_size=1, max_size=3), min_size=1, max_size=4))
def test_texts_of_nested_arrays(nested: list[Any]) -> None:
    def quoted(one: str | None) -> str:
        return "NULL" if one is None else '"' + one.replace("\\", "\\\\").replace('"', '\\"') + '"'

    inner = ["NULL" if one is None else "{" + ",".join(map(quoted, one)) + "}" for one in nested]
    assert elements("{" + ",".join(inner) + "}", str) == nested


@pytest.mark.parametrize("text", ["", "1", "{1", "{1}}", "{1}2", '{"a}', "{}{}"])
def test_a_text_that_is_not_an_array_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="not the text of an array"):
        elements(text, str)


@pytest.mark.parametrize(
    ("type", "text"),
    [
        ("date", "01.02.2024"),
        ("timestamp", "2024-01-01T00:00:00"),
        ("time", "10:00"),
        ("bool", "yes"),
        ("bytea", "abc"),
    ],
)
def test_texts_of_another_date_style_are_refused(type: str, text: str) -> None:
    with pytest.raises(DataError):
        text_reader(PgType(0, type), PLAIN)(text)


def test_the_columns_of_a_table(tmp_database: str) -> None:
    with psycopg.connect(tmp_database, autocommit=True) as connection:
        connection.execute("""
            CREATE DOMAIN price AS numeric(9, 2) NOT NULL;
            CREATE DOMAIN dear AS price CHECK (VALUE > 10);
            CREATE TABLE "odd ""table" (
                gone int, b text, a int, "C d" dear, e dear[], f varchar(5) NOT NULL, PRIMARY KEY (a, b));
            ALTER TABLE "odd ""table" DROP COLUMN gone;
        """)
        found = columns_of_table(connection, TableId("any", "public", 'odd "table'))
        assert columns_of_table(connection, TableId("any", "public", "none")) == []
    assert [(one.name, one.type.name, one.nullable, one.key) for one in found] == [
        ("b", "text", False, 2), ("a", "int4", False, 1), ("C d", "numeric", False, 0), ("e", "numeric[]", True, 0),
        ("f", "varchar", False, 0),
    ]  # fmt: skip
    assert numeric_shape(found[2].type.typmod) == (9, 2)
    assert schema_of(found[3], PLAIN).value_schema is decimal_schema(2, optional=True)


def test_the_shape_of_a_numeric(connection: Connection) -> None:
    shapes = {"numeric": None, "numeric(5)": (5, 0), "numeric(10,2)": (10, 2), "numeric(1000,1000)": (1000, 1000)}
    assert {name: numeric_shape(type_of(connection, name).typmod) for name in shapes} == shapes


@pytest.mark.parametrize("schema", [case.schema for case in CASES], ids=str)
def test_a_column_created_for_a_schema_is_read_with_an_equal_or_wider_schema(
    connection: Connection, schema: Schema
) -> None:
    back = schema_of(SourceColumn("c", type_of(connection, sql_type(schema)), nullable=False), PLAIN)
    assert back is (INT16 if schema is INT8 else schema)


@pytest.mark.parametrize(
    "schema",
    [
        Schema("STRUCT", fields=[("a", INT32)]),
        Schema("MAP", key_schema=STRING, value_schema=STRING),
        Schema("ARRAY", value_schema=Schema("ARRAY", value_schema=STRING)),
    ],
    ids=str,
)
def test_a_schema_without_a_column_type_is_refused(schema: Schema) -> None:
    with pytest.raises(DataError, match="has no column type"):
        sql_type(schema)


def test_scales_beyond_what_a_column_can_have() -> None:
    for scale in (-2, 1001):
        schema = Schema("BYTES", False, DECIMAL, 1, parameters={"scale": str(scale)})
        assert sql_type(schema) == "numeric"
