"""Tests of changes of one PostgreSQL written to another: CDC source,
ExtractField, a converter in both directions, PostgreSQL sink.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from herdmesh.connect.converters.json.converter import JsonConverter
from herdmesh.connect.model.schemas import Schema, decimal_schema
from herdmesh.connectors.postgres.unchanged_placeholder import Placeholder
from libs.connectors.tests.postgres import sink_driver
from libs.connectors.tests.postgres.cdc_driving import Database, Driven
from libs.connectors.tests.postgres.large_values import NAMES, RAW, fill, prepare

UPSERT = {"insert_mode": "upsert", "pk_mode": "record_key", "pk_fields": "id", "table_name_format": "target"}


@pytest.fixture
def database(tmp_database: str) -> Iterator[Database]:
    made = Database(tmp_database)
    try:
        prepare(made)
        yield made
    finally:
        made.close()


def converter(role: str, *, schemas: bool) -> JsonConverter:
    made = JsonConverter()
    made.configure({"schemas.enable": str(schemas).lower()}, "key" if role == "key" else "value")
    return made


def moved(run: Driven, *, schemas: bool) -> list[tuple[Schema | None, Any, Schema | None, Any]]:
    """Return the rows after each change of a run, as a sink reads them from a topic."""
    key_converter, value_converter = converter("key", schemas=schemas), converter("value", schemas=schemas)
    found: list[tuple[Schema | None, Any, Schema | None, Any]] = []
    for batch in run.batches:
        for key, value in zip(batch.keys, batch.values, strict=True):
            if value is not None:
                after = value.get("after")
                row = value_converter.read(value_converter.write(after, None if after is None else after.schema))
                found.append((*key_converter.read(key_converter.write(key, batch.key_schema)), *row))
    return found


def put(sink: sink_driver.Driven, records: Sequence[tuple[Schema | None, Any, Schema | None, Any]]) -> None:
    for key_schema, key, schema, value in records:
        sink.put([value], [key], schema=schema, key_schema=key_schema)


def difference(database: Database) -> list[dict[str, Any]]:
    """Return rows of either table that the other lacks, as JSON."""
    question = (
        "SELECT to_jsonb(one)::text FROM {} one "
        "WHERE to_jsonb(one)::text NOT IN (SELECT to_jsonb(other)::text FROM {} other)"
    )
    pairs = ("t", "target"), ("target", "t")
    return [json.loads(row) for pair in pairs for (row,) in database.rows(question.format(*pair))]


TEXTS = {"decimal_handling_mode": "double", "binary_handling_mode": "hex", "interval_handling_mode": "string"}
CONNECT = {"decimal_handling_mode": "string", "binary_handling_mode": "base64", "time_precision_mode": "connect"}


@pytest.mark.parametrize(
    ("schemas", "required", "modes"),
    [(True, True, {}), (False, True, {}), (True, False, TEXTS), (False, True, TEXTS), (True, True, CONNECT),
     (False, False, CONNECT)],
)  # fmt: skip
def test_unchanged_values_stay_in_the_target(
    database: Database, schemas: bool, required: bool, modes: dict[str, str]
) -> None:
    fill(database, required=required)
    database.run("CREATE TABLE target (LIKE t INCLUDING ALL)", "INSERT INTO target SELECT * FROM t")
    with Driven(database.config(snapshot_mode="never", **modes)) as run:
        run.drain()
        database.run("UPDATE t SET n0 = 1", "UPDATE t SET n0 = 2, t = 'short', i4 = '{4,5}'")
        run.drain()
        records = moved(run, schemas=schemas)
    with sink_driver.Driven(database.dsn, tolerant=True, **UPSERT) as sink:
        put(sink, records)
        assert sink.reporter.reported == []
    assert len(records) == 2
    assert difference(database) == []


def test_a_partial_row_missing_in_the_target_is_refused(database: Database) -> None:
    fill(database, required=False)
    database.run("CREATE TABLE target (LIKE t INCLUDING ALL)")
    with Driven(database.config(snapshot_mode="never")) as run:
        run.drain()
        database.run("UPDATE t SET n0 = 1", f"UPDATE t SET {', '.join(f'{name} = NULL' for name in NAMES)}")
        run.drain()
    with sink_driver.Driven(database.dsn, tolerant=True, **UPSERT) as sink:
        put(sink, moved(run, schemas=True))
        ((offset, message),) = sink.reporter.reported
    assert offset == 0
    assert "the row with that value does not exist" in message
    assert difference(database) == []


def test_rows_of_one_batch_keep_their_own_unchanged_values(database: Database) -> None:
    """Whole rows, partial ones of two kinds, and a deletion, of the same keys in one batch."""
    schema = Schema(
        "STRUCT", fields=(("a", Schema("STRING", True)), ("b", Schema("STRING", True)), ("n", Schema("INT32")))
    )
    key = Schema("STRUCT", fields=(("id", Schema("INT32")),))
    database.run("CREATE TABLE target (id int PRIMARY KEY, a text NOT NULL, b text NOT NULL, n int NOT NULL)",
                 "INSERT INTO target VALUES (1, 'a1', 'b1', 0), (2, 'a2', 'b2', 0)")  # fmt: skip
    gone = "__debezium_unavailable_value"
    steps = [(1, gone, "B", 1), (2, "A", gone, 1), (3, "a3", "b3", 1), (1, "A", gone, 2), (3, gone, gone, 2), None,
             (2, "new", "new", 3)]  # fmt: skip
    values = [None if one is None else sink_driver.struct(schema, one[1:]) for one in steps]
    keys = [sink_driver.struct(key, (2,) if one is None else one[:1]) for one in steps]
    with sink_driver.Driven(database.dsn, tolerant=True, delete_enabled="true", **UPSERT) as sink:
        sink.put(values, keys, schema=schema, key_schema=key)
        assert sink.reporter.reported == []
    assert database.rows("SELECT * FROM target ORDER BY id") == [
        (1, "A", "B", 2), (2, "new", "new", 3), (3, "a3", "b3", 2),
    ]  # fmt: skip


def test_unchanged_decimals_stay_when_json_has_them_as_numbers(database: Database) -> None:
    """decimal.format=NUMERIC without schemas: doubles, and the last 64 bits of integers."""
    database.run("CREATE TABLE target (id int PRIMARY KEY, a numeric(90,2), b numeric(90,0), c numeric(9,1)[], v text)",
                 "INSERT INTO target VALUES (1, 3.5, 7, '{1.5}', 'old')")  # fmt: skip
    decimals = [decimal_schema(scale, optional=True) for scale in (2, 0, 1)]
    columns = [decimals[0], decimals[1], Schema("ARRAY", value_schema=decimals[2])]
    schema = Schema("STRUCT", fields=tuple(zip("abc", columns, strict=True)))
    json_converter = JsonConverter()
    json_converter.configure({"schemas.enable": "false", "decimal.format": "NUMERIC"}, "value")
    row = sink_driver.struct(schema, [Placeholder().of(one) for one in columns])
    _, value = json_converter.read(json_converter.write(row, schema))
    more = {**UPSERT, "pk_mode": "record_value"}
    with sink_driver.Driven(database.dsn, tolerant=True, **more) as sink:
        sink.put([{**value, "id": 1, "v": "new"}])
        assert sink.reporter.reported == []
    assert database.rows("SELECT a::text, b::text, c::text, v FROM target") == [("3.50", "7", "{1.5}", "new")]


@pytest.mark.parametrize("raw", [RAW, base64.b64encode(RAW).decode()], ids=["with schemas", "without"])
def test_an_unchanged_number_that_flatten_divided_into_two_columns_stays(database: Database, raw: bytes | str) -> None:
    database.run('CREATE TABLE target (id int PRIMARY KEY, "n.scale" int, "n.value" bytea, other_scale int)',
                 "INSERT INTO target VALUES (1, 3, '\\x07', 4), (2, 3, '\\x07', 4)")  # fmt: skip
    fields = (("id", Schema("INT32")), ("n.scale", Schema("INT32")), ("n.value", Schema("BYTES")),
              ("other_scale", Schema("INT32")))  # fmt: skip
    schema = Schema("STRUCT", fields=fields) if isinstance(raw, bytes) else None
    rows: list[list[Any]] = [[1, 0, raw, 0], [2, 0, b"\1" if schema else "\\x01", 5]]
    names = [name for name, _ in fields]
    values = [dict(zip(names, row, strict=True)) if schema is None else sink_driver.struct(schema, row) for row in rows]
    with sink_driver.Driven(database.dsn, tolerant=True, **{**UPSERT, "pk_mode": "record_value"}) as sink:
        sink.put(values, schema=schema)
        assert sink.reporter.reported == []
    assert database.rows("TABLE target ORDER BY id") == [(1, 3, b"\7", 0), (2, 0, b"\1", 5)]


def test_placeholder_values_are_written_without_a_placeholder_setting_or_for_new_rows(database: Database) -> None:
    schema = Schema("STRUCT", fields=(("id", Schema("INT32")), ("a", Schema("STRING"))))
    database.run("CREATE TABLE target (id int, a text)")
    record = sink_driver.struct(schema, (1, "__debezium_unavailable_value"))
    with sink_driver.Driven(database.dsn, table_name_format="target") as sink:
        sink.put([record], schema=schema)
    database.run("ALTER TABLE target ADD PRIMARY KEY (id)")
    changed = sink_driver.struct(schema, (1, "hidden"))
    more = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id", "table_name_format": "target"}
    with sink_driver.Driven(
        database.dsn, tolerant=True, herdmesh_unavailable_value_placeholder="hidden", **more
    ) as sink:
        sink.put([changed], schema=schema)
    assert database.rows("TABLE target") == [(1, "__debezium_unavailable_value")]
    with sink_driver.Driven(database.dsn, tolerant=True, herdmesh_unavailable_value_placeholder="", **more) as sink:
        sink.put([changed], schema=schema)
    assert database.rows("TABLE target") == [(1, "hidden")]
