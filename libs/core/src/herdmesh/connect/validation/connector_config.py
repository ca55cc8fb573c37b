"""Validation of a connector's config, exactly as Connect 4.3.1 validates it (docs/reference/connect/rest-api.md,
section 5).

Owns the combination of the parts: the framework's keys, the connector's keys, the options of converters, the overrides
of Kafka clients. Definitions: `framework_keys`; rules between keys: `connector_rules`. `unsupported_settings` also
refuses settings that this release does not support.

Invariant: for Connect's own plugins the result equals a real worker's (golden validate vectors).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from herdmesh.connect.clients import clients_of, validate_overrides
from herdmesh.connect.config import ConfigDef, ConfigKey, ConfigValue, RawConfig, version_range
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.model import hash_map_order
from herdmesh.connect.spi import Connector, PluginClass, PluginKind, SourceConnector
from herdmesh.connect.validation.connector_rules import (
    check_boundary,
    check_exactly_once,
    check_group,
    check_nulls,
    check_topics,
)
from herdmesh.connect.validation.framework_keys import CONVERTER_KINDS, WorkerFacts, enriched, loaded, without_connector
from herdmesh.connect.validation.known_plugins import KnownPlugins

_CLASS, _VERSION = "connector.class", "connector.plugin.version"
_JUDGED = ("producer", "admin", "consumer")


@dataclass(frozen=True, slots=True)
class ValidatedField:
    """One line of the result: a key under its full name, its definition (None = no definition has it), its value."""

    name: str
    key: ConfigKey | None
    value: ConfigValue


@dataclass(slots=True)
class Validation:
    """Connect's validation result. `name` is `connector.class` as given."""

    name: str
    kind: PluginKind | None = None
    groups: list[str] = field(default_factory=list[str])
    fields: list[ValidatedField] = field(default_factory=list[ValidatedField])
    error_count: int = 0
    """Number of messages of the framework's and the connector's keys, plus the number of keys with a message in the
    other sections.
    """

    def add(self, groups: Iterable[str], fields: Iterable[ValidatedField], *, each_message: bool) -> None:
        """Add a section."""
        added = list(fields)
        self.groups = list(dict.fromkeys([*self.groups, *groups]))
        self.fields.extend(added)
        for one in added:
            wrong = len(one.value.problems)
            self.error_count += wrong if each_message else min(wrong, 1)

    def field_named(self, name: str) -> ValidatedField | None:
        """The first line of that key."""
        return next((one for one in self.fields if one.name == name), None)


def validate_connector(config: RawConfig, plugins: KnownPlugins, worker: WorkerFacts | None = None) -> Validation:
    """Validate the config as Connect does.

    Args:
        config: as submitted; values are text or null.
        plugins: the existing classes.
        worker: the worker's settings that matter; None = Connect's defaults.

    Raises:
        ConfigError: where Connect gives an error instead of a result: no connector class or an unknown one, a client
            option that cannot be parsed, a regex of topics that cannot be applied. `field` is the key.
    """
    worker = worker or WorkerFacts()
    written = config.get(_CLASS)
    if written is None:
        shown = ", ".join(f"{key}={'null' if value is None else value}" for key, value in config.items())
        raise ConfigError(
            f"Connector config {{{shown}}} contains no connector type", field=_CLASS, fix="name a connector's class"
        )
    name = plugins.serving(written, config)
    cls = plugins.class_named(name)
    assert cls is not None
    version = config.get(_VERSION)
    try:
        version_range(version)
    except ConfigError as error:
        raise ConfigError(str(error), field=_VERSION, fix=f"leave it out, or write {cls.version}") from error
    try:
        cls = loaded(name, version, plugins) or cls
    except ConfigError as error:
        return _wrong_version(config, cls, plugins, error)
    connector = plugins.find(name, version).load()
    definition = enriched(cls, config, plugins, worker)
    values = definition.validate(config, plugins)
    _check_rules(config, values, connector, worker)
    # Converters first: problems of a converter are added to the framework's keys.
    converters = [_converter(key, kind, config, values, plugins) for key, kind in CONVERTER_KINDS.items()]
    result = Validation(written, cls.kinds[0])
    result.add(*_own(definition, values, cls.definition, config, plugins), each_message=True)
    clients = clients_of(cls.kinds[0], config, exactly_once=worker.exactly_once)
    for client, overrides in _overrides(clients, config, worker):
        result.add((), _under(f"{client}.override.", overrides), each_message=False)
    for groups, fields in converters:
        result.add(groups, fields, each_message=False)
    return result


def _wrong_version(config: RawConfig, cls: PluginClass, plugins: KnownPlugins, error: ConfigError) -> Validation:
    """The result for a missing version: without the connector only the keys of all connectors can be checked."""
    definition = without_connector(cls, plugins)
    values = definition.validate(config, plugins)
    for key in (_CLASS, _VERSION):
        values[key].add(str(error), error.fix)
    check_nulls(config, values)
    result = Validation(str(config[_CLASS]), cls.kinds[0])
    result.add(*_own(definition, values, ConfigDef(), config, plugins), each_message=True)
    return result


def _check_rules(config: RawConfig, values: dict[str, ConfigValue], connector: Connector, worker: WorkerFacts) -> None:
    if isinstance(connector, SourceConnector):
        check_exactly_once(config, values, connector, enabled=worker.exactly_once)
        check_boundary(config, values, connector)
    else:
        check_topics(config, values)
        check_group(config, values, worker.group_id)
    check_nulls(config, values)


def _own(
    framework: ConfigDef,
    values: dict[str, ConfigValue],
    connector: ConfigDef,
    config: RawConfig,
    plugins: KnownPlugins,
) -> tuple[list[str], list[ValidatedField]]:
    """The section of the framework's keys and the connector's. Keys without a definition come first. For a key of both,
    the connector's definition replaces the framework's at its position.
    """
    own = connector.validate(config, plugins)
    keys = {**framework.keys, **connector.keys}
    # Java adds these at the head of their buckets, so that of two keys in one bucket the later comes first
    added = [name for name in reversed(values) if name not in framework.keys]
    extra = [name for name in [*hash_map_order([*added, *framework.keys]), *own] if name not in keys]
    found = {**values, **own}
    fields = [ValidatedField(name, None, found[name]) for name in dict.fromkeys(extra)]
    fields += [ValidatedField(name, key, found[name]) for name, key in keys.items()]
    return [*framework.groups, *connector.groups], fields


_Overrides = list[tuple[ConfigKey | None, ConfigValue]]


def _overrides(clients: Iterable[str], config: RawConfig, worker: WorkerFacts) -> list[tuple[str, _Overrides]]:
    """The overrides of each client. Connect validates the clients in another order than it reports them, which is
    visible when one of them raises.
    """
    used = list(clients)
    found = {client: validate_overrides(client, config, worker.overrides) for client in _JUDGED if client in used}
    return [(client, found[client]) for client in used]


def _under(prefix: str, found: Iterable[tuple[ConfigKey | None, ConfigValue]]) -> list[ValidatedField]:
    return [ValidatedField(prefix + value.name, key, value) for key, value in found]


def _converter(
    name: str, kind: PluginKind, config: RawConfig, values: dict[str, ConfigValue], plugins: KnownPlugins
) -> tuple[list[str], list[ValidatedField]]:
    """The options of a converter that the connector names itself. Problems with the class are added to its own key."""
    written = config.get(name)
    chosen, version = values[name], values[f"{name}.plugin.version"]
    if written is None or chosen.problems or version.problems:
        return [], []
    try:
        cls = loaded(written, version.value, plugins)
    except ConfigError as error:
        chosen.add(str(error), error.fix)
        version.add(str(error), error.fix)
        return [], []
    if cls is None:  # Connect looks up the name exactly as it is written, including blanks
        chosen.add(f"Failed to load class {written}: {written}", "write it without blanks")
        return [], []
    prefix = f"{name}."
    options = {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
    if options.get("converter.type") is None:
        options["converter.type"] = name.partition(".")[0]
    found = cls.definition.validate(options, plugins)
    ordered = [(cls.definition.keys[key], found[key]) for key in hash_map_order(found)]
    groups = [key.group for key, _ in ordered if key.group is not None]
    return groups, _under(prefix, ordered)
