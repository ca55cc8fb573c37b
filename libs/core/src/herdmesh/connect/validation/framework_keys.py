"""Framework keys of one connector config: Connect's keys with this worker's classes and versions as choices, and the
keys of the transformations and predicates that the config names.

Owns the rules of Java's `ConnectorConfig.enrich`, and the refusal of classes and versions. A definition is built for
each validated config and not kept.

Invariant: an unresolved class or version adds no keys but `type` and `plugin.version`, and its problem is reported
there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from herdmesh.connect.clients import ALLOW_ALL, OverridePolicy
from herdmesh.connect.config import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    Importance,
    RawConfig,
    Recommender,
    Type,
    Validator,
    not_there,
    parse_value,
    version_range,
)
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi import PluginClass, PluginKind
from herdmesh.connect.validation.connector_keys import COMMON, SINK, SOURCE, versions_of
from herdmesh.connect.validation.known_plugins import KnownPlugins

_JSON = "org.apache.kafka.connect.json.JsonConverter"
_SIMPLE_HEADER = "org.apache.kafka.connect.storage.SimpleHeaderConverter"


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """Facts about the worker that validation needs: its default converters, its `group.id`, whether its sources can be
    exactly once, and the client settings that connectors may override.
    """

    converters: dict[str, str] = field(
        default_factory=lambda: {
            "key.converter": _JSON,
            "value.converter": _JSON,
            "header.converter": _SIMPLE_HEADER,
        }
    )
    group_id: str = "connect-cluster"
    exactly_once: bool = True
    overrides: OverridePolicy = ALLOW_ALL


CONVERTER_KINDS = {
    "header.converter": PluginKind.HEADER_CONVERTER,
    "key.converter": PluginKind.CONVERTER,
    "value.converter": PluginKind.CONVERTER,
}
"""The keys that name converters, in the order in which Connect reports their options."""


def base_definition(kind: PluginKind | None) -> ConfigDef:
    """The keys of every sink, of every source, or (None) of every connector."""
    return COMMON if kind is None else SINK if kind is PluginKind.SINK else SOURCE


def without_connector(connector: PluginClass, plugins: KnownPlugins) -> ConfigDef:
    """The definition for a connector whose class cannot be loaded: the keys of all connectors."""
    keys = [_checked(COMMON.keys[name], kind, plugins) for name, kind in CONVERTER_KINDS.items()]
    version = COMMON.keys["connector.plugin.version"]
    return COMMON.extended(*keys, _with_versions(version, plugins.versions(connector.name)))


def enriched(connector: PluginClass, config: RawConfig, plugins: KnownPlugins, worker: WorkerFacts) -> ConfigDef:
    """The framework's definition for this config. A transformation or predicate whose class is unknown adds only its
    `type` and `plugin.version`."""
    base = base_definition(connector.kinds[0])
    keys = [_with_versions(base.keys["connector.plugin.version"], plugins.versions(connector.name))]
    for name, kind in CONVERTER_KINDS.items():
        keys.extend(_converter_keys(base, name, kind, config, plugins, worker))
    for family in (_TRANSFORMS, _PREDICATES):
        for alias in family.aliases(config):
            keys.extend(family.keys(alias, config, plugins))
    return base.extended(*keys)


def loaded(name: str, version: str | None, plugins: KnownPlugins) -> PluginClass | None:
    """The class of that name in the latest of the requested versions; None when there is no such class.

    Raises ConfigError when no such version exists, or the requested version is malformed.
    """
    wanted = version_range(version)
    found = plugins.class_named(name, wanted)
    any_version = found or plugins.class_named(name)
    if found is None and any_version is not None:
        versions = plugins.versions(name)
        there = [one for one in versions for _ in any_version.kinds]
        raise ConfigError(
            not_there(any_version.name, wanted, there), fix=f"leave the version out, or write {' or '.join(versions)}"
        )
    return found


def check_concrete(cls: PluginClass, kind: PluginKind) -> None:
    """Raise ConfigError unless the class is of that kind and can be instantiated."""
    if kind not in cls.kinds:
        java = "interface" if cls.interface else "class"
        raise ConfigError(
            f"Class {java} {cls.name} does not implement the {_INTERFACES[kind]} interface", fix=f"write a {kind.value}"
        )
    if cls.abstract:
        hint = f" Did you mean {', '.join(cls.nested)}?" if cls.nested else ""
        fix = f"write {' or '.join(cls.nested)}" if cls.nested else "write a class that derives from it"
        raise ConfigError(f"This class is abstract and cannot be created.{hint}", fix=fix)


_INTERFACES = {
    PluginKind.TRANSFORMATION: "Transformation",
    PluginKind.PREDICATE: "Predicate",
    PluginKind.CONVERTER: "Converter",
    PluginKind.HEADER_CONVERTER: "HeaderConverter",
}


def _offering(values: list[str]) -> Recommender:
    return Recommender(lambda _name, _parsed: values)


def _with_versions(key: ConfigKey, versions: Sequence[str]) -> ConfigKey:
    """A version key that offers the existing versions."""
    return replace(key, default=versions[-1] if versions else None, recommender=_offering(list(versions)))


def _converter_keys(
    base: ConfigDef, name: str, kind: PluginKind, config: RawConfig, plugins: KnownPlugins, worker: WorkerFacts
) -> Iterator[ConfigKey]:
    default = worker.converters[name]
    yield replace(_checked(base.keys[name], kind, plugins), default=default, recommender=_offering(plugins.names(kind)))

    def versions(class_name: str | None) -> list[str]:
        cls = None if class_name is None else plugins.class_named(class_name)
        usable = cls is not None and kind in cls.kinds and not cls.abstract
        return plugins.versions(class_name) if usable and class_name is not None else []

    written = config.get(name)
    there = versions(default if written is None else str(written))
    yield replace(
        base.keys[f"{name}.plugin.version"],
        default=there[-1] if there else None,
        recommender=versions_of(name, versions),
    )


def _checked(key: ConfigKey, kind: PluginKind, plugins: KnownPlugins) -> ConfigKey:
    """A converter's key, which accepts concrete converters only."""

    def check(_field: str, value: Any) -> None:
        cls = None if value is None else plugins.class_named(value)
        if cls is not None:
            check_concrete(cls, kind)

    assert key.validator is not None
    return replace(key, validator=Validator(key.validator.text, check))


def _class_text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class _Family:
    """Plugin family, transformations or predicates: plugins that a config names by aliases."""

    key: str
    group: str
    what: str
    kind: PluginKind
    implicit: tuple[ConfigKey, ...]
    """Keys that every plugin of the family has; they hide a class's own key of the same name."""
    check: Callable[[str, RawConfig], None]

    def aliases(self, config: RawConfig) -> list[str]:
        """The aliases, each once, in order."""
        if not isinstance(config.get(self.key), str):
            return []
        return list(dict.fromkeys(parse_value(self.key, config[self.key], Type.LIST)))

    def keys(self, alias: str, config: RawConfig, plugins: KnownPlugins) -> Iterator[ConfigKey]:
        """All keys of one alias."""
        prefix, group = f"{self.key}.{alias}.", f"{self.group}: {alias}"
        name, version = _class_text(config.get(f"{prefix}type")), config.get(f"{prefix}plugin.version")
        cls = plugins.class_named(name) if name else None
        usable = cls is not None and self.kind in cls.kinds and not cls.abstract

        def check_type(_field: str, value: Any) -> None:
            self.check(prefix, config)
            if value is not None:
                version_range(version)
                check_concrete(_required(plugins.class_named(value)), self.kind)
                loaded(value, version, plugins)

        def check_version(_field: str, value: Any) -> None:
            if config.get(f"{prefix}type") is not None:
                version_range(value)
            if usable and value is not None:
                loaded(name, value, plugins)

        title = self.what.capitalize()
        yield ConfigKey(
            f"{prefix}type", Type.CLASS, REQUIRED, Importance.HIGH, f"Class for the '{alias}' {self.what}.",
            Validator(f"valid configs for {alias} {self.what}", check_type), group, 0, "LONG",
            f"{title} type for {alias}", recommender=_offering(plugins.names(self.kind)),
        )  # fmt: skip
        key = ConfigKey(
            f"{prefix}plugin.version", Type.STRING, None, Importance.HIGH, f"Version of the '{alias}' {self.what}.",
            Validator("", check_version), group, 1, "LONG", f"{title} version for {alias}",
        )  # fmt: skip
        yield _with_versions(key, plugins.versions(name) if usable else ())
        if usable and cls is not None and _has_version(name, version, plugins):
            hidden = {key.name for key in self.implicit}
            chosen = loaded(name, version, plugins) or cls
            own = [key for key in chosen.definition.keys.values() if key.name not in hidden]
            for order, key in enumerate(ConfigDef(*self.implicit, *own).sorted_keys(), 2):
                yield key.embedded(prefix, group, order)


def _has_version(name: str, version: Any, plugins: KnownPlugins) -> bool:
    try:
        return loaded(name, version, plugins) is not None
    except ConfigError:
        return False


def _required(cls: PluginClass | None) -> PluginClass:
    assert cls is not None  # a value of type CLASS was resolved, otherwise it would be null
    return cls


def _check_negate(prefix: str, config: RawConfig) -> None:
    if f"{prefix}negate" in config and f"{prefix}predicate" not in config:
        raise ConfigError(
            f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a predicate to "
            "be negated.",
            fix=f"name a predicate in {prefix}predicate, or leave {prefix}negate out",
        )


_TRANSFORMS = _Family(
    "transforms",
    "Transforms",
    "transformation",
    PluginKind.TRANSFORMATION,
    (
        ConfigKey(
            "predicate", Type.STRING, None, Importance.MEDIUM,
            "The alias of a predicate used to determine whether to apply this transformation.",
        ),
        ConfigKey(
            "negate", Type.BOOLEAN, False, Importance.MEDIUM, "Whether the configured predicate should be negated.",
        ),
    ),
    _check_negate,
)  # fmt: skip
_PREDICATES = _Family("predicates", "Predicates", "predicate", PluginKind.PREDICATE, (), lambda _prefix, _config: None)
