"""ProtobufConverter over HTTP, against the fake of `fake_registry`: texts and message indexes, Confluent's rules both
ways, logical types, random schemas, and random bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.converters.base import Converter
from herdmesh.connect.converters.protobuf.files import (
    ProtobufFile,
    compiled,
    decode_indexes,
    encode_indexes,
    in_pool,
    text_of,
)
from herdmesh.connect.converters.protobuf.from_connect import protobuf_file
from herdmesh.connect.converters.protobuf.known_messages import known_files
from herdmesh.connect.converters.protobuf.options import ProtobufOptions
from herdmesh.connect.converters.protobuf.to_connect import connect_schema
from herdmesh.connect.errors import DataError
from herdmesh.connect.model.data import JavaDate, Struct
from herdmesh.connect.model.schemas import (
    INT8,
    INT32,
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    date_schema,
    decimal_schema,
    time_schema,
    timestamp_schema,
)
from herdmesh.connect.registry.wire import frame
from libs.core.tests.connect.registry.fake_registry import FakeRegistry
from libs.core.tests.connect.registry.typed_values import EXAMPLES, converter, plain, structs, typed
from tests.support.sizes import soak_or

_topics = itertools.count()
NAME = "ProtobufConverter"
PREFIX = "io.confluent.connect.protobuf."
FLIGHT = Schema("STRUCT", name="org.example.Flight", fields=[("id", INT64), ("to", OPTIONAL_STRING), ("n", INT8)])
TEXT = """syntax = "proto3";
package org.example;

import "confluent/meta.proto";

message Flight {
  int64 id = 1;
  string to = 2;
  int32 n = 3 [(confluent.field_meta) = { params: [{ key: "connect.type", value: "int8" }] }];
}
"""
OF_CONFLUENT = """syntax = "proto3";
package a.b;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Unused {}
message Outer {
  message Inner { uint64 big = 1; fixed32 small = 2; }
  enum Colour { RED = 0; BLUE = 5; }
  string name = 1;
  oneof kind { string text = 2; Inner inner = 3; }
  optional int32 maybe = 4;
  map<string, Inner> by_name = 5;
  repeated Colour colours = 6;
  google.protobuf.Timestamp at = 7;
  google.protobuf.StringValue wrapped = 8;
}
"""


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    made = FakeRegistry()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def of_confluent() -> ProtobufFile:
    return compiled(OF_CONFLUENT)


def registered(registry: FakeRegistry, topic: str, text: str, **more: Any) -> bytes:
    body = {"schema": text, "schemaType": "PROTOBUF", **more}
    return frame(registry.answer("POST", f"/subjects/{topic}-value/versions", body)[1]["id"])


_made: dict[str, Converter] = {}


def shared(registry: FakeRegistry) -> Converter:
    """One converter for all examples, as a task has one for all records."""
    return _made.setdefault(registry.url, converter(NAME, registry.url))


def test_schema_text_and_message_bytes(registry: FakeRegistry) -> None:
    made = converter(NAME, registry.url).for_topic("flights")
    data = made.write(Struct(FLIGHT, [7, "OSL", -3]), FLIGHT) or b""
    assert registry.answer("GET", "/subjects/flights-value/versions/1", {})[1]["schema"] == TEXT
    assert data[5:10] == b"\x00\x08\x07\x12\x03"
    schema, value = made.read(data)
    assert plain(value) == [7, "OSL", -3]
    assert schema is not None
    assert (schema.name, schema.version) == ("Flight", 1)
    assert [(one.schema.type, one.schema.optional, one.schema.parameters) for one in schema.fields] == [
        (kind, True, {f"{PREFIX}Tag": str(at)}) for at, kind in enumerate(("INT64", "STRING", "INT8"), 1)
    ]
    # a value that was read is written under the same schema text but for the package, which only the enhanced support
    # keeps
    again = made.write(value, schema)
    assert again is not None
    assert plain(made.read(again)[1]) == [7, "OSL", -3]
    assert (made.read(None), made.write(None, None), made.write(None, FLIGHT)) == ((None, None), None, None)


def test_message_indexes_are_written_as_confluent_writes_them() -> None:
    assert encode_indexes([0]) == b"\0"
    assert encode_indexes([1, 300]) == b"\x04\x02\xd8\x04"
    for indexes in ([0], [3], [1, 300], [0, 0, 7]):
        data = b"head" + encode_indexes(indexes) + b"rest"
        assert decode_indexes(data, 4) == (indexes, len(data) - 4)
    for data in (b"", b"\x04\x02", b"\xff" * 6, b"\x01", b"\x80\x80\x01"):
        with pytest.raises(DataError):
            decode_indexes(data, 0)


def test_nested_messages_by_index(of_confluent: ProtobufFile) -> None:
    assert of_confluent.message([1, 0]).full_name == "a.b.Outer.Inner"
    assert of_confluent.indexes("a.b.Outer.Inner") == [1, 0]
    for indexes in ([2], [1, 1], [-1], [0, 0]):
        with pytest.raises(DataError, match="No message at the place"):
            of_confluent.message(indexes)


def test_schemas_of_confluents_documentation_are_mapped_alike(of_confluent: ProtobufFile) -> None:
    schema = connect_schema(of_confluent.named("a.b.Outer"), ProtobufOptions())
    assert schema.name == "Outer"
    assert [field.name for field in schema.fields] == [
        "kind_0", "name", "maybe", "by_name", "colours", "at", "wrapped",
    ]  # fmt: skip
    kind, name, maybe, by_name, colours, at, wrapped = (field.schema for field in schema.fields)
    assert (kind.name, kind.optional, [one.name for one in kind.fields]) == (
        f"{PREFIX}Union.kind",
        True,
        ["text", "inner"],
    )
    assert name.parameters == {f"{PREFIX}Tag": "1"}
    assert maybe.optional
    assert (by_name.type, by_name.name) == ("MAP", "by_name")
    assert colours.value_schema is not None
    assert (colours.value_schema.name, colours.value_schema.parameters) == (
        "Colour", {f"{PREFIX}Enum": "Colour", f"{PREFIX}Enum.RED": "0", f"{PREFIX}Enum.BLUE": "5"},
    )  # fmt: skip
    assert (at.name, at.type) == ("org.apache.kafka.connect.data.Timestamp", "INT64")
    assert wrapped.type == "STRUCT"
    inner = kind.fields[1].schema.fields
    assert [one.schema.parameters for one in inner] == [
        {f"{PREFIX}Type": "uint64", f"{PREFIX}Tag": "1"}, {f"{PREFIX}Type": "fixed32", f"{PREFIX}Tag": "2"},
    ]  # fmt: skip
    unwrapped = connect_schema(of_confluent.named("a.b.Outer"), ProtobufOptions(wrappers=True, enhanced=True))
    assert (unwrapped.name, unwrapped.fields[6].schema.type) == ("a.b.Outer", "STRING")
    flat = connect_schema(of_confluent.named("a.b.Outer"), ProtobufOptions(flat_unions=True, int_enums=True))
    assert [field.name for field in flat.fields][:3] == ["text", "inner", "name"]


def test_values_of_confluents_converter_are_mapped_alike(registry: FakeRegistry, of_confluent: ProtobufFile) -> None:
    outer, inner = (GetMessageClass(of_confluent.named(f"a.b.Outer{more}")) for more in ("", ".Inner"))
    head = registered(registry, "outer", OF_CONFLUENT) + encode_indexes([1])
    made = converter(NAME, registry.url).for_topic("outer")
    message = outer(name="x", inner=inner(big=2**64 - 1, small=2**32 - 1), by_name={"k": inner(big=1)}, colours=[5, 9],
                    maybe=0, at={"seconds": 1, "nanos": 5_000_000})  # fmt: skip
    _, value = made.read(head + message.SerializeToString())
    assert plain(value) == [
        [None, [-1, 2**32 - 1]], "x", 0, {"k": [1, 0]}, ["BLUE", "UNKNOWN_ENUM_VALUE_Colour_9"], JavaDate(1005), None,
    ]  # fmt: skip
    assert plain(made.read(head)[1]) == [None, "", None, {}, [], None, None]
    assert plain(made.read(head[:-2] + encode_indexes([0]))[1]) == []
    schema, read = made.read(head + outer(text="t", colours=[0], maybe=3).SerializeToString())
    assert plain(made.read(made.write(read, schema))[1]) == plain(read)


def test_wrappers_and_optionals(registry: FakeRegistry) -> None:
    schema = Schema("STRUCT", name="N", fields=[("a", OPTIONAL_INT64), ("b", OPTIONAL_STRING), ("c", INT32)])
    for option in ("wrapper_for_nullables", "optional_for_nullables"):
        made = converter(NAME, registry.url, **{option: "true"}).for_topic(option)
        read_schema, value = made.read(made.write(Struct(schema, [None, "", 0]), schema))
        assert plain(value) == [None, "", 0]
        assert read_schema is not None
        assert [field.schema.optional for field in read_schema.fields] == [True, True, False]
    plainly = converter(NAME, registry.url).for_topic("plainly")
    assert plain(plainly.read(plainly.write(Struct(schema, [None, None, 0]), schema))[1]) == [0, "", 0]


def test_root_values_are_wrapped_in_a_message(registry: FakeRegistry) -> None:
    for at, (schema, value) in enumerate(
        [(INT64, -5), (STRING, "x"), (Schema("BYTES"), b"y"), (Schema("FLOAT64"), 1.5)]
    ):
        made = converter(NAME, registry.url).for_topic(f"root{at}")
        read_schema, read = made.read(made.write(value, schema))
        assert (read_schema, read) == (schema.replace(version=1), value)
    for schema in (Schema("ARRAY", value_schema=INT64), decimal_schema(2)):
        with pytest.raises(DataError, match="Unsupported root schema"):
            converter(NAME, registry.url).for_topic("r").write([], schema)


def test_logical_types_survive_the_round_trip(registry: FakeRegistry) -> None:
    schema = Schema("STRUCT", name="L", fields=[
        ("d", decimal_schema(2)), ("day", date_schema()), ("time", time_schema()), ("at", timestamp_schema()),
    ])  # fmt: skip
    made = converter(NAME, registry.url).for_topic("logical")
    for values in (
        [Decimal("-1.50"), JavaDate(-200_000 * 86_400_000), JavaDate(86_399_999), JavaDate(-1)],
        [Decimal("0.00"), JavaDate(19_000 * 86_400_000), JavaDate(0), JavaDate(10**12)],
    ):
        read_schema, value = made.read(made.write(Struct(schema, values), schema))
        assert plain(value) == values
        assert read_schema is not None
        assert read_schema.fields[0].schema.parameters == {"scale": "2", f"{PREFIX}Tag": "1"}
    for at, bad in ((1, JavaDate(5)), (2, JavaDate(-1)), (3, JavaDate(10**17))):
        with pytest.raises(DataError):
            made.write(Struct(schema, [*values[:at], bad, *values[at + 1 :]]), schema)


@pytest.mark.parametrize("options", [{}, {"wrapper_for_nullables": "true"}, {"optional_for_nullables": "true"}])
def test_null_in_a_map(registry: FakeRegistry, options: dict[str, str]) -> None:
    """It is null again where Protobuf distinguishes it from a default: in messages, and in numbers with one of the
    options.
    """
    inner = Schema("STRUCT", name="P", optional=True, fields=[("x", INT32)])
    of_value = [
        decimal_schema(2, optional=True), date_schema(optional=True), timestamp_schema(optional=True), inner,
        OPTIONAL_INT64,
    ]  # fmt: skip
    schema = Schema("STRUCT", name="N", fields=[
        (f"m{at}", Schema("MAP", name=f"of{at}", key_schema=STRING, value_schema=one))
        for at, one in enumerate(of_value)
    ])  # fmt: skip
    made = converter(NAME, registry.url, **options).for_topic(f"null in map {options}")
    present = [Decimal("1.50"), JavaDate(0), JavaDate(1), Struct(inner, [3]), 7]
    values = [{"a": None, "b": one} for one in present]
    read_schema, read = made.read(made.write(Struct(schema, values), schema))
    number = None if options else 0
    assert plain(read) == [*map(plain, values[:-1]), {"a": number, "b": 7}]
    assert read_schema is not None
    for field in read_schema.fields:
        assert field.schema.value_schema is not None
        assert field.schema.value_schema.optional


def test_null_in_a_list_is_refused_with_the_field(registry: FakeRegistry) -> None:
    schema = Schema("STRUCT", name="N", fields=[("tags", Schema("ARRAY", value_schema=OPTIONAL_STRING))])
    with pytest.raises(DataError, match=r"^The field N\.tags has a null in its list or map, .*: remove it$"):
        converter(NAME, registry.url).for_topic("null in list").write(Struct(schema, [["a", None]]), schema)


def test_schema_references_are_resolved(registry: FakeRegistry) -> None:
    port = 'syntax = "proto3"; package p; message Port { string code = 1; }'
    registry.answer("POST", "/subjects/port/versions", {"schema": port, "schemaType": "PROTOBUF"})
    reference = {"name": "p/port.proto", "subject": "port", "version": 1}
    leg = 'syntax = "proto3"; import "p/port.proto"; message Leg { p.Port at = 1; }'
    head = registered(registry, "legs", leg, references=[reference])
    _, value = converter(NAME, registry.url).for_topic("legs").read(head + b"\x00\x0a\x05\x0a\x03OSL")
    assert plain(value) == [["OSL"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("message", "Expected"),
        ('syntax = "proto3"; message M { None n = 1; }', '"None" is not defined'),
        ('syntax = "proto3"; import "../x.proto"; message M {}', r"\.\./x.proto"),
    ],
)
def test_invalid_schema_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        compiled(text)


def test_a_recursive_message_is_refused_by_name() -> None:
    file = compiled('syntax = "proto3"; message L { L next = 1; }')
    with pytest.raises(DataError, match="L contains itself"):
        connect_schema(file.named("L"), ProtobufOptions())


def test_known_files_equal_their_texts() -> None:
    lines = "".join(f'import "{name}"; ' for name in known_files() if name != "google/protobuf/descriptor.proto")
    file = compiled(f'syntax = "proto3"; {lines} message M {{ confluent.type.Decimal d = 1; google.type.Date e = 2; }}')
    for name in ("confluent.type.Decimal", "google.type.Date", "google.type.TimeOfDay", "confluent.Meta"):
        assert file.named(name).fields


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (Schema("ARRAY", value_schema=Schema("ARRAY", value_schema=INT32)), "Array cannot be nested"),
        (Schema("MAP", key_schema=STRING, value_schema=Schema("ARRAY", value_schema=INT32)), "map of lists"),
    ],
)
def test_schemas_that_protobuf_cannot_express_are_refused(schema: Schema, message: str) -> None:
    with pytest.raises(DataError, match=message):
        protobuf_file(Schema("STRUCT", fields=[("f", schema)]), ProtobufOptions())


def test_two_messages_of_one_name() -> None:
    one, other = (Schema("STRUCT", name="P", fields=[("x", kind)]) for kind in (INT32, STRING))
    with pytest.raises(DataError, match="Two schemas are called P"):
        protobuf_file(Schema("STRUCT", fields=[("f", one), ("g", other)]), ProtobufOptions())


def test_a_random_schema_text_compiles_to_the_messages_it_was_made_from() -> None:
    """protoc compiles the text to the messages from which it was made."""
    schema = Schema("STRUCT", name="a.B", fields=[
        ("m", Schema("MAP", name="some_map", key_schema=STRING, value_schema=FLIGHT)),
        ("l", Schema("ARRAY", value_schema=decimal_schema(3))), ("o", OPTIONAL_STRING),
    ])  # fmt: skip
    file, name = protobuf_file(schema, ProtobufOptions(optional_label=True))
    made, read = in_pool(file), compiled(text_of(file))
    for one in (made, read):
        one.file.name = ""
    assert read.named(name).fields_by_name.keys() == made.named(name).fields_by_name.keys()
    assert [one.full_name for one in read.named(name).nested_types] == [
        one.full_name for one in made.named(name).nested_types
    ]
    assert connect_schema(read.named(name), ProtobufOptions()) is connect_schema(made.named(name), ProtobufOptions())


@settings(max_examples=soak_or(12, 300), **EXAMPLES)
@given(st.data())
def test_written_values_are_read_back(registry: FakeRegistry, data: st.DataObject) -> None:
    schema, values = structs(data.draw(st.lists(typed(of_protobuf=True, nulls=False), min_size=1, max_size=3)))
    many = [data.draw(values) for _ in range(3)]
    made = shared(registry).for_topic(f"t{next(_topics)}")
    raw = made.write_many(many, schema)
    _, read = made.read_many(raw)
    assert [plain(value) for value in read] == [plain(value) for value in many]


@settings(max_examples=soak_or(200, 20_000), **EXAMPLES)
@given(st.binary(max_size=40))
def test_random_bytes_are_a_value_or_a_data_error(registry: FakeRegistry, payload: bytes) -> None:
    made = shared(registry).for_topic("fuzz")
    wide = Schema("STRUCT", name="W", fields=[
        ("m", Schema("MAP", key_schema=INT32, value_schema=STRING)), ("d", decimal_schema(1)), ("e", date_schema()),
        ("t", time_schema(optional=True)), ("f", Schema("STRUCT", name="F", optional=True, fields=[("x", INT64)])),
    ])  # fmt: skip
    head = made.write(Struct(wide, [{}, Decimal("1.0"), JavaDate(0), None, None]), wide) or b""
    for data in (payload, head[:6] + payload, head[:5] + payload, bytes(5) + payload):
        try:
            made.read(data)
        except DataError:
            continue
