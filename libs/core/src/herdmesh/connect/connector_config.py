"""Validation of a connector's configuration: everything wrong, each thing with the key to change.

Owns the rules between keys, and the list of what Connect knows and this version does not build yet. Single keys:
`connector_keys`; converters and transformations: `chain_config`; the connector's own keys: its plugin.

Invariant: a configuration with no violations can be started; what is not built is refused here, never ignored.
"""

from __future__ import annotations

from typing import Any

from herdmesh.connect import chain_config
from herdmesh.connect.config import FieldViolation, RawConfig, Type, parse_value
from herdmesh.connect.connector import ConnectorKind
from herdmesh.connect.connector_keys import COMMON, HERDMESH, SINK, SOURCE
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins import PluginDescriptor, PluginRegistry

_RESTART_BACKOFF_MS = "herdmesh.restart.backoff.ms"
_RESTART_BACKOFF_MAX_MS = "herdmesh.restart.backoff.max.ms"


def validate_connector(
    config: RawConfig, plugins: PluginRegistry, *, worker: RawConfig | None = None
) -> list[FieldViolation]:
    """Everything wrong with a connector's configuration; empty = it can be started.

    Args:
        config: as submitted; values are text or null.
        plugins: the connectors that exist.
        worker: the worker's converters, for connectors that name none.
    """
    violations: list[FieldViolation] = []
    plugin: PluginDescriptor | None = None
    name = config.get("connector.class")
    if name:
        try:
            plugin = plugins.find(str(name).strip())
        except ConfigError as error:
            violations.append(FieldViolation("connector.class", str(error), error.fix))
    sink = plugin is not None and plugin.kind is ConnectorKind.SINK
    source = plugin is not None and plugin.kind is ConnectorKind.SOURCE
    violations.extend((SINK if sink else SOURCE if source else COMMON).validate(config))
    violations.extend(HERDMESH.validate(config))
    # One thing said about a key is enough: what follows looks at the same keys from further off.
    seen = {violation.field for violation in violations}
    violations.extend(v for v in chain_config.violations(config, worker=worker) if v.field not in seen)
    violations.extend(violation for violation in _not_built(config) if violation.field not in seen)
    violations.extend(violation for violation in _restart_rules(config) if violation.field not in seen)
    if sink:
        violations.extend(_topic_rules(config))
    if plugin is not None:
        violations.extend(_plugin_violations(config, plugin))
    return violations


def _plugin_violations(config: RawConfig, plugin: PluginDescriptor) -> list[FieldViolation]:
    found = plugin.connector.config_def().validate(config)
    if found:
        return found  # the plugin's own rules may rely on well-formed values
    return [FieldViolation(error.field, str(error), error.fix) for error in plugin.load().validate(config)]


def _topic_rules(config: RawConfig) -> list[FieldViolation]:
    """A sink consumes `topics` or `topics.regex`, one of them (reference configs 5.2)."""
    topics, regex = _text(config, "topics"), _text(config, "topics.regex")
    if topics and regex:
        message = "topics and topics.regex are mutually exclusive options, but both are set."
        return [FieldViolation(field, message, "keep one of them") for field in ("topics", "topics.regex")]
    if not topics and not regex:
        message = "Must configure one of topics or topics.regex"
        return [FieldViolation(field, message, "name the topics to consume") for field in ("topics", "topics.regex")]
    return []


def _restart_rules(config: RawConfig) -> list[FieldViolation]:
    """The longest wait before a restart is not shorter than the first."""
    longest, first = _text(config, _RESTART_BACKOFF_MAX_MS), _text(config, _RESTART_BACKOFF_MS)
    if not (longest.isdecimal() and first.isdecimal()) or int(longest) >= int(first):
        return []
    message = (
        f"Invalid value {longest} for configuration {_RESTART_BACKOFF_MAX_MS}: must not be below {_RESTART_BACKOFF_MS} "
        f"({first})"
    )
    return [FieldViolation(_RESTART_BACKOFF_MAX_MS, message, f"write {first} or more")]


def _text(config: RawConfig, field: str) -> str:
    value: Any = config.get(field)
    return value.strip() if isinstance(value, str) else ""


def _not_built(config: RawConfig) -> list[FieldViolation]:
    """What Connect has and this version does not: named, so that nobody believes it works."""
    found: list[FieldViolation] = []
    for field, accepted, what in _NOT_BUILT:
        value = config.get(field)
        if value is not None and str(value).strip().lower() not in accepted:
            fix = f"leave it out or write {accepted[0]}" if accepted[0] else "leave it out"
            message = f"Invalid value {value} for configuration {field}: {what} not built yet"
            found.append(FieldViolation(field, message, fix))
    if _flag(config, "errors.log.enable"):
        message = "Invalid value true for configuration errors.log.enable: logging of tolerated errors is not built yet"
        found.append(FieldViolation("errors.log.enable", message, "leave it out or write false"))
    return found


_NOT_BUILT: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("errors.tolerance", ("none",), "skipping bad records is"),
    ("errors.retry.timeout", ("0",), "retrying of records is"),
    ("errors.deadletterqueue.topic.name", ("",), "dead letter queues are"),
    ("predicates", ("",), "predicates are"),
    ("header.converter", ("", "org.apache.kafka.connect.storage.simpleheaderconverter", "simpleheaderconverter"),
     "header converters are"),
    ("topic.creation.groups", ("", "default"), "topic creation groups besides default are"),
    ("transaction.boundary", ("poll", "interval"), "boundaries set by the connector are"),
    ("offsets.storage.topic", ("",), "offsets topics of single connectors are"),
)  # fmt: skip


def _flag(config: RawConfig, field: str) -> bool:
    try:
        return parse_value(field, config.get(field), Type.BOOLEAN) is True
    except ConfigError:
        return False  # reported as a bad value already
