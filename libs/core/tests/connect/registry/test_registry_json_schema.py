"""JsonSchemaConverter over HTTP, against the fake of `fake_registry`: schemas, both ways; values as JSON; random
schemas; and random bytes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.converters.json_schema.options import JsonSchemaOptions
from herdmesh.connect.converters.json_schema.to_connect import connect_schema
from herdmesh.connect.converters.json_schema.tree import JsonTree
from herdmesh.connect.converters.json_schema.values import Values
from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.json_text import jackson
from herdmesh.connect.model.data import Struct
from herdmesh.connect.model.schemas import INT32, INT64, OPTIONAL_STRING, STRING, Schema, decimal_schema
from herdmesh.connect.registry.wire import frame
from libs.core.tests.connect.registry.fake_registry import FakeRegistry
from libs.core.tests.connect.registry.typed_values import EXAMPLES, converter, plain, typed
from tests.support.sizes import soak_or

_topics = itertools.count()
NAME = "JsonSchemaConverter"
FLIGHT = Schema("STRUCT", name="Flight", fields=[("id", INT64), ("to", OPTIONAL_STRING)])


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    made = FakeRegistry()
    yield made
    made.stop()


def schema_of(text: Any, **options: Any) -> Schema:
    return connect_schema(JsonTree(json.dumps(text)), JsonSchemaOptions(**options))


def registered(registry: FakeRegistry, topic: str, text: Any, **more: Any) -> bytes:
    body = {"schema": json.dumps(text), "schemaType": "JSON", **more}
    status, said = registry.answer("POST", f"/subjects/{topic}-value/versions", body)
    assert status == 200, said
    return frame(said["id"])


def test_schema_text_and_message_bytes(registry: FakeRegistry) -> None:
    made = converter(NAME, registry.url).for_topic("flights")
    data = made.write(Struct(FLIGHT, [7, None]), FLIGHT) or b""
    assert data[5:] == b'{"id":7,"to":null}'
    _, said = registry.answer("GET", "/subjects/flights-value/versions/1", {})
    assert said["schemaType"] == "JSON"
    assert json.loads(said["schema"]) == {
        "type": "object", "title": "Flight", "properties": {
            "id": {"type": "integer", "connect.type": "int64", "connect.index": 0},
            "to": {"oneOf": [{"type": "null"}, {"type": "string"}], "connect.index": 1},
        },
    }  # fmt: skip
    assert made.read(data) == (FLIGHT.replace(version=1), Struct(FLIGHT.replace(version=1), [7, None]))
    assert (made.read(None), made.write(None, None)) == ((None, None), None)


def test_null_of_an_optional_schema_is_json_null_and_of_a_required_one_a_tombstone(registry: FakeRegistry) -> None:
    """As in Confluent's converter."""
    made = converter(NAME, registry.url).for_topic("null")
    assert (made.write(None, OPTIONAL_STRING) or b"")[5:] == b"null"
    assert made.write(None, STRING) is None
    with pytest.raises(DataError, match="without a schema"):
        made.write({"a": 1}, None)


def test_schemas_of_confluents_converter_are_mapped_alike() -> None:
    prefix = "io.confluent.connect.json."
    assert schema_of({"type": "integer"}) is INT64
    assert schema_of({"type": ["null", "string"]}) is OPTIONAL_STRING
    assert schema_of({"enum": ["a", 1, None]}).parameters == {
        f"{prefix}Enum": "", f"{prefix}Enum.a": "a", f"{prefix}Enum.1": "1", f"{prefix}Enum.<NULL>": "<NULL>",
    }  # fmt: skip
    assert schema_of({"type": "string", "enum": ["a"], "title": "lost"}).name is None
    union = schema_of({"oneOf": [{"type": "null"}, {"type": "string"}, {"type": "number"}]})
    assert (union.name, union.optional) == (f"{prefix}OneOf", True)
    assert [(one.name, one.schema.type) for one in union.fields] == [
        (f"{prefix}OneOf.field.0", "STRING"), (f"{prefix}OneOf.field.1", "FLOAT64"),
    ]  # fmt: skip
    both = {"allOf": [{"$ref": "#/$defs/a"}, {"type": "object", "properties": {"y": {"type": "boolean"}}}],
            "$defs": {"a": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}}}  # fmt: skip
    assert [one.name for one in schema_of(both).fields] == ["x", "y"]
    loose = schema_of(both, optional_properties=True)
    assert [one.schema.optional for one in loose.fields] == [False, True]
    named = schema_of({"type": "string", "title": "T", "description": "d", "default": "x", "connect.version": 3,
                       "connect.parameters": {"p": "q"}})  # fmt: skip
    assert (named.name, named.doc, named.default, named.version, named.parameters) == ("T", "d", "x", 3, {"p": "q"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"title": "Node", "type": "object", "properties": {"next": {"$ref": "#"}}}, "'Node' contains itself"),
        ({"type": "array"}, "did not specify the items type"),
        ({}, "allows anything"),
        ({"$ref": "#/definitions/none"}, "leads nowhere"),
        ({"$ref": "#"}, "leads to itself"),
        ({"$ref": "other.json"}, "not among the references"),
        ({"type": "text"}, "unknown type 'text'"),
        ({"type": "null"}, "no schema for null alone"),
        ({"type": "integer", "default": None, "allOf": 1}, "allOf needs schemas"),
        ({"type": "string", "connect.type": "bytes", "default": 5}, "Invalid default value"),
    ],
)
def test_schemas_without_a_connect_schema(text: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        schema_of(text)


def test_schema_references_are_resolved(registry: FakeRegistry) -> None:
    port = {"type": "object", "title": "Port", "properties": {"code": {"type": "string"}}}
    registry.answer("POST", "/subjects/port/versions", {"schema": json.dumps(port), "schemaType": "JSON"})
    reference = {"name": "port.json", "subject": "port", "version": 1}
    leg = {"type": "object", "properties": {"at": {"$ref": "port.json"}, "via": {"$ref": "port.json#/properties/code"}}}
    head = registered(registry, "legs", leg, references=[reference])
    schema, value = converter(NAME, registry.url).for_topic("legs").read(head + b'{"at":{"code":"OSL"},"via":"BGO"}')
    assert schema is not None
    assert [field.schema.type for field in schema.fields] == ["STRUCT", "STRING"]
    assert plain(value) == [["OSL"], "BGO"]


def test_values_are_read_by_the_rules_of_confluents_converter(registry: FakeRegistry) -> None:
    """A union takes the first simple schema that fits, else the struct with most properties in common; a missing
    property is its default or null; an unnamed property is left out.
    """
    a, b = ({"type": "object", "properties": {name: {"type": "integer"} for name in names}} for names in ("xy", "xz"))
    text = {"type": "object", "properties": {
        "u": {"oneOf": [{"type": "boolean"}, a, b], "connect.index": 0},
        "d": {"type": "integer", "default": 4, "connect.index": 1},
        "n": {"type": "string", "connect.index": 2},
        "m": {"type": "array", "connect.type": "map", "connect.index": 3, "items": {"type": "object", "properties": {
            "key": {"type": "integer"}, "value": {"type": "string"}}}},
    }}  # fmt: skip
    head = registered(registry, "care", text)
    made = converter(NAME, registry.url).for_topic("care")
    _, value = made.read(head + b'{"u":{"x":1,"z":2},"m":[{"key":1,"value":"one"}],"more":[]}')
    assert plain(value) == [[None, None, [1, 2]], 4, None, {1: "one"}]
    assert plain(made.read(head + b'{"u":true,"m":[]}')[1]) == [[True, None, None], 4, None, {}]
    for payload in (b'{"u":"x"}', b'{"m":{}}', b'{"m":[1]}', b"[]", b"null", b"", b"{"):
        with pytest.raises(DataError):
            made.read(head + payload)


def test_decimals_are_written_in_either_format(registry: FakeRegistry) -> None:
    schema = decimal_schema(2)
    based = converter(NAME, registry.url).for_topic("base64")
    numeric = converter(NAME, registry.url, decimal_format="numeric").for_topic("numeric")
    assert (based.write(Decimal("1.50"), schema) or b"")[5:] == b'"AJY="'
    assert (numeric.write(Decimal("1.50"), schema) or b"")[5:] == b"1.50"
    for made in (based, numeric):
        assert made.read(made.write(Decimal("1.50"), schema))[1] == Decimal("1.50")


def test_a_value_that_does_not_fit_its_schema_is_refused(registry: FakeRegistry) -> None:
    made = converter(NAME, registry.url).for_topic("unfit")
    for value in ("7", None, 2**31, 1.5, True):
        with pytest.raises(DataError):
            made.write(
                Struct(Schema("STRUCT", fields=[("n", INT32)]), [value]), Schema("STRUCT", fields=[("n", INT32)])
            )


def test_invalid_converter_settings_are_refused() -> None:
    for name in ("json_fail_invalid_schema", "preserve_additional_properties"):
        with pytest.raises(ConfigError, match="not supported"):
            converter(NAME, "http://127.0.0.1:1", **{name: "true"})


@settings(max_examples=soak_or(60, 3_000), **EXAMPLES)
@given(st.data())
def test_written_values_are_read_back(registry: FakeRegistry, data: st.DataObject) -> None:
    schema, values = data.draw(typed())
    many = [data.draw(values) for _ in range(3)]
    topic = f"t{next(_topics)}"
    writer, reader = shared(registry).for_topic(topic), shared(registry).for_topic(f"{topic} again")
    raw = writer.write_many(many, schema)
    read_schema, read = reader.read_many(raw)
    assert isinstance(read_schema, Schema)
    assert read_schema.replace(version=schema.version) is schema
    assert [plain(one) for one in read] == [plain(one) for one in many]
    assert [writer.write(one, schema) for one in many] == raw
    careful = Values(JsonSchemaOptions())  # the reference that the fast paths have to equal
    payloads = [(one or b"")[5:] for one in raw]
    assert [careful.text(schema, one) for one in many] == [payload.decode() for payload in payloads]
    assert [careful.read(read_schema, jackson.loads_node(payload)) for payload in payloads] == [*read]


_made: dict[str, Any] = {}


def shared(registry: FakeRegistry) -> Any:
    """One converter for all examples, as a task has one for all records."""
    return _made.setdefault(registry.url, converter(NAME, registry.url))


@settings(max_examples=soak_or(200, 20_000), **EXAMPLES)
@given(st.binary(max_size=40) | st.text(alphabet='{}[]":,0123456789.eE-xabcnulltrue ', max_size=40).map(str.encode))
def test_random_bytes_are_a_value_or_a_data_error(registry: FakeRegistry, payload: bytes) -> None:
    made = shared(registry).for_topic("fuzz")
    schema = Schema("STRUCT", fields=[("x", INT32), ("a", Schema("ARRAY", optional=True, value_schema=FLIGHT))])
    head = (made.write(Struct(schema, [1, None]), schema) or b"")[:5]
    for data in (payload, head + payload, bytes(5) + payload):
        try:
            made.read(data)
        except DataError:
            continue


def fields_of(text: Any) -> dict[str, str]:
    schema = connect_schema(JsonTree(json.dumps(text)), JsonSchemaOptions())
    assert schema is not None
    return {field.name: field.schema.type for field in schema.fields}


def test_references_to_the_ids_of_schemas_within_a_document() -> None:
    """Relative to the `$id` around them; a pointer begins at the nearest schema with an `$id`, or at the document."""
    port = {"$id": "ports/port.json", "type": "object", "properties": {"x": {"type": "integer"}}}
    code = {"$id": "http://h/codes/code.json", "$ref": "#/$defs/c", "$defs": {"c": {"type": "boolean"}}}
    text = {
        "$id": "http://h/flights/flight.json", "type": "object", "properties": {
            "absolute": {"$ref": "http://h/flights/ports/port.json"}, "relative": {"$ref": "ports/port.json"},
            "rooted": {"$ref": "/flights/ports/port.json#/properties/x"}, "own": {"$ref": "flight.json#/$defs/t"},
            "code": {"$ref": "http://h/codes/code.json#/$defs/c"}, "odd": {"$id": "/odd", "$ref": "#/$defs/t"},
        }, "$defs": {"port": port, "code": code, "t": {"type": "string"}},
    }  # fmt: skip
    assert fields_of(text) == {
        "absolute": "STRUCT", "relative": "STRUCT", "rooted": "INT64", "own": "STRING", "code": "BOOLEAN",
        "odd": "STRING",
    }  # fmt: skip


def test_ids_of_draft_4_and_ids_that_are_values() -> None:
    text = {
        "$schema": "http://json-schema.org/draft-04/schema#", "id": "http://h/a.json", "type": "object",
        "properties": {"id": {"id": "b.json", "type": "boolean"}, "b": {"$ref": "http://h/b.json"}},
    }  # fmt: skip
    assert fields_of(text) == {"id": "BOOLEAN", "b": "BOOLEAN"}
    text = {"type": "object", "properties": {"a": {"$ref": "x"}, "b": {"enum": ["v"], "default": {"$id": "x"}}}}
    with pytest.raises(DataError, match="'x' is not among the references"):
        fields_of(text)
