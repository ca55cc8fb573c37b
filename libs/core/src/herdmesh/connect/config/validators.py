"""Validators of config values, with Connect's texts (docs/reference/connect/data-model.md, section 4.4).

Owns rules on single values. Rules between keys: `validation.connector_rules`.

Invariant: each factory's `text` equals Connect's text for the valid values of a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from herdmesh.connect.config.config_def import Validator
from herdmesh.connect.config.sizes import bytes_of, text_of_bytes
from herdmesh.connect.errors import ConfigError


def at_least(minimum: int) -> Validator:
    """A number not below `minimum`; null fails."""

    def check(field: str, value: Any) -> None:
        if value is None:
            raise ConfigError.for_value(field, None, "Value must be non-null", fix=f"write {minimum} or more")
        if value < minimum:
            raise ConfigError.for_value(
                field, value, f"Value must be at least {minimum}", fix=f"write {minimum} or more"
            )

    return Validator(f"[{minimum},...]", check)


def positive_or_broker_default(what: str, valid: str) -> Validator:
    """A number from 1, or -1 for the broker's default; null passes."""

    def check(field: str, value: Any) -> None:
        if value is not None and value != -1 and value < 1:
            raise ConfigError.for_value(field, value, f"{what}, or -1 to use the broker's default", fix="write -1")

    return Validator(f"{valid}, or -1 to use the broker's default", check)


def optional_at_least(minimum: int) -> Validator:
    """As `at_least`, but null passes."""
    inner = at_least(minimum)

    def check(field: str, value: Any) -> None:
        if value is not None:
            inner.check(field, value)

    return Validator(inner.text, check)


def optional_between(minimum: int, maximum: int) -> Validator:
    """A number from `minimum` to `maximum`; null passes."""
    inner = at_least(minimum)

    def check(field: str, value: Any) -> None:
        if value is None:
            return
        inner.check(field, value)
        if value > maximum:
            message = f"Value must be no more than {maximum}"
            raise ConfigError.for_value(field, value, message, fix=f"write {maximum} or less")

    return Validator(f"[{minimum},...,{maximum}]", check)


def optional_size(minimum_bytes: int) -> Validator:
    """A size in bytes, with or without a unit (`sizes`), not below the minimum; null passes."""
    least = text_of_bytes(minimum_bytes)

    def check(field: str, value: Any) -> None:
        if value is None:
            return
        found = bytes_of(value)
        if found is None:
            raise ConfigError.for_value(field, value, "Not a size such as 512MB or 2GB", fix=f"write {least} or more")
        if found < minimum_bytes:
            raise ConfigError.for_value(field, value, f"Size must be at least {least}", fix=f"write {least} or more")

    return Validator(f"[{least},...]", check)


def one_of(*choices: str) -> Validator:
    """One of the texts, exactly; null fails."""

    def check(field: str, value: Any) -> None:
        if value not in choices:
            raise ConfigError.for_value(
                field, value, f"String must be one of: {', '.join(choices)}", fix="write one of these"
            )

    return Validator(f"[{', '.join(choices)}]", check)


def optional_one_of(*choices: str) -> Validator:
    """As `one_of`, but null passes."""
    inner = one_of(*choices)

    def check(field: str, value: Any) -> None:
        if value is not None:
            inner.check(field, value)

    return Validator(inner.text, check)


def one_of_ignoring_case(*choices: str) -> Validator:
    """One of the texts in any case. Give the choices in the order Connect prints them."""

    def check(field: str, value: Any) -> None:
        if value is None or value.upper() not in choices:
            message = f"String must be one of (case insensitive): {', '.join(choices)}"
            raise ConfigError.for_value(field, value, message)

    return Validator(f"(case insensitive) [{', '.join(choices)}]", check)


def non_empty_string() -> Validator:
    """Text that is not empty; null passes."""

    def check(field: str, value: Any) -> None:
        if value is not None and not value:
            raise ConfigError.for_value(field, value, "String must be non-empty")

    return Validator("non-empty string", check)


def non_empty_without_control_characters() -> Validator:
    """A name: not empty and without ISO control characters; null passes."""

    def check(field: str, value: Any) -> None:
        if value is None:
            return
        if not value:
            raise ConfigError.for_value(field, value, "String may not be empty")
        controls = [ord(char) for char in value if ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0]
        if controls:
            codes = ", ".join(map(str, controls))
            message = f"String may not contain control sequences but had the following ASCII chars: {codes}"
            raise ConfigError.for_value(field, value, message)

    return Validator("non-empty string without ISO control characters", check)


def non_null_string() -> Validator:
    """Any text; null fails."""

    def check(field: str, value: Any) -> None:
        if value is None:
            raise ConfigError.for_value(field, None, "entry must be non null")

    return Validator("non-null string", check)


def non_empty_list() -> Validator:
    """A list with at least one item; null fails."""

    def check(field: str, value: Any) -> None:
        if not value:
            raise ConfigError.for_value(field, value, "Empty list")

    return Validator("non-empty list", check)


def all_of(*parts: Validator) -> Validator:
    """All of these rules, in order; the first one that fails reports its error."""

    def check(field: str, value: Any) -> None:
        for part in parts:
            part.check(field, value)

    return Validator(", ".join(part.text for part in parts), check)


def distinct_values(*, empty_allowed: bool) -> Validator:
    """A list of non-blank values, null no list. Duplicates: `parse` removes them silently, `validate` reports them
    (observed on 4.3.1).
    """

    def check(field: str, value: Any) -> None:
        if value is None:
            raise ConfigError(f"Configuration '{field}' values must not be null.", field=field)
        if not value and not empty_allowed:
            message = f"Configuration '{field}' must not be empty. Valid values include: any non-empty value"
            raise ConfigError(message, field=field)
        if len(set(value)) == len(value):
            _check_items(field, value)

    def strict(field: str, value: Any) -> None:
        if len(set(value)) < len(value):
            raise ConfigError(f"Configuration '{field}' values must not be duplicated.", field=field)

    def refine(field: str, value: Any) -> Any:
        distinct = list(dict.fromkeys(value))
        _check_items(field, distinct)
        return distinct

    return Validator("", check, refine=refine, strict=strict)


def plugin_version() -> Validator:
    """A plugin version or a range of versions; null passes."""

    def check(field: str, value: Any) -> None:
        from herdmesh.connect.config.versions import version_range  # not needed where records are processed

        version_range(value)

    return Validator("a version, a range of versions such as [4.3,5.0), or latest", check)


def unique_aliases(what: str) -> Validator:
    """A list of distinct names; null fails. `what` is the kind of name, in the plural of Connect's text."""

    def check(field: str, value: Any) -> None:
        if value is None:
            raise ConfigError.for_value(field, None, "entry must be non null")
        if len(set(value)) < len(value):
            raise ConfigError.for_value(field, value, "Duplicate alias provided.")

    return Validator(f"non-null string, unique {what}", check)


def regex() -> Validator:
    """A regular expression that Java compiles; null fails."""

    def check(field: str, value: Any) -> None:
        from herdmesh.connect.java import REGEX_FIX, syntax_error  # not needed where records are processed

        if value is None:
            wrong = 'Cannot invoke "String.isEmpty()" because "this.pattern" is null'
        else:
            wrong = syntax_error(value)
        if wrong is not None:
            raise ConfigError.for_value(field, value, f"Invalid regex: {wrong}", fix=REGEX_FIX)

    return Validator("valid regex", check)


def regexes() -> Validator:
    """A list of regular expressions that Java compiles."""
    one = regex()

    def check(field: str, value: Any) -> None:
        for pattern in value or ():
            one.check(field, pattern)

    return Validator("list of valid regexes", check)


def cast_spec() -> Validator:
    """Types for Cast: one type for the whole value, or `field:type` pairs
    (docs/reference/connect/transforms-converters.md, section 2.1).
    """

    def check(field: str, value: Any) -> None:
        if not value:
            raise ConfigError("Must specify at least one field to cast.", field=field)
        whole = 0
        for item in value:
            parts = _split_pair(item)
            if len(parts) > 2:
                # Connect names another transformation's option here, and so does Herdmesh
                raise ConfigError.for_value("renames", list(value), f"Invalid rename mapping: {item}")
            _check_cast_type(field, parts[-1].strip() if parts else "")
            whole += len(parts) == 1
        if whole and len(value) > 1:
            raise ConfigError(
                "Cast transformations that specify a type to cast the entire value to may only specify a single cast "
                "in their spec",
                field=field,
            )

    return Validator("list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>", check)


_CAST_TYPES = ("INT8", "INT16", "INT32", "INT64", "FLOAT32", "FLOAT64", "BOOLEAN", "STRING")
_OTHER_TYPES = ("BYTES", "ARRAY", "MAP", "STRUCT")


def _check_cast_type(field: str, name: str) -> None:
    kind = name.upper()
    fix = f"use one of {', '.join(_CAST_TYPES).lower()}"
    if kind in _OTHER_TYPES:
        supported = ", ".join(_CAST_TYPES)
        message = f"Cast transformation does not support casting to {kind}; supported types are [{supported}]"
        raise ConfigError(message, field=field, fix=fix)
    if kind not in _CAST_TYPES:
        java = f"java.lang.IllegalArgumentException: No enum constant org.apache.kafka.connect.data.Schema.Type.{kind}"
        message = f"Invalid value {java} for configuration Invalid type found in casting spec: {name}"
        raise ConfigError(message, field=field, fix=fix)


def rename_pairs() -> Validator:
    """A list of `old:new` pairs with exactly one colon and both sides present."""

    def check(field: str, value: Any) -> None:
        check_pairs(field, value or ())

    return Validator("list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>", check)


def check_pairs(field: str, values: Iterable[str]) -> dict[str, str]:
    """Map old names to new names. Raises ConfigError with Connect's text for an item that is not `old:new`."""
    pairs: dict[str, str] = {}
    items = list(values)
    for item in items:
        parts = _split_pair(item)
        if len(parts) != 2:
            raise ConfigError.for_value(field, items, f"Invalid rename mapping: {item}")
        pairs[parts[0]] = parts[1]
    return pairs


def _split_pair(item: str) -> list[str]:
    parts = item.split(":")
    while item and parts and not parts[-1]:
        parts.pop()  # Java's split drops trailing empty parts, so `id:` has one part; an empty text stays one
    return parts


def _check_items(field: str, values: Sequence[str]) -> None:
    if not all(values):
        raise ConfigError(f"Configuration '{field}' values must not be empty.", field=field)
