"""JsonConverter: fast and reference paths agree, written values are read back, and any bytes give a value or a
ConnectError.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from herdmesh.connect.converters import Converter, make_converter
from herdmesh.connect.converters.json import converter as json_converter
from herdmesh.connect.converters.json import decoders, encoders
from herdmesh.connect.converters.json import schemas as json_schemas
from herdmesh.connect.converters.json.converter import JsonConverter
from herdmesh.connect.converters.json.decoders import Decoder
from herdmesh.connect.converters.json.encoders import Encoder
from herdmesh.connect.converters.json.nodes import value_of
from herdmesh.connect.converters.json.texts import Texts
from herdmesh.connect.errors import ConnectError, DataError
from herdmesh.connect.json_text import jackson, record_json
from herdmesh.connect.model.data import BigInteger, Float32, Int8, JavaDate, Struct
from herdmesh.connect.model.schemas import INT32, Schema, SchemaBuilder
from herdmesh.connect.model.struct_column import StructColumn
from libs.core.tests.connect.converters import test_golden_converters as golden
from libs.core.tests.connect.converters.converter_values import cases, schemas
from libs.core.tests.connect.golden_vectors import by, same_json, try_each, vectors
from tests.support.sizes import SOAKING, soak_or

_EXAMPLES = soak_or(150, 5_000)
_RANDOM_INPUTS = soak_or(3_000, 100_000)
_many = settings(max_examples=_EXAMPLES, deadline=None, derandomize=not SOAKING)

Case = tuple[Schema, list[Any]]


def converter(**config: str) -> Converter:
    """A configured JsonConverter; `_` in a key stands for a dot."""
    given = {f"value.converter.{key.replace('_', '.')}": value for key, value in config.items()}
    return make_converter("value.converter", {"value.converter": "JsonConverter", **given}, role="value")


def outcome(run: Callable[[], Any], schema: Schema | None = None) -> str:
    """The result as text in which different values differ."""
    try:
        return json.dumps(record_json.value_to(run(), schema))
    except ConnectError as error:
        return f"{type(error).__name__}: {error}"


def compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_converter, "_COMPILED_AFTER", 0)


_GROUPS = by(
    "converter",
    (
        vector
        for vector in vectors("converters.jsonl")
        # A byte buffer has no fast path.
        if "JsonConverter" in vector["converter"] and "$bytebuffer" not in json.dumps(vector["input"])
    ),
)


@pytest.mark.parametrize("name", _GROUPS)
def test_compiled_readers_and_writers_equal_the_java_class(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The golden vectors again, each by the fast path where it has one."""
    compiled_at_once(monkeypatch)
    try_each(_GROUPS[name], golden.as_the_java_class)


# --- fast and reference paths


_junk = st.sampled_from(
    ["null", "1", "-1", "300", "1.0", "-0.0", "-0", "1e400", "1e3", "12345678901234567890", '"x"', '"AQI="', '""',
     "true", "[]", "{}", "[1]", '{"a":1}', "0.1", "1.00000017881393432617187499", "1e-46", "-1e-400", '"\\ud800"', "01"]
)  # fmt: skip


@st.composite
def payloads(draw: st.DrawFn) -> tuple[Schema, bytes, bool]:
    """A schema and a payload: a value's text, possibly with a part replaced; and a setting."""
    schema, (value, *_) = draw(cases())
    texts = Texts(draw(st.booleans()), draw(st.booleans()))
    try:
        text = texts.text(schema, value)
    except DataError:
        text = "null"
    if draw(st.booleans()):
        tokens = [at for at, char in enumerate(text) if char in '0123456789tfn"[{,:']
        at = draw(st.sampled_from(tokens)) if tokens else 0
        text = text[:at] + draw(_junk) + text[at + draw(st.integers(0, 5)) :]
    return schema, text.encode("utf-8", "surrogatepass"), draw(st.booleans())


@_many
@given(payloads())
@example((Schema("FLOAT32"), b"1.00000017881393432617187499", True))
@example((Schema("FLOAT64"), b"-0.0", True))
def test_a_payload_is_read_alike_by_fast_and_reference_path(case: tuple[Schema, bytes, bool]) -> None:
    schema, payload, replace_null = case
    try:
        quick = Decoder(schema, replace_null=replace_null).read_all([payload])
    except decoders.Unusual:
        return
    careful = value_of(schema, jackson.loads_node(payload), replace_null=replace_null)
    assert record_json.value_to(quick[0], schema) == record_json.value_to(careful, schema)
    assert outcome(lambda: quick[0], schema) == outcome(lambda: careful, schema)


@_many
@given(cases(), st.booleans(), st.booleans())
def test_a_column_is_written_alike_by_fast_and_reference_path(case: Case, numeric: bool, replace_null: bool) -> None:
    schema, column = case
    texts = Texts(numeric, replace_null)
    try:
        quick = Encoder(schema, texts).write_all(column)
    except encoders.Unusual:
        return
    assert quick == [texts.text(schema, value).encode() for value in column]
    if schema.type == "STRUCT" and None not in column:
        fields = [[value.values[field.index] for value in column] for field in schema.fields]
        assert Encoder(schema, texts).write_all(StructColumn(schema, fields, len(column))) == quick


def test_ordinary_records_use_the_fast_path() -> None:
    """Otherwise the properties above would compare the reference path with itself, or nothing."""
    schema, value = _record()
    texts = Texts(numeric=False, replace_null=True)
    payload = texts.text(schema, value).encode()
    assert list(Decoder(schema, replace_null=True).read_all([payload])) == [value]
    assert Encoder(schema, texts).write_all([value]) == [payload]


def _record() -> tuple[Schema, Struct]:
    types = {"INT32": 7, "STRING": "x", "FLOAT64": 0.25, "FLOAT32": 1.5, "BOOLEAN": True, "BYTES": b"ab"}
    builder = SchemaBuilder("STRUCT").name("r").field("nothing", Schema("STRING", optional=True))
    for kind in types:
        builder.field(kind.lower(), Schema(kind))
    builder.field("many", Schema("ARRAY", value_schema=INT32))
    schema = builder.build()
    return schema, Struct(schema, [None, *types.values(), [1, 2]])


# --- round trips


@_many
@given(schemas())
def test_a_written_schema_is_read_back(schema: Schema) -> None:
    text = json_schemas.text_of(schema, Texts(numeric=False, replace_null=True).default)
    read = json_schemas.schema_of(jackson.loads_node(text.encode()), replace_null=True)
    assert record_json.schema_to(read) == record_json.schema_to(schema)


@_many
@given(cases(json_exact=True), st.booleans(), st.sampled_from(["BASE64", "NUMERIC"]))
def test_written_values_are_read_back(case: Case, compiled: bool, decimals: str) -> None:
    schema, column = case
    made = converter(decimal_format=decimals)
    with pytest.MonkeyPatch.context() as patch:
        if compiled:
            compiled_at_once(patch)
        written = made.write_many(column, schema)
        assert written == [made.write(value, schema) for value in column]
        read_schema, read = made.read_many(written)
    assert read_schema is schema or record_json.schema_to(read_schema) == record_json.schema_to(schema)  # pyright: ignore[reportArgumentType]
    for value, back in zip(column, read, strict=True):
        if decimals == "BASE64":
            assert same_json(record_json.value_to(back, schema), record_json.value_to(value, schema))
    assert made.write_many(read, schema) == written


# --- envelopes

_INT = '{"type":"int32","optional":false}'
_TRAPS = [
    f'{{"schema":{_INT},"payload":1}}',
    f'{{"schema":{_INT},"payload":1,"payload":2}}',
    f'{{"schema":{_INT},"payload":1,"x":2}}',
    f'{{"schema":{_INT},"payload":1}} trailing',
    f'{{"schema":{_INT},"payload":01}}',
    f'{{"payload":1,"schema":{_INT}}}',
    '{"payload":1,"schema":1}',
    '{"payload":1,"schema":{"type":"string"}}',
    f'{{"schema": {_INT}, "payload": 1}}',
    f'{{"schema": {_INT}, "payload": "x" }}',
    f'{{"schema":{_INT},"\\u0070ayload":5}}',
    '{"schema":null,"payload":{"a":-0.0}}',
    '{"schema":null,"payload":1}',
    '{"schema":null,"payload":1,"payload":2}',
    '{"schema":{"type":"string","optional":true},"payload":5}',
    '{"schema":{"type":"string","optional":true},"payload":null}',
    '{"schema":5,"payload":1}',
    "{}",
    "",
    " ",
    "null",
    "{",
]


@_many
@given(st.lists(st.sampled_from(_TRAPS) | st.none(), max_size=8))
def test_earlier_records_do_not_change_later_results(texts: list[str | None]) -> None:
    records = [None if text is None else text.encode() for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        compiled_at_once(patch)
        one = converter()
        for record in [*records, *records]:
            assert repr(_read(one, record)) == repr(_read(converter(schemas_cache_size="0"), record))
        try:
            found, column = one.read_many(records)
        except DataError:
            return
        per_record = found if isinstance(found, list) else [found] * len(column)
        assert [(str(schema), value) for schema, value in zip(per_record, column, strict=True)] == [
            (str(schema), value) for schema, value in map(converter().read, records)
        ]


def _read(one: Converter, record: bytes | None) -> Any:
    try:
        schema, value = one.read(record)
    except DataError as error:
        return str(error)
    return schema, value


def test_the_schema_cache_keeps_to_its_configured_size() -> None:
    one = converter(schemas_cache_size="2")
    for version in range(5):
        one.write(1, Schema("INT32", version=version))
        one.read(b'{"schema":{"type":"int32","version":%d},"payload":1}' % version)
    assert isinstance(one, JsonConverter)
    assert one.remembered() == (2, 2)


# --- arbitrary input

_CONTENT = '{"type":"struct","fields":[{"type":"float","field":"a","optional":true},{"type":"string","field":"b"}]}'
_CONFIGS = [{}, {"schemas_enable": "false"}, {"schema_content": _CONTENT}, {"decimal_format": "NUMERIC"}]


@_many
@given(st.sampled_from(_CONFIGS), st.binary(max_size=60) | payloads().map(lambda case: case[1]))
def test_any_payload_gives_a_value_or_a_connect_error(config: dict[str, str], data: bytes) -> None:
    one = converter(**config)
    for record in (
        data,
        b'{"schema":%b,"payload":%b}' % (data, data),
        b'{"schema":{"type":"float"},"payload":%b}' % data,
    ):
        outcome(lambda record=record: one.read(record)[1])


_ODD_VALUES: list[Any] = [
    None, True, 2**70, -1, 1e300, float("nan"), "\ud800", b"\xff", memoryview(b"ab"), (1, 2), [None], {1: None},
    {None: 1}, {(1, 2): "x"}, Int8(1), Float32(1e300), JavaDate(-1), Decimal("NaN"), Decimal("-0.00"), BigInteger(5),
    object(),
]  # fmt: skip


@_many
@given(cases(), cases(), st.sampled_from(_CONFIGS), st.lists(st.sampled_from(_ODD_VALUES), max_size=4), st.booleans())
def test_any_value_under_any_schema_gives_bytes_or_a_connect_error(
    one_case: Case, other: Case, config: dict[str, str], odd: list[Any], compiled: bool
) -> None:
    """Values of another schema, and values that fit no schema: alone, in a list, in a struct."""
    column = [*other[1], *odd, *([item] for item in odd), {"a": odd}]
    with pytest.MonkeyPatch.context() as patch:
        if compiled:
            compiled_at_once(patch)
        made = converter(**config)
        for schema in (one_case[0], None, Schema("ARRAY", value_schema=one_case[0])):
            for value in column:
                with contextlib.suppress(ConnectError):
                    made.write(value, schema)
            with contextlib.suppress(ConnectError):
                made.write_many(column, schema)
        if one_case[0].type == "STRUCT":
            for value in column:
                broken = Struct(one_case[0], [value for _ in one_case[0].fields])
                with contextlib.suppress(ConnectError):
                    made.write(broken, one_case[0])


@pytest.mark.parametrize("config", _CONFIGS, ids=str)
def test_random_bytes_give_a_value_or_a_connect_error(config: dict[str, str]) -> None:
    one, chance = converter(**config), random.Random(6)
    seeds = [trap.encode() for trap in _TRAPS] + [_CONTENT.encode(), b"[1.5e3,[]]"]
    for _ in range(_RANDOM_INPUTS):
        data = bytearray(chance.choice(seeds) if chance.random() < 0.7 else chance.randbytes(chance.randrange(24)))
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(data) + 1)
            data[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        with contextlib.suppress(ConnectError):
            schema, value = one.read(bytes(data))
            one.write(value, schema)
        with contextlib.suppress(ConnectError):
            one.write(bytes(data), chance.choice([None, INT32, Schema("BYTES"), Schema("STRING", optional=True)]))
