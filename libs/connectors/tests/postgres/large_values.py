"""Row whose values are all stored out of line, one of
every type that can be, and the placeholder of each.

Owns no test.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from libs.connectors.tests.postgres.cdc_driving import Database

TEXT = "__debezium_unavailable_value"
RAW = TEXT.encode()
NUMBER = int.from_bytes(RAW, "big")
CODES = list(RAW)


def point(code: int) -> dict[str, Any]:
    """Return a point in the form of `plain`, without its bytes."""
    return {"x": float(code), "y": float(code), "srid": None}


def decimal(scale: int) -> Decimal:
    """Return the number with `scale` digits after the point."""
    return Decimal(f"{str(NUMBER)[:-scale]}.{str(NUMBER)[-scale:]}")


def many(item: str, count: int = 1_000) -> str:
    """Return SQL of an array with `count` copies of an item."""
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


def prepare(database: Database) -> None:
    """Create the extensions and types that the columns need."""
    database.run(
        "CREATE EXTENSION hstore", "CREATE EXTENSION ltree", "CREATE EXTENSION citext",
        "CREATE TYPE mood AS ENUM ('sad', 'happy')", "CREATE TYPE pair AS (a int, b text)",
        "CREATE DOMAIN large_text AS text", "CREATE DOMAIN large_int AS int",
    )  # fmt: skip


def fill(database: Database, *, required: bool) -> None:
    """Create a table with a row in which every value but those of `id` and `n0` is out of line."""
    rule = " NOT NULL" if required else ""
    columns = ", ".join(f"{column}{rule}" for column in TYPES)
    storage = ", ".join(f"ALTER {name} SET STORAGE EXTERNAL" for name in NAMES)
    database.run(
        f"CREATE TABLE t (id int PRIMARY KEY, n0 int, {columns}) WITH (toast_tuple_target = 128)",
        f"ALTER TABLE t {storage}",
        f"INSERT INTO t VALUES (1, 0, {', '.join(value for value, _ in TYPES.values())})",
    )
