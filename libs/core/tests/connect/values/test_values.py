"""Connect's `Values`: text to values and back, and values to each other, beyond the golden vectors."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from herdmesh.connect.converters import make_header_converter
from herdmesh.connect.errors import ConnectError, DataError, NumberFormatError, SchemaBuilderError
from herdmesh.connect.model.checks import check_value
from herdmesh.connect.model.data import BigInteger, Float32, Header, Int8, Int16, JavaDate, MapKey, Struct
from herdmesh.connect.model.logical import from_internal, to_internal
from herdmesh.connect.model.schemas import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    SchemaBuilder,
    date_schema,
    decimal_schema,
    time_schema,
    timestamp_schema,
)
from herdmesh.connect.values import convert, infer_schema, parse_text, text_of, to_boolean, to_double, to_long
from herdmesh.connect.values.tokens import Tokens

DAY_MS = 86_400_000
INTEGERS = {8: INT8, 16: INT16, 32: INT32, 64: INT64}


class TestTokens:
    @pytest.mark.parametrize(
        ("text", "tokens"),
        [
            ("a:b,c", ["a", ":", "b", ",", "c"]),
            ('{"k" : [1]}', ["{", '"', "k", '"', " ", ":", " ", "[", "1", "]", "}"]),
            (r"a\:b", [r"a\:b"]),
            (r"a\\:b", [r"a\\", ":", "b"]),
            ("\\", ["\\"]),
            ("a\\", ["a\\"]),
            (r"\"", [r"\""]),
            ("a\nb", ["a\nb"]),
        ],
    )
    def test_a_text_is_split_into_tokens(self, text: str, tokens: list[str]) -> None:
        assert read_all(text) == tokens

    @given(st.text(alphabet='\\:,{}[]" ab1\n'))
    def test_the_tokens_add_up_to_the_text(self, text: str) -> None:
        assert "".join(read_all(text)) == text

    def test_consuming_a_token_skips_blanks_before_it(self) -> None:
        tokens = Tokens(" ,  [x")
        assert not tokens.consume("[")
        assert tokens.mark() == 1
        assert tokens.consume(",")
        assert tokens.consume("[")
        assert tokens.take(2) is None
        assert tokens.take(1) == "x"
        assert not tokens.consume("x")


def read_all(text: str) -> list[str]:
    """Every token."""
    tokens = Tokens(text)
    found: list[str] = []
    while tokens.has_next():
        found.append(tokens.next())
    return found


class TestParsing:
    @given(st.integers(-(1 << 70), 1 << 70))
    def test_whole_numbers_have_the_smallest_type(self, value: int) -> None:
        schema = next(
            (schema for bits, schema in INTEGERS.items() if -(1 << bits - 1) <= value < 1 << bits - 1),
            decimal_schema(0),
        )
        assert parse_text(str(value)) == (schema, value)
        assert parse_text(f" {value} ") == (schema, value)

    @given(st.text())
    @example("[" * 40)
    @example('{"a":[1,2')
    @example("1e99999999999")
    @example("0e2147483640")
    @example("9" * 400)
    def test_every_text_is_some_value_that_fits_its_schema(self, text: str) -> None:
        schema, value = parse_text(text)
        if schema is None:
            assert value is None
        elif schema.type not in ("ARRAY", "MAP"):
            check_value(schema, value)

    @given(st.lists(st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.booleans()), min_size=1))
    def test_lists_have_a_common_type_or_none(self, values: list[int | bool]) -> None:
        schema, found = parse_text(text_of(values))
        assert schema is not None
        assert found == values
        kinds = {type(value) for value in values}
        assert (schema.value_schema is None) == (len(kinds) == 2)
        if schema.value_schema is not None:
            check_value(schema, found)

    @pytest.mark.parametrize(
        ("text", "schema", "value"),
        [
            ('[1,"a",2]', Schema("ARRAY"), [Int8(1), "a", Int8(2)]),  # one odd element leaves each its own type
            ("[1, 1970-01-03]", Schema("ARRAY", value_schema=date_schema()), [JavaDate(DAY_MS), JavaDate(2 * DAY_MS)]),
            ("[2019-08-23,70000]", STRING, "[2019-08-23,70000]"),  # a schemaless number is no list element
            ("{1:1,300:2}", SchemaBuilder.map(INT16, INT8).build(), {1: 1, 300: 2}),
            ('{[1]:1,["a"]:2}', None, {(Int8(1),): 1, ("a",): 2}),
            ('{{"a":1}:2}', None, {MapKey({"a": 1}): 2}),
            ('["  "]', Schema("ARRAY", value_schema=STRING), [""]),  # blank tokens are skipped
            ('["a : b"]', Schema("ARRAY", value_schema=STRING), ["a : b"]),
            ('[": "]', Schema("ARRAY", value_schema=STRING), [":"]),
            ('["a]', STRING, '["a]'),
            ("[ null , null ]", Schema("ARRAY"), [None, None]),
            ("[[1,]]", None, [[1]]),
            ("1:2", INT8, 1),
            ("  ", STRING, "  "),
            ("\U0001d7d8", STRING, "\U0001d7d8"),  # a digit beyond Java's 16-bit chars
            ("-.5", FLOAT32, -0.5),
            ("-0.0", INT8, 0),
            ("12345678901234567890.0", FLOAT32, 12345679395506094080.0),
            ("1e9999999999", STRING, "1e9999999999"),
            ("1e-5000000000", STRING, "1e-5000000000"),
            ("0e99999", INT8, 0),
            ("2019-08-23x", STRING, "2019-08-23x"),
            ("019-08-23x", Schema("INT32", name=date_schema().name, version=1), None),
        ],
    )  # fmt: skip
    def test_the_type_of_a_text_is_detected(self, text: str, schema: Schema | None, value: Any) -> None:
        found_schema, found = parse_text(text)
        if schema is not None:
            assert found_schema is schema
        if value is not None:
            assert found == value

    def test_elements_without_a_common_type_keep_their_own(self) -> None:
        _, found = parse_text('[1, 300, 1.5, "x"]')
        assert [type(item) for item in found] == [Int8, Int16, Float32, str]

    @given(st.recursive(
        st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(alphabet="ab \\\"1:é"),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet="ab\"\\"), inner), max_leaves=8,
    ))  # fmt: skip
    def test_written_headers_can_be_read(self, value: Any) -> None:
        converter = make_header_converter("header.converter", {})
        data = converter.write_header(Header("h", value))
        read = converter.read_header("h", data)
        assert (data is None) == (value is None)
        if isinstance(value, bool | int):
            assert read.value == value

    def test_too_deeply_nested_text_stays_bytes(self) -> None:
        data = b"[" * 100_000
        read = make_header_converter("header.converter", {}).read_header("h", data)
        assert (read.schema, read.value) == (BYTES, data)


class TestText:
    @pytest.mark.parametrize(
        ("milliseconds", "text"),
        [
            (0, "00:00:00.000Z"),
            (DAY_MS - 1, "23:59:59.999Z"),
            (-1, "23:59:59.999Z"),
            (DAY_MS, "1970-01-02"),
            (DAY_MS + 1, "1970-01-02T00:00:00.001Z"),
            ((1 << 63) - 1, "292278994-08-17T07:12:55.807Z"),
        ],
    )
    def test_dates_are_printed(self, milliseconds: int, text: str) -> None:
        assert text_of(JavaDate(milliseconds)) == text

    @given(st.integers(DAY_MS, 4_000_000_000_000))
    def test_a_timestamp_is_read_as_it_was_written(self, milliseconds: int) -> None:
        schema, value = parse_text(text_of(JavaDate(milliseconds)))
        assert value == milliseconds
        assert schema in (timestamp_schema(), date_schema())

    def test_a_plain_number_gets_the_class_of_its_schema(self) -> None:
        schema = SchemaBuilder.array(FLOAT32).build()
        third = to_double("0.333333343267441")
        assert text_of([third], schema) == "[0.33333334]"
        assert text_of([third]) != "[0.33333334]"

    def test_texts_inside_a_list_are_quoted_and_escaped(self) -> None:
        assert text_of('a"\\') == 'a"\\'
        assert text_of(['a"\\', b"\x01", None]) == '["a\\"\\\\","AQ==",null]'

    def test_other_objects_have_no_text(self) -> None:
        with pytest.raises(DataError, match=r"^Failed to serialize unexpected value type "):
            text_of([object()])


class TestConversions:
    @given(st.integers(-(1 << 70), 1 << 70))
    def test_integers_wrap_around(self, value: int) -> None:
        for bits, schema in INTEGERS.items():
            for form in (str(value), BigInteger(value), Decimal(value)):
                found = convert(schema, form)
                assert (found - value) % (1 << bits) == 0
                check_value(schema, found)

    @pytest.mark.parametrize(
        ("to", "value", "wanted"),
        [
            (INT8, "300", 44),
            (INT32, "1e3", 1000),
            (INT8, "3.9", 3),
            (INT64, "1e1000000000", 0),
            (INT64, "1e-1000000000", 0),
            (INT64, 1e30, (1 << 63) - 1),
            (FLOAT32, "1e39", float("inf")),
            (FLOAT64, "0.1", 0.1),
            (FLOAT64, True, None),
            (BOOLEAN, "1", True),
            (BOOLEAN, "true", True),
            (BOOLEAN, 0.5, False),
            (BOOLEAN, "TRUE", None),
            (BOOLEAN, "yes", None),
            (STRING, 1.0, "1.0"),
            (OPTIONAL_STRING, None, None),
            (BYTES, b"a", b"a"),
            (BYTES, "a", None),
            (decimal_schema(1), b"\x0f", Decimal("1.5")),
            (decimal_schema(1), 1.25, Decimal("1.25")),
            (decimal_schema(1), "1.250", Decimal("1.250")),
            (decimal_schema(1), JavaDate(1), None),
            (Schema("ARRAY", value_schema=INT8), "[1]", [1]),
            (Schema("ARRAY", value_schema=INT8), "{}", None),
            (Schema("MAP"), '{"a":1}', {"a": 1}),
            (date_schema(), "2019-08-23", JavaDate(18131 * DAY_MS)),
            (date_schema(), 5, JavaDate(5 * DAY_MS)),
            (time_schema(), DAY_MS + 1, None),
            (timestamp_schema(), "5", JavaDate(5)),
        ],
    )  # fmt: skip
    def test_values_convert_to_each_type(self, to: Schema, value: Any, wanted: Any) -> None:
        if wanted is None and value is not None:
            with pytest.raises(DataError):
                convert(to, value)
            return
        assert convert(to, value) == wanted

    @pytest.mark.parametrize("to", [INT8, STRING, date_schema(), Schema("MAP")])
    def test_null_needs_an_optional_schema(self, to: Schema) -> None:
        with pytest.raises(DataError, match=r"^Unable to convert a null value to a schema that requires a value$"):
            convert(to, None)

    def test_dates_times_and_timestamps_convert_to_each_other(self) -> None:
        at = JavaDate(3 * DAY_MS + 7)
        assert convert(date_schema(), at, timestamp_schema()) == 3 * DAY_MS
        assert convert(date_schema(), JavaDate(-1), timestamp_schema()) == 0  # Java divides towards zero
        assert convert(time_schema(), at, timestamp_schema()) == 7
        assert convert(timestamp_schema(), JavaDate(7), time_schema()) == 7
        assert convert(INT64, JavaDate(DAY_MS), date_schema()) == 1
        with pytest.raises(DataError, match=r"^Unable to convert .* \(class java\.util\.Date\) to a number$"):
            to_long(at)

    def test_conversion_errors_have_connects_messages(self) -> None:
        with pytest.raises(DataError, match=r"^Unable to convert x \(class java\.lang\.String\) to a number$"):
            to_long("x")
        with pytest.raises(DataError, match=r"^Unable to convert x \(class java\.lang\.String\) to Schema\{INT8\}$"):
            to_boolean("x", INT8)
        with pytest.raises(NumberFormatError):
            convert(decimal_schema(0), "x")


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (Int8(1), INT8), (1, INT64), (1.0, FLOAT64), (Float32(1.0), FLOAT32), (True, BOOLEAN), ("x", STRING),
        (b"x", BYTES), ([1, 2], Schema("ARRAY", value_schema=INT64)),
        ([1, None], Schema("ARRAY", value_schema=Schema("INT64", optional=True))),
        ({"a": 1}, SchemaBuilder.map(STRING, INT64).build()), ([[1]], Schema("ARRAY", value_schema=Schema("ARRAY"))),
        ([1, "x"], None), ([], None), ({}, None), (None, None), (JavaDate(1), None), (Decimal(1), None),
        ({"a": 1, "b": True}, None),
    ],
)  # fmt: skip
def test_schemas_are_inferred_from_values(value: Any, schema: Schema | None) -> None:
    assert infer_schema(value) is schema


def test_the_schema_of_a_struct_is_its_own_and_nulls_alone_have_none() -> None:
    schema = SchemaBuilder("STRUCT").field("f", INT8).build()
    assert infer_schema(Struct(schema)) is schema
    with pytest.raises(SchemaBuilderError):
        infer_schema([None])


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_values_of_logical_types_survive_the_internal_form(number: int) -> None:
    for schema in (date_schema(), timestamp_schema()):
        assert to_internal(schema, from_internal(schema, number)) == number
    try:
        assert to_internal(time_schema(), from_internal(time_schema(), number)) == number
    except ConnectError:
        assert not 0 <= number <= DAY_MS
