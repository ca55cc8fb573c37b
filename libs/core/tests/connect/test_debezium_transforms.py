"""Debezium's transformations give what the real 3.6.1 classes gave (golden vectors debezium.jsonl), compiled and record
by record, and the settings of older releases what their documentation says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from herdmesh.connect import record_json
from herdmesh.connect.config import REQUIRED
from herdmesh.connect.errors import ConfigError, ConnectError, IllegalArgumentError
from herdmesh.connect.transforms import make_transformation
from herdmesh.connect.transforms.base import Alone, Shape
from herdmesh.connect.transforms.debezium.definitions import OLDER_KEYS, ROUTER_KEYS
from libs.core.tests.connect.golden_vectors import Vector, by, columns_of, is_jdk_made, try_each, vectors
from libs.core.tests.connect.test_golden_transforms import assert_same, results, step_of

_ALL = vectors("debezium.jsonl")
_CASES = by("transform", (vector for vector in _ALL if "input" in vector))
_DEFINITIONS = [vector for vector in _ALL if "definition" in vector]
_EXTRACT = "io.debezium.transforms.ExtractNewRecordState"


@pytest.mark.parametrize("transform", _CASES)
def test_as_the_java_class(transform: str) -> None:
    compiled: Counter[int] = Counter()

    def check(vector: Vector) -> None:
        error = vector.get("error")
        if error is None:
            found = results(vector)
            compiled[len(found)] += 1
            for result in found:
                assert_same(result, vector["output"])
            return
        if error["phase"] == "configure":
            with pytest.raises((ConfigError, IllegalArgumentError)):  # Java's says "Unable to validate config."
                step_of(vector)
            return
        step_of(vector)
        with pytest.raises(ConnectError) as failed:
            results(vector)
        assert failed.value.java_class == error["class"]
        if not is_jdk_made(error):
            assert str(failed.value) == error["message"]

    try_each(_CASES[transform], check)
    if transform == _EXTRACT:  # the other is never compiled
        assert compiled[2] > len(_CASES[transform]) // 4, "hardly any vector went through the compiled loop"


@pytest.mark.parametrize("vector", _DEFINITIONS, ids=lambda vector: vector["id"])
def test_the_keys_are_defined_as_in_java(vector: Vector) -> None:
    keys = make_transformation("type", vector["transform"]).config_def.keys
    told = {name: _told(key) for name, key in keys.items()}
    extra = {key.name for key in (OLDER_KEYS if vector["transform"] == _EXTRACT else ROUTER_KEYS)}
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
        after = step.transformation.alone((None, record.value, f"{topic}1", []), shape, batch, 0)
        assert after is not None
        assert after[0][2] == topic
        assert after[1].value is not None
        assert after[1].value.name == f"{topic}.Envelope"
