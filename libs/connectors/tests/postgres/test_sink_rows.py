"""Tests of rows of a batch: their columns, and that ordered
writes have the result of the records one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.model.data import Struct
from herdmesh.connect.model.schemas import INT32, INT64, OPTIONAL_STRING, STRING, Schema
from herdmesh.connect.model.struct_column import StructColumn
from herdmesh.connect.spi.connector import SinkBatch
from herdmesh.connectors.postgres.sink.key_identity import KeyColumn, Keys, KeyType, proven
from herdmesh.connectors.postgres.sink.rows import BatchReader, Rows, Write, ordered
from herdmesh.connectors.postgres.sink.settings import SinkSettings, sink_settings
from herdmesh.connectors.postgres.sink.texts import TextForm, texts

BASE = {"name": "c", "connection.url": "jdbc:postgresql://db/shop", "connection.user": "app"}
ORDER = Schema("STRUCT", fields=[("id", INT64), ("note", OPTIONAL_STRING), ("n", Schema("INT32", True, default=7))])
NUMBER = KeyColumn(KeyType("int8"), TextForm(None))
ID = Schema("STRUCT", fields=[("id", INT64), ("region", STRING)])


def settings(**changes: str) -> SinkSettings:
    return sink_settings({**BASE, **{name.replace("_", "."): value for name, value in changes.items()}})


def batch(
    values: Sequence[Any],
    keys: Sequence[Any] = (),
    value_schema: Schema | None = None,
    key_schema: Schema | None = None,
) -> SinkBatch:
    offsets = range(10, 10 + len(values))
    return SinkBatch(
        "routed", 3, 10, 9 + len(values), values, keys or [None] * len(values), offsets, [None] * len(values),
        key_schema=key_schema, value_schema=value_schema, original_topic="orders",
    )  # fmt: skip


def read(found: SinkBatch, config: SinkSettings) -> list[Rows]:
    return BatchReader(config).read(found, range(len(found)))


def columns(rows: Rows) -> dict[str, list[Any]]:
    return {column.name: list(values) for column, values in zip(rows.shape.columns, rows.values, strict=True)}


@pytest.mark.parametrize("by_field", [True, False])
def test_structs_become_columns_with_defaults_for_nulls(by_field: bool) -> None:
    fields = [[1, 2], ["a", None], [None, 5]]
    structs = [Struct(ORDER, list(row)) for row in zip(*fields, strict=True)]
    given_values = StructColumn(ORDER, fields, 2) if by_field else structs
    (rows,) = read(batch(given_values, value_schema=ORDER), settings())
    assert columns(rows) == {"id": [1, 2], "note": ["a", None], "n": [7, 5]}
    assert rows.shape.keys == ()
    (rows,) = BatchReader(settings()).read(batch(given_values, value_schema=ORDER), [1])
    assert (columns(rows), rows.places) == ({"id": [2], "note": [None], "n": [5]}, [1])


@pytest.mark.parametrize(
    ("config", "keys", "key_schema", "expected", "key_names"),
    [
        ({"pk_mode": "kafka"}, [None], None,
         {"__connect_topic": ["orders"], "__connect_partition": [3], "__connect_offset": [10], "id": [1], "a": ["x"]},
         ["__connect_topic", "__connect_partition", "__connect_offset"]),
        ({"pk_mode": "record_value", "pk_fields": "id"}, [None], None, {"id": [1], "a": ["x"]}, ["id"]),
        ({"pk_mode": "record_value"}, [None], None, {"a": ["x"], "id": [1]}, ["a", "id"]),
        ({"pk_mode": "record_key", "pk_fields": "k"}, ["key"], STRING, {"k": ["key"], "a": ["x"], "id": [1]}, ["k"]),
        ({"pk_mode": "record_key", "pk_fields": "id"}, [9], INT32, {"id": [9], "a": ["x"]}, ["id"]),
        ({"pk_mode": "record_key"}, [Struct(ID, [4, "eu"])], ID, {"id": [4], "region": ["eu"], "a": ["x"]},
         ["id", "region"]),
        ({"pk_mode": "record_key", "pk_fields": "region"}, [Struct(ID, [4, "eu"])], ID,
         {"region": ["eu"], "a": ["x"], "id": [1]}, ["region"]),
        ({"pk_mode": "record_key"}, [{"z": 1, "b": 2}], None, {"b": [2], "z": [1], "a": ["x"], "id": [1]}, ["b", "z"]),
        ({"fields_whitelist": "a"}, [None], None, {"a": ["x"]}, []),
        ({"pk_mode": "record_value", "pk_fields": "id", "fields_whitelist": "zz"}, [None], None, {"id": [1]}, ["id"]),
        ({"quote_sql_identifiers": "never", "pk_mode": "record_key", "pk_fields": "K"}, [1], INT32,
         {"k": [1], "a": ["x"], "id": [1]}, ["k"]),
    ],
)  # fmt: skip
def test_the_key_comes_from_the_configured_place(
    config: dict[str, str], keys: list[Any], key_schema: Schema | None, expected: dict[str, Any], key_names: list[str]
) -> None:
    (rows,) = read(batch([{"id": 1, "a": "x"}], keys, key_schema=key_schema), settings(**config))
    assert columns(rows) == expected
    assert [column.name for column in rows.shape.keys] == key_names


NO_ROWS: list[tuple[Any, Any, dict[str, str], str]] = [
    (None, 1, {}, "no value"),
    (5, 1, {}, "must be a struct or a map, but is a int"),
    ({}, 1, {}, "no field to write to a column"),
    ({1: 2}, 1, {}, "names that are strings"),
    ({"a": 1}, None, {"pk_mode": "record_key", "pk_fields": "id"}, "no key"),
    ({"a": 1}, {"b": 1}, {"pk_mode": "record_key", "pk_fields": "id"}, "key has no field id"),
    ({"a": 1}, 1, {"pk_mode": "record_value", "pk_fields": "id,a,b"}, "value has no field id, b"),
]


@pytest.mark.parametrize(("value", "key", "config", "told"), NO_ROWS)
def test_a_record_that_cannot_be_a_row_is_bad_data(value: Any, key: Any, config: dict[str, str], told: str) -> None:
    with pytest.raises(DataError, match=told):
        read(batch([value], [key]), settings(**config))


def test_a_primitive_key_without_pk_fields_is_a_config_error() -> None:
    with pytest.raises(ConfigError) as refused:
        read(batch([{"a": 1}], ["k"]), settings(pk_mode="record_key"))
    assert refused.value.field == "pk.fields"


# --- the order of writes

Row = dict[str, str | None]
EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.none() | st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), max_size=3)),
    min_size=1,
    max_size=12,
)


def one_by_one(table: dict[str, Row], events: Sequence[tuple[int, Mapping[str, int] | None]]) -> None:
    """Apply an upsert or a deletion for each record."""
    for key, value in events:
        if value is None:
            table.pop(str(key), None)
        else:
            table.setdefault(str(key), {}).update({name: str(number) for name, number in value.items()})


def apply(table: dict[str, Row], writes: Sequence[Write]) -> None:
    for write in writes:
        names = [column.name for column in write.shape.columns]
        keys = [str(key) for key in write.texts[0]]
        assert len(set(keys)) == len(keys), "ON CONFLICT refuses to write a row twice"
        for key, *row in zip(keys, *write.texts[1:], strict=True):
            if write.shape.deletes:
                table.pop(key, None)
            else:
                table.setdefault(key, {}).update(dict(zip(names[1:], row, strict=True)))


def writes_of(events: Sequence[tuple[int, Mapping[str, int] | None]], config: SinkSettings) -> list[Write]:
    found = batch([value for _, value in events], [key for key, _ in events])
    groups = [(rows, [texts(column, TextForm(None)) for column in rows.values]) for rows in read(found, config)]
    keys = [proven([NUMBER] * len(rows.shape.keys), rows.values[:1], written[:1]) for rows, written in groups]
    return ordered(groups, [one or Keys((), ()) for one in keys], inserts=config.insert_mode.value == "insert")


@given(EVENTS, EVENTS)
def test_writes_have_the_result_of_the_records_one_by_one(
    before: list[tuple[int, dict[str, int] | None]], events: list[tuple[int, dict[str, int] | None]]
) -> None:
    config = settings(insert_mode="upsert", pk_mode="record_key", pk_fields="id", delete_enabled="true")
    expected: dict[str, Row] = {}
    one_by_one(expected, before)
    found = {key: dict(row) for key, row in expected.items()}
    one_by_one(expected, events)
    apply(found, writes_of(events, config))
    assert found == expected


@given(EVENTS)
def test_inserts_and_deletions_of_one_key_are_never_in_one_write(
    events: list[tuple[int, dict[str, int] | None]],
) -> None:
    config = settings(pk_mode="record_key", pk_fields="id", delete_enabled="true")
    writes = writes_of(events, config)
    told = [(str(key), write.shape.deletes) for write in writes for key in write.texts[0]]
    for wanted in {key for key, _ in events}:
        done = [is_deletion for key, is_deletion in told if key == str(wanted)]
        asked = [value is None for key, value in events if key == wanted]
        assert _deletions_once(done) == _deletions_once(asked)


def _deletions_once(told: list[bool]) -> list[bool]:
    """Merge consecutive deletions to one."""
    return [is_deletion for at, is_deletion in enumerate(told) if not (is_deletion and told[at - 1 : at] == [True])]


def test_records_of_one_shape_are_one_write() -> None:
    config = settings(insert_mode="upsert", pk_mode="record_key", pk_fields="id")
    (write,) = writes_of([(1, {"a": 1, "b": 2}), (2, {"b": 3, "a": 4}), (1, {"a": 5, "b": 6})], config)
    assert write.texts == [["1", "2"], ["5", "4"], ["6", "3"]]
