"""Schemas, their builder, values that fit them, and structs: the rows of Connect's StructTest, ConnectSchemaTest and
SchemaBuilderTest.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError, SchemaBuilderError
from herdmesh.connect.model.checks import check_value, fits
from herdmesh.connect.model.data import (
    BigInteger,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    JavaDate,
    MapKey,
    Struct,
)
from herdmesh.connect.model.schemas import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    Schema,
    SchemaBuilder,
    date_schema,
    decimal_schema,
    time_schema,
    timestamp_schema,
)

FLAT = (
    SchemaBuilder("STRUCT").field("int8", INT8).field("int32", INT32).field("float64", FLOAT64)
    .field("boolean", BOOLEAN).field("string", STRING).field("bytes", BYTES).build()
)  # fmt: skip
INT_ARRAY = SchemaBuilder.array(INT8).build()
INT_MAP = SchemaBuilder.map(INT32, STRING).build()
NESTED = SchemaBuilder("STRUCT").field("array", INT_ARRAY).field("map", INT_MAP).field("inner", FLAT).build()


def flat(**changes: Any) -> Struct:
    """A struct with every field put one by one."""
    values = {"int8": 8, "int32": 32, "float64": 3.14, "boolean": True, "string": "foobar", "bytes": b"foo"}
    made = Struct(FLAT)
    for name, value in {**values, **changes}.items():
        made.put(name, value)
    return made


class TestStruct:
    def test_a_flat_struct_holds_its_fields(self) -> None:
        struct = flat()
        struct.validate()
        assert [struct.get(field.name) for field in FLAT.fields] == [8, 32, 3.14, True, "foobar", b"foo"]

    def test_complex_struct(self) -> None:
        struct = Struct(NESTED).put("array", [1, 2]).put("map", {1: "string"}).put("inner", flat())
        struct.validate()
        assert struct.get("inner").get("string") == "foobar"

    @pytest.mark.parametrize(
        ("field", "value", "said"),
        [
            ("array", ["should fail since elements should be int8s"], 'element of array field: "array"'),
            ("map", {"should fail because keys should be int32s": "x"}, 'key of map field: "map"'),
            ("map", {1: 1.0}, 'value of map field: "map"'),
        ],
    )
    def test_an_invalid_inner_value_names_the_field(self, field: str, value: Any, said: str) -> None:
        with pytest.raises(DataError, match="Invalid Java object for schema") as failed:
            Struct(NESTED).put(field, value)
        assert str(failed.value).endswith(f"for {said}")

    def test_a_struct_of_another_schema_is_refused(self) -> None:
        other = SchemaBuilder("STRUCT").field("x", STRING).build()
        with pytest.raises(DataError, match=r"^Struct schemas do not match\.$"):
            Struct(NESTED).put("inner", Struct(other).put("x", "y"))

    def test_only_structs_have_fields(self) -> None:
        with pytest.raises(DataError, match=r"^Not a struct schema: Schema\{STRING\}$"):
            Struct(STRING)

    def test_unknown_fields_are_refused(self) -> None:
        for use in (lambda: flat().get("no"), lambda: flat().put("no", 1), lambda: flat().get_without_default("no")):
            with pytest.raises(DataError, match=r"^no is not a valid field name$"):
                use()

    def test_missing_required_optional_and_defaulted_fields(self) -> None:
        def one(schema: Schema) -> Struct:
            return Struct(SchemaBuilder("STRUCT").field("f", schema).build())

        with pytest.raises(DataError, match='null used for required field: "f", schema type: INT8'):
            one(INT8).validate()
        one(SchemaBuilder("INT8").optional().build()).validate()
        defaulted = one(SchemaBuilder("INT8").default_value(17).build())
        defaulted.validate()
        assert (defaulted.get("f"), defaulted.get_without_default("f")) == (17, None)
        assert defaulted.get_typed("f", "INT8") is None
        with pytest.raises(DataError, match=r"^Field 'f' is not of type INT32$"):
            defaulted.get_typed("f", "INT32")
        with pytest.raises(DataError, match='null used for required field: "f"'):
            defaulted.put("f", None)  # a default excuses a field that was not put, not null
        assert one(OPTIONAL_INT32).put("f", None).get("f") is None

    def test_equality_is_deep(self) -> None:
        assert flat() == flat()
        assert flat(bytes=b"foo") == flat(bytes=bytearray(b"foo"))
        assert flat() != flat(bytes=b"bar")
        assert flat() != flat(string="other")
        same_fields = FLAT.replace(name="named")
        assert flat() != Struct(same_fields, list(flat().values))
        assert hash(flat()) == hash(flat())

    def test_the_text_of_a_struct_leaves_nulls_out(self) -> None:
        inner = SchemaBuilder("STRUCT").field("a", INT8).field("b", OPTIONAL_STRING).field("c", FLOAT32).build()
        outer = SchemaBuilder("STRUCT").field("d", SchemaBuilder("INT8").default_value(1).build()).field("s", inner)
        struct = Struct(outer.build(), [None, Struct(inner, [7, None, 1.5])])
        assert f"{struct}" == "Struct{s=Struct{a=7,c=1.5}}"


FITTING: list[tuple[Schema, list[Any]]] = [
    (INT8, [1, -128, 127, Int8(1)]),
    (INT16, [1, 32767, Int16(1)]),
    (INT32, [1, -(1 << 31), Int32(1)]),
    (INT64, [1, (1 << 63) - 1, Int64(1)]),
    (FLOAT32, [1.0, Float32(1.0), float("nan")]),
    (FLOAT64, [1.0, Float64(1.0)]),
    (BOOLEAN, [True, False]),
    (STRING, ["a string", ""]),
    (BYTES, [b"a", bytearray(b"a"), memoryview(b"a")]),
    (INT_ARRAY, [[], [1, 2, 3], (1,)]),
    (INT_MAP, [{}, {1: "one"}]),
    (SchemaBuilder.map(INT_MAP, INT8).build(), [{MapKey({1: "one"}): 1}]),
    (SchemaBuilder.array(OPTIONAL_STRING).build(), [[None, "x"]]),
    (decimal_schema(2), [Decimal("1.56")]),
    (date_schema(), [JavaDate(0)]),
    (time_schema(), [JavaDate(5)]),
    (timestamp_schema(), [JavaDate(5)]),
    (FLAT, [flat()]),
]
NOT_FITTING: list[tuple[Schema, list[Any]]] = [
    (INT8, [128, Int16(1), Int32(1), Int64(1), 1.0, True, "1", BigInteger(1)]),
    (INT16, [Int8(1), 1 << 15, 1.0]),
    (INT32, [Int8(1), Int64(1), 1 << 31]),
    (INT64, [Int8(1), Int32(1), 1.0, True]),
    (FLOAT32, [Float64(1.0), 1]),
    (FLOAT64, [Float32(1.0), 1]),
    (BOOLEAN, [1, 0.0, "true"]),
    (STRING, [b"bytes", 1]),
    (BYTES, ["text", [1]]),
    (INT_ARRAY, [[1, 1 << 20], ["x"], [None], {1: 2}, "text"]),
    (INT_MAP, [{1: 1}, {"x": "y"}, {1: None}, [1]]),
    (decimal_schema(2), [b"1.56", 1.56]),
    (date_schema(), [0, 1.0]),
    (time_schema(), [0]),
    (timestamp_schema(), [0]),
    (Schema("STRING", name="org.apache.kafka.connect.data.Decimal"), ["a name decides, whatever the type"]),
    (FLAT, [{"int8": 1}, Struct(SchemaBuilder("STRUCT").field("x", OPTIONAL_STRING).build())]),
]


def _named(value: object) -> str:
    """A parameter in a test's name, equal in every process: a memoryview's repr has its address."""
    return f"memoryview({value.tobytes()!r})" if isinstance(value, memoryview) else repr(value)


class TestFit:
    @pytest.mark.parametrize(
        ("schema", "value"), [(schema, value) for schema, values in FITTING for value in values], ids=_named
    )
    def test_values_that_fit_a_schema_are_accepted(self, schema: Schema, value: Any) -> None:
        assert fits(schema, value)
        check_value(schema, value)
        check_value(schema.replace(optional=True), None)
        with pytest.raises(DataError, match="null used for required value"):
            check_value(schema, None)

    @pytest.mark.parametrize(
        ("schema", "value"), [(schema, value) for schema, values in NOT_FITTING for value in values], ids=repr
    )
    def test_a_value_that_does_not_fit_its_schema_is_refused(self, schema: Schema, value: Any) -> None:
        with pytest.raises(DataError):
            check_value(schema, value)

    def test_error_messages_equal_connects(self) -> None:
        with pytest.raises(DataError) as failed:
            check_value(decimal_schema(1), "x", "f")
        assert str(failed.value) == (
            'Invalid Java object for schema "org.apache.kafka.connect.data.Decimal" with type BYTES: '
            'class java.lang.String for field: "f"'
        )
        with pytest.raises(DataError, match=r"^No schema defined for element of array value$"):
            check_value(Schema("ARRAY"), [1])

    @given(st.integers(-(1 << 40), 1 << 40))
    def test_a_plain_number_fits_where_it_has_room(self, value: int) -> None:
        for bits, schema in ((8, INT8), (16, INT16), (32, INT32), (64, INT64)):
            assert fits(schema, value) == (-(1 << bits - 1) <= value < 1 << bits - 1)


class TestSchema:
    def test_equal_schemas_are_one_object(self) -> None:
        def build(default: Any, **more: Any) -> Schema:
            builder = SchemaBuilder("FLOAT64").optional().name("n").version(2).doc("d").parameter("k", "v")
            return builder.default_value(default).build().replace(**more)

        assert build(1.5) is build(1.5)
        changes: list[dict[str, Any]] = [
            {"name": "m"}, {"version": 3}, {"doc": "e"}, {"parameters": {"k": "w"}}, {"optional": False},
        ]  # fmt: skip
        different = [*(build(1.5, **change) for change in changes), *map(build, (2.5, None, 0.0, -0.0))]
        assert len({id(schema) for schema in [build(1.5), *different]}) == len(different) + 1

    def test_array_map_and_struct_differ_by_their_inner_schemas(self) -> None:
        assert SchemaBuilder.array(INT8).build() is INT_ARRAY
        assert SchemaBuilder.array(INT16).build() is not INT_ARRAY
        assert SchemaBuilder.map(INT32, STRING).build() is INT_MAP
        assert SchemaBuilder.map(INT32, INT8).build() is not INT_MAP
        assert SchemaBuilder.map(STRING, STRING).build() is not INT_MAP
        one = SchemaBuilder("STRUCT").field("a", INT8).field("b", STRING).build()
        assert one is not SchemaBuilder("STRUCT").field("b", STRING).field("a", INT8).build()
        assert [field.index for field in one.fields] == [0, 1]

    def test_defaults_of_every_kind_count_in_equality(self) -> None:
        def build(kind: SchemaBuilder, default: Any) -> Schema:
            return kind.default_value(default).build()

        assert build(SchemaBuilder.array(INT8), [1]) is build(SchemaBuilder.array(INT8), [1])
        assert build(SchemaBuilder.array(INT8), [1]) is not build(SchemaBuilder.array(INT8), [2])
        assert build(SchemaBuilder.map(INT32, STRING), {1: "a"}) is build(SchemaBuilder.map(INT32, STRING), {1: "a"})
        assert build(SchemaBuilder("BYTES"), b"a") is build(SchemaBuilder("BYTES"), bytearray(b"a"))
        inner = FLAT.replace(default=flat())
        assert inner is FLAT.replace(default=flat())
        assert inner is not FLAT.replace(default=flat(string="z"))
        assert decimal_schema(1).replace(default=Decimal("1.0")) is not decimal_schema(1).replace(
            default=Decimal("1.00")
        )

    def test_copies_are_the_schema_itself(self) -> None:
        for schema in (INT8, FLAT, NESTED, decimal_schema(3)):
            assert pickle.loads(pickle.dumps(schema)) is schema
            assert copy.copy(schema) is schema
            assert copy.deepcopy(schema) is schema
            assert schema.replace() is schema

    def test_a_schema_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            INT8.name = "x"

    def test_schemas_print_as_in_connect(self) -> None:
        assert str(INT8) == "Schema{INT8}"
        assert str(date_schema()) == "Schema{org.apache.kafka.connect.data.Date:INT32}"

    @pytest.mark.parametrize("schema", [INT8, INT_ARRAY, INT_MAP, FLAT], ids=str)
    def test_reading_a_property_that_a_type_lacks_is_refused(self, schema: Schema) -> None:
        """With the messages of Connect's ConnectSchema."""
        looks: dict[str, tuple[Callable[[], object], set[str]]] = {
            "Cannot look up fields on non-struct type": (lambda: schema.field("no"), {"STRUCT"}),
            "Cannot list fields on non-struct type": (lambda: schema.fields, {"STRUCT"}),
            "Cannot look up key schema on non-map type": (lambda: schema.key_schema, {"MAP"}),
            "Cannot look up value schema on non-array and non-map type": (
                lambda: schema.value_schema, {"ARRAY", "MAP"},
            ),
        }  # fmt: skip
        for said, (look, kinds) in looks.items():
            if schema.type in kinds:
                look()
                continue
            with pytest.raises(DataError) as refused:
                look()
            assert str(refused.value) == said

    def test_properties_of_each_type(self) -> None:
        assert (INT_MAP.key_schema, INT_MAP.value_schema, INT_ARRAY.value_schema) == (INT32, STRING, INT8)
        assert FLAT.field("no") is None
        assert [Schema.inner(one) for one in (None, INT8, FLAT, INT_ARRAY, INT_MAP)] == [
            (None, None), (None, None), (None, None), (None, INT8), (INT32, STRING),
        ]  # fmt: skip
        assert (Schema("ARRAY").value_schema, Schema("MAP").key_schema) == (None, None), "as Java's own constructor"


class TestBuilder:
    def test_an_unknown_type_is_refused(self) -> None:
        nothing: Any = None
        with pytest.raises(SchemaBuilderError, match=r"^type cannot be null$"):
            SchemaBuilder(nothing)
        with pytest.raises(SchemaBuilderError, match="string is not a schema type; the types are: INT8, "):
            SchemaBuilder("string")

    @pytest.mark.parametrize(
        ("what", "first", "second"),
        [("name", "a", "b"), ("version", 1, 2), ("doc", "a", "b"), ("default_value", 1, 2)],
    )
    def test_a_property_set_twice_must_be_equal(self, what: str, first: Any, second: Any) -> None:
        builder = SchemaBuilder("INT8")
        getattr(builder, what)(first)
        getattr(builder, what)(first)
        named = what.removesuffix("_value")
        with pytest.raises(SchemaBuilderError, match=rf"^Invalid SchemaBuilder call: {named} has already been set.$"):
            getattr(builder, what)(second)

    def test_a_schema_is_set_optional_or_required_not_both(self) -> None:
        assert SchemaBuilder("INT8").optional().optional().build().optional
        assert not SchemaBuilder("INT8").required().required().build().optional
        for builder in (SchemaBuilder("INT8").optional().required, SchemaBuilder("INT8").required().optional):
            with pytest.raises(SchemaBuilderError, match="optional has already been set"):
                builder()

    @pytest.mark.parametrize(("schema", "value"), [(schema, values[0]) for schema, values in NOT_FITTING], ids=str)
    def test_defaults_must_fit_the_schema(self, schema: Schema, value: Any) -> None:
        builder = SchemaBuilder.like(schema)
        for field in schema.fields if schema.type == "STRUCT" else ():
            builder.field(field.name, field.schema)
        with pytest.raises(SchemaBuilderError, match=r"^Invalid default value$"):
            builder.default_value(value)

    @pytest.mark.parametrize(
        ("schema", "value"), [(schema, values[0]) for schema, values in FITTING if schema is not FLAT], ids=str
    )
    def test_defaults_that_fit_are_accepted(self, schema: Schema, value: Any) -> None:
        assert SchemaBuilder.like(schema).default_value(value).build().default == value

    def test_a_struct_is_no_default_since_its_schema_is_not_the_one_being_built(self) -> None:
        builder = SchemaBuilder("STRUCT")
        for field in FLAT.fields:
            builder.field(field.name, field.schema)
        with pytest.raises(SchemaBuilderError, match=r"^Invalid default value$"):
            builder.default_value(flat())  # seen on 4.3.1

    def test_a_null_default_needs_optional_first(self) -> None:
        assert SchemaBuilder("INT8").optional().default_value(None).build().default is None
        with pytest.raises(SchemaBuilderError, match=r"^Invalid default value$"):
            SchemaBuilder("INT8").default_value(None)

    def test_fields_of_a_struct_builder(self) -> None:
        with pytest.raises(SchemaBuilderError, match=r"^Cannot create fields on type INT8$"):
            SchemaBuilder("INT8").field("f", INT8)
        for name in (None, ""):
            with pytest.raises(SchemaBuilderError, match=r"^fieldName cannot be null\.$"):
                SchemaBuilder("STRUCT").field(name, INT8)
        with pytest.raises(SchemaBuilderError, match=r"^fieldSchema for field f cannot be null\.$"):
            SchemaBuilder("STRUCT").field("f", None)
        with pytest.raises(SchemaBuilderError, match=r"^Cannot create field because of field name duplication f$"):
            SchemaBuilder("STRUCT").field("f", INT8).field("f", INT16)

    def test_inner_schemas_are_required(self) -> None:
        with pytest.raises(SchemaBuilderError, match=r"^valueSchema cannot be null\.$"):
            SchemaBuilder.array(None)
        with pytest.raises(SchemaBuilderError, match=r"^keySchema cannot be null\.$"):
            SchemaBuilder.map(None, INT8)
        with pytest.raises(SchemaBuilderError, match=r"^valueSchema cannot be null\.$"):
            SchemaBuilder.map(INT8, None)

    def test_parameters_are_merged(self) -> None:
        built = SchemaBuilder("INT8").parameter("a", "1").parameters({"b": "2"}).parameters({}).parameter("a", "3")
        assert built.build().parameters == {"a": "3", "b": "2"}
        assert SchemaBuilder("INT8").parameters({}).build().parameters is None

    def test_like_leaves_optional_and_default_behind(self) -> None:
        before = SchemaBuilder("INT8").optional().name("n").version(1).doc("d").parameter("k", "v").default_value(1)
        after = SchemaBuilder.like(before.build()).build()
        assert (after.name, after.version, after.doc, after.parameters) == ("n", 1, "d", {"k": "v"})
        assert (after.optional, after.default) == (False, None)
