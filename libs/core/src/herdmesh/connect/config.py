"""Typed configuration in Connect's model: keys with type, default and validator, and Connect's error texts.

Owns `ConfigDef` and value parsing (reference data-model 4). Validators live in `validators`. Knows no particular key.

Invariant: `parse` raises exactly where Java's `ConfigDef.parse` does, with its text; `validate` reports the same
problems for all keys at once, each naming its key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, cast

from herdmesh.connect.errors import ConfigError

RawConfig = Mapping[str, Any]
"""A configuration as submitted: text values, null allowed."""


class Type(StrEnum):
    """Types of configuration values (reference data-model 4.1)."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"


class Importance(StrEnum):
    """How much a key matters to most users."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
"""The default of a key that has none."""


@dataclass(frozen=True, slots=True)
class Validator:
    """A rule on one parsed value. `check(key, value)` raises ConfigError; `text` is how Connect describes the rule.

    `refine` may change what `parse` returns (Connect removes duplicates from some lists there); `strict` holds checks
    that only `validate` makes.
    """

    text: str
    check: Callable[[str, Any], None]
    refine: Callable[[Any], Any] | None = None
    strict: Callable[[str, Any], None] | None = None


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One thing wrong with a configuration: the key to change, what is wrong, and what to write instead ("" = see
    message)."""

    field: str
    message: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. `default` is REQUIRED or a value of the key's type (None allowed). `order` is within `group`."""

    name: str
    type: Type
    default: Any
    importance: Importance
    doc: str
    validator: Validator | None = None
    group: str | None = None
    order: int = -1
    width: str = "NONE"
    display_name: str = ""

    @property
    def required(self) -> bool:
        """True when the key has no default."""
        return self.default is REQUIRED


class ConfigDef:
    """An ordered set of keys. Build it once at import; it does not change afterwards."""

    def __init__(self, *keys: ConfigKey) -> None:
        self._keys = {key.name: key for key in keys}

    @property
    def keys(self) -> Mapping[str, ConfigKey]:
        """The keys in the order they were defined."""
        return self._keys

    def extended(self, *keys: ConfigKey) -> ConfigDef:
        """A new definition with more keys."""
        return ConfigDef(*self._keys.values(), *keys)

    def prefixed(self, prefix: str) -> ConfigDef:
        """The same keys under a prefix. Validators still see, and name, the short key, as in Connect (configs 6)."""
        return ConfigDef(*(replace(key, name=prefix + key.name) for key in self._keys.values()))

    def parse(self, config: RawConfig) -> dict[str, Any]:
        """Typed values of all keys; unknown keys are ignored.

        Raises:
            ConfigError: the first key, in order, that is missing or has a bad value.
        """
        values: dict[str, Any] = {}
        for key in self._keys.values():
            value = _value_of(key, config)
            if key.validator is not None:
                key.validator.check(key.name, value)
                if key.validator.refine is not None:
                    value = key.validator.refine(value)
            values[key.name] = value
        return values

    def validate(self, config: RawConfig, prefix: str = "") -> list[FieldViolation]:
        """Everything wrong with the values of these keys; `prefix` is put before the keys (`transforms.a.`)."""
        violations: list[FieldViolation] = []
        for key in self._keys.values():
            found = _violation(key, config, prefix)
            if found is not None:
                violations.append(found)
        return violations


def _violation(key: ConfigKey, config: RawConfig, prefix: str) -> FieldViolation | None:
    field = prefix + key.name
    try:
        value = _value_of(key, {key.name: config[field]} if field in config else {}, shown=field)
        if key.validator is not None:
            key.validator.check(key.name, value)
            if key.validator.strict is not None:
                key.validator.strict(key.name, value)
    except ConfigError as error:
        return FieldViolation(field, str(error), error.fix)
    return None


def _value_of(key: ConfigKey, config: RawConfig, shown: str = "") -> Any:
    if key.name in config:
        return parse_value(shown or key.name, config[key.name], key.type)
    if key.default is REQUIRED:
        name = shown or key.name
        raise ConfigError(f'Missing required configuration "{name}" which has no default value.', field=name)
    return key.default


_LIST_SEPARATOR = re.compile(r"\s*,\s*")
_JAVA_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)[fFdD]?)")
_INT_TEXT = re.compile(r"[+-]?\d+")
_INT_BITS = {Type.INT: 32, Type.SHORT: 16, Type.LONG: 64}


def parse_value(field: str, value: Any, kind: Type) -> Any:
    """One value as Java's `ConfigDef.parseType`; null stays null for every type.

    Raises:
        ConfigError: `Invalid value <v> for configuration <field>: <why>`.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _parse_text(field, value, kind)
    return _parse_other(field, value, kind)


def _parse_text(field: str, text: str, kind: Type) -> Any:
    trimmed = text.strip(_JAVA_TRIM)
    if kind in (Type.STRING, Type.PASSWORD, Type.CLASS):
        return trimmed
    if kind is Type.BOOLEAN:
        if trimmed.lower() in ("true", "false"):
            return trimmed.lower() == "true"
        raise ConfigError.for_value(field, text, "Expected value to be either true or false")
    if kind is Type.LIST:
        return _LIST_SEPARATOR.split(trimmed) if trimmed else []
    if kind is Type.DOUBLE:
        if _JAVA_DOUBLE.fullmatch(trimmed):
            return float(trimmed.rstrip("fFdD").replace("Infinity", "inf"))
    elif _INT_TEXT.fullmatch(trimmed):
        number = int(trimmed)
        if -(1 << _INT_BITS[kind] - 1) <= number < 1 << _INT_BITS[kind] - 1:
            return number
    raise ConfigError.for_value(field, text, f"Not a number of type {kind.value}", fix="write a whole number")


_JAVA_TRIM = "".join(map(chr, range(0x21)))  # String.trim removes every character up to the space


def _parse_other(field: str, value: Any, kind: Type) -> Any:
    accepted = {
        Type.BOOLEAN: isinstance(value, bool),
        Type.STRING: False,
        Type.PASSWORD: False,
        Type.CLASS: False,
        Type.LIST: isinstance(value, list),
        Type.DOUBLE: isinstance(value, (int, float)) and not isinstance(value, bool),
    }.get(kind, isinstance(value, int) and not isinstance(value, bool))
    if accepted:
        return cast(Any, value)
    wanted = {
        Type.BOOLEAN: "Expected value to be either true or false",
        Type.STRING: f"Expected value to be a string, but it was a {_json_type(value)}",
        Type.LIST: "Expected a comma separated list.",
    }.get(kind, f"Expected value to be a {kind.value.lower()}, but it was a {_json_type(value)}")
    raise ConfigError.for_value(field, value, wanted, fix="write the value as a string")


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return "list" if isinstance(value, list) else "object"
