"""What the real 4.3.1 classes gave for cases that no golden vector has: found by running 100,000 changed vectors
through both, each row written down from Java's answer."""

from __future__ import annotations

from typing import Any

import pytest

from herdmesh.connect.data import Batch, Int16, Struct
from herdmesh.connect.errors import DataError
from herdmesh.connect.javavalues import utf8_text
from herdmesh.connect.program import Loop, Single, Step
from herdmesh.connect.schemas import BOOLEAN, INT32, INT64, STRING, Schema, SchemaBuilder
from herdmesh.connect.transforms import make_transformation
from herdmesh.connect.transforms.base import Shape
from herdmesh.connect.values import parse_text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xbf", "\ufffd"),
        (b"\xed\xa0\xc1", "\ufffd\ufffd"),
        (b"a\xed\xa0b", "a\ufffdb"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xc1\x80", "\ufffd\ufffd\ufffd"),
    ],
)
def test_an_encoded_surrogate_is_one_malformed_character_whole_or_cut_short(data: bytes, text: str) -> None:
    assert utf8_text(data) == text


@pytest.mark.parametrize("text", [" [Eull ", "\x01\x06[\x07\t", " {a"])
def test_a_list_behind_blanks_that_is_none_leaves_the_blanks(text: str) -> None:
    assert parse_text(text) == (STRING, text[: text.index("[" if "[" in text else "{")])


def test_of_two_fields_renamed_alike_the_last_of_a_hash_map_counts() -> None:
    schema = struct_of(tags=STRING)
    assert replaced({"renames": "tags:r1,missing:r1"}, Struct(schema, ["x"]), schema) == ["x"]


def test_a_value_of_another_type_is_not_put_under_a_schema_by_renaming() -> None:
    schema = struct_of(a=STRING, b=INT32)
    config = {"exclude": "a", "renames": "a:b"}
    with pytest.raises(DataError) as failed:
        replaced(config, Struct(schema, ["x", 1]), schema)
    assert str(failed.value) == (
        'Invalid Java object for schema with type INT32: class java.lang.String for field: "b"'
    )
    longs = struct_of(a=INT64, b=INT64.replace(optional=True), c=BOOLEAN)
    assert replaced(config, Struct(longs, [7, 1, True]), longs) == [7, True]


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("Cast", {"spec": "empty:float64,a.b:int32"}, "Value (dotted) was out of range for requested data type"),
        (
            "MaskField",
            {"fields": "str,i16,bb", "replacement": "x"},
            "Cannot mask value of type class java.nio.HeapByteBuffer with custom replacement.",
        ),
    ],
)
def test_of_two_fields_that_fail_the_first_of_a_hash_map_is_told(
    name: str, config: dict[str, str], message: str
) -> None:
    value: dict[str, Any] = {"str": "s", "i16": Int16(16), "bb": memoryview(b"ab"), "a.b": "dotted", "empty": {}}
    made = make_transformation("type", f"org.apache.kafka.connect.transforms.{name}$Value")
    made.configure(config)
    with pytest.raises(DataError) as failed:
        Single(Step("r", made), Shape(None, None, source=False)).run(
            (None, value, "t", []), Batch("t", 0, [], [value]), 0
        )
    assert str(failed.value) == message


def struct_of(**fields: Schema) -> Schema:
    """A struct's schema."""
    builder = SchemaBuilder("STRUCT")
    for name, schema in fields.items():
        builder.field(name, schema)
    return builder.build()


def replaced(config: dict[str, str], value: Struct, schema: Schema) -> list[Any]:
    """The values of what ReplaceField makes of a struct."""
    made = make_transformation("type", "org.apache.kafka.connect.transforms.ReplaceField$Value")
    made.configure(config)
    batch = Batch("t", 0, [None], [value], [0], [0], None, schema, [[]])
    return Loop([Step("r", made)], Shape(None, schema, source=False), owned=False).run(batch).values[0].values
