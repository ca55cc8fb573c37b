"""Tests that tables of odd values of every type are equal after a source, a topic
and a sink: with PostgresSource, and with the CDC source, in snapshot and stream.
A value that is not carried is an error, or documented in the connectors' pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import cycle, islice
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from herdmesh.connect.converters.json.converter import JsonConverter
from herdmesh.connect.errors import DataError
from herdmesh.connect.spi.connector import SourceBatch
from libs.connectors.tests.postgres import sink_driver
from libs.connectors.tests.postgres.cdc_driving import Database, Driven
from libs.connectors.tests.postgres.odd_values import (
    FINITE,
    NOT_FINITE,
    SCALARS,
    SETUP,
    Texts,
    arrays,
    every,
)
from libs.connectors.tests.postgres.reading import Reader, config_of
from libs.core.tests.connect.registry.fake_registry import FakeRegistry
from libs.core.tests.connect.registry.typed_values import converter
from tests.support.sizes import SOAKING, soak_or

ROWS: Final = soak_or(25, 1_000)
CDC_MODES = {
    "decimal_handling_mode": "string", "time_precision_mode": "connect", "interval_handling_mode": "string",
}  # fmt: skip
_CHECKS = (
    HealthCheck.too_slow,
    HealthCheck.filter_too_much,
    HealthCheck.data_too_large,
    HealthCheck.large_base_example,
)
#: JSON has no NaN: Java's JsonConverter, too, writes it as a text that is read as 0.
BY_VALUE: Mapping[str, Texts] = every(SCALARS)
_FLOATS = {"float4": FINITE[32], "float8": FINITE[64]}
BY_JSON: Mapping[str, Texts] = {**BY_VALUE, **_FLOATS, **{f"{name}[]": arrays(one) for name, one in _FLOATS.items()}}
#: Debezium's Bits do not contain their number of bits.
NOT_BY_CDC = ("varbit", "varbit(70)", "varbit[]", "varbit(70)[]")
CONVERTERS = {"JSON": BY_JSON, "Avro": BY_VALUE}


@pytest.fixture
def database(tmp_database: str) -> Iterator[Database]:
    made = Database(tmp_database)
    try:
        made.run(*SETUP)
        yield made
    finally:
        made.close()


@cache
def values_of(texts: Texts) -> list[str | None]:
    """Return one value for each row, with a null."""
    found: list[str | None] = [None]

    @settings(
        max_examples=ROWS, database=None, phases=[Phase.generate], deadline=None, derandomize=not SOAKING,
        suppress_health_check=_CHECKS,
    )  # fmt: skip
    @given(texts)
    def collect(one: str) -> None:
        found.append(one)

    collect()
    return list(islice(cycle(found), ROWS))


def fill(database: Database, strategies: Mapping[str, Texts]) -> Iterator[None]:
    """Create two tables with a column of each type, and insert
    half of the rows into the first at each next step.
    """
    columns = ", ".join(f"c{at} {name}" for at, name in enumerate(strategies))
    for table in ("t", "target"):
        database.run(f"CREATE TABLE {table} (id serial PRIMARY KEY, {columns})")
    yield
    rows = list(zip(*map(values_of, strategies.values()), strict=True))
    places = ", ".join(f"%s::text::{name}" for name in strategies)
    names = ", ".join(f"c{at}" for at in range(len(strategies)))
    statement = f"INSERT INTO t ({names}) VALUES ({places})".encode()
    for part in (rows[: ROWS // 2], rows[ROWS // 2 :]):
        with database.connection.transaction(), database.connection.cursor() as cursor:
            cursor.executemany(statement, part)
        yield


def carried(batches: Iterable[SourceBatch], how: str, *, envelope: bool) -> list[tuple[Any, Any]]:
    """Return schema and row of each record, as a sink reads them from a topic."""
    rows = (value.get("after") if envelope else value for batch in batches for value in batch.values)
    if how == "JSON":
        by_json = JsonConverter()
        by_json.configure({}, "value")
        return [by_json.read(by_json.write(row, row.schema)) for row in rows]
    registry = FakeRegistry()
    try:
        by_avro = converter("AvroConverter", registry.url).for_topic("odd")
        return [by_avro.read(by_avro.write(row, row.schema)) for row in rows]
    finally:
        registry.stop()


def write(database: Database, records: Sequence[tuple[Any, Any]]) -> list[str]:
    """Return the sink's refusals."""
    keys = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id", "table_name_format": "target"}
    with sink_driver.Driven(database.dsn, tolerant=True, **keys) as sink:
        sink.put([row for _, row in records], schema=records[0][0])
        return [message for _, message in sink.reporter.reported]


def differences(database: Database, types: Iterable[str]) -> dict[str, list[tuple[Any, ...]]]:
    """Return values of either table that the other lacks, by type."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for at, name in enumerate(types):
        column = f"c{at}::text"
        rows = database.rows(
            f"SELECT t.{column}, o.{column} FROM t FULL JOIN target o USING (id) "
            f"WHERE t.{column} IS DISTINCT FROM o.{column} LIMIT 5"
        )
        if rows:
            found[name] = rows
    return found


@pytest.mark.parametrize("how", CONVERTERS)
def test_a_source_carries_every_type(database: Database, how: str) -> None:
    strategies = CONVERTERS[how]
    steps = fill(database, strategies)
    next(steps)
    reader = Reader(config_of(database.dsn, mode="incrementing", table__whitelist="t"))
    for _ in steps:
        assert reader.rows()
    assert write(database, carried(reader.batches, how, envelope=False)) == []
    assert differences(database, strategies) == {}


@pytest.mark.parametrize("how", CONVERTERS)
def test_a_cdc_source_carries_every_type(database: Database, how: str) -> None:
    numbers = {"numeric": SCALARS["numeric"] | NOT_FINITE, "numeric(9,2)": SCALARS["numeric(9,2)"] | st.just("NaN")}
    strategies = {name: texts for name, texts in {**CONVERTERS[how], **numbers}.items() if name not in NOT_BY_CDC}
    steps = fill(database, strategies)
    next(steps)
    next(steps)
    with Driven(database.config(table_include_list="public.t", **CDC_MODES)) as run:
        run.drain()
        next(steps)
        database.run("UPDATE t SET id = id")
        run.drain()
    assert write(database, carried((one for one in run.batches if len(one)), how, envelope=True)) == []
    assert differences(database, strategies) == {}
    assert database.rows("SELECT count(*) FROM target") == [(ROWS,)]


@pytest.mark.parametrize("type", NOT_BY_CDC)
def test_bits_without_a_length_are_refused_by_the_sink(database: Database, type: str) -> None:
    strategies = {type: BY_VALUE[type]}
    for _ in fill(database, strategies):
        pass
    with Driven(database.config(table_include_list="public.t", **CDC_MODES)) as run:
        run.drain()
    messages = write(database, carried((one for one in run.batches if len(one)), "JSON", envelope=True))
    assert messages
    assert all("is not a valid binary digit" in message for message in messages)


@pytest.mark.parametrize(
    ("type", "value", "said"),
    [("int[]", "{{1,2},{3,4}}", "dimension"), ("numeric(5,2)", "NaN", "NaN"), ("text[]", "{{a},{b}}", "dimension")],
)
def test_a_value_that_connect_cannot_represent_ends_the_task_by_column_name(
    database: Database, type: str, value: str, said: str
) -> None:
    database.run(f"CREATE TABLE t (id serial PRIMARY KEY, odd {type})", f"INSERT INTO t (odd) VALUES ('{value}')")
    with pytest.raises(DataError, match=rf"column odd of .*{said}"):
        Reader(config_of(database.dsn, mode="bulk", table__whitelist="t")).rows()
    with Driven(database.config()) as run, pytest.raises(DataError, match=rf"column odd of .*{said}"):
        run.drain()
