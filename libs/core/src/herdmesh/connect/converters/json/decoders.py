"""Fast path for reading payloads under one schema: msgspec decodes them as the schema's own types.

Owns the choice of JSON for this path: JSON that follows the schema, with numbers, depths and lengths for which msgspec
gives Java's result. Everything else is `Unusual`, and `nodes` reads it.

Invariant: a value from this path equals the one from `nodes.value_of` for the same payload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Annotated, Any

import msgspec

from herdmesh.connect.converters.json.nodes import decimal_of_node, decode_base64
from herdmesh.connect.errors import ConnectError
from herdmesh.connect.java import DAY_MS, float32
from herdmesh.connect.json_text import exact_number, jackson
from herdmesh.connect.model import (
    DATE,
    DECIMAL,
    FLOATS,
    LOGICAL,
    TIME,
    TIMESTAMP,
    JavaDate,
    Schema,
    Struct,
    StructColumn,
)

_RANGES = {kind: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for kind, bits in
           (("INT8", 8), ("INT16", 16), ("INT32", 32), ("INT64", 64))}  # fmt: skip
_DEPTH_MAX = 20
_PAYLOAD_CHECKED = 1_000  # bytes; a shorter payload cannot exceed any limit of Jackson
_SMALLEST_NORMAL_FLOAT = 2.0**-126


class Unusual(Exception):
    """Raised for a payload, or a schema, that needs the reference path."""


class Decoder:
    """Compiled reader of payloads of one schema."""

    def __init__(self, schema: Schema, *, replace_null: bool) -> None:
        """Raises Unusual when the schema has no fast path."""
        made = _Compiler(replace_null=replace_null)
        try:
            kind, form = made.nullable(schema, 0)
            self._decode = msgspec.json.Decoder(kind, float_hook=exact_number).decode
        except (TypeError, ValueError, RecursionError) as error:
            raise Unusual from error  # field names that msgspec does not support
        self._has_floats = made.has_floats
        made.bound |= {"_decode": self._decode, "_Structs": StructColumn, "_schema": schema}
        lines = ["read = list(map(_decode, payloads))"]
        each = "read" if form is None else f"[{form('v')} for v in read]"
        if made.fields is None:
            lines.append(f"return {each}")
        else:
            columns = ", ".join(f"[{field} for s in read]" for field in made.fields)
            lines += [f"if None in read: return {each}", f"return _Structs(_schema, [{columns}], len(read))"]
        exec("\n    ".join(["def read_all(payloads):", *lines]), made.bound)
        self._read_all: Callable[[Sequence[bytes]], Sequence[Any]] = made.bound["read_all"]

    def read_all(self, payloads: Sequence[bytes]) -> Sequence[Any]:
        """The value of each payload. Raises Unusual when one of them needs the reference path."""
        joined = payloads[0] if len(payloads) == 1 else b",".join(payloads)
        if len(joined) > _PAYLOAD_CHECKED and max(map(len, payloads)) > _PAYLOAD_CHECKED:
            for payload in payloads:
                if len(payload) > jackson.NAME_LENGTH_MAX or jackson.beyond_limits(payload):
                    raise Unusual
        if self._has_floats and jackson.has_negative_zero(joined):
            raise Unusual
        try:
            return self._read_all(payloads)
        except (msgspec.MsgspecError, ValueError, RecursionError, ConnectError) as error:
            raise Unusual from error


_Form = Callable[[str], str] | None
"""Function from the expression of msgspec's value to the expression of the Connect value; None = they are the same."""


class _Compiler:
    """Compiler of a schema to the msgspec type for it and the expression of the value."""

    def __init__(self, *, replace_null: bool) -> None:
        self._replace_null = replace_null
        self.bound: dict[str, Any] = {}
        self.has_floats = False
        self.fields: list[str] | None = None
        """Expressions for the fields of a top-level struct, where `s` is msgspec's object."""

    def nullable(self, schema: Schema | None, depth: int) -> tuple[Any, _Form]:
        """Type and expression for a position where null is allowed."""
        if schema is None or depth > _DEPTH_MAX:
            raise Unusual
        kind, form = self._plain(schema, depth)
        if schema.default is not None and self._replace_null:
            instead = self._bind(schema.default)
        elif schema.optional:
            if form is None:
                return kind | None, None
            instead = "None"
        else:
            return kind, form
        name = f"t{len(self.bound)}"
        self.bound[name] = None
        inner = name if form is None else form(name)
        return kind | None, lambda value: f"({instead} if ({name} := {value}) is None else {inner})"

    def _plain(self, schema: Schema, depth: int) -> tuple[Any, _Form]:
        if schema.name in LOGICAL:
            return self._logical(schema)
        kind = schema.type
        if kind in _RANGES:
            low, high = _RANGES[kind]
            return Annotated[int, msgspec.Meta(ge=low, le=high)], None
        if kind in FLOATS:
            self.has_floats = True
            return float, None if kind == "FLOAT64" else self._call(narrow)
        match kind:
            case "STRING":
                return str, None
            case "BOOLEAN":
                return bool, None
            case "BYTES":
                return str, self._call(decode_base64)
            case "ARRAY":
                item, form = self.nullable(schema.value_schema, depth + 1)
                return list[item], None if form is None else _each(form, f"x{depth}")
            case "MAP":
                if schema.key_schema is None or schema.key_schema.type != "STRING":
                    raise Unusual
                item, form = self.nullable(schema.value_schema, depth + 1)
                return dict[str, item], None if form is None else _each_member(form, f"x{depth}")
            case _:
                return self._struct(schema, depth)

    def _struct(self, schema: Schema, depth: int) -> tuple[Any, _Form]:
        """Type and expression of a struct: a msgspec struct with the fields' names, which refuses other members, so
        that nothing is skipped that Jackson would check.
        """
        fields: list[Any] = []
        parts: list[str] = []
        for field in schema.fields:
            if len(field.name) > jackson.NAME_LENGTH_MAX:
                raise Unusual
            kind, form = self.nullable(field.schema, depth + 1)
            at = f"f{field.index}"
            null_is_fine = field.schema.optional or (field.schema.default is not None and self._replace_null)
            fields.append((at, kind, None) if null_is_fine else (at, kind))
            parts.append(f"s.{at}" if form is None else form(f"s.{at}"))
        if depth == 0:
            self.fields = parts
        made = msgspec.defstruct(
            "Payload",
            fields,
            rename={f"f{field.index}": field.name for field in schema.fields},
            forbid_unknown_fields=True,
            kw_only=True,
            gc=False,
        )
        name = f"make{len(self.bound)}"
        of = self._bind(schema)
        self.bound |= {"Struct": Struct, "new": Struct.__new__}
        # Struct's constructor takes twice as long as this.
        text = (
            f"    made = new(Struct)\n    made.schema = {of}\n    made.values = [{', '.join(parts)}]\n    return made\n"
        )
        exec(f"def {name}(s):\n{text}", self.bound)
        return made, lambda value: f"{name}({value})"

    def _logical(self, schema: Schema) -> tuple[Any, _Form]:
        if schema.type in ("ARRAY", "MAP", "STRUCT"):
            raise Unusual
        if schema.name == DECIMAL:
            # A number or a text, with its digits as they were written.
            return Any, self._call(lambda node: _decimal(schema, node))
        low, high = _RANGES["INT64" if schema.name == TIMESTAMP else "INT32"]
        if schema.name == TIME:
            low, high = 0, DAY_MS
        date = self._bind(JavaDate)
        factor = f" * {DAY_MS}" if schema.name == DATE else ""
        return Annotated[int, msgspec.Meta(ge=low, le=high)], lambda value: f"{date}({value}{factor})"

    def _call(self, function: Callable[[Any], Any]) -> Callable[[str], str]:
        name = self._bind(function)
        return lambda value: f"{name}({value})"

    def _bind(self, value: Any) -> str:
        name = f"b{len(self.bound)}"
        self.bound[name] = value
        return name


def _each(form: Callable[[str], str], name: str) -> Callable[[str], str]:
    return lambda value: f"[{form(name)} for {name} in {value}]"


def _each_member(form: Callable[[str], str], name: str) -> Callable[[str], str]:
    return lambda value: f"{{k{name}: {form(name)} for k{name}, {name} in {value}.items()}}"


def _decimal(schema: Schema, node: Any) -> Decimal:
    if node is None:
        raise Unusual
    return decimal_of_node(schema, node)


def narrow(value: float) -> float:
    """The float nearest to a number whose nearest double is `value`. Raises Unusual where the double does not determine
    it: half-way between two floats, and below the smallest normal one.
    """
    number = float32(value)
    if number == value:
        return number
    across = 2 * value - number  # the other neighbour, when half-way
    if abs(value) < _SMALLEST_NORMAL_FLOAT or float32(across) == across:
        raise Unusual
    return number
