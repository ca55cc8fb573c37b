"""Chain builder: the converters, predicates and transformations that a connector's config names.

Owns the interpretation of `key.converter`, `value.converter`, `header.converter`, `transforms` and `predicates`
(docs/reference/connect/configs.md, sections 4.1 and 6). Compiling: `compiled_loop`; running: `record_chain`.

Invariant: a config without `violations` builds a chain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from herdmesh.connect.chain.compiled_loop import Step
from herdmesh.connect.chain.custom_transforms import AuthoredConverter, AuthoredPredicate, AuthoredTransformation
from herdmesh.connect.chain.record_chain import SinkChain, SourceChain
from herdmesh.connect.config import FieldViolation, RawConfig, Type, advice, parse_value, unique_aliases
from herdmesh.connect.converters import (
    Converter,
    HeaderConverter,
    make_converter,
    make_header_converter,
    settings_source,
)
from herdmesh.connect.errors import ConfigError, ConnectError
from herdmesh.connect.spi import (
    AuthoredPlugin,
    FindAuthored,
    RecordConverter,
    RecordPredicate,
    RecordTransformation,
    here,
)
from herdmesh.connect.transforms import PREDICATES, TRANSFORMATIONS, Predicate, Transformation, make_transformation

_ALIASES = unique_aliases("transformation aliases")
_PREDICATE_ALIASES = unique_aliases("predicate aliases")


def sink_chain(
    config: RawConfig, *, worker: RawConfig | None = None, keys: bool = True, headers: bool = True
) -> SinkChain:
    """The chain of a sink task. `worker` gives the converters that a connector does not name itself. An author's
    classes must be importable in this process.

    Raises:
        ConfigError: the first error, with the full key.
    """
    return SinkChain(*converters(config, worker=worker), transformations(config), keys=keys, headers=headers)


def source_chain(config: RawConfig, *, worker: RawConfig | None = None) -> SourceChain:
    """The chain of a source task; as `sink_chain`."""
    return SourceChain(*converters(config, worker=worker), transformations(config))


def converters(config: RawConfig, *, worker: RawConfig | None = None) -> tuple[Converter, Converter, HeaderConverter]:
    """The key, value and header converters in force. Raises ConfigError with the full key."""
    key, value, header = (make() for make in _converter_makers(config, worker, here).values())
    assert isinstance(key, Converter)
    assert isinstance(value, Converter)
    return key, value, header


def has_defaults(config: RawConfig, field: str, *, worker: RawConfig | None = None) -> bool:
    """True when the schema's default replaces a null from a converter (`key.converter`, `value.converter`): not with
    its `replace.null.with.default=false` (JsonConverter), nor with its `ignore.default.for.nullables=true` (converters
    with a schema registry). Raises ConfigError with the full key.
    """
    source = settings_source(field, config, worker)

    def says(setting: str, default: bool) -> bool:
        key = f"{field}.{setting}"
        value: bool | None = parse_value(key, source.get(key), Type.BOOLEAN)
        return default if value is None else value

    return says("replace.null.with.default", True) and not says("ignore.default.for.nullables", False)


def _converter_makers(
    config: RawConfig, worker: RawConfig | None, find: FindAuthored
) -> dict[str, Callable[[], HeaderConverter]]:
    def authored(name: str, version: str | None) -> Converter | None:
        found = find(name, version)
        return AuthoredConverter(found()) if found is not None and issubclass(found, RecordConverter) else None

    def key() -> Converter:
        return make_converter("key.converter", config, role="key", defaults=worker, authored=authored)

    def value() -> Converter:
        return make_converter("value.converter", config, role="value", defaults=worker, authored=authored)

    def header() -> HeaderConverter:
        return make_header_converter("header.converter", config, defaults=worker, authored=authored)

    return {"key.converter": key, "value.converter": value, "header.converter": header}


def transformations(config: RawConfig) -> list[Step]:
    """The configured transformations in order, with their predicates. Raises ConfigError with the full key."""
    predicates = _predicates(config, here)
    return [_step(config, alias, predicates, here) for alias in _aliases(config, "transforms")]


def violations(
    config: RawConfig, *, worker: RawConfig | None = None, find: FindAuthored = here
) -> list[FieldViolation]:
    """All errors that prevent building a chain: unsupported classes, and errors that only building shows. `find`: the
    lookup of an author's classes, for a caller that cannot import them all.
    """
    found: list[FieldViolation] = []
    for field, make in _converter_makers(config, worker, find).items():
        try:
            make()
        except ConnectError as error:
            found.append(_violation(error, field))
    try:
        aliases = _aliases(config, "transforms")
        predicates = _predicates(config, find)
    except ConfigError as error:
        return [*found, _violation(error, "transforms")]
    for alias in aliases:
        try:
            _step(config, alias, predicates, find)
        except ConfigError as error:
            found.append(_violation(error, f"transforms.{alias}.type"))
    return found


def _violation(error: ConnectError, field: str) -> FieldViolation:
    if isinstance(error, ConfigError):
        return FieldViolation(error.field or field, str(error), error.fix)
    return FieldViolation(field, str(error))


def _aliases(config: RawConfig, field: str) -> list[str]:
    aliases: list[str] | None = parse_value(field, config.get(field, ""), Type.LIST)
    (_ALIASES if field == "transforms" else _PREDICATE_ALIASES).check(field, aliases)
    return aliases or []


def _below(config: RawConfig, prefix: str) -> dict[str, Any]:
    return {key[len(prefix) :]: value for key, value in config.items() if key.startswith(prefix)}


def _class_name(field: str, settings: dict[str, Any]) -> str:
    name = parse_value(field, settings.pop("type", None), Type.CLASS)
    if not name:
        raise ConfigError(
            f'Missing required configuration "{field}" which has no default value.', field=field, fix="name a class"
        )
    return name


def _authored(find: FindAuthored, field: str, name: str, version: object) -> type[AuthoredPlugin] | None:
    """Find an author's class. Raises ConfigError with the full key."""
    try:
        return find(name, None if version is None else str(version))
    except ConfigError as error:
        raise ConfigError(str(error), field=f"{field.removesuffix('type')}plugin.version", fix=error.fix) from error


def _predicates(config: RawConfig, find: FindAuthored) -> dict[str, Predicate]:
    found: dict[str, Predicate] = {}
    for alias in _aliases(config, "predicates"):
        prefix = f"predicates.{alias}."
        settings = _below(config, prefix)
        field = f"{prefix}type"
        name = _class_name(field, settings)
        version = settings.pop("plugin.version", None)
        cls = PREDICATES.get(name)
        author = None if cls is not None else _authored(find, field, name, version)
        made: Predicate
        if cls is not None:
            made = cls()
        elif author is not None and issubclass(author, RecordPredicate):
            made = AuthoredPredicate(author())
        else:
            raise ConfigError.for_value(field, name, f"Class {name} could not be found.", fix=advice(name, PREDICATES))
        try:
            made.configure(settings)
        except ConfigError as error:
            raise ConfigError(str(error), field=f"{prefix}{error.field or 'type'}", fix=error.fix) from error
        found[alias] = made
    return found


def _step(config: RawConfig, alias: str, predicates: Mapping[str, Predicate], find: FindAuthored) -> Step:
    prefix = f"transforms.{alias}."
    settings = _below(config, prefix)
    field = f"{prefix}type"
    made = _transformation(field, _class_name(field, settings), settings.pop("plugin.version", None), find)
    named = settings.pop("predicate", None)
    negate = settings.pop("negate", None)
    _configure(made, settings, alias)
    if named is None:
        if negate is not None:
            raise ConfigError(
                f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a predicate "
                "to be negated.",
                field=f"{prefix}negate",
            )
        return Step(alias, made)
    predicate = predicates.get(str(named).strip())
    if predicate is None:
        raise ConfigError.for_value(
            f"{prefix}predicate", named, f"no predicate of that name in predicates ({', '.join(predicates) or 'none'})"
        )
    return Step(alias, made, predicate, parse_value(f"{prefix}negate", negate, Type.BOOLEAN) is True)


def _transformation(field: str, name: str, version: object, find: FindAuthored) -> Transformation:
    if name not in TRANSFORMATIONS:
        author = _authored(find, field, name, version)
        if author is not None and issubclass(author, RecordTransformation):
            return AuthoredTransformation(author())
    return make_transformation(field, name)


def _configure(made: Transformation, settings: Mapping[str, Any], alias: str) -> None:
    try:
        made.configure(settings)
    except ConfigError as error:
        raise ConfigError(str(error), field=f"transforms.{alias}.{error.field or 'type'}", fix=error.fix) from error
