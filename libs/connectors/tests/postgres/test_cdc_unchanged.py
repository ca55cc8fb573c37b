"""Tests of unchanged out-of-line values: their placeholder for every type that can be out of line, on a real server,
with each replica identity and each handling mode.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, cast

import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.model.checks import check_value
from herdmesh.connect.model.data import Struct
from herdmesh.connectors.postgres.cdc.settings import settings_of
from libs.connectors.tests.postgres.cdc_driving import Database, Driven
from libs.connectors.tests.postgres.large_values import CODES, NAMES, NUMBER, RAW, TEXT, TYPES, fill, prepare

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
        prepare(made)
        yield made
    finally:
        made.close()


def shown(value: Any) -> Any:
    """Return a value with structs as dicts, and points without their bytes."""
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


def test_full_replica_identities_have_the_values(database: Database) -> None:
    fill(database, required=True)
    database.run("ALTER TABLE t REPLICA IDENTITY FULL")
    with Driven(database.config()) as run:
        ((_, _, _, read),) = run.drain()
        database.run("UPDATE t SET n0 = 1")
        assert run.drain() == [("u", {"id": 1}, read, read | {"n0": 1})]


def test_an_out_of_line_key_is_known(database: Database) -> None:
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


def test_the_placeholder_may_be_configured_as_bytes(database: Database) -> None:
    fill(database, required=False)
    with Driven(database.config(snapshot_mode="never", unavailable_value_placeholder="hex:00ff41")) as run:
        run.drain()
        database.run("UPDATE t SET n0 = 1")
        ((_, _, _, after),) = run.drain()
    assert (after["ba"], after["i4"], after["n2"]) == (b"\0\xffA", [0, -1, 65], Decimal("653.45"))


@pytest.mark.parametrize("text", ["", "hex:", "hex:0g"])
def test_an_empty_or_invalid_placeholder_is_refused(text: str) -> None:
    database = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "app"}
    with pytest.raises(ConfigError) as refused:
        settings_of({**database, "unavailable.value.placeholder": text})
    assert refused.value.field == "unavailable.value.placeholder"
