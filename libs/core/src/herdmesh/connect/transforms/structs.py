"""How a transformation writes the making of a new struct.

Owns the statements that take an old struct's fields and put them, and new ones, into a struct of another schema.

Invariant: what is made fails where Java's `Struct.put` fails, with its text: null in a field that is not optional, also
when the field has a default.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from herdmesh.connect.errors import DataError
from herdmesh.connect.schemas import Field, Schema
from herdmesh.connect.transforms.base import Code, Part

OLD = "x"
"""The name under which the old struct's values are found in expressions: a list in the order of its schema."""


def field_value(code: Code, field: Field, *, null_to_default: bool) -> str:
    """An expression for a field of the old struct; its default stands in for null when that is wanted."""
    text = f"{OLD}[{field.index}]"
    if not null_to_default or field.schema.default is None:
        return text
    return f"({text} if {text} is not None else {code.bind(field.schema.default)})"


def emit_struct(
    code: Code, part: Part, after: Schema, values: Sequence[str], *, left_out: Collection[str] = ()
) -> None:
    """Write: `part`, known to be a struct, becomes a struct of schema `after` with these expressions as its values.
    Fields `left_out` are not put when they are null, and so not refused."""
    code.line(f"{OLD} = {part if part in code.made else code.read(part)}.values")
    code.remake(part, after, f"[{', '.join(values)}]")
    check = null_check(after, left_out)
    if check is not None:
        with code.block(f"if None in {part}.values"):
            code.line(f"{code.bind(check)}({part}.values)")


def null_check(schema: Schema, left_out: Collection[str] = ()) -> Callable[[list[Any]], None] | None:
    """Refuses a struct's values with null where the schema wants something; None = null is welcome everywhere."""
    required = [field for field in schema.fields if not field.schema.optional and field.name not in left_out]
    if not required:
        return None

    def check(values: list[Any]) -> None:
        for field in required:
            if values[field.index] is None:
                raise DataError(
                    f'Invalid value: null used for required field: "{field.name}", schema type: {field.schema.type}'
                )

    return check
