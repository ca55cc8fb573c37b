"""Debezium's transformations, equal to the real 3.6.1 classes (golden vectors debezium.jsonl), compiled and record
by record, and settings of older releases as their documentation describes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from herdmesh.connect.chain import chain_config
from herdmesh.connect.config.config_def import REQUIRED
from herdmesh.connect.errors import ConfigError, ConnectError, IllegalArgumentError, RecordError
from herdmesh.connect.json_text import record_json
from herdmesh.connect.model.data import Batch, Struct
from herdmesh.connect.transforms import make_transformation
from herdmesh.connect.transforms.base import Alone, Cells, Shape
from herdmesh.connect.transforms.debezium import definitions, event_router_definition
from libs.core.tests.connect.golden_vectors import Vector, by, columns_of, is_jdk_made, try_each, vectors
from libs.core.tests.connect.transforms.test_golden_transforms import assert_same, results, step_of

_ALL = vectors("debezium.jsonl")
_CASES = by("transform", (vector for vector in _ALL if "input" in vector))
_DEFINITIONS = [vector for vector in _ALL if "definition" in vector]
_UNDECLARED = {
    "ExtractNewRecordState": definitions.OLDER_KEYS,
    "ByLogicalTableRouter": definitions.ROUTER_KEYS,
    "EventRouter": event_router_definition.ROUTER_KEYS,
}
_EXTRACT = "io.debezium.transforms.ExtractNewRecordState"
_ROUTER = "io.debezium.transforms.ByLogicalTableRouter"
_OUTBOX = "io.debezium.transforms.outbox.EventRouter"


@pytest.mark.parametrize("transform", _CASES)
def test_results_equal_the_java_class(transform: str) -> None:
    compiled: Counter[int] = Counter()

    def check(vector: Vector) -> None:
        error = vector.get("error")
        if (better := _mended(vector)) is not None:
            better(vector)
            return
        if error is None:
            found = results(vector)
            compiled[len(found)] += 1
            for result in found:
                assert_same(result, vector["output"])
            return
        if error["phase"] == "configure":
            with pytest.raises((ConfigError, IllegalArgumentError)) as refused:
                step_of(vector)
            if transform == _OUTBOX and error["class"] == ConfigError.java_class:  # the others report nothing in Java
                text = error["message"].partition(" near index")[0]
                assert str(refused.value).startswith(text.partition("The ")[0] if "Either 'true'" in text else text)
            return
        step_of(vector)
        with pytest.raises(ConnectError) as failed:
            results(vector)
        assert failed.value.java_class == error["class"]
        if not is_jdk_made(error):
            assert str(failed.value) == error["message"]

    try_each(_CASES[transform], check)
    if transform != _ROUTER:  # which is never compiled
        assert compiled[2] > len(_CASES[transform]) // 5, "hardly any vector went through the compiled loop"


@pytest.mark.parametrize("vector", _DEFINITIONS, ids=lambda vector: vector["id"])
def test_config_keys_are_defined_as_in_java(vector: Vector) -> None:
    keys = make_transformation("type", vector["transform"]).config_def.keys
    told = {name: _told(key) for name, key in keys.items()}
    extra = {key.name for key in _UNDECLARED[vector["transform"].rpartition(".")[2]]}
    assert told.keys() - {one["name"] for one in vector["definition"]} == extra
    for wanted in vector["definition"]:
        assert told[wanted["name"]] == {name: item for name, item in wanted.items() if name != "name"}


def _told(key: Any) -> dict[str, Any]:
    default = None if key.required or key.default is None else key.default
    text = default if default is None else str(default).lower() if isinstance(default, bool) else str(default)
    return {
        "type": key.type.value, "importance": key.importance.value, "documentation": key.doc,
        "display": key.display_name, "width": key.width, "group": key.group, "order": key.order,
        "required": key.default is REQUIRED, "default": "[]" if default == () else text,
    }  # fmt: skip


def _event(op: str, before: str | None, after: str | None) -> Vector:
    row = {"type": "struct", "optional": True, "name": "t.Value", "fields": [{"type": "string", "field": "name"}]}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, {"type": "string", "field": "op"}]
    value = {name: None if text is None else {"name": text} for name, text in (("before", before), ("after", after))}
    return {
        "kind": "source", "topic": "t", "partition": None, "keySchema": None, "key": None, "timestamp": None,
        "valueSchema": {"type": "struct", "name": "t.Envelope", "fields": fields}, "value": {**value, "op": op},
        "headers": [],
    }  # fmt: skip


_TOMBSTONE = {**_event("d", None, None), "valueSchema": None, "value": None}
_DELETE = _event("d", "ada", None)


@pytest.mark.parametrize(
    ("config", "of_delete", "of_tombstone"),
    [
        ({"drop.tombstones": "true"}, "dropped", "dropped"),
        ({"drop.tombstones": "false"}, "dropped", None),
        ({"delete.handling.mode": "none"}, None, "dropped"),
        ({"delete.handling.mode": "none", "drop.tombstones": "false"}, None, None),
        ({"delete.handling.mode": "rewrite"}, {"name": "ada", "__deleted": "true"}, "dropped"),
    ],
)
def test_the_delete_settings_of_older_releases(config: dict[str, str], of_delete: Any, of_tombstone: Any) -> None:
    for given, wanted in ((_DELETE, of_delete), (_TOMBSTONE, of_tombstone)):
        found = results({"transform": _EXTRACT, "config": config, "input": given})
        assert found
        assert [one if one is None else one["value"] for one in found] == [
            None if wanted == "dropped" else wanted for _ in found
        ]
        if wanted is None:
            assert all(one is not None for one in found)


def _mended(vector: Vector) -> Callable[[Vector], None] | None:
    """The check that replaces EventRouter's result where that result is of no use
    (docs/reference/differences.md).
    """
    config, error = vector["config"], vector.get("error", {"message": ""})
    if config.get("table.fields.additional.placement") == "type:elsewhere":
        return _refused_at_once
    if "table.expand.json.payload" not in config or (error.get("phase") == "configure"):
        return None
    of_failed = ("Invalid type for ", "Invalid Java object for schema with type ARRAY")
    if (error["message"] or "").startswith(of_failed):
        return _kept_as_text
    if vector.get("output") and vector["output"]["value"] == "[]":
        return _kept_as_text
    return _renamed if config.get("field.name.adjustment.mode", "none").startswith("avro") else None


def _refused_at_once(vector: Vector) -> None:
    with pytest.raises(ConfigError, match="has to name one of header, envelope, partition"):
        step_of(vector)


def _kept_as_text(vector: Vector) -> None:
    """Expect the plain text: Debezium puts it under its derived schema, which no converter accepts."""
    schema = {"type": "string", "optional": True, "name": "io.debezium.data.Json"}
    text = vector["input"]["value"]["after"]["payload"]
    for found in results(vector):
        assert found is not None
        if "table.fields.additional.placement" in vector["config"]:
            assert found["valueSchema"]["fields"][0] == {**schema, "field": "payload"}
            assert found["value"]["payload"] == text
        else:
            assert (found["valueSchema"], found["value"]) == (schema, text)


def _renamed(vector: Vector) -> None:
    """Expect the values: Debezium loses the values of fields that it renames."""
    for found in results(vector):
        assert found is not None
        assert found["valueSchema"] == vector["output"]["valueSchema"]
        first, inner, last = found["value"].values()
        assert (first, list(inner.values()), last) == (1, [2], 3)


def test_old_and_new_delete_settings_are_not_mixed() -> None:
    config = {"drop.tombstones": "false", "delete.tombstone.handling.mode": "drop"}
    with pytest.raises(ConfigError, match=r"drop\.tombstones.*delete\.tombstone\.handling\.mode.*replaced it"):
        step_of({"transform": _EXTRACT, "config": config})


def test_schemas_are_named_after_the_topic_of_their_own_record() -> None:
    step = step_of(
        {
            "transform": "io.debezium.transforms.ByLogicalTableRouter",
            "config": {"topic.regex": "(.)\\d", "topic.replacement": "$1"},
        }
    )
    assert isinstance(step.transformation, Alone)
    for topic in ("a", "b"):
        record = record_json.record_of(_event("c", None, "ada"))
        batch = columns_of(record)
        shape = Shape(None, record.value_schema, source=True)
        after = step.transformation.alone((None, record.value, f"{topic}1", [], None, None), shape, batch, 0)
        assert after is not None
        assert after[0][2] == topic
        assert after[1].value is not None
        assert after[1].value.name == f"{topic}.Envelope"


def _outbox_batch(rows: list[dict[str, Any]], payload: dict[str, Any]) -> Batch:
    """A source's batch of inserts into an outbox table."""
    names = {"id": "string", "aggregatetype": "string", "aggregateid": "string", "at": "int64", "n": "int32"}
    columns = [{"type": kind, "optional": True, "field": name} for name, kind in names.items()]
    columns[3]["name"] = "io.debezium.time.Timestamp"
    row = {"type": "struct", "optional": True, "name": "o.Value", "fields": [*columns, {**payload, "field": "payload"}]}
    fields = [{**row, "field": "after"}, {"type": "string", "field": "op"}, {"type": "int64", "field": "ts_ms"}]
    events: list[Vector] = [
        {
            "kind": "source", "topic": "o", "partition": None, "keySchema": None, "key": None, "timestamp": None,
            "valueSchema": {"type": "struct", "name": "o.Envelope", "fields": fields}, "headers": [],
            "value": {"op": "c", "ts_ms": 5, "after": one},
        }
        for one in rows
    ]  # fmt: skip
    records = [record_json.record_of(event) for event in events]
    schema = records[0].value_schema
    assert schema is not None
    values = [Struct(schema, record.value.values) for record in records]
    for value in values:
        value.values[0] = Struct(schema.fields[0].schema, value.values[0].values)
    return Batch("o", None, (), values, value_schema=schema)


@pytest.mark.parametrize("more", [{}, {"transforms.o.table.expand.json.payload": "true"}], ids=["compiled", "alone"])
def test_outbox_events_have_the_topic_partition_and_timestamp_of_their_rows(more: dict[str, str]) -> None:
    rows = [
        {"id": str(at), "aggregatetype": kind, "aggregateid": f"k{at}", "at": at * 1000, "n": part, "payload": text}
        for at, (kind, part, text) in enumerate([("a", 0, "x"), ("a", 1, "y"), ("b", 1, "z"), ("b", 1, "w")])
    ]  # fmt: skip
    chain = chain_config.source_chain({
        "transforms": "o", "transforms.o.type": _OUTBOX,
        "transforms.o.table.fields.additional.placement": "n:partition",
        "transforms.o.table.field.event.timestamp": "at",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter", **more,
    })  # fmt: skip
    made = chain.run(_outbox_batch(rows, {"type": "string", "optional": True}))
    assert [(one.topic, one.partition, list(one.keys), list(one.values), list(one.timestamps_ms)) for one in made] == [
        ("outbox.event.a", 0, [b"k0"], [b"x"], [0]),
        ("outbox.event.a", 1, [b"k1"], [b"y"], [1000]),
        ("outbox.event.b", 1, [b"k2", b"k3"], [b"z", b"w"], [2000, 3000]),
    ]
    assert [names for one in made for names in one.headers] == [[("id", str(at).encode())] for at in range(4)]
    rows[2]["at"] = -7
    with pytest.raises(RecordError, match=r"transformation 'o'.*Invalid record timestamp -7"):
        chain.run(_outbox_batch(rows, {"type": "string", "optional": True}))


def test_schemas_of_additional_fields_are_named_after_the_topic_of_their_own_record() -> None:
    step = step_of({"transform": _OUTBOX, "config": {"table.fields.additional.placement": "n:envelope"}})
    assert isinstance(step.transformation, Alone)
    names: list[str | None] = []
    for topic in ("a", "b", "a"):
        row = {"id": "1", "aggregatetype": topic, "aggregateid": "k", "at": None, "n": 1, "payload": "x"}
        batch = _outbox_batch([row], {"type": "string", "optional": True})
        cells: Cells = None, batch.values[0], "o", [], None, None
        after = step.transformation.alone(cells, Shape(None, batch.value_schema, source=True), batch, 0)
        assert after is not None
        assert after[1].value is not None
        names.append(after[1].value.name)
    assert names == ["o.a.Value", "o.b.Value", "o.a.Value"]
