"""Refusals beyond Connect's validation: settings that this release does not support, configs that cannot be started,
and mistakes in Herdmesh's own keys (`herdmesh.*`).

Owns the refusals in addition to `connector_config`, each with its key, so that nobody relies on a setting without
effect. A key that Connect already reports is not reported again.

Invariant: a config with neither Connect's problems nor these can be started.
"""

from __future__ import annotations

from herdmesh.connect.chain import chain_config
from herdmesh.connect.clients import clients_of, override_violations
from herdmesh.connect.config import FieldViolation, RawConfig, contradictions
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.java import compiled, syntax_error
from herdmesh.connect.spi import ConnectorKind, FindAuthored, PluginDescriptor, PluginKind, checked_list, here
from herdmesh.connect.topics import why_no_topic
from herdmesh.connect.validation.connector_keys import DEAD_LETTERS, HERDMESH, group_names, topic_creation

_RESTART_BACKOFF_MS = "herdmesh.restart.backoff.ms"
_RESTART_BACKOFF_MAX_MS = "herdmesh.restart.backoff.max.ms"


def refusals(
    config: RawConfig, plugin: PluginDescriptor, worker: RawConfig, find: FindAuthored = here
) -> list[FieldViolation]:
    """All refusals.

    Args:
        worker: the worker's settings in the form that a run gets (default converters).
        find: finds authors' transformations, predicates and converters.

    Raises any exception of the author's `validate` except ConfigError.
    """
    definitions = [HERDMESH]
    if plugin.kind is ConnectorKind.SOURCE:
        definitions += [DEAD_LETTERS, topic_creation(group_names(config))]
    found = [
        FieldViolation(name, problem.message, problem.fix)
        for definition in definitions
        for name, value in definition.validate(config).items()
        for problem in value.problems
    ]
    found += [
        *chain_config.violations(config, worker=worker, find=find),
        *_not_built(config),
        *_only_javas(config, plugin.kind),
        *_no_topics(config, plugin.kind),
    ]
    found += [
        *_restart_rules(config),
        *contradictions(config, is_source=plugin.kind is ConnectorKind.SOURCE),
    ]
    found += override_violations(clients_of(PluginKind(plugin.kind.value), config, exactly_once=True), config, worker)
    connector = plugin.load()
    values = plugin.connector.config_def().validate(config).values()
    # An author's own rules may rely on well-formed values.
    is_well_formed = not any(value.problems for value in values)
    wrong = connector.validate(config) if is_well_formed else connector.not_built(config)
    method = "validate" if is_well_formed else "not_built"
    return found + [
        FieldViolation(error.field, str(error), error.fix) for error in checked_list(method, wrong, ConfigError)
    ]


def _not_built(config: RawConfig) -> list[FieldViolation]:
    found: list[FieldViolation] = []
    for field, accepted, what in _NOT_BUILT:
        value = config.get(field)
        if value is not None and str(value).strip().lower() not in accepted:
            fix = f"leave it out or write {accepted[0]}" if accepted[0] else "leave it out"
            message = f"Invalid value {value} for configuration {field}: {what} not supported yet"
            found.append(FieldViolation(field, message, fix))
    return found


_NOT_BUILT: tuple[tuple[str, tuple[str, ...], str], ...] = (
    # Fences, offsets and topics are managed in the worker's cluster: records in another cluster would be separate from
    # them.
    ("consumer.override.bootstrap.servers", ("",), "reading from another cluster than the workers' is"),
    ("producer.override.bootstrap.servers", ("",), "writing to another cluster than the workers' is"),
)  # fmt: skip


def _only_javas(config: RawConfig, kind: ConnectorKind) -> list[FieldViolation]:
    """Refusals of topic regular expressions that only Java can run."""
    fields = [("topics.regex", str(config.get("topics.regex") or ""))]
    if kind is ConnectorKind.SOURCE:
        names = [f"topic.creation.{group}.{part}" for group in group_names(config) for part in ("include", "exclude")]
        fields = [(name, one.strip()) for name in names for one in str(config.get(name) or "").split(",")]
    found: list[FieldViolation] = []
    for field, pattern in fields:
        if syntax_error(pattern) is not None:
            continue  # reported already
        try:
            compiled(pattern)
        except ConfigError as error:
            found.append(FieldViolation(field, str(error), error.fix))
    return found


def _no_topics(config: RawConfig, kind: ConnectorKind) -> list[FieldViolation]:
    """Refusals of names that Kafka does not accept for a topic: the first record, or the first dead letter, would fail
    the task.
    """
    fields = (
        ("topics", "errors.deadletterqueue.topic.name") if kind is ConnectorKind.SINK else ("offsets.storage.topic",)
    )
    found: list[FieldViolation] = []
    for field in fields:
        names = (
            [one.strip() for one in _text(config, field).split(",")] if field == "topics" else [_text(config, field)]
        )
        for name in filter(None, names):
            if why := why_no_topic(name):
                message = f"Invalid value {name} for configuration {field}: {why}"
                found.append(FieldViolation(field, message, "write a name that Kafka accepts"))
    return found


def _restart_rules(config: RawConfig) -> list[FieldViolation]:
    """Refusal of a maximum restart backoff that is shorter than the first backoff."""
    longest, first = _text(config, _RESTART_BACKOFF_MAX_MS), _text(config, _RESTART_BACKOFF_MS)
    if not (longest.isdecimal() and first.isdecimal()) or int(longest) >= int(first):
        return []
    message = (
        f"Invalid value {longest} for configuration {_RESTART_BACKOFF_MAX_MS}: must not be below {_RESTART_BACKOFF_MS} "
        f"({first})"
    )
    return [FieldViolation(_RESTART_BACKOFF_MAX_MS, message, f"write {first} or more")]


def _text(config: RawConfig, field: str) -> str:
    value = config.get(field)
    return value.strip() if isinstance(value, str) else ""
