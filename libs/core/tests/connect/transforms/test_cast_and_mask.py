"""Cast and MaskField beyond the golden vectors: casts inlined in the loop equal the function, and Java's parsing and
narrowing at their edges.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from herdmesh.connect.chain.compiled_loop import Loop, Step
from herdmesh.connect.errors import ClassCastError, DataError
from herdmesh.connect.java.number_reading import (
    decimal_to_long,
    exact_float32,
    float32,
    float_to_integer,
    read_decimal,
    read_double,
    read_float,
    read_integer,
)
from herdmesh.connect.model.checks import check_value, fits
from herdmesh.connect.model.data import Batch, Float32, Int8, Int32, Int64, JavaDate, Struct
from herdmesh.connect.model.schemas import INT32, INT64, Schema, SchemaBuilder, timestamp_schema
from herdmesh.connect.transforms import make_transformation
from herdmesh.connect.transforms.base import Shape
from herdmesh.connect.transforms.kafka.casting import caster, inline

TARGETS = ("INT8", "INT16", "INT32", "INT64", "FLOAT32", "FLOAT64", "BOOLEAN", "STRING")
SOURCES = (*TARGETS, "BYTES")


def values_of(source: str) -> st.SearchStrategy[Any]:
    """Plain values of a type."""
    if source.startswith("INT"):
        bits = int(source[3:])
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    return {
        "FLOAT32": st.floats(width=32), "FLOAT64": st.floats(), "BOOLEAN": st.booleans(), "BYTES": st.binary(),
        "STRING": st.text() | st.integers().map(str) | st.sampled_from(["true", "TRUE", "NaN", "1e3", " 1.5f "]),
    }[source]  # fmt: skip


def outcome(run: Any) -> Any:
    """The value, or the error's text; all NaN count as equal."""
    try:
        value = run()
    except DataError as error:
        return str(error)
    return type(value), "NaN" if value != value else value, math.copysign(1, value) if type(value) is float else 0


@given(st.data())
def test_an_inlined_cast_equals_the_cast_function(data: st.DataObject) -> None:
    source, target = data.draw(st.sampled_from(SOURCES)), data.draw(st.sampled_from(TARGETS))
    value = data.draw(st.none() | values_of(source))
    schema, after = Schema(source, optional=True), Schema(target, optional=True)
    function = outcome(lambda: caster(schema, target)(value))
    written = inline(schema, target, "v")
    if written is not None:
        condition = eval(f"type(v) is {written[0]}", {"v": value})
        if condition:
            assert outcome(lambda: eval(written[1], {"v": value})) == function
        else:
            assert value is None or isinstance(value, float)
    if not isinstance(function, str):
        check_value(after, caster(schema, target)(value))


@given(st.sampled_from(SOURCES).flatmap(values_of), st.sampled_from(TARGETS))
def test_without_a_schema_the_target_type_sets_the_class(value: Any, target: str) -> None:
    try:
        found = caster(None, target)(value)
    except DataError:
        return
    if target not in ("INT64", "FLOAT64"):  # the classes of plain numbers
        assert fits(Schema(target), found)
        assert type(found) not in (int, float)


@given(st.sampled_from(SOURCES).flatmap(values_of), st.sampled_from(TARGETS))
def test_a_field_of_a_map_is_cast_like_by_the_function(value: Any, target: str) -> None:
    function = outcome(lambda: caster(None, target)(value))
    assert outcome(lambda: one({"spec": f"f:{target}"}, "Cast", {"f": value}, None)[0]["f"]) == function
    assert outcome(lambda: one({"spec": target}, "Cast", value, None)[0]) == function


def one(config: dict[str, str], name: str, value: Any, schema: Schema | None) -> tuple[Any, Schema | None]:
    """The value and its schema after the transformation."""
    made = make_transformation("type", f"{name}$Value")
    made.configure(config)
    after = Loop([Step("t", made)], Shape(None, schema), owned=False).run(
        Batch("t", 0, [None], [value], (), (), None, schema)
    )
    return after.values[0], after.value_schema


ROW = SchemaBuilder("STRUCT").field("i", Schema("INT64", default=7)).field("s", Schema("STRING", optional=True)).build()


def test_fields_of_a_struct_are_cast() -> None:
    found, schema = one({"spec": "i:string, s : INT8 ,gone:int8"}, "Cast", Struct(ROW, [300, "-5"]), ROW)
    assert schema is not None
    assert found == Struct(schema, ["300", -5])
    assert [field.schema for field in schema.fields] == [
        Schema("STRING", default="7"), Schema("INT8", optional=True),
    ]  # fmt: skip
    found, _ = one({"spec": "i:float64"}, "Cast", Struct(ROW, [None, None]), ROW)
    assert found.values == [7.0, None]
    with pytest.raises(DataError, match='null used for required field: "i", schema type: INT8'):
        one({"spec": "i:int8", "replace.null.with.default": "false"}, "Cast", Struct(ROW, [None, None]), ROW)


def test_a_cast_number_gets_the_class_of_the_new_schema() -> None:
    found, _ = one({"spec": "i:int64"}, "Cast", Struct(ROW, [Int64(5), None]), ROW)
    assert type(found.values[0]) is int


def test_fields_of_a_map_are_cast() -> None:
    value = {"a": 300, "b": 1.5, "c": "x"}
    found, _ = one({"spec": "a:int8,b:string,d:int8"}, "Cast", value, None)
    assert found == {"a": 44, "b": "1.5", "c": "x", "d": None}
    assert type(found["a"]) is Int8
    assert value == {"a": 300, "b": 1.5, "c": "x"}


@pytest.mark.parametrize(("spec", "wanted"), [("int8:", Int8(5)), ("INT32", Int32(5)), (" int32 :", Int32(5))])
def test_whole_values_are_cast(spec: str, wanted: int) -> None:
    found, _ = one({"spec": spec}, "Cast", 5, None)
    assert (type(found), found) == (type(wanted), wanted)


def test_a_cast_timestamp_keeps_its_name() -> None:
    schema = timestamp_schema()
    found, after = one({"spec": "string"}, "Cast", JavaDate(0), schema)
    assert (found, after) == ("00:00:00.000Z", Schema("STRING", name=schema.name, version=1))
    with pytest.raises(ClassCastError):
        one({"spec": "int8"}, "Cast", 5, schema)


@pytest.mark.parametrize(
    ("kind", "replacement", "wanted"),
    [
        ("INT8", "300", 44), ("INT16", "3.9", 3), ("INT32", "1e3", 1000), ("INT64", "9223372036854775808", -(1 << 63)),
        ("FLOAT32", "0.1", float32(0.1)), ("FLOAT64", "0.1", 0.1), ("STRING", "0.1", "0.1"),
    ],
)  # fmt: skip
def test_a_mask_replacement_has_the_class_of_the_schema(kind: str, replacement: str, wanted: Any) -> None:
    schema = SchemaBuilder("STRUCT").field("f", Schema(kind)).build()
    value = {"STRING": "x"}.get(kind, 1.0 if kind.startswith("FLOAT") else 1)
    found, _ = one({"fields": "f", "replacement": replacement}, "MaskField", Struct(schema, [value]), schema)
    assert (type(found.values[0]), found.values[0]) == (type(wanted), wanted)
    found.validate()


def test_masked_lists_are_not_shared_between_records() -> None:
    schema = SchemaBuilder("STRUCT").field("f", SchemaBuilder.array(INT32).build()).build()
    given_struct = Struct(schema, [[1]])
    first, _ = one({"fields": "f"}, "MaskField", given_struct, schema)
    second, _ = one({"fields": "f"}, "MaskField", given_struct, schema)
    assert first.values == second.values == [[]]
    assert first.values[0] is not second.values[0]


def test_schemaless_masks_keep_the_class_of_the_value() -> None:
    value = {"a": Int8(1), "b": Float32(1.0), "c": 1}
    found, _ = one({"fields": "a,b,c", "replacement": "300.7"}, "MaskField", value, None)
    assert {name: (type(item), item) for name, item in found.items()} == {
        "a": (Int8, 44), "b": (Float32, float32(300.7)), "c": (int, 300),
    }  # fmt: skip


class TestReading:
    @pytest.mark.parametrize("text", ["", " 1", "1_0", "0x1", "1.0", "--1", "\U0001d7d8", "9223372036854775808", "1L"])
    def test_text_that_is_no_long_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"^"):
            read_integer(text, 64)

    def test_longs_are_parsed_as_in_java(self) -> None:
        assert [read_integer(text, 64) for text in ("+5", "-0", "\u0663", "-9223372036854775808")] == [
            5, 0, 3, -(1 << 63),
        ]  # fmt: skip

    @pytest.mark.parametrize("text", ["", "1_0", "inf", "nan", "infinity", "0x10", "1e", ".", "\u0663", "1 2", "NaNf"])
    def test_text_that_is_no_double_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"^"):
            read_double(text)

    @pytest.mark.parametrize(
        ("text", "value"),
        [("1.", 1.0), (".5f", 0.5), (" 1D\n", 1.0), ("-Infinity", -math.inf), ("0x1.8p1", 3.0), ("0x1p9999", math.inf),
         ("-0x1p9999d", -math.inf), ("1e999", math.inf), ("-0", -0.0)],
    )  # fmt: skip
    def test_doubles_are_parsed_as_in_java(self, text: str, value: float) -> None:
        assert read_double(text) == value
        assert math.copysign(1, read_double(text)) == math.copysign(1, value)

    @pytest.mark.parametrize("text", ["", ".", "1e", "1f", "NaN", "1_0", "1e99999999999", "1e-2147483648", "0x1"])
    def test_text_that_is_no_decimal_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"^"):
            read_decimal(text)

    def test_decimals_are_parsed_as_in_java(self) -> None:
        assert str(read_decimal("1.50")) == "1.50"
        assert str(read_decimal("-0.0")) == "0.0"
        assert read_decimal("1e0000000000001") == 10
        assert str(read_decimal("0.1e2147483647")) == "1E+2147483646"
        for text in ("1e2147483648", "0.1e2147483648", "0e2147483648", "1.5e-2147483647"):
            with pytest.raises(ValueError, match=text):  # an exponent beyond an int, whatever the resulting scale
                read_decimal(text)

    @given(st.fractions(max_denominator=1 << 60))
    @example(Fraction((1 << 24) + 1) + Fraction(1, 1 << 40))
    @example(Fraction((1 << 24) + 1))
    def test_floats_are_rounded_to_the_nearest(self, value: Fraction) -> None:
        text = f"{value.numerator * 10**70 // value.denominator}E-70"
        exact = Decimal(text)
        found = read_float(text)
        assert found == exact_float32(exact)
        if math.isfinite(found):
            bits = struct.unpack(">i", struct.pack(">f", found))[0]
            near = [struct.unpack(">f", struct.pack(">i", bits + step))[0] for step in (-1, 1)]
            distance = abs(Fraction(exact) - Fraction(found))
            assert all(distance <= abs(Fraction(exact) - Fraction(one)) for one in near if math.isfinite(one))

    @pytest.mark.parametrize(
        ("value", "bits", "wanted"),
        [(1e20, 8, -1), (1e20, 32, (1 << 31) - 1), (-1e20, 16, 0), (math.nan, 64, 0), (math.inf, 64, (1 << 63) - 1),
         (-1.9, 32, -1), (300.0, 8, 44)],
    )  # fmt: skip
    def test_numbers_are_narrowed_as_in_java(self, value: float, bits: int, wanted: int) -> None:
        assert float_to_integer(value, bits) == wanted

    def test_decimals_wrap_around(self) -> None:
        assert decimal_to_long(Decimal(1 << 63)) == -(1 << 63)
        assert decimal_to_long(Decimal("-1.9")) == -1
        assert decimal_to_long(Decimal("1e63")) == (10**63 + (1 << 63)) % (1 << 64) - (1 << 63)
        assert caster(INT64, "INT32")(1 << 31) == -(1 << 31)
