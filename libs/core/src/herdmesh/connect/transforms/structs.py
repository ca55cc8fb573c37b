"""Code generation for a new struct: the statements that a transformation writes for it.

Owns the statements that put an old struct's fields, and new ones, into a struct of another schema.

Invariant: building fails where Java's `Struct.put` fails, with its text: null in a field that is not optional, also
when the field has a default. Of several errors the first in the order of the fields is reported. The contents of a
field's value are not checked: a converter refuses an incomplete nested struct.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from herdmesh.connect.errors import ConnectError, DataError
from herdmesh.connect.model import Field, Schema, Struct
from herdmesh.connect.transforms.base import MADE, Code, Made, Part

OLD = "x"
"""Variable of the old struct's values in expressions: a list in the order of its schema."""
_FIELD = re.compile(rf"\b{OLD}\[(\d+)\]")
_CALL = re.compile(r"\bc\d+\(")
_PLACES_MAX = 32


def field_value(code: Code, field: Field, *, null_to_default: bool, put: bool = True) -> str:
    """Expression for a field of the old struct; with `null_to_default` its default replaces null. `put`: the new struct
    gets the value as it is.
    """
    text = f"{OLD}[{field.index}]"
    if not null_to_default or field.schema.default is None:
        return text
    # A struct cannot have the schema whose default it is: Java's put refuses it.
    refused = put and field.schema.type == "STRUCT"
    default = f"{code.bind(_refuse_default)}()" if refused else code.bind(field.schema.default)
    return f"({text} if {text} is not None else {default})"


def emit_struct(
    code: Code, part: Part, after: Schema, values: Sequence[str], *, left_out: Collection[str] = ()
) -> None:
    """Write the statements that turn `part`, known to be a struct, into a struct of schema `after` with these
    expressions as its values. Fields in `left_out` are not put when they are null, and so not refused. The statements
    may change the old list.
    """
    if code.put_fields(part, after, values):
        return
    before = code.made.get(part)
    code.line(f"{OLD} = {part if before else code.read(part)}.values")
    filled = {place for place, text in enumerate(values) if _is_filled(text, before)}
    if before is None:
        _emit_values(code, after, values, left_out)
        code.make(part, after, MADE)
        new = MADE
    else:
        new = _reuse(code, part, before, after, values)
    check = null_check(after, left_out)
    if check is not None:
        required = {field.index for field in after.fields if not field.schema.optional and field.name not in left_out}
        _emit_check(code, new, check, sorted(required - filled))
        filled |= required
    code.made[part] = Made(after, frozenset(filled))


def _emit_values(code: Code, after: Schema, values: Sequence[str], left_out: Collection[str]) -> None:
    """Write the statements that create the list. Java goes field by field and reports null in a required field before
    the error of a later field: the generated code checks that order only after an expression has failed.
    """
    made = f"{MADE} = [{', '.join(values)}]"
    required = {field.index for field in after.fields if not field.schema.optional and field.name not in left_out}
    if not required or not any(map(_CALL.search, values)):
        code.line(made)
        return
    with code.block("try"):
        code.line(made)
    with code.block(f"except {code.bind(ConnectError)}"):
        for field, text in zip(after.fields, values, strict=True):
            code.line(f"{code.bind(partial(require, field))}({text})" if field.index in required else text)
        code.line("raise")


def _is_filled(text: str, before: Made | None) -> bool:
    """True when an expression is known not to be null: a literal, or a field of the old struct that is not null."""
    found = _FIELD.fullmatch(text)
    return text[0] in "'\"" if found is None else before is not None and int(found[1]) in before.filled


def _reuse(code: Code, part: Part, before: Made, after: Schema, values: Sequence[str]) -> str:
    """Write the statements that reuse a struct which generated code created. Its list is reused too where each field
    keeps its index and depends on its own value alone. Returns the name of the list.
    """
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
    # Checking each index for null takes a third of the time.
    nulls = " or ".join(f"{new}[{place}] is None" for place in places)
    with code.block(f"if {nulls if len(places) <= _PLACES_MAX else f'None in {new}'}"):
        code.line(f"{code.bind(check)}({new})")


def null_check(schema: Schema, left_out: Collection[str] = ()) -> Callable[[list[Any]], None] | None:
    """A check that refuses a struct's values with null in a required field; None = no field is required."""
    required = [field for field in schema.fields if not field.schema.optional and field.name not in left_out]
    if not required:
        return None

    def check(values: list[Any]) -> None:
        for field in required:
            require(field, values[field.index])

    return check


def checked_struct(schema: Schema, values: list[Any]) -> Struct:
    """Create the struct. Raises DataError for null in a required field."""
    check = null_check(schema)
    if check is not None:
        check(values)
    return Struct(schema, values)


def require(field: Field, value: Any) -> None:
    """Refuse null in a field that is not optional."""
    if value is None:
        raise DataError(
            f'Invalid value: null used for required field: "{field.name}", schema type: {field.schema.type}'
        )


def _refuse_default() -> None:
    raise DataError("Struct schemas do not match.")
