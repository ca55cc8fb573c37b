"""A connector's keys as a typed class: declared once, validated as in Connect, read as attributes.

Owns the conversion of annotated attributes to a `ConfigDef`, and of a config to an instance. Parsing and error texts
are those of `herdmesh.connect.config.config_def`.

    class TailSettings(Settings):
        file: str = setting("File to read.", importance=Importance.HIGH)
        batch_size: int = setting("Records taken at once.", default=100, validator=at_least(1))

    TailSettings.config_def()                      the keys `file` and `batch.size`
    TailSettings.parse(config).batch_size          an int

| Annotation | Type of the key |
|---|---|
| `str`, `bool`, `float`, `list[str]` | STRING, BOOLEAN, DOUBLE, LIST |
| `int` | LONG; INT or SHORT with `type=` |
| a `StrEnum` | STRING, one of its values |
| `Secret` | PASSWORD |
| `... | None` | the same, and null is a value |

Invariant: every attribute of the result of `parse` has a value of its annotation.
"""

from __future__ import annotations

import dataclasses
import types
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final, Self, Union, cast, dataclass_transform, get_args, get_origin, get_type_hints

from herdmesh.connect.config import REQUIRED, ConfigDef, ConfigKey, Importance, Recommender, Type, Validator, one_of
from herdmesh.connect.config.config_def import HIDDEN_PASSWORD
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi import Config

_DECLARED: Final = "herdmesh.setting"
_TYPES: Final[dict[Any, Type]] = {
    str: Type.STRING,
    bool: Type.BOOLEAN,
    int: Type.LONG,
    float: Type.DOUBLE,
    list[str]: Type.LIST,
}
_INTEGERS: Final = (Type.LONG, Type.INT, Type.SHORT)


@dataclass(frozen=True, slots=True)
class Secret:
    """The value of a key of type PASSWORD. It prints as `[hidden]`."""

    _value: str

    def reveal(self) -> str:
        """The secret itself."""
        return self._value

    def __repr__(self) -> str:
        return HIDDEN_PASSWORD

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class _Declared:
    """The arguments of `setting`."""

    doc: str
    name: str
    type: Type | None
    importance: Importance
    validator: Validator | None
    group: str | None
    width: str
    display_name: str
    dependents: tuple[str, ...]
    recommender: Recommender | None


def setting(
    doc: str,
    *,
    default: Any = REQUIRED,
    name: str = "",
    type: Type | None = None,
    importance: Importance = Importance.MEDIUM,
    validator: Validator | None = None,
    group: str | None = None,
    width: str = "NONE",
    display_name: str = "",
    dependents: tuple[str, ...] = (),
    recommender: Recommender | None = None,
) -> Any:
    """One key of a `Settings` class.

    Args:
        doc: the effect of the key, for users who write a config.
        default: a value of the annotation; none = the key is required.
        name: the key; "" = the attribute's name with dots for underscores.
        type: where the annotation leaves a choice (`int`).
        dependents: attributes that are validated after this one, and whose recommendations may rely on it.
        recommender: returns values that a form may offer; gets key names and parsed values.
    """
    declared = _Declared(
        doc, name, type, importance, validator, group, width, display_name, dependents, recommender
    )  # fmt: skip
    metadata = {_DECLARED: declared}
    if default is REQUIRED:
        return dataclasses.field(metadata=metadata)
    if isinstance(default, list):
        items = cast("list[str]", default)
        return dataclasses.field(default_factory=lambda: list(items), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting,))
class Settings:
    """The keys of a connector. A subclass declares each with `setting`; its instances are frozen."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The keys, in the order they are declared.

        Raises:
            TypeError: an invalid declaration.
        """
        return _read(cls)[0]

    @classmethod
    def parse(cls, config: Config) -> Self:
        """The settings of a config; undeclared keys are ignored.

        Raises:
            ConfigError: the first key, in order, that is missing or has a bad value.
        """
        definition, attributes = _read(cls)
        values = definition.parse(config)
        return cls(**{one.attribute: one.typed(values[one.key]) for one in attributes})


@dataclass(frozen=True, slots=True)
class _Attribute:
    attribute: str
    key: str
    base: Any
    """The annotation without `None`."""
    optional: bool

    def typed(self, value: Any) -> Any:
        """A parsed value in the type of the annotation. Raises ConfigError for a null that it does not allow."""
        if value is None:
            if self.optional:
                return None
            fix = "write a value, or leave the key out"
            raise ConfigError.for_value(self.key, None, "Value must be non-null", fix=fix)
        if self.base is Secret:
            return Secret(value)
        return self.base(value) if _is_choice(self.base) else value


@cache
def _read(settings: type[Settings]) -> tuple[ConfigDef, tuple[_Attribute, ...]]:
    hints = get_type_hints(settings)
    fields = dataclasses.fields(cast("Any", settings))
    names: dict[str, str] = {}
    for field in fields:
        if _DECLARED not in field.metadata:
            raise TypeError(f"{settings.__name__}.{field.name}: declare it with setting(...)")
        names[field.name] = field.metadata[_DECLARED].name or field.name.replace("_", ".")
    attributes: list[_Attribute] = []
    keys: list[ConfigKey] = []
    for order, field in enumerate(fields):
        attribute = _Attribute(field.name, names[field.name], *_base_of(hints[field.name]))
        attributes.append(attribute)
        keys.append(_key(settings, attribute, field, order, names))
    return ConfigDef(*keys), tuple(attributes)


def _key(
    settings: type[Settings], attribute: _Attribute, field: dataclasses.Field[Any], order: int, names: dict[str, str]
) -> ConfigKey:
    where = f"{settings.__name__}.{field.name}"
    declared: _Declared = field.metadata[_DECLARED]
    unknown = [name for name in declared.dependents if name not in names]
    if unknown:
        raise TypeError(f"{where}: dependents that are not attributes: {', '.join(unknown)}")
    return ConfigKey(
        attribute.key,
        _type_of(where, attribute.base, declared.type),
        _default_of(field),
        declared.importance,
        declared.doc,
        declared.validator or _choices(attribute),
        declared.group,
        order,
        declared.width,
        declared.display_name,
        tuple(names[name] for name in declared.dependents),
        declared.recommender,
    )


def _base_of(hint: Any) -> tuple[Any, bool]:
    """An annotation without None, and whether it had one."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    rest = [one for one in get_args(hint) if one is not type(None)]
    return (rest[0] if len(rest) == 1 else hint), len(rest) < len(get_args(hint))


def _type_of(where: str, base: Any, chosen: Type | None) -> Type:
    if base is Secret:
        found: Type | None = Type.PASSWORD
    else:
        found = Type.STRING if _is_choice(base) else _TYPES.get(base)
    if found is None:
        known = "str, bool, int, float, list[str], Secret, StrEnum"
        raise TypeError(f"{where}: no key has the type {base}; there are {known}")
    if chosen is None or chosen is found:
        return found
    if found is Type.LONG and chosen in _INTEGERS:
        return chosen
    if found is Type.STRING and chosen is Type.CLASS:
        return chosen
    raise TypeError(f"{where}: an attribute of type {base} cannot be read from a key of type {chosen}")


def _default_of(field: dataclasses.Field[Any]) -> Any:
    """The default as a value of the key's type."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    if field.default is dataclasses.MISSING:
        return REQUIRED
    if isinstance(field.default, Secret):
        return field.default.reveal()
    return field.default.value if isinstance(field.default, StrEnum) else field.default


def _is_choice(base: Any) -> bool:
    return isinstance(base, type) and issubclass(base, StrEnum)


def _choices(attribute: _Attribute) -> Validator | None:
    if not _is_choice(attribute.base):
        return None
    valid = one_of(*(one.value for one in attribute.base))
    if not attribute.optional:
        return valid

    def check(field: str, value: Any) -> None:
        if value is not None:
            valid.check(field, value)

    return Validator(valid.text, check)
