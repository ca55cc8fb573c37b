"""Reference path from Connect values under a schema to JSON text, as JsonConverter writes them
(docs/reference/connect/transforms-converters.md, section 4.1).

Owns the rules and their texts, one value at a time. The fast path for columns of ordinary values: `encoders`. JSON of
values without a schema: `json_text.jackson`.

Invariant: the text equals Jackson's, or a DataError with Connect's text names the value that does not fit.
"""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from herdmesh.connect.errors import DataError, NullPointerError
from herdmesh.connect.java import double_text, float32, float_text
from herdmesh.connect.json_text import jackson
from herdmesh.connect.model import (
    DECIMAL,
    INTEGERS,
    LOGICAL,
    JavaDate,
    Schema,
    Struct,
    decimal_text,
    decimal_to_bytes,
    fits,
    java_class,
    to_internal,
)

NULL_FOR_REQUIRED = "Conversion error: null value for field that is required and has no default value"


@dataclass(frozen=True, slots=True)
class Texts:
    """Writer of JSON texts. `numeric`: Decimals are written as numbers, not in Base64; `replace_null`: defaults replace
    nulls.
    """

    numeric: bool
    replace_null: bool

    def text(self, schema: Schema | None, value: Any) -> str:
        """The JSON of a value under that schema (None = schemaless). Raises DataError with Connect's text."""
        if schema is None:
            return "null" if value is None else jackson.dumps(value).decode()
        if value is None:
            if schema.default is not None and self.replace_null:
                return self.text(schema, schema.default)
            if schema.optional:
                return "null"
            raise DataError(NULL_FOR_REQUIRED)
        if schema.name in LOGICAL:
            return self._logical(schema, value)
        return self._plain(schema, value)

    def default(self, schema: Schema) -> str:
        """The JSON of the schema's default."""
        return self.text(schema, schema.default)

    def _plain(self, schema: Schema, value: Any) -> str:
        kind = schema.type
        # Only the class that the schema names counts; a logical name is ignored here.
        if not fits(schema, value):
            what = "bytes type" if kind == "BYTES" else kind
            raise DataError(f"Invalid type for {what}: class {java_class(value)}")
        if kind in INTEGERS:
            return int.__repr__(value)
        match kind:
            case "STRING":
                return jackson.quote(value)
            case "BOOLEAN":
                return "true" if value else "false"
            case "FLOAT64":
                return _quoted_unless_finite(double_text(value), value)
            case "FLOAT32":
                number = float32(value)
                return _quoted_unless_finite(float_text(number), number)
            case "BYTES":
                return base64_text(value)
            case "ARRAY":
                return "[" + ",".join([self.text(schema.value_schema, item) for item in value]) + "]"
            case "MAP":
                return self._map(schema, value)
            case _:
                return self._struct(schema, value)

    def _map(self, schema: Schema, value: dict[Any, Any]) -> str:
        of_key, of_value = schema.key_schema, schema.value_schema
        if of_key is None:
            raise NullPointerError("the map has no key schema")
        pairs = [(self.text(of_key, key), self.text(of_value, item)) for key, item in value.items()]
        if of_key.type != "STRING":
            return "[" + ",".join([f"[{key},{item}]" for key, item in pairs]) + "]"
        # Keys whose text is no JSON text (a null, a logical value) become member names by that text.
        names = [key if key.startswith('"') else jackson.quote(key) for key, _ in pairs]
        members = dict(zip(names, (item for _, item in pairs), strict=True))
        return "{" + ",".join([f"{name}:{item}" for name, item in members.items()]) + "}"

    def _struct(self, schema: Schema, value: Struct) -> str:
        if value.schema is not schema:
            raise DataError("Mismatching schema.")
        members = [
            f"{jackson.quote(field.name)}:{self.text(field.schema, item)}"
            for field, item in zip(schema.fields, value.values, strict=True)
        ]
        return "{" + ",".join(members) + "}"

    def _logical(self, schema: Schema, value: Any) -> str:
        if schema.name == DECIMAL:
            if type(value) is not Decimal:
                raise DataError(
                    f"Invalid type for Decimal, expected BigDecimal but was class {java_class(value, schema)}"
                )
            return decimal_text(value) if self.numeric else base64_text(decimal_to_bytes(schema, value))
        if type(value) is not JavaDate:
            name = cast("str", schema.name).rpartition(".")[2]
            raise DataError(f"Invalid type for {name}, expected Date but was class {java_class(value, schema)}")
        return str(to_internal(schema, value))


def base64_text(value: bytes) -> str:
    """Bytes as a JSON text."""
    return f'"{base64.b64encode(value).decode()}"'


def _quoted_unless_finite(text: str, value: float) -> str:
    return text if math.isfinite(value) else json.dumps(text)
