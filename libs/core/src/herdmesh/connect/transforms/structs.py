"""How a transformation writes the making of a new struct.

Owns the statements that take an old struct's fields and put them, and new ones, into a struct of another schema.

Invariant: what is made fails where Java's `Struct.put` fails, with its text: null in a field that is not optional, also
when the field has a default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from herdmesh.connect.errors import DataError
from herdmesh.connect.schemas import Field, Schema
from herdmesh.connect.transforms.base import MADE, Code, Made, Part

OLD = "x"
"""The name under which the old struct's values are found in expressions: a list in the order of its schema."""
_FIELD = re.compile(rf"\b{OLD}\[(\d+)\]")
_PLACES_MAX = 32


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
    Fields `left_out` are not put when they are null, and so not refused. What is written may change the old list."""
    before = code.made.get(part)
    code.line(f"{OLD} = {part if before else code.read(part)}.values")
    filled = {place for place, text in enumerate(values) if _is_filled(text, before)}
    if before is None:
        code.make(part, after, f"[{', '.join(values)}]")
        new = MADE
    else:
        new = _reuse(code, part, before, after, values)
    check = null_check(after, left_out)
    if check is not None:
        required = {field.index for field in after.fields if not field.schema.optional and field.name not in left_out}
        _emit_check(code, new, check, sorted(required - filled))
        filled |= required
    code.made[part] = Made(after, frozenset(filled))


def _is_filled(text: str, before: Made | None) -> bool:
    """Whether an expression is known not to be null: a literal, or a field of the old struct that is not."""
    found = _FIELD.fullmatch(text)
    return text[0] in "'\"" if found is None else before is not None and int(found[1]) in before.filled


def _reuse(code: Code, part: Part, before: Made, after: Schema, values: Sequence[str]) -> str:
    """A struct that the loop made itself becomes the new one, and so does its list where each field stays in its
    place and only its own value decides about it. Returns the name of the list."""
    changed = {place: text for place, text in enumerate(values) if text != f"{OLD}[{place}]"}
    alone = all({int(number) for number in _FIELD.findall(text)} == {place} for place, text in changed.items())
    new = OLD if alone and len(values) == len(before.schema.fields) else MADE
    if new == OLD:
        for place, text in changed.items():
            code.line(f"{OLD}[{place}] = {text}")
    else:
        code.line(f"{MADE} = {part}.values = [{', '.join(values)}]")
    if before.schema is not after:
        code.line(f"{part}.schema = {code.bind(after)}")
    return new


def _emit_check(code: Code, new: str, check: Callable[[list[Any]], None], places: Sequence[int]) -> None:
    if not places:
        return
    # Looking for null place by place takes a third of the time.
    nulls = " or ".join(f"{new}[{place}] is None" for place in places)
    with code.block(f"if {nulls if len(places) <= _PLACES_MAX else f'None in {new}'}"):
        code.line(f"{code.bind(check)}({new})")


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
