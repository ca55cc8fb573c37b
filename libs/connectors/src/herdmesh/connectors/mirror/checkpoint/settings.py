"""Settings of the checkpoint connector, from MirrorMaker 2's keys, and a warning for each key without effect.

Owns the keys that `MirrorSourceConnector` does not have, and the warnings. Shared keys: `keys`; settings of clients:
`client_settings`. Creates no client.

Invariant: a key is honoured, refused or named in a warning; none is ignored silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from herdmesh.connect.java import matches
from herdmesh.connect.spi import ConnectorKind
from herdmesh.connectors.common import warned_settings
from herdmesh.connectors.mirror import keys
from herdmesh.connectors.mirror.client_settings import (
    BOOTSTRAP,
    TARGET_BOOTSTRAP,
    client_problems,
    cluster_of,
    prefixes_of,
)
from herdmesh.connectors.mirror.cluster import Cluster
from herdmesh.connectors.mirror.keys import EXCLUDE, SOURCE_ALIAS, TOPICS, check_interval
from herdmesh.connectors.mirror.source import settings as source_settings
from herdmesh.connectors.mirror.topic_naming import Naming, Selection
from herdmesh.engine.source import SourceCluster
from herdmesh.sdk import Config, ConfigDef, ConfigError, ConfigKey, FieldViolation, Importance, Type, Validator
from herdmesh.sdk.validators import at_least, non_empty_string

ASSIGNED = "task.assigned.groups"
"""Key of a task's config, as in Java."""
GROUPS, GROUPS_EXCLUDE = "groups", "groups.exclude"
_MIRROR = "org.apache.kafka.connect.mirror."
_EMIT, _EMIT_S = "emit.checkpoints.enabled", "emit.checkpoints.interval.seconds"
_EMIT_SYNCS, _LOCATION = "emit.offset-syncs.enabled", "offset-syncs.topic.location"
_REFRESH, _REFRESH_S = "refresh.groups.enabled", "refresh.groups.interval.seconds"
_SET, _SET_S = "sync.group.offsets.enabled", "sync.group.offsets.interval.seconds"
REPLICATION = "checkpoints.topic.replication.factor"
_HIGH, _LOW = Importance.HIGH, Importance.LOW


def _same(name: str, doc: str | None = None) -> ConfigKey:
    """Return the key as defined for the mirror's source connector."""
    key = keys.KEYS.keys[name]
    return key if doc is None else replace(key, doc=doc)


KEYS = ConfigDef(
    *map(_same, ("enabled", SOURCE_ALIAS, "target.cluster.alias", "admin.timeout.ms", "replication.policy.class",
                 "replication.policy.separator", "replication.policy.internal.topic.separator.enabled",
                 "forwarding.admin.class", "metric.reporters", "consumer.poll.timeout.ms")),
    ConfigKey(GROUPS, Type.LIST, [".*"], _HIGH,
              "Consumer groups to replicate. Supports comma-separated group IDs and regexes.",
              keys.KEYS.keys[TOPICS].validator),
    ConfigKey(GROUPS_EXCLUDE, Type.LIST, ["console-consumer-.*", "connect-.*", "__.*"], _HIGH,
              "Exclude groups. Supports comma-separated group IDs and regexes. Excludes take precedence over includes.",
              keys.KEYS.keys[TOPICS].validator),
    ConfigKey("group.filter.class", Type.STRING, f"{_MIRROR}DefaultGroupFilter", _LOW,
              "GroupFilter to use. Selects consumer groups to replicate."),
    ConfigKey(_REFRESH, Type.BOOLEAN, True, _LOW, "Whether to periodically check for new consumer groups."),
    ConfigKey(_REFRESH_S, Type.LONG, 600, _LOW, "Frequency of group refresh."),
    ConfigKey(_EMIT, Type.BOOLEAN, True, _LOW, "Whether to replicate consumer offsets to target cluster."),
    ConfigKey(_EMIT_S, Type.LONG, 60, _LOW, "Frequency of checkpoints."),
    ConfigKey(_SET, Type.BOOLEAN, False, _LOW,
              "Whether to periodically write the translated offsets to __consumer_offsets topic in target cluster, as "
              "long as no active consumers in that group are connected to the target cluster"),
    ConfigKey(_SET_S, Type.LONG, 60, _LOW, "Frequency of consumer group offset sync."),
    ConfigKey(REPLICATION, Type.SHORT, 3, _LOW, "Replication factor for checkpoints topic."),
    *map(_same, (_LOCATION, "topic.filter.class")),
    _same("metric.names.formats", keys.KEYS.keys["metric.names.formats"].doc.replace(
        "MirrorSourceConnector,", "MirrorCheckpointConnector,").replace(
        "target={TARGET},topic=", "target={TARGET},group={GROUP},topic=")),
    _same(BOOTSTRAP, "Brokers of the source cluster, host:port, separated by commas."),
    _same(TARGET_BOOTSTRAP, "Brokers of the target cluster, which is the workers', host:port, separated by commas. "
          f"Needed with {_SET} and {_LOCATION}=target."),
)  # fmt: skip
"""MirrorMaker's keys, in its order, then keys that it reads without declaring them."""
_RULES: Mapping[str, Validator] = {
    SOURCE_ALIAS: non_empty_string(),
    REPLICATION: at_least(-1),
    _REFRESH_S: Validator("not 0", check_interval),
    _EMIT_S: at_least(1),
    _SET_S: at_least(1),
}
"""Keys that MirrorMaker does not check when it validates a config."""
#: MirrorMaker's keys without effect: the reason, and the values for which no warning is due.
_WITHOUT_EFFECT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **{name: source_settings.WITHOUT_EFFECT[name] for name in (
        "admin.timeout.ms", "topic.filter.class", "forwarding.admin.class", "metric.reporters", "metric.names.formats",
        "add.source.alias.to.metrics",
    )},
    "consumer.poll.timeout.ms": ("the source's topic of offset syncs is read to its end", ()),
    "group.filter.class": ("groups are chosen by groups and groups.exclude", (f"{_MIRROR}DefaultGroupFilter",)),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """The parsed config of a checkpoint connector."""

    enabled: bool
    naming: Naming
    selection: Selection
    """Topics whose offsets are translated."""
    groups: tuple[str, ...]
    groups_exclude: tuple[str, ...]
    source: Cluster
    target: Cluster | None
    """The workers' cluster; None if not needed."""
    syncs_at_target: bool
    replication_factor: int
    emit_s: int
    refresh_s: int | None
    """Interval of the discovery of new groups; None = never."""
    set_s: int | None
    """Interval at which groups are moved forward at the target; None = never."""

    def has_group(self, group: str) -> bool:
        """True when the group's offsets are to be translated. Raises ConfigError for an invalid expression."""
        return matches("|".join(self.groups), group) and not matches("|".join(self.groups_exclude), group)

    @property
    def syncs_in(self) -> Cluster:
        """The cluster with the offset syncs."""
        return self.target if self.syncs_at_target and self.target is not None else self.source


def settings_of(config: Config) -> CheckpointSettings:
    """Read the config. Raises ConfigError whose field is the key."""
    values = _checked(config)
    naming = source_settings.naming_of(values)
    topics = keys.KEYS.parse({SOURCE_ALIAS: "", BOOTSTRAP: "-", **_filters(config)})
    for key in (TOPICS, EXCLUDE):
        source_settings.require_regexes(key, topics[key] or [])
    source, target, _ = _clusters(config, values, naming)
    at_target = values[_LOCATION] == "target"
    return CheckpointSettings(
        enabled=values["enabled"],
        naming=naming,
        selection=Selection(naming, tuple(topics[TOPICS] or ()), tuple(topics[EXCLUDE] or ()), heartbeats=False),
        groups=tuple(values[GROUPS] or ()),
        groups_exclude=tuple(values[GROUPS_EXCLUDE] or ()),
        source=source,
        target=target,
        syncs_at_target=at_target,
        replication_factor=values[REPLICATION],
        emit_s=values[_EMIT_S],
        refresh_s=values[_REFRESH_S] if values[_REFRESH] and values[_REFRESH_S] > 0 else None,
        set_s=values[_SET_S] if values[_SET] else None,
    )


def client_problems_of(config: Config) -> list[ConfigError]:
    """Return an error for every client setting with which a run would fail."""

    def clusters(config: Config) -> list[tuple[str, SourceCluster | Cluster]]:
        settings = settings_of(config)
        return [("source", settings.source), *([("target", settings.target)] if settings.target is not None else [])]

    return client_problems(config, KEYS.keys, (), clusters)


def warnings_of(config: Config) -> list[FieldViolation]:
    """Return a warning, with the reason, for every key without the effect that its value requests; for a refused
    config, the unknown keys.
    """
    found: list[FieldViolation] = []
    asks_target = True
    try:
        values = _checked(config)
        _, target, found = _clusters(config, values, source_settings.naming_of(values))
        asks_target = target is not None
    except ConfigError:
        pass  # reported as an error
    clients = (*prefixes_of("source", "admin"), *prefixes_of("source", "consumer"))
    if asks_target:
        clients = (*clients, *prefixes_of("target", "admin"), *prefixes_of("target", "consumer"))

    def here(name: str, _text: str) -> str | None:
        if name != TARGET_BOOTSTRAP or asks_target:
            return None
        return f"only {_SET} and {_LOCATION}=target use it; checkpoints go to the workers' cluster"

    found += warned_settings(
        config, {*KEYS.keys, TOPICS, EXCLUDE, _EMIT_SYNCS, ASSIGNED, *source_settings.OF_TASKS}, ConnectorKind.SOURCE,
        _WITHOUT_EFFECT, (*source_settings.CONSUMERS, *clients), here=here,
        java="mirror-checkpoint",
    )  # fmt: skip
    return [*source_settings.converter_warnings(config), *found]


def _checked(config: Config) -> dict[str, Any]:
    values = KEYS.parse(config)
    for key, rule in _RULES.items():
        rule.check(key, values[key])
    for key in (GROUPS, GROUPS_EXCLUDE):
        source_settings.require_regexes(key, values[key] or [])
    if values["enabled"] and not values[_EMIT]:
        text = f"MirrorCheckpointConnector can't run with {_EMIT} set to false"
        raise ConfigError(text, field=_EMIT, fix="write enabled=false, or leave it out")
    if values["enabled"] and (config.get(_EMIT_SYNCS) or "").strip().lower() == "false":
        text = "MirrorCheckpointConnector can't run without offset syncs"
        raise ConfigError(text, field=_EMIT_SYNCS, fix="leave it out, here and in the mirror")
    return values


def _filters(config: Config) -> dict[str, str | None]:
    """Return the keys that select the topics, under the names of the mirror's source connector."""
    return {key: config[key] for key in (TOPICS, EXCLUDE) if key in config}


def _clusters(
    config: Config, values: Mapping[str, Any], naming: Naming
) -> tuple[Cluster, Cluster | None, list[FieldViolation]]:
    client_id = f"mirror-checkpoint-{naming.source}-{naming.target}"
    source, found = cluster_of("source", naming.source, values[BOOTSTRAP], config, KEYS.keys, client_id)
    if not values[_SET] and values[_LOCATION] != "target":
        return source, None, found
    bootstrap = (values[TARGET_BOOTSTRAP] or "").strip()
    if not bootstrap:
        text = f"{TARGET_BOOTSTRAP} is needed with {_SET}=true, and with {_LOCATION}=target"
        raise ConfigError(text, field=TARGET_BOOTSTRAP, fix="write the brokers of the workers' cluster")
    target, more = cluster_of("target", naming.target, bootstrap, config, KEYS.keys, client_id)
    return source, target, [*found, *more]
