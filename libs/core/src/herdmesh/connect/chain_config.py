"""From a connector's configuration to its chain.

Owns how `key.converter`, `value.converter` and `transforms` are read (reference configs 4.1, 6). Compiling: `chain`.

Invariant: a configuration `violations` finds nothing wrong with builds a chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from herdmesh.connect.chain import SinkChain, SourceChain, Step
from herdmesh.connect.config import FieldViolation, RawConfig, Type, parse_value
from herdmesh.connect.converters import Converter, make_converter
from herdmesh.connect.errors import ConfigError, ConnectError
from herdmesh.connect.transforms import Transformation, make_transformation
from herdmesh.connect.validators import unique_aliases

_ALIASES = unique_aliases("transformation aliases")


def sink_chain(config: RawConfig, *, worker: RawConfig | None = None, keys: bool = True) -> SinkChain:
    """The chain of a sink task. `worker` gives the converters a connector does not name itself.

    Raises:
        ConfigError: the first thing wrong, with the full key.
    """
    return SinkChain(*converters(config, worker=worker), transformations(config), keys=keys)


def source_chain(config: RawConfig, *, worker: RawConfig | None = None) -> SourceChain:
    """The chain of a source task; as `sink_chain`."""
    return SourceChain(*converters(config, worker=worker), transformations(config))


def converters(config: RawConfig, *, worker: RawConfig | None = None) -> tuple[Converter, Converter]:
    """The key and value converters in force. Raises ConfigError with the full key."""
    return (
        make_converter("key.converter", config, is_key=True, defaults=worker),
        make_converter("value.converter", config, is_key=False, defaults=worker),
    )


def transformations(config: RawConfig) -> list[Step]:
    """The configured transformations in order. Raises ConfigError with the full key."""
    return [Step(alias, _transformation(config, alias)) for alias in _aliases(config)]


def violations(config: RawConfig, *, worker: RawConfig | None = None) -> list[FieldViolation]:
    """Everything that keeps a chain from being built: what is not built yet, and what only making it shows."""
    found: list[FieldViolation] = []
    for field, is_key in (("key.converter", True), ("value.converter", False)):
        try:
            make_converter(field, config, is_key=is_key, defaults=worker)
        except ConnectError as error:
            found.append(_violation(error, field))
    try:
        aliases = _aliases(config)
    except ConfigError as error:
        return [*found, _violation(error, "transforms")]
    for alias in aliases:
        try:
            _transformation(config, alias)
        except ConfigError as error:
            found.append(_violation(error, f"transforms.{alias}.type"))
    return found


def _violation(error: ConnectError, field: str) -> FieldViolation:
    if isinstance(error, ConfigError):
        return FieldViolation(error.field or field, str(error), error.fix)
    return FieldViolation(field, str(error))


def _aliases(config: RawConfig) -> list[str]:
    aliases: list[str] | None = parse_value("transforms", config.get("transforms", ""), Type.LIST)
    _ALIASES.check("transforms", aliases)
    return aliases or []


def _transformation(config: RawConfig, alias: str) -> Transformation:
    made, settings = _made(config, alias)
    try:
        made.configure(settings)
    except ConfigError as error:
        raise ConfigError(str(error), field=f"transforms.{alias}.{error.field or 'type'}", fix=error.fix) from error
    return made


def _made(config: RawConfig, alias: str) -> tuple[Transformation, Mapping[str, Any]]:
    """The transformation of an alias, not configured yet, and its settings."""
    prefix = f"transforms.{alias}."
    settings = {key[len(prefix) :]: value for key, value in config.items() if key.startswith(prefix)}
    field = f"{prefix}type"
    name = parse_value(field, settings.pop("type", None), Type.CLASS)
    if not name:
        raise ConfigError(
            f'Missing required configuration "{field}" which has no default value.', field=field, fix="name a class"
        )
    made = make_transformation(field, name)
    predicate = settings.pop("predicate", None)
    negated = settings.pop("negate", None)
    if predicate is not None:
        raise ConfigError(
            f"Invalid value {predicate} for configuration {prefix}predicate: predicates are not built yet",
            field=f"{prefix}predicate",
            fix="leave it out",
        )
    if negated is not None:
        raise ConfigError(
            f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a predicate to "
            "be negated.",
            field=field,
        )
    return made, settings
