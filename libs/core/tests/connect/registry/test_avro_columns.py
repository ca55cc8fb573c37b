"""The columnar Avro reader (field by field) against the reference way, which is fastavro and `avro.values`, message by
message: wherever it returns values they are equal, for whole messages, broken ones among them and random bytes; and it
does return values for common schemas.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from typing import Any, cast

import fastavro
import pytest
from fastavro import parse_schema
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.converters.avro import columns as avro_columns
from herdmesh.connect.converters.avro.columns import column_reader
from herdmesh.connect.converters.avro.from_connect import avro_schema
from herdmesh.connect.converters.avro.options import AvroOptions
from herdmesh.connect.converters.avro.schemas import AvroTree, text_of
from herdmesh.connect.converters.avro.to_connect import connect_schema
from herdmesh.connect.converters.avro.values import reader, wire_schema, writer
from herdmesh.connect.converters.registered import UNFIT
from herdmesh.connect.errors import DataError
from herdmesh.connect.model.data import JavaDate, Struct
from herdmesh.connect.model.schemas import Schema
from libs.core.tests.connect.registry.typed_values import EXAMPLES, LEAVES, optional, structs
from tests.support.sizes import soak_or

_HEAD = b"\0\0\0\0\1"
_REFUSED = (*UNFIT, DataError)
_COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}
_INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "d", "type": "double"}, {"name": "s", "type": "string"}],
}
_WIDE = {"type": "record", "name": "Wide", "fields": [
    {"name": "l", "type": "long"}, {"name": "b", "type": "boolean"}, {"name": "t", "type": ["null", "string"]},
    {"name": "i", "type": {"type": "int", "connect.type": "int8"}}, {"name": "e", "type": _COLOUR},
    {"name": "x", "type": {"type": "fixed", "name": "Two", "size": 2}}, {"name": "f", "type": ["float", "null"]},
    {"name": "n", "type": ["null", _INNER]}, {"name": "again", "type": "Inner"}, {"name": "one", "type": ["long"]},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}}, {"name": "y", "type": "bytes"},
    {"name": "m", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
]}  # fmt: skip


@dataclass(frozen=True)
class Ways:
    """Both ways to read messages of one Avro schema, and a writer."""

    schema: Schema
    columns: Callable[[Sequence[bytes]], Sequence[Any]] | None
    careful: Callable[[bytes], Any]
    written: Callable[[Any], bytes]


def ways(text: str) -> Ways:
    tree, options = AvroTree(text), AvroOptions()
    schema = connect_schema(tree, options)
    assert schema is not None
    parse: Callable[..., Any] = parse_schema
    wire = parse(wire_schema(tree, options), named_schemas={})
    library = cast(Any, fastavro)
    to_connect = reader(tree, options, schema, tree.root) or _same
    to_avro = writer(tree, options, schema) or _same

    def careful(raw: bytes) -> Any:
        return to_connect(library.schemaless_reader(BytesIO(raw[len(_HEAD) :]), wire, None))

    def written(value: Any) -> bytes:
        stream = BytesIO()
        library.schemaless_writer(stream, wire, to_avro(value))
        return _HEAD + stream.getvalue()

    return Ways(schema, column_reader(tree, options, schema), careful, written)


def _same(value: Any) -> Any:
    return value


_WIDE_WAYS = ways(json.dumps(_WIDE))
_LONG_WAYS = ways(json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}))
_TYPES = {bool, bytes, float, int, str, type(None), Decimal, JavaDate}
_payloads = st.binary(min_size=16, max_size=60) | st.lists(st.integers(0, 4), min_size=30, max_size=60).map(bytes)


def _continued(data: bytes) -> bytes:
    """The bytes as those of one varint: all but the last have the continuation bit."""
    return bytes([byte | 128 for byte in data[:-1]]) + bytes([byte & 127 for byte in data[-1:]])


def agree(both: Ways, messages: Sequence[bytes]) -> bool:
    """Whether the columnar reader reads the messages; if so, checks that its values equal those of the reference
    way.
    """
    assert both.columns is not None
    try:
        found = list(both.columns(messages))
    except _REFUSED:
        return False
    # compares the text, because NaN is not equal to itself, and numpy's types print differently
    assert repr(found) == repr([both.careful(raw) for raw in messages])
    assert {type(one) for one in _leaves(found)} <= _TYPES
    return True


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Struct):
        value = value.values
    if not isinstance(value, list):
        yield value
        return
    for one in cast("list[Any]", value):
        yield from _leaves(one)


def _broken(data: st.DataObject, raw: bytes) -> bytes:
    """The message cut off, or with other bytes at one position."""
    cut = data.draw(st.integers(len(_HEAD), len(raw)))
    return raw[:cut] + data.draw(st.just(b"") | st.binary(max_size=3).map(lambda some: some + raw[cut + 1 :]))


_flat = st.lists(st.sampled_from(LEAVES) | st.sampled_from(LEAVES).map(optional), min_size=1, max_size=5).map(structs)
_nested = st.lists(_flat | _flat.map(optional) | st.sampled_from(LEAVES), min_size=1, max_size=4).map(structs)
_one = st.sampled_from(LEAVES) | st.sampled_from(LEAVES).map(optional)


@settings(**EXAMPLES, max_examples=soak_or(60, 5_000))
@given(st.data(), _flat | _nested | _one)
def test_columnar_values_equal_those_of_the_reference_reader(data: st.DataObject, one: tuple[Schema, Any]) -> None:
    schema, values = one
    both = ways(text_of(avro_schema(schema, AvroOptions())))
    whole = [both.written(value) for value in data.draw(st.lists(values, min_size=1, max_size=4))]
    assert agree(both, whole)
    broken = [_broken(data, raw) for raw in whole]
    agree(both, broken)
    at = data.draw(st.integers(0, len(whole) - 1))
    agree(both, [*whole[:at], broken[at], *whole[at + 1 :]])


@settings(**EXAMPLES, max_examples=soak_or(100, 50_000))
@given(st.lists(_payloads, min_size=1, max_size=3))
def test_random_bytes_are_read_alike_or_not_at_all(payloads: list[bytes]) -> None:
    agree(_WIDE_WAYS, [_HEAD + payload for payload in payloads])


@settings(**EXAMPLES, max_examples=soak_or(100, 20_000))
@given(st.lists(st.binary(max_size=11).map(_continued), min_size=1, max_size=4))
def test_varints_of_any_length_are_read_alike_or_not_at_all(numbers: list[bytes]) -> None:
    """Also overlong ones, and those of more than 64 bits."""
    whole = agree(_LONG_WAYS, [_HEAD + number for number in numbers])
    assert whole or any(not number or len(number) > 9 for number in numbers)


@pytest.mark.parametrize("number", [0, 63, 64, 8191, 8192, 1 << 27, 1 << 41, 1 << 48, 1 << 55, 1 << 62, (1 << 63) - 1])
def test_varints_of_different_lengths_beside_each_other(number: int) -> None:
    raw = [_LONG_WAYS.written(Struct(_LONG_WAYS.schema, [one])) for one in (number, ~number, 0, number // 2)]
    assert agree(_LONG_WAYS, raw)


def test_all_supported_types_are_read() -> None:
    inner = struct.pack("<d", 0.1) + b"\x02z"
    parts = [
        b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x01", b"\x02\x04\xc3\xa9", b"\xff\x03", b"\x02", b"ab",
        b"\x00" + struct.pack("<f", 1.5), b"\x02" + inner, inner, b"\x00\x81\x01", b"\x03", b"\x04\x00\xff",
        b"\x02\xff",
    ]  # fmt: skip
    raw = _HEAD + b"".join(parts)
    parts[2], parts[6], parts[7] = b"\x00", b"\x02", b"\x00"
    nulls = _HEAD + b"".join(parts)
    assert agree(_WIDE_WAYS, [raw])
    assert agree(_WIDE_WAYS, [raw + b"more than the value", nulls, raw])
    assert agree(_WIDE_WAYS, [nulls, nulls])


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("long", b"\xff" * 9 + b"\x02"),
        ("long", b"\xff\xff"),
        ("long", b"\xff" * 8),
        ("long", b"\xff" * 9),
        ("string", b"\x01a"),
        ("string", b"\x08abc"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01abc"),
        ("string", b"\x02\xff"),
        ("bytes", b"\x08abc"),
        ("double", b"\0\0\0\0"),
        ("float", b"\0\0"),
        ({"type": "fixed", "name": "Four", "size": 4}, b"abc"),
        ({"type": "fixed", "name": "All", "size": (1 << 63) - 1}, b"abc"),
        ("boolean", b""),
        (_COLOUR, b"\x04"),
        (_COLOUR, b"\x01"),
        (["null", "long"], b"\x04\x02"),
        (["null", "long"], b""),
        (["long"], b"\x02\x02"),
    ],
)
@pytest.mark.parametrize("behind", [b"", b"\2" * 20])
def test_unusual_messages_are_left_to_the_reference_reader(kind: Any, payload: bytes, behind: bytes) -> None:
    """Alone, last, and followed by another message's bytes, which must not be read."""
    both = ways(json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}))
    assert not agree(both, [*([behind] if behind else []), _HEAD + payload, *([behind] if behind else [])])


def test_large_messages_are_left_to_the_reference_reader() -> None:
    both = ways(json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}))
    size = avro_columns.MEAN_BYTES_MAX
    assert agree(both, [both.written(Struct(both.schema, ["x" * more])) for more in (size - 7, size - 8, size - 6)])
    assert not agree(both, [both.written(Struct(both.schema, ["x" * more])) for more in (size - 7, size - 7, size - 6)])


@pytest.mark.parametrize(
    "kind", [{"type": "array", "items": "long"}, {"type": "map", "values": "long"}, ["int", "string"]]
)
def test_schemas_with_arrays_maps_and_real_unions_have_no_columns(kind: Any) -> None:
    assert ways(json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})).columns is None


def test_a_small_schema_that_expands_to_many_columns_has_none() -> None:
    """A named record is expanded at each of its uses: four of the next in each of six make 4,096 of the last."""
    node: Any = {"type": "record", "name": "R6", "fields": [{"name": "x", "type": "long"}]}
    for level in range(5, -1, -1):
        uses = [node, *([f"R{level + 1}"] * 3)]
        fields = [{"name": f"f{number}", "type": ["null", use]} for number, use in enumerate(uses)]
        node = {"type": "record", "name": f"R{level}", "fields": fields}
    assert ways(json.dumps(node)).columns is None
    wide = [{"name": f"f{number}", "type": ["null", "string"]} for number in range(500)]
    assert ways(json.dumps({"type": "record", "name": "Wide", "fields": wide})).columns is not None
