"""Unchanged out-of-line values: their placeholder for every type that can be out of line, on a real server, with each
replica identity and each handling mode."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, cast

import pytest

from herdmesh.connect.checks import check_value
from herdmesh.connect.data import Struct
from herdmesh.connect.errors import ConfigError
from herdmesh.worker.connectors.postgres.cdc_config import settings_of
from services.worker.tests.connectors.postgres.cdc_driving import Database, Driven

TEXT = "__debezium_unavailable_value"
RAW = TEXT.encode()
NUMBER = int.from_bytes(RAW, "big")
CODES = list(RAW)


def point(code: int) -> dict[str, Any]:
    """As `plain` has it, but its bytes."""
    return {"x": float(code), "y": float(code), "srid": None}


def decimal(scale: int) -> Decimal:
    """The number with so many of its digits behind the point."""
    return Decimal(f"{str(NUMBER)[:-scale]}.{str(NUMBER)[-scale:]}")


def many(item: str, count: int = 1_000) -> str:
    """SQL of an array with so many of an item."""
    return f"array_fill({item}, ARRAY[{count}])"


LARGE = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 100) i)"
#: by column and type: a value that is stored out of line, and the placeholder with the default modes.
TYPES: dict[str, tuple[str, Any]] = {
    "t text": (LARGE, TEXT),
    "vc varchar": (LARGE, TEXT),
    "bp char(3300)": (LARGE, TEXT),
    "ba bytea": (f"{LARGE}::bytea", RAW),
    "js json": (f"to_json({LARGE})", TEXT),
    "jb jsonb": (f"to_jsonb({LARGE})", TEXT),
    "x xml": (f"('<a>' || {LARGE} || '</a>')::xml", TEXT),
    "n numeric": ("(repeat('7', 900) || '.5')::numeric", {"scale": 0, "value": RAW}),
    "n2 numeric(1000,2)": ("repeat('7', 900)::numeric", decimal(2)),
    "vb varbit": ("repeat('10', 4000)::varbit", RAW),
    "bi bit(8000)": ("repeat('10', 4000)::bit(8000)", RAW),
    "tv tsvector": (f"to_tsvector('simple', {LARGE} || ' ' || repeat('a b c d ', 1000))", TEXT),
    "hs hstore": (f"hstore('a', {LARGE})", f'{{"{TEXT}":"{TEXT}"}}'),
    "lt ltree": ("(SELECT string_agg(md5(i::text), '.') FROM generate_series(1, 100) i)::ltree", TEXT),
    "ci citext": (f"{LARGE}::citext", TEXT),
    "pa path": ("(SELECT '[' || string_agg('(1,' || i || ')', ',') || ']' FROM generate_series(1, 500) i)::path", TEXT),
    "po polygon": ("(SELECT '(' || string_agg('(1,' || i || ')', ',') || ')' FROM generate_series(1, 500) i)::polygon",
                   TEXT),
    "co pair": (f"ROW(1, {LARGE})::pair", TEXT),
    "jp jsonpath": (f"('$.\"' || {LARGE} || '\"')::jsonpath", TEXT),
    "nr numrange": ("numrange(repeat('7', 900)::numeric, NULL)", TEXT),
    "mr int4multirange": ("(SELECT range_agg(int4range(i*2, i*2+1)) FROM generate_series(1, 500) i)", TEXT),
    "dom large_text": (LARGE, TEXT),
    "i2 int2[]": (many("7::int2", 3000), CODES),
    "i4 int4[]": (many("7"), CODES),
    "i8 int8[]": (many("7::int8"), CODES),
    "oi oid[]": (many("7::oid"), CODES),
    "f4 float4[]": (many("7::float4"), list(map(float, CODES))),
    "f8 float8[]": (many("7::float8"), list(map(float, CODES))),
    "bo bool[]": (many("true", 4000), [bool(code & 1) for code in CODES]),
    "ta text[]": (f"ARRAY[{LARGE}]", [TEXT]),
    "va varchar[]": (f"ARRAY[{LARGE}]", [TEXT]),
    "baa bytea[]": (f"ARRAY[{LARGE}::bytea]", [RAW]),
    "ja jsonb[]": (f"ARRAY[to_jsonb({LARGE})]", [TEXT]),
    "ua uuid[]": (many("gen_random_uuid()", 200), [TEXT]),
    "da date[]": (many("date '2024-02-29'"), CODES),
    "tia time[]": (many("time '10:00'"), CODES),
    "ts timestamp[]": (many("timestamp '2024-02-29'"), CODES),
    "tz timestamptz[]": (many("timestamptz '2024-02-29Z'"), [TEXT]),
    "tt timetz[]": (many("timetz '10:00Z'"), [TEXT]),
    "iv interval[]": (many("interval '1 day'"), CODES),
    "na numeric[]": (many("1.5::numeric"), [{"scale": 0, "value": RAW}]),
    "nb numeric(9,1)[]": (many("1.5::numeric"), [decimal(1)]),
    "ma money[]": (many("1.5::numeric::money"), [decimal(2)]),
    "ea mood[]": (many("'sad'::mood"), [TEXT]),
    "pta point[]": (many("point(1,2)"), list(map(point, CODES))),
    "bia bit(10)[]": (many("B'1000000001'"), [RAW]),
    "b1 bit(1)[]": (many("B'1'"), [bool(code & 1) for code in CODES]),
    "ia inet[]": (many("'10.0.0.1'::inet"), [TEXT]),
    "hsa hstore[]": (f"ARRAY[hstore('a', {LARGE})]", [f'{{"{TEXT}":"{TEXT}"}}']),
    "cia citext[]": (f"ARRAY[{LARGE}::citext]", [TEXT]),
    "coa pair[]": (f"ARRAY[ROW(1, {LARGE})::pair]", [TEXT]),
    "ra int4range[]": (many("int4range(1, 5)"), [TEXT]),
    "doa large_int[]": (many("7::large_int"), CODES),
}  # fmt: skip
NAMES = [column.split()[0] for column in TYPES]
MODES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "the default modes": ({}, {}),
    "texts and doubles": (
        {"decimal_handling_mode": "double", "binary_handling_mode": "hex", "interval_handling_mode": "string"},
        {"n": float(NUMBER), "n2": float(NUMBER), "ba": RAW.hex(), "baa": [RAW.hex()], "iv": [TEXT],
         "na": list(map(float, CODES)), "nb": list(map(float, CODES)), "ma": list(map(float, CODES))},
    ),
    "strings and Connect's times": (
        {"decimal_handling_mode": "string", "binary_handling_mode": "base64", "time_precision_mode": "connect"},
        {"n": TEXT, "n2": TEXT, "ba": base64.b64encode(RAW).decode(), "baa": [base64.b64encode(RAW).decode()],
         "na": [TEXT], "nb": [TEXT], "ma": [TEXT], "da": [code * 86_400_000 for code in CODES]},
    ),
}  # fmt: skip


@pytest.fixture
def database(tmp_database: str) -> Iterator[Database]:
    made = Database(tmp_database)
    try:
        made.run(
            "CREATE EXTENSION hstore", "CREATE EXTENSION ltree", "CREATE EXTENSION citext",
            "CREATE TYPE mood AS ENUM ('sad', 'happy')", "CREATE TYPE pair AS (a int, b text)",
            "CREATE DOMAIN large_text AS text", "CREATE DOMAIN large_int AS int",
        )  # fmt: skip
        yield made
    finally:
        made.close()


def fill(database: Database, *, required: bool) -> None:
    """A table with a row of which every value but those of `id` and `n0` is out of line."""
    rule = " NOT NULL" if required else ""
    columns = ", ".join(f"{column}{rule}" for column in TYPES)
    storage = ", ".join(f"ALTER {name} SET STORAGE EXTERNAL" for name in NAMES)
    database.run(
        f"CREATE TABLE t (id int PRIMARY KEY, n0 int, {columns}) WITH (toast_tuple_target = 128)",
        f"ALTER TABLE t {storage}",
        f"INSERT INTO t VALUES (1, 0, {', '.join(value for value, _ in TYPES.values())})",
    )


def shown(value: Any) -> Any:
    """A value with structs as dicts, and points without their bytes."""
    if isinstance(value, list):
        return [shown(one) for one in cast("list[Any]", value)]
    if isinstance(value, Struct):
        return {
            field.name: shown(one) for field, one in zip(value.schema.fields, value.values, strict=True)
            if field.name != "wkb"
        }  # fmt: skip
    return value


@pytest.mark.parametrize(("mode", "required"), [("the default modes", True), *((mode, False) for mode in MODES)])
def test_every_type_has_a_placeholder_that_fits_its_schema(database: Database, mode: str, required: bool) -> None:
    given, others = MODES[mode]
    fill(database, required=required)
    with Driven(database.config(snapshot_mode="never", **given)) as run:
        run.drain()
        database.run("UPDATE t SET n0 = 1")
        run.drain()
    ((envelope,),) = ([*batch.values] for batch in run.batches if len(batch))
    after = envelope.get("after")
    for field, value in zip(after.schema.fields, after.values, strict=True):
        check_value(field.schema, value, field.name)
    wanted = {name: placeholder for name, (_, placeholder) in zip(NAMES, TYPES.values(), strict=True)}
    assert shown(after) == {"id": 1, "n0": 1} | wanted | others


def test_whole_identities_have_the_values(database: Database) -> None:
    fill(database, required=True)
    database.run("ALTER TABLE t REPLICA IDENTITY FULL")
    with Driven(database.config()) as run:
        ((_, _, _, read),) = run.drain()
        database.run("UPDATE t SET n0 = 1")
        assert run.drain() == [("u", {"id": 1}, read, read | {"n0": 1})]


def test_a_key_that_is_out_of_line_is_known(database: Database) -> None:
    """The server sends it as the row's identity before the change."""
    long = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 80) i)"
    database.run(
        "CREATE TABLE t (id text PRIMARY KEY, n int) WITH (toast_tuple_target = 128)",
        "ALTER TABLE t ALTER id SET STORAGE EXTERNAL", f"INSERT INTO t VALUES ({long}, 1)",
    )  # fmt: skip
    ((key,),) = database.rows("SELECT id FROM t")
    with Driven(database.config(snapshot_mode="never")) as run:
        run.drain()
        database.run("UPDATE t SET n = 2", "DELETE FROM t")
        assert [event[:2] for event in run.drain()] == [
            ("u", {"id": key}), ("d", {"id": key}), ("tombstone", {"id": key}),
        ]  # fmt: skip


def test_the_placeholder_may_be_given_as_bytes(database: Database) -> None:
    fill(database, required=False)
    with Driven(database.config(snapshot_mode="never", unavailable_value_placeholder="hex:00ff41")) as run:
        run.drain()
        database.run("UPDATE t SET n0 = 1")
        ((_, _, _, after),) = run.drain()
    assert (after["ba"], after["i4"], after["n2"]) == (b"\0\xffA", [0, -1, 65], Decimal("653.45"))


@pytest.mark.parametrize("text", ["", "hex:", "hex:0g"])
def test_a_placeholder_that_is_nothing_is_refused(text: str) -> None:
    database = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "app"}
    with pytest.raises(ConfigError) as refused:
        settings_of({**database, "unavailable.value.placeholder": text})
    assert refused.value.field == "unavailable.value.placeholder"
