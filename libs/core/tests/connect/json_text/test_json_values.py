"""Values known to come from JSON (`jackson.JsonValues`): their writer does not check for values that JSON cannot
express.

So the mark may never be wrong: NaN or infinity in marked values would be written as null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

import pytest

from herdmesh.connect.chain import chain_config
from herdmesh.connect.json_text import jackson
from herdmesh.connect.model.data import Batch
from herdmesh.connect.transforms import TRANSFORMATION_CLASSES

JSON_SINK = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "JsonConverter",
    "value.converter.schemas.enable": "false",
}
MAPS: list[dict[str, Any]] = [
    {"id": 1, "name": "NaN", "price": 1.5, "at": 1_700_000_000_000, "in": {"x": None, "y": [1.5, None]}},
    {"id": 2, "name": "-Infinity", "price": 0.1, "at": 0, "in": {"x": "null", "y": []}},
]
_KAFKA = "org.apache.kafka.connect.transforms."
_CONFLUENT = "io.confluent.connect.transforms."
STEPS: list[tuple[str, Mapping[str, str], bool]] = [
    (f"{_KAFKA}InsertField$Value", {"offset.field": "offset", "static.field": "s", "static.value": "NaN"}, True),
    (f"{_KAFKA}ReplaceField$Value", {"renames": "name:label", "exclude": "price"}, True),
    (f"{_KAFKA}MaskField$Value", {"fields": "price,name,in"}, True),
    (f"{_KAFKA}MaskField$Value", {"fields": "price", "replacement": "2.5"}, True),
    (f"{_KAFKA}MaskField$Value", {"fields": "price", "replacement": "1e999"}, False),
    (f"{_KAFKA}Cast$Value", {"spec": "id:string,name:string"}, True),
    (f"{_KAFKA}Cast$Value", {"spec": "name:float64"}, False),
    (f"{_KAFKA}Cast$Value", {"spec": "name:float32"}, False),
    (f"{_KAFKA}ExtractField$Value", {"field": "in"}, True),
    (f"{_KAFKA}HoistField$Value", {"field": "row"}, True),
    (f"{_KAFKA}Flatten$Value", {}, True),
    (f"{_KAFKA}HeaderFrom$Value", {"fields": "id", "headers": "h", "operation": "move"}, True),
    (f"{_KAFKA}TimestampConverter$Value", {"field": "at", "target.type": "string", "format": "yyyy"}, True),
    (f"{_KAFKA}ValueToKey", {"fields": "id"}, True),
    (f"{_KAFKA}InsertField$Key", {"static.field": "s", "static.value": "NaN"}, True),
    (f"{_KAFKA}RegexRouter", {"regex": "t", "replacement": "u"}, True),
    (f"{_CONFLUENT}ExtractTopic$Value", {"field": "name"}, True),
    (f"{_CONFLUENT}TombstoneHandler", {}, True),
    (f"{_CONFLUENT}Filter$Value", {"filter.condition": "$[?(@.id == 2)]", "filter.type": "exclude"}, True),
]
NOT_RUN = {
    f"{_KAFKA}SetSchemaMetadata",  # refuses values without a schema
    f"{_KAFKA}Filter",  # filters whole records
    f"{_CONFLUENT}Drop",  # leaves a null
}


def made_by(raw: list[bytes], kind: str = "", settings: Mapping[str, str] | None = None) -> list[Batch]:
    steps = {"transforms": "s", "transforms.s.type": kind} if kind else {}
    more = {f"transforms.s.{name}": value for name, value in (settings or {}).items()}
    keys = [b"{}"] * len(raw)
    config = {**JSON_SINK, "key.converter": "JsonConverter", "key.converter.schemas.enable": "false", **steps, **more}
    return chain_config.sink_chain(config).run(Batch("t", 0, keys, raw, range(len(raw))))


def says_json(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        return all(isinstance(name, str) and says_json(item) for name, item in members.items())
    return all(map(says_json, cast("list[Any]", value))) if isinstance(value, list) else True


@pytest.mark.parametrize(("kind", "settings", "kept"), STEPS)
def test_a_step_keeps_the_json_mark_only_where_it_adds_json_values(
    kind: str, settings: Mapping[str, str], kept: bool
) -> None:
    made = made_by([json.dumps(one).encode() for one in MAPS], kind, settings)
    assert made
    for one in made:
        assert not jackson.is_of_json(one.values) or all(map(says_json, one.values))
        if len(made) == 1:  # the parts of several topics lose the mark
            assert jackson.is_of_json(one.values) is kept


def test_every_class_that_declares_keeps_json_is_tested() -> None:
    tried = {kind.partition("$")[0] for kind, _, kept in STEPS if kept}
    assert {cls.java_class for cls in TRANSFORMATION_CLASSES if cls.keeps_json} <= tried | NOT_RUN


@pytest.mark.parametrize(
    ("raw", "known"),
    [
        ([b'{"a":1.5,"b":null}', b"[null]"], True),
        ([b'{"a":1e308}', b'{"b":{"c":[{"d":[[[1.5]]]}]}}'], True),
        ([b'{"a":1e999}', b'{"a":1}'], False),
        ([b'{"a":[{"b":-1e400}]}', b'{"a":1}'], False),
        ([b'{"a":[[[[[[[[[1e999]]]]]]]]]}', b'{"a":1}'], False),
    ],
)
def test_the_json_mark_is_set_as_far_as_reading_proves_it(raw: list[bytes], known: bool) -> None:
    [made] = made_by(raw)
    assert jackson.is_of_json(made.values) is known
    assert jackson.is_of_json(jackson.like(made.values, made.values[:1])) is known
