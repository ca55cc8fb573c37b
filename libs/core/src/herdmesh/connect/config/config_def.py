"""Config definitions in Connect's model: typed keys with defaults and validators, and Connect's error texts.

Owns `ConfigDef` and value parsing (docs/reference/connect/data-model.md, section 4). Validators: `validators`. Defines
no particular key.

Invariant: `parse` raises exactly where Java's `ConfigDef.parse` does, with its text; the result of `validate` equals
that of Java's `ConfigDef.validateAll` for every key. A value of type PASSWORD is known to `redaction` before it is
returned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar, cast

from herdmesh.connect.config.redaction import keep_secret
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.java import double_text

_R = TypeVar("_R")
RawConfig = Mapping[str, Any]
"""A configuration as submitted: text values; null is allowed."""


class Type(StrEnum):
    """Types of configuration values (docs/reference/connect/data-model.md, section 4.1)."""

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
    """Importance of a key to most users."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
"""Marks a key without a default."""
HIDDEN_PASSWORD: Final = "[hidden]"
"""The text in place of a password, as Connect prints it."""
_IMPORTANCES = tuple(Importance)


class KnownClasses(Protocol):
    """The classes that a value of type CLASS can name."""

    def full_name(self, name: str) -> str | None:
        """The full name of the class with that name or alias; None = there is no such class."""
        ...

    def class_advice(self, field: str, name: str) -> str:
        """The fix for an unknown class name at `field`; "" = no fix."""
        ...


@dataclass(frozen=True, slots=True)
class Validator:
    """Rule for one parsed value. `check(key, value)` raises ConfigError; `text` is how Connect describes the rule.

    `refine` may change the result of `parse` (Connect removes duplicates from some lists there); `strict` has checks
    that only `validate` makes.
    """

    text: str
    check: Callable[[str, Any], None]
    refine: Callable[[str, Any], Any] | None = None
    strict: Callable[[str, Any], None] | None = None

    def below(self, prefix: str) -> Validator:
        """The same rule for keys under a prefix: the rule receives and names the key without the prefix."""
        return Validator(
            self.text,
            _below(self.check, prefix),
            self.refine and _below(self.refine, prefix),
            self.strict and _below(self.strict, prefix),
        )


def _below(rule: Callable[[str, Any], _R], prefix: str) -> Callable[[str, Any], _R]:
    return lambda field, value: rule(field.removeprefix(prefix), value)


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One problem of a config: the key to change, the reason, and what to write instead ("" = see message)."""

    field: str
    message: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a value: Connect's text, and what to write instead ("" = the text says it)."""

    message: str
    fix: str = ""


@dataclass(slots=True)
class ConfigValue:
    """Result for one key: its parsed value, recommended values, and all its problems."""

    name: str
    value: Any = None
    recommended: Sequence[Any] = ()
    problems: list[Problem] = dataclass_field(default_factory=list[Problem])
    visible: bool = True

    def add(self, message: str, fix: str = "") -> None:
        """Add a problem."""
        self.problems.append(Problem(message, fix))


@dataclass(frozen=True, slots=True)
class Recommender:
    """Choices that a form may offer for a key. Both functions get the key's name and all parsed values; a ConfigError
    becomes a problem of the key."""

    values: Callable[[str, Mapping[str, Any]], Sequence[Any]]
    visible: Callable[[str, Mapping[str, Any]], bool] = lambda _name, _parsed: True


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. `default` is REQUIRED or a value of the key's type (None allowed). `order` is the position within
    `group`. `dependents` are keys that are validated after this one, and whose recommendations may use its value.
    """

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
    dependents: tuple[str, ...] = ()
    recommender: Recommender | None = None

    @property
    def required(self) -> bool:
        """True when the key has no default."""
        return self.default is REQUIRED

    def embedded(self, prefix: str, group: str, order: int) -> ConfigKey:
        """The key as part of a larger definition: its validator and recommender still see the name without the prefix,
        as in Connect (data-model 4.5).
        """
        return ConfigKey(
            prefix + self.name,
            self.type,
            self.default,
            self.importance,
            self.doc,
            self.validator and self.validator.below(prefix),
            group if self.group is None else f"{group}: {self.group}",
            order,
            self.width,
            self.display_name or self.name,
            tuple(prefix + name for name in self.dependents),
            self.recommender and _recommender_below(self.recommender, prefix),
        )


def _recommender_below(inner: Recommender, prefix: str) -> Recommender:
    def short(parsed: Mapping[str, Any]) -> dict[str, Any]:
        return {name.removeprefix(prefix): value for name, value in parsed.items() if name.startswith(prefix)}

    return Recommender(
        lambda name, parsed: inner.values(name.removeprefix(prefix), short(parsed)),
        lambda name, parsed: inner.visible(name.removeprefix(prefix), short(parsed)),
    )


class ConfigDef:
    """An ordered set of keys. Build it once at import; it does not change afterwards."""

    def __init__(self, *keys: ConfigKey) -> None:
        self._keys = {key.name: key for key in keys}
        dependents = {name for key in keys for name in key.dependents}
        self._roots = [name for name in self._keys if name not in dependents]
        self._undefined = sorted(dependents - self._keys.keys())

    @property
    def keys(self) -> Mapping[str, ConfigKey]:
        """The keys in the order they were defined."""
        return self._keys

    @property
    def groups(self) -> list[str]:
        """The groups in the order they first appear."""
        return list(dict.fromkeys(key.group for key in self._keys.values() if key.group is not None))

    def passwords(self, config: RawConfig) -> frozenset[str]:
        """The values that keys of type PASSWORD have in the config."""
        found = (config.get(key.name) for key in self._keys.values() if key.type is Type.PASSWORD)
        return frozenset(str(value) for value in found if value)

    def extended(self, *keys: ConfigKey) -> ConfigDef:
        """A new definition with these keys added; a key with an existing name replaces the existing key."""
        return ConfigDef(*{**self._keys, **{key.name: key for key in keys}}.values())

    def sorted_keys(self) -> list[ConfigKey]:
        """The keys in the order in which Connect embeds and documents them: by group, order, required first,
        importance, name.
        """
        places = {group: place for place, group in enumerate(self.groups)}

        def rank(key: ConfigKey) -> tuple[int, int, bool, int, str]:
            group = -1 if key.group is None else places[key.group]
            return group, key.order, not key.required, _IMPORTANCES.index(key.importance), key.name

        return sorted(self._keys.values(), key=rank)

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
                    value = key.validator.refine(key.name, value)
            values[key.name] = value
        return values

    def validate(self, config: RawConfig, classes: KnownClasses | None = None) -> dict[str, ConfigValue]:
        """Values and problems of all keys (Java: `ConfigDef.validateAll`; data-model 4.2, 4.3).

        A value that cannot be parsed is validated again as null, so one key may have two problems. `classes` resolves
        values of type CLASS; without it those values stay as they are written.
        """
        values = {name: ConfigValue(name) for name in self._keys}
        for name in self._undefined:
            missing = ConfigValue(name, visible=False)
            missing.add(f"{name} is referred in the dependents, but not defined.")
            values[name] = missing
        parsed: dict[str, Any] = {}
        for name in self._roots:
            self._parse(name, config, values, parsed, classes)
        for name in self._roots:
            self._recommend(name, values, parsed)
        return values

    def _parse(
        self,
        name: str,
        config: RawConfig,
        values: dict[str, ConfigValue],
        parsed: dict[str, Any],
        classes: KnownClasses | None,
    ) -> None:
        key = self._keys.get(name)
        if key is None:
            return
        found = values[name]
        value = None
        try:
            value = _value_of(key, config, classes)
        except ConfigError as error:
            found.add(str(error), error.fix)
        if key.validator is not None:
            try:
                key.validator.check(name, value)
                if key.validator.strict is not None:
                    key.validator.strict(name, value)
            except ConfigError as error:
                found.add(str(error), error.fix)
        found.value = parsed[name] = value
        for dependent in key.dependents:
            self._parse(dependent, config, values, parsed, classes)

    def _recommend(self, name: str, values: dict[str, ConfigValue], parsed: dict[str, Any]) -> None:
        key = self._keys.get(name)
        if key is None:
            return
        if key.recommender is not None:
            found = values[name]
            try:
                offered = key.recommender.values(name, parsed)
                if found.recommended:  # a key with two parents: the values that both allow
                    offered = [value for value in offered if value in found.recommended]
                found.recommended = offered
                found.visible = key.recommender.visible(name, parsed)
            except ConfigError as error:
                found.add(str(error), error.fix)
        for dependent in key.dependents:
            self._recommend(dependent, values, parsed)


def text_of(value: Any, kind: Type | None) -> str | None:
    """A parsed value as Connect prints it (Java: `ConfigDef.convertToString`). None = a key without a definition."""
    if value is None:
        return None
    if kind is Type.PASSWORD:
        return HIDDEN_PASSWORD
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(one) for one in cast("Sequence[Any]", value))
    return double_text(value) if isinstance(value, float) else str(value)


def _value_of(key: ConfigKey, config: RawConfig, classes: KnownClasses | None = None) -> Any:
    if key.name in config:
        return parse_value(key.name, config[key.name], key.type, classes)
    if key.default is REQUIRED:
        message = f'Missing required configuration "{key.name}" which has no default value.'
        raise ConfigError(message, field=key.name, fix=f"set {key.name}")
    return key.default


_LIST_SEPARATOR = re.compile(r"\s*,\s*")
_JAVA_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)[fFdD]?)", re.ASCII)
_INT_TEXT = re.compile(r"[+-]?\d+")
_INT_BITS = {Type.INT: 32, Type.SHORT: 16, Type.LONG: 64}


def parse_value(field: str, value: Any, kind: Type, classes: KnownClasses | None = None) -> Any:
    """Parse one value as Java's `ConfigDef.parseType`; null stays null for every type. `classes` as in `validate`.

    Raises:
        ConfigError: `Invalid value <v> for configuration <field>: <why>`.
    """
    if value is None:
        return None
    if isinstance(value, str):
        if kind is Type.PASSWORD:
            keep_secret((value, value.strip(_JAVA_TRIM)))
        if kind is Type.CLASS and classes is not None:
            found = classes.full_name(value.strip(_JAVA_TRIM))
            if found is None:
                message = f"Class {value} could not be found."
                raise ConfigError.for_value(field, value, message, fix=classes.class_advice(field, value))
            return found
        return _parse_text(field, value, kind)
    return _parse_other(field, value, kind)


def _parse_text(field: str, text: str, kind: Type) -> Any:
    trimmed = text.strip(_JAVA_TRIM)
    if kind in (Type.STRING, Type.PASSWORD, Type.CLASS):
        return trimmed
    if kind is Type.BOOLEAN:
        if trimmed.lower() in ("true", "false"):
            return trimmed.lower() == "true"
        raise ConfigError.for_value(field, text, "Expected value to be either true or false", fix="write true or false")
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
