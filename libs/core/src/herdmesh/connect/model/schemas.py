"""Schemas of the Connect data model, each distinct schema as one object.

Owns `Schema`, `Field`, the builder with Connect's rules (docs/reference/connect/data-model.md, sections 1.1 and 1.2)
and the names of logical types. Check of a value against a schema: `checks`. Values: `data`.

Invariant: two schemas that Java's `equals` calls equal are the same Python object, so that a chain is compiled once per
schema and found again by identity. (Parameters in another order make another schema here: their order shows in JSON.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args
from weakref import WeakValueDictionary

from herdmesh.connect.errors import DataError, SchemaBuilderError

SchemaType = Literal[
    "INT8", "INT16", "INT32", "INT64", "FLOAT32", "FLOAT64", "BOOLEAN", "STRING", "BYTES", "ARRAY", "MAP", "STRUCT"
]
_TYPES: Final = get_args(SchemaType)
INTEGERS: Final = frozenset(("INT8", "INT16", "INT32", "INT64"))
FLOATS: Final = frozenset(("FLOAT32", "FLOAT64"))
PRIMITIVES: Final = INTEGERS | FLOATS | {"BOOLEAN", "STRING", "BYTES"}

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
LOGICAL: Final = frozenset((DECIMAL, DATE, TIME, TIMESTAMP))
SCALE: Final = "scale"
"""The parameter of a Decimal schema: a number as text, may be negative."""

_interned: WeakValueDictionary[tuple[Any, ...], Schema] = WeakValueDictionary()
_interning = threading.Lock()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct schema."""

    name: str
    schema: Schema
    index: int
    """Index in the struct, from 0."""


class Schema:
    """A Connect schema. Immutable; calling the class twice with equal arguments gives one object.

    Makes no checks, as in Java's own class: `SchemaBuilder` checks. `fields` are (name, schema) pairs in order.
    """

    __slots__ = (
        "__weakref__", "_fields", "_key_schema", "_value_schema", "default", "doc", "name", "optional", "parameters",
        "places", "type", "version",
    )  # fmt: skip

    type: SchemaType
    optional: bool
    name: str | None
    version: int | None
    doc: str | None
    parameters: Mapping[str, str] | None
    """None, or at least one parameter."""
    default: Any
    places: Mapping[str, int]
    """Index of each field by name; empty when the schema is not a STRUCT."""
    _fields: tuple[Field, ...]
    _key_schema: Schema | None
    _value_schema: Schema | None

    def __new__(
        cls,
        type: str,
        optional: bool = False,
        name: str | None = None,
        version: int | None = None,
        doc: str | None = None,
        parameters: Mapping[str, str] | None = None,
        default: Any = None,
        fields: Iterable[tuple[str, Schema]] = (),
        key_schema: Schema | None = None,
        value_schema: Schema | None = None,
    ) -> Schema:
        """The schema with these attributes."""
        pairs = tuple(fields)
        items = tuple(parameters.items()) if parameters else None
        key = (
            type, optional, name, version, doc, items, None if default is None else _frozen(default), pairs,
            key_schema, value_schema,
        )  # fmt: skip
        found = _interned.get(key)
        if found is not None:
            return found
        with _interning:
            found = _interned.get(key)
            if found is None:
                found = super().__new__(cls)
                found._set(type, optional, name, version, doc, items, default, pairs, key_schema, value_schema)
                _interned[key] = found
        return found

    def _set(
        self,
        type: str,
        optional: bool,
        name: str | None,
        version: int | None,
        doc: str | None,
        parameters: tuple[tuple[str, str], ...] | None,
        default: Any,
        pairs: tuple[tuple[str, Schema], ...],
        key_schema: Schema | None,
        value_schema: Schema | None,
    ) -> None:
        put = object.__setattr__
        put(self, "type", type)
        put(self, "optional", optional)
        put(self, "name", name)
        put(self, "version", version)
        put(self, "doc", doc)
        put(self, "parameters", dict(parameters) if parameters else None)
        put(self, "default", default)
        put(self, "_fields", tuple(Field(field, schema, at) for at, (field, schema) in enumerate(pairs)))
        put(self, "_key_schema", key_schema)
        put(self, "_value_schema", value_schema)
        put(self, "places", {field: at for at, (field, _) in enumerate(pairs)})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a schema cannot be changed: {name}")

    def __reduce__(self) -> tuple[Callable[..., Schema], tuple[Any, ...]]:
        return Schema, (
            self.type, self.optional, self.name, self.version, self.doc, self.parameters, self.default,
            tuple((field.name, field.schema) for field in self._fields), self._key_schema, self._value_schema,
        )  # fmt: skip

    def __copy__(self) -> Schema:
        return self

    def __deepcopy__(self, _memo: object) -> Schema:
        return self

    def __str__(self) -> str:
        return f"Schema{{{self.type if self.name is None else f'{self.name}:{self.type}'}}}"

    __repr__ = __str__

    def field(self, name: str) -> Field | None:
        """The field of that name. Raises DataError when this schema is not a STRUCT."""
        if self.type != "STRUCT":
            raise DataError("Cannot look up fields on non-struct type")
        place = self.places.get(name)
        return None if place is None else self._fields[place]

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields, in order. Raises DataError when this schema is not a STRUCT."""
        if self.type != "STRUCT":
            raise DataError("Cannot list fields on non-struct type")
        return self._fields

    @property
    def key_schema(self) -> Schema | None:
        """Schema of a map's keys; None when the map schema was created without. Raises DataError when this schema is
        not a MAP.
        """
        if self.type != "MAP":
            raise DataError("Cannot look up key schema on non-map type")
        return self._key_schema

    @property
    def value_schema(self) -> Schema | None:
        """Schema of an array's elements or a map's values; None when the schema was created without. Raises DataError
        when this schema is neither ARRAY nor MAP.
        """
        if self.type != "MAP" and self.type != "ARRAY":
            raise DataError("Cannot look up value schema on non-array and non-map type")
        return self._value_schema

    @staticmethod
    def inner(schema: Schema | None) -> tuple[Schema | None, Schema | None]:
        """`key_schema` and `value_schema`, None where there is none, without raising: for values whose schema may be
        missing or of another type than the value.
        """
        return (None, None) if schema is None else (schema._key_schema, schema._value_schema)

    def replace(self, **changes: Any) -> Schema:
        """A copy with these attributes changed. `fields` as (name, schema) pairs."""
        attributes: dict[str, Any] = {
            "type": self.type, "optional": self.optional, "name": self.name, "version": self.version, "doc": self.doc,
            "parameters": self.parameters, "default": self.default, "key_schema": self._key_schema,
            "value_schema": self._value_schema,
        }  # fmt: skip
        if "fields" not in changes:
            attributes["fields"] = tuple((field.name, field.schema) for field in self._fields)
        return Schema(**{**attributes, **changes})


def _frozen(value: Any) -> Any:
    """A hashable form of a default value; two forms are equal where Java's `equals` is true."""
    kind = cast("type[object]", type(value))
    if isinstance(value, float):
        return kind, value.hex()
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return dict, frozenset((_frozen(key), _frozen(item)) for key, item in items)
    if isinstance(value, list | tuple):
        return list, tuple(_frozen(item) for item in cast("list[Any]", value))
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes, bytes(cast(bytes, value))
    freeze = getattr(value, "frozen", None)
    if freeze is not None:
        return freeze(_frozen)
    return kind, str(value) if kind.__name__ == "Decimal" else value


INT8 = Schema("INT8")
INT16 = Schema("INT16")
INT32 = Schema("INT32")
INT64 = Schema("INT64")
FLOAT32 = Schema("FLOAT32")
FLOAT64 = Schema("FLOAT64")
BOOLEAN = Schema("BOOLEAN")
STRING = Schema("STRING")
BYTES = Schema("BYTES")
OPTIONAL_INT8 = Schema("INT8", optional=True)
OPTIONAL_INT16 = Schema("INT16", optional=True)
OPTIONAL_INT32 = Schema("INT32", optional=True)
OPTIONAL_INT64 = Schema("INT64", optional=True)
OPTIONAL_FLOAT32 = Schema("FLOAT32", optional=True)
OPTIONAL_FLOAT64 = Schema("FLOAT64", optional=True)
OPTIONAL_BOOLEAN = Schema("BOOLEAN", optional=True)
OPTIONAL_STRING = Schema("STRING", optional=True)
OPTIONAL_BYTES = Schema("BYTES", optional=True)


def decimal_schema(scale: int, *, optional: bool = False) -> Schema:
    """BYTES schema of a Decimal of this scale."""
    return Schema("BYTES", optional, DECIMAL, 1, parameters={SCALE: str(scale)})


def date_schema(*, optional: bool = False) -> Schema:
    """INT32 schema: days since the epoch."""
    return Schema("INT32", optional, DATE, 1)


def time_schema(*, optional: bool = False) -> Schema:
    """INT32 schema: milliseconds since midnight."""
    return Schema("INT32", optional, TIME, 1)


def timestamp_schema(*, optional: bool = False) -> Schema:
    """INT64 schema: milliseconds since the epoch."""
    return Schema("INT64", optional, TIMESTAMP, 1)


class SchemaBuilder:
    """Builder of a schema with the checks of Connect's own builder (docs/reference/connect/data-model.md, section 1.2).

    Every setter returns the builder. Raises SchemaBuilderError with Connect's text.
    """

    def __init__(self, type: str) -> None:
        if type is None:  # pyright: ignore[reportUnnecessaryComparison] - reported as in Connect
            raise SchemaBuilderError("type cannot be null")
        if type not in _TYPES:
            raise SchemaBuilderError(f"{type} is not a schema type; the types are: {', '.join(_TYPES)}")
        self.type = type
        self._optional: bool | None = None
        self._name: str | None = None
        self._version: int | None = None
        self._doc: str | None = None
        self._default: Any = None
        self._parameters: dict[str, str] = {}
        self._fields: dict[str, Schema] = {}
        self._key: Schema | None = None
        self._value: Schema | None = None

    @classmethod
    def array(cls, element: Schema | None) -> SchemaBuilder:
        """Builder of an array of this element schema."""
        if element is None:
            raise SchemaBuilderError("valueSchema cannot be null.")
        made = cls("ARRAY")
        made._value = element
        return made

    @classmethod
    def map(cls, key: Schema | None, value: Schema | None) -> SchemaBuilder:
        """Builder of a map from this key schema to this value schema."""
        if key is None:
            raise SchemaBuilderError("keySchema cannot be null.")
        if value is None:
            raise SchemaBuilderError("valueSchema cannot be null.")
        made = cls("MAP")
        made._key, made._value = key, value
        return made

    @classmethod
    def like(cls, schema: Schema) -> SchemaBuilder:
        """Builder with the same type, name, version, doc and parameters; not optional, without default or fields: the
        starting point of every transformation of Connect.
        """
        made = cls(schema.type)
        if schema.type == "ARRAY":
            made = cls.array(schema.value_schema)
        elif schema.type == "MAP":
            made = cls.map(schema.key_schema, schema.value_schema)
        made._name, made._version, made._doc = schema.name, schema.version, schema.doc
        made._parameters.update(schema.parameters or {})
        return made

    def optional(self) -> SchemaBuilder:
        """Allow null."""
        return self._once("optional", "_optional", True)

    def required(self) -> SchemaBuilder:
        """Refuse null."""
        return self._once("optional", "_optional", False)

    def name(self, name: str) -> SchemaBuilder:
        """Set the schema's name."""
        return self._once("name", "_name", name)

    def version(self, version: int) -> SchemaBuilder:
        """Set the schema's version."""
        return self._once("version", "_version", version)

    def doc(self, doc: str) -> SchemaBuilder:
        """Set the documentation."""
        return self._once("doc", "_doc", doc)

    def default_value(self, value: Any) -> SchemaBuilder:
        """Set the default, which null stands for. Checked against the schema as built so far."""
        from herdmesh.connect.model.checks import check_value  # that module needs this module itself

        self._once("default", "_default", value)
        try:
            check_value(self.build(), value)
        except DataError as error:
            self._default = None
            raise SchemaBuilderError("Invalid default value") from error
        return self

    def parameter(self, name: str, value: str) -> SchemaBuilder:
        """Set a parameter; an existing one is replaced."""
        self._parameters[name] = value
        return self

    def parameters(self, parameters: Mapping[str, str]) -> SchemaBuilder:
        """Set several parameters."""
        self._parameters.update(parameters)
        return self

    def field(self, name: str | None, schema: Schema | None) -> SchemaBuilder:
        """Add a field to a struct."""
        if self.type != "STRUCT":
            raise SchemaBuilderError(f"Cannot create fields on type {self.type}")
        if not name:
            raise SchemaBuilderError("fieldName cannot be null.")
        if schema is None:
            raise SchemaBuilderError(f"fieldSchema for field {name} cannot be null.")
        if name in self._fields:
            raise SchemaBuilderError(f"Cannot create field because of field name duplication {name}")
        self._fields[name] = schema
        return self

    def build(self) -> Schema:
        """The schema."""
        return Schema(
            self.type, bool(self._optional), self._name, self._version, self._doc, self._parameters or None,
            self._default, self._fields.items(), self._key, self._value,
        )  # fmt: skip

    def _once(self, what: str, attribute: str, value: Any) -> SchemaBuilder:
        before = getattr(self, attribute)
        if before is not None and before is not value and before != value:
            raise SchemaBuilderError(f"Invalid SchemaBuilder call: {what} has already been set.")
        setattr(self, attribute, value)
        return self
