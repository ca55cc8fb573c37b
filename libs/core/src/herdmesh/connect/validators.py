"""The validators Connect's configuration keys use, with its texts (reference data-model 4.4).

Owns the rules on single values. Rules between keys belong to `connector_config`.

Invariant: each factory's `text` is what Connect reports as the valid values of a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from herdmesh.connect.config import Validator
from herdmesh.connect.errors import ConfigError


def at_least(minimum: int) -> Validator:
    """A number not below `minimum`; null fails."""

    def check(field: str, value: Any) -> None:
        if value is None:
            raise ConfigError.for_value(field, None, "Value must be non-null")
        if value < minimum:
            raise ConfigError.for_value(
                field, value, f"Value must be at least {minimum}", fix=f"write {minimum} or more"
            )

    return Validator(f"[{minimum},...]", check)


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


def one_of(*choices: str) -> Validator:
    """One of the texts, exactly; null fails."""

    def check(field: str, value: Any) -> None:
        if value not in choices:
            raise ConfigError.for_value(field, value, f"String must be one of: {', '.join(choices)}")

    return Validator(f"[{', '.join(choices)}]", check)


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


def distinct_values(*, empty_allowed: bool) -> Validator:
    """A list of non-blank values. Duplicates: `parse` removes them silently, `validate` reports them (seen on
    4.3.1)."""

    def check(field: str, value: Any) -> None:
        if not value and not empty_allowed:
            message = f"Configuration '{field}' must not be empty. Valid values include: any non-empty value"
            raise ConfigError(message, field=field)
        if value and any(not item for item in value):
            raise ConfigError(f"Configuration '{field}' values must not be empty.", field=field)

    def strict(field: str, value: Any) -> None:
        if value and len(set(value)) < len(value):
            raise ConfigError(f"Configuration '{field}' values must not be duplicated.", field=field)

    return Validator("", check, refine=lambda value: list(dict.fromkeys(value)) if value else value, strict=strict)


def unique_aliases(what: str) -> Validator:
    """A list of names, each once; null fails. `what` is what they name, in the plural of Connect's text."""

    def check(field: str, value: Any) -> None:
        if value is None:
            raise ConfigError.for_value(field, None, "entry must be non null")
        if len(set(value)) < len(value):
            raise ConfigError.for_value(field, value, "Duplicate alias provided.")

    return Validator(f"non-null string, unique {what}", check)


def regex() -> Validator:
    """A compilable regular expression. Python's syntax stands in for Java's; the two agree on all but exotic
    constructs."""

    def check(field: str, value: Any) -> None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ConfigError.for_value(field, value, f"Invalid regex: {error}") from error

    return Validator("valid regex", check)


def rename_pairs() -> Validator:
    """A list of `old:new` pairs with exactly one colon and both sides present."""

    def check(field: str, value: Any) -> None:
        check_pairs(field, value or ())

    return Validator("list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>", check)


def check_pairs(field: str, values: Iterable[str]) -> dict[str, str]:
    """Old name -> new name. Raises ConfigError with Connect's text for anything but `old:new`."""
    pairs: dict[str, str] = {}
    items = list(values)
    for item in items:
        parts = item.split(":")
        while parts and not parts[-1]:
            parts.pop()  # Java's split drops trailing empty parts, so `id:` has one part
        if len(parts) != 2:
            raise ConfigError.for_value(field, items, f"Invalid rename mapping: {item}")
        pairs[parts[0]] = parts[1]
    return pairs
