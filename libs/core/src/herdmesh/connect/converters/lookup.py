"""Lookup of converters by the names that a config can use.

Owns the list of converters, their names, and their choice and configuration by a config. Each converter has its own
module.

Invariant: a config names a converter by its short name or its Java class name, and by no other name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from herdmesh.connect.config import RawConfig, advice
from herdmesh.connect.converters.base import Converter, HeaderConverter, Role
from herdmesh.connect.converters.byte_array import ByteArrayConverter
from herdmesh.connect.converters.json.converter import JsonConverter
from herdmesh.connect.converters.numbers import (
    BooleanConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
)
from herdmesh.connect.converters.simple_header import SimpleHeaderConverter
from herdmesh.connect.converters.string import StringConverter
from herdmesh.connect.errors import ConfigError

_SIMPLE = (SimpleHeaderConverter.java_class, "SimpleHeaderConverter", "Simple")
_CLASSES: tuple[type[Converter], ...] = (
    StringConverter, JsonConverter, ByteArrayConverter, BooleanConverter, ShortConverter, IntegerConverter,
    LongConverter, FloatConverter, DoubleConverter,
)  # fmt: skip

CONVERTERS: Mapping[str, type[Converter]] = {
    name: cls for cls in _CLASSES for name in (cls.java_class, cls.__name__, cls.__name__.removesuffix("Converter"))
}
"""Class by accepted name (Java class name, simple name, simple name without `Converter`), for the converters without a
schema registry.
"""

_REGISTERED: Mapping[str, tuple[str, str]] = {
    name: (module, simple)
    for package, module, simple in (
        ("avro", "avro.converter", "AvroConverter"), ("json", "json_schema.converter", "JsonSchemaConverter"),
        ("protobuf", "protobuf.converter", "ProtobufConverter"),
    )
    for name in (f"io.confluent.connect.{package}.{simple}", simple, simple.removesuffix("Converter"))
}  # fmt: skip
"""Module and class of the converters with a schema registry. Imported when a config names one: their libraries take
longer to import than everything else that a command of `herd` needs.
"""


def converter_names(field: str) -> tuple[str, ...]:
    """The names that a converter's key accepts (`key.converter`, `value.converter`, `header.converter`): Java classes,
    and simple names.
    """
    registered = [name for name in _REGISTERED if name.endswith("Converter")]
    simple = ("SimpleHeaderConverter", SimpleHeaderConverter.java_class) if field.startswith("header.") else ()
    return (*CONVERTERS, *registered, *simple)


def converter_class(field: str, name: str) -> type[Converter]:
    """The converter that a config names.

    Raises:
        ConfigError: the name is unknown; the error says what to write instead.
    """
    if name in _REGISTERED:
        module, simple = _REGISTERED[name]
        return getattr(import_module(f"{__package__}.{module}"), simple)
    found = CONVERTERS.get(name)
    if found is None:
        message = f"Invalid value {name} for configuration {field}: Class {name} could not be found."
        raise ConfigError(message, field=field, fix=advice(name, converter_names(field)))
    return found


MakeAuthored = Callable[[str, str | None], Converter | None]
"""Function that creates an author's converter by its name and `plugin.version`, not configured yet; None = there is
none.
"""


def _none(_name: str, _version: str | None) -> Converter | None:
    return None


def _made(field: str, source: RawConfig, authored: MakeAuthored) -> Converter:
    name = str(source[field])
    if name not in CONVERTERS and name not in _REGISTERED:
        version = source.get(f"{field}.plugin.version")
        found = authored(name, None if version is None else str(version))
        if found is not None:
            return found
    return converter_class(field, name)()


def settings_source(field: str, config: RawConfig, defaults: RawConfig | None) -> RawConfig:
    """The config whose settings apply to a converter: `config` if it names a converter, else `defaults` (the
    worker's)."""
    return config if config.get(field) is not None else defaults or {}


def make_converter(
    field: str, config: RawConfig, *, role: Role, defaults: RawConfig | None = None, authored: MakeAuthored = _none
) -> Converter:
    """The configured converter of `field` (`key.converter`, `value.converter` or `header.converter`).

    When `config` does not name one, `defaults` (the worker's) does, and then only the settings in `defaults` count
    (configs 4.1).

    Raises:
        ConfigError: no converter or an unknown one, or an invalid setting; `field` is the full key.
    """
    source = settings_source(field, config, defaults)
    name = source.get(field)
    if name is None:
        raise ConfigError(
            f'Missing required configuration "{field}" which has no default value.', field=field, fix="name a converter"
        )
    converter = _made(field, source, authored)
    prefix = f"{field}."
    try:
        converter.configure(
            {key[len(prefix) :]: value for key, value in source.items() if key.startswith(prefix)}, role
        )
    except ConfigError as error:
        raise ConfigError(str(error), field=prefix + error.field, fix=error.fix) from error
    return converter


def make_header_converter(
    field: str, config: RawConfig, *, defaults: RawConfig | None = None, authored: MakeAuthored = _none
) -> HeaderConverter:
    """The configured header converter, as in `make_converter`; SimpleHeaderConverter when neither config names one."""
    source = settings_source(field, config, defaults)
    name = str(source.get(field) or SimpleHeaderConverter.java_class)
    converter: HeaderConverter
    converter = SimpleHeaderConverter() if name in _SIMPLE else _made(field, source, authored)
    prefix = f"{field}."
    try:
        converter.configure(
            {key[len(prefix) :]: value for key, value in source.items() if key.startswith(prefix)}, "header"
        )
    except ConfigError as error:
        raise ConfigError(str(error), field=prefix + error.field, fix=error.fix) from error
    return converter
