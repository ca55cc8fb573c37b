"""What a mirror's configuration says: MirrorMaker 2's keys, read, and a warning for each that has no effect here.

Owns the keys, their translation and the warnings. What names mean is `mirror_names`'s, the settings of clients are
`mirror_clients`'s. Makes no client.

Invariant: a key is honoured, or refused, or named in a warning; none is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from herdmesh.connect.config import REQUIRED, ConfigDef, ConfigKey, FieldViolation, Importance, Type, Validator
from herdmesh.connect.connector import Config
from herdmesh.connect.connector_keys import COMMON, HERDMESH, SOURCE
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.javaregex import compiled
from herdmesh.connect.validators import at_least, distinct_values, non_empty_string, one_of
from herdmesh.engine.source_cluster import SourceCluster
from herdmesh.worker.connectors.mirror_clients import (
    BOOTSTRAP,
    TARGET_BOOTSTRAP,
    Own,
    client_of,
    cluster_of,
    prefixes_of,
)
from herdmesh.worker.connectors.mirror_names import Naming, Selection
from herdmesh.worker.effects.mirror_cluster import Cluster

SOURCE_ALIAS, TARGET_ALIAS = "source.cluster.alias", "target.cluster.alias"
TOPICS, EXCLUDE, PROPERTIES_EXCLUDE = "topics", "topics.exclude", "config.properties.exclude"
ASSIGNED = "task.assigned.partitions"
"""Of a task's config, as in Java."""
_MIRROR = "org.apache.kafka.connect.mirror."
_DEFAULT, _IDENTITY = f"{_MIRROR}DefaultReplicationPolicy", f"{_MIRROR}IdentityReplicationPolicy"
_POLICY, _SEPARATOR = "replication.policy.class", "replication.policy.separator"
_REFRESH_S, _REPLICATION = "refresh.topics.interval.seconds", "replication.factor"
_ISOLATION, _MAX_RECORDS, _RESET = "isolation.level", "max.poll.records", "auto.offset.reset"
_LEVELS = ("read_committed", "read_uncommitted")
_OWN = (_ISOLATION, _MAX_RECORDS, _RESET)
_EMIT, _LOCATION, _LAG = "emit.offset-syncs.enabled", "offset-syncs.topic.location", "offset.lag.max"
_SYNCS_REPLICATION = "offset-syncs.topic.replication.factor"
INTERNAL_SEPARATOR = "replication.policy.internal.topic.separator.enabled"
_BATCH_RECORDS = 2_000
_HIGH, _LOW = Importance.HIGH, Importance.LOW

_DISTINCT = distinct_values(empty_allowed=True)


def each_of(*choices: str) -> Validator:
    one = one_of(*choices)

    def check(field: str, values: Any) -> None:
        _DISTINCT.check(field, values)
        for value in values:
            one.check(field, value)

    return Validator(one.text, check, _DISTINCT.refine, _DISTINCT.strict)


KEYS = ConfigDef(
    ConfigKey("enabled", Type.BOOLEAN, True, _LOW, "Whether to replicate source->target."),
    ConfigKey(SOURCE_ALIAS, Type.STRING, REQUIRED, _HIGH, "Alias of source cluster"),
    ConfigKey(TARGET_ALIAS, Type.STRING, "target", _HIGH, "Alias of target cluster. Used in metrics reporting."),
    ConfigKey("admin.timeout.ms", Type.LONG, 60_000, _LOW,
              "Timeout for administrative tasks, e.g. detecting new topics."),
    ConfigKey(_POLICY, Type.STRING, _DEFAULT, _LOW, "Class which defines the remote topic naming convention."),
    ConfigKey(_SEPARATOR, Type.STRING, ".", _LOW, "Separator used in remote topic naming convention."),
    ConfigKey(INTERNAL_SEPARATOR, Type.BOOLEAN, True, _LOW,
              "Whether to use replication.policy.separator to control the names of topics used for checkpoints and "
              "offset syncs. By default, custom separators are used in these topic names; however, if upgrading "
              "MirrorMaker 2 from older versions that did not allow for these topic names to be customized, it may be "
              "necessary to set this property to 'false' in order to continue using the same names for those topics."),
    ConfigKey("forwarding.admin.class", Type.STRING, "org.apache.kafka.clients.admin.ForwardingAdmin", _LOW,
              "Class which extends ForwardingAdmin to define custom cluster resource management (topics, configs, "
              "etc). The class must have a constructor with signature <code>(Map<String, Object> config)</code> that "
              "is used to configure a KafkaAdminClient and may also be used to configure clients for external systems "
              "if necessary."),
    ConfigKey("metric.reporters", Type.LIST, ["org.apache.kafka.common.metrics.JmxReporter"], _LOW,
              "A list of classes to use as metrics reporters. Implementing the "
              "<code>org.apache.kafka.common.metrics.MetricsReporter</code> interface allows plugging in classes that "
              "will be notified of new metric creation. When custom reporters are set and "
              "<code>org.apache.kafka.common.metrics.JmxReporter</code> is needed, it has to be explicitly added to "
              "the list.", _DISTINCT),
    ConfigKey(TOPICS, Type.LIST, [".*"], _HIGH,
              "Topics to replicate. Supports comma-separated topic names and regexes.", _DISTINCT),
    ConfigKey(EXCLUDE, Type.LIST, [r"mm2.*\.internal", r".*\.replica", "__.*"], _HIGH,
              "Excluded topics. Supports comma-separated topic names and regexes. Excludes take precedence over "
              "includes.", _DISTINCT),
    ConfigKey(PROPERTIES_EXCLUDE, Type.LIST,
              ["follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
               "message.timestamp.difference.max.ms", "log.message.timestamp.before.max.ms",
               "log.message.timestamp.after.max.ms", "message.timestamp.type", "unclean.leader.election.enable",
               "min.insync.replicas"],
              _HIGH, "Topic config properties that should not be replicated. Supports comma-separated property names "
              "and regexes.", _DISTINCT),
    ConfigKey("topic.filter.class", Type.STRING, f"{_MIRROR}DefaultTopicFilter", _LOW,
              "TopicFilter to use. Selects topics to replicate."),
    ConfigKey("config.property.filter.class", Type.STRING, f"{_MIRROR}DefaultConfigPropertyFilter", _LOW,
              "ConfigPropertyFilter to use. Selects topic config  properties to replicate."),
    ConfigKey("consumer.poll.timeout.ms", Type.LONG, 1_000, _LOW, "Timeout when polling source cluster."),
    ConfigKey("refresh.topics.enabled", Type.BOOLEAN, True, _LOW,
              "Whether to periodically check for new topics and partitions."),
    ConfigKey(_REFRESH_S, Type.LONG, 600, _LOW, "Frequency of topic refresh."),
    ConfigKey("sync.topic.configs.enabled", Type.BOOLEAN, True, _LOW,
              "Whether to periodically configure remote topics to match their corresponding upstream topics."),
    ConfigKey("sync.topic.configs.interval.seconds", Type.LONG, 600, _LOW, "Frequency of topic config sync."),
    ConfigKey("sync.topic.acls.enabled", Type.BOOLEAN, True, _LOW,
              "Whether to periodically configure remote topic ACLs to match their corresponding upstream topics."),
    ConfigKey("sync.topic.acls.interval.seconds", Type.LONG, 600, _LOW, "Frequency of topic ACL sync."),
    ConfigKey(_REPLICATION, Type.INT, 2, _LOW, "Replication factor for newly created remote topics."),
    ConfigKey(_SYNCS_REPLICATION, Type.SHORT, 3, _LOW,
              "Replication factor for offset-syncs topic."),
    ConfigKey(_LAG, Type.LONG, 100, _LOW,
              "How out-of-sync a remote partition can be before it is resynced."),
    ConfigKey(_LOCATION, Type.STRING, "source", _LOW,
              "The location (source/target) of the offset-syncs topic.", one_of("source", "target")),
    ConfigKey(_EMIT, Type.BOOLEAN, True, _LOW,
              "Whether to store the new offset of the replicated records in offset-syncs topic or not. "
              "MirrorCheckpointConnector will not be able to sync group offsets or emit checkpoints if "
              "emit.checkpoints.enabled and/or sync.group.offsets.enabled are enabled while emit.offset-syncs.enabled "
              "is disabled."),
    ConfigKey("heartbeats.replication.enabled", Type.BOOLEAN, True, _LOW,
              "Whether to replicate the heartbeats topics even when the topic filter does not include them. If set to "
              "true, heartbeats topics identified by the replication policy will always be replicated, regardless of "
              "the topic filter configuration. If set to false, heartbeats topics will only be replicated if the topic "
              "filter allows."),
    ConfigKey("metric.names.formats", Type.LIST, ["legacy"], _LOW,
              "Deprecated. The formats in which metrics are emitted. Valid values are legacy and new. When set to "
              'legacy, the metrics have the following name "kafka.connect.mirror:type=MirrorSourceConnector,'
              'source={SOURCE},target={TARGET},topic={TOPIC},partition={PARTITION}". When set to new, the metrics have '
              'the following name "kafka.connect:type=plugins,connector={CONNECTOR},task={TASK},source={SOURCE},'
              'target={TARGET},topic={TOPIC},partition={PARTITION}". When set to "legacy,new" the connector will emit '
              "metrics with both names, this can be useful when migrating to the new format but it doubles the amount "
              "of metrics that are emitted.\nIn Kafka 5.0 the legacy format and this configuration will be removed "
              "and the metrics will always use the new names.", each_of("legacy", "new")),
    ConfigKey(BOOTSTRAP, Type.STRING, REQUIRED, _HIGH, "Brokers of the source cluster, host:port, separated by commas. "
              "Records go to the cluster of the workers.", non_empty_string()),
    ConfigKey(TARGET_BOOTSTRAP, Type.STRING, None, Importance.MEDIUM, "Brokers of the target cluster, which is the "
              "workers', host:port, separated by commas. Offset syncs are written where it is given."),
)  # fmt: skip
"""MirrorMaker's, in its order, and last what it does not declare; docs/differences.md has what it declares besides."""


def check_interval(field: str, value: Any) -> None:
    """Raises ConfigError for 0."""
    if not value:
        raise ConfigError.for_value(field, value, "Value must be at least 1, or negative for never", fix="600")


_RULES: Mapping[str, Validator] = {
    SOURCE_ALIAS: non_empty_string(),
    _SEPARATOR: non_empty_string(),
    _REPLICATION: at_least(-1),
    _REFRESH_S: Validator("not 0", check_interval),
    _SYNCS_REPLICATION: at_least(-1),
    _LAG: at_least(0),
}
"""What MirrorMaker does not look at when it validates, and fails of when it starts."""
_SYNC = "a topic gets its settings when it is created, and nobody changes them afterwards"
_ACLS = "access rules are not copied"
TO_WORKERS_CLUSTER = "records go to the workers' cluster, by their clients (producer.override.*)"
#: MirrorMaker's keys without effect: why, and the values that ask for nothing else.
WITHOUT_EFFECT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "sync.topic.configs.enabled": (_SYNC, ("false",)),
    "sync.topic.configs.interval.seconds": (_SYNC, ()),
    "sync.topic.acls.enabled": (_ACLS, ("false",)),
    "sync.topic.acls.interval.seconds": (_ACLS, ()),
    "consumer.poll.timeout.ms": ("a task never waits long for records", ()),
    "admin.timeout.ms": ("questions to a cluster are given 10 s", ()),
    "topic.filter.class": ("topics are chosen by topics and topics.exclude", (f"{_MIRROR}DefaultTopicFilter",)),
    "config.property.filter.class": (
        "settings are chosen by config.properties.exclude", (f"{_MIRROR}DefaultConfigPropertyFilter",),
    ),
    "forwarding.admin.class": (
        "it names a Java class, and this connector runs no Java", ("org.apache.kafka.clients.admin.ForwardingAdmin",),
    ),
    "metric.reporters": ("it is of Java's own metrics", ()),
    "metric.names.formats": ("it is of Java's own metrics", ()),
    "add.source.alias.to.metrics": ("it is of Java's own metrics", ("false",)),
}  # fmt: skip
_OF_SYNCS = (_EMIT, _LOCATION, _LAG, _SYNCS_REPLICATION, TARGET_BOOTSTRAP)
TARGET_PREFIXES = ("target.cluster.", "target.producer.", "target.admin.", "target.consumer.", "producer.",
                    "source.producer.")  # fmt: skip
#: What all connectors have below these.
SHARED_PREFIXES = ("transforms.", "predicates.", "key.converter", "value.converter", "header.converter", "errors.",
                    "topic.creation.", "consumer.override.", "producer.override.", "admin.override.",
                    "herdmesh.")  # fmt: skip
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
CONVERTERS: Mapping[str, str] = dict.fromkeys(("key.converter", "value.converter", "header.converter"), _BYTES)
"""What moves bytes as they are."""


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """A mirror's configuration, read."""

    enabled: bool
    naming: Naming
    selection: Selection
    source: SourceCluster
    replication_factor: int
    refresh_s: int | None
    """How often new topics and partitions are looked for; None = never."""
    properties_exclude: tuple[str, ...]
    """Names, or regular expressions of them, of topic settings that are not copied."""
    batch_records: int
    """Records read at once, at most."""
    from_end: bool
    """Where a partition without an offset is begun: at its end, or its beginning."""
    reset_lost: bool
    """True = a partition whose next record is gone is begun anew instead of failing the task."""
    syncs: SyncSettings | None
    """None = no offset syncs are written."""


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """How offset syncs are written."""

    topic: str
    at_target: bool
    kept_in: Cluster
    """Which has the topic."""
    target: Cluster
    replication_factor: int
    lag_max: int
    """How many records of a copy may lie between two of them, where there are more records than that in a commit."""


def settings_of(config: Config) -> MirrorSettings:
    """Read the configuration. Raises ConfigError whose field is the key."""
    values = KEYS.parse(config)
    for key, rule in _RULES.items():
        rule.check(key, values[key])
    naming = naming_of(values)
    for key in (TOPICS, EXCLUDE, PROPERTIES_EXCLUDE):
        require_regexes(key, values[key] or [])
    consumer, own = client_of("source", "consumer", config, KEYS.keys, _OWN)
    admin, _ = client_of("source", "admin", config, KEYS.keys)
    level = own.get(_ISOLATION, ("", _LEVELS[0]))
    if level[1].lower() not in _LEVELS:
        raise ConfigError.for_value(level[0], level[1], f"must be {' or '.join(_LEVELS)}", fix=_LEVELS[0])
    return MirrorSettings(
        enabled=values["enabled"],
        naming=naming,
        selection=Selection(
            naming, tuple(values[TOPICS] or ()), tuple(values[EXCLUDE] or ()), values["heartbeats.replication.enabled"]
        ),
        source=SourceCluster(
            name=naming.source,
            bootstrap_servers=values[BOOTSTRAP],
            consumer=dict(consumer.config),
            admin=dict(admin.config),
            client_id=consumer.config.get("client.id") or f"mirror-{naming.source}-{naming.target}",
            read_committed=level[1].lower() == _LEVELS[0],
        ),
        replication_factor=values[_REPLICATION],
        refresh_s=values[_REFRESH_S] if values["refresh.topics.enabled"] and values[_REFRESH_S] > 0 else None,
        properties_exclude=tuple(values[PROPERTIES_EXCLUDE] or ()),
        batch_records=_batch_records(own),
        from_end=_from_end(own),
        reset_lost=(config.get("herdmesh.offsets.missing") or "").strip() == "reset",
        syncs=None if _no_syncs(config, values)[0] else _syncs(config, values, naming)[0],
    )


def naming_of(values: Mapping[str, Any]) -> Naming:
    """The replication policy, of parsed values. Raises ConfigError whose field is the key."""
    policy = values[_POLICY]
    if policy.rpartition(".")[2] not in (_DEFAULT.rpartition(".")[2], _IDENTITY.rpartition(".")[2]):
        fix = f"write {_DEFAULT} or {_IDENTITY}"
        raise ConfigError.for_value(_POLICY, policy, "only Kafka's own policies exist here", fix=fix)
    separator = values[_SEPARATOR]
    return Naming(
        values[SOURCE_ALIAS],
        values[TARGET_ALIAS],
        separator,
        keeps_names=policy.endswith("IdentityReplicationPolicy"),
        internal_separator=separator if values[INTERNAL_SEPARATOR] else ".",
    )


def _no_syncs(config: Config, values: Mapping[str, Any]) -> tuple[str, str]:
    """Why no offset syncs are written, with the key to blame; empty = they are."""
    if not values[_EMIT]:
        return f"{_EMIT} is false", _EMIT
    if not (values[TARGET_BOOTSTRAP] or "").strip():
        return f"offset syncs need {TARGET_BOOTSTRAP}, the workers' cluster", TARGET_BOOTSTRAP
    if (config.get("transforms") or "").strip():
        return "a transformation may drop a record, or send it elsewhere, so that offsets are not told", "transforms"
    if (config.get("errors.tolerance") or "").strip().lower() == "all":
        return "a record may be left out, so that offsets are not told", "errors.tolerance"
    return "", ""


def _syncs(config: Config, values: Mapping[str, Any], naming: Naming) -> tuple[SyncSettings, list[FieldViolation]]:
    """How offset syncs are written, and what is to be warned of."""
    client_id, at_target = f"mirror-syncs-{naming.source}-{naming.target}", values[_LOCATION] == "target"
    target, warnings = cluster_of("target", naming.target, values[TARGET_BOOTSTRAP], config, KEYS.keys, client_id)
    kept_in = target
    if not at_target:
        kept_in, of_source = cluster_of("source", naming.source, values[BOOTSTRAP], config, KEYS.keys, client_id)
        warnings += [one for one in of_source if one.field.startswith("source.producer.")]
    syncs = SyncSettings(
        topic=naming.offset_syncs(at_target),
        at_target=at_target,
        kept_in=kept_in,
        target=target,
        replication_factor=values[_SYNCS_REPLICATION],
        lag_max=values[_LAG],
    )
    return syncs, warnings


def warnings_of(config: Config) -> list[FieldViolation]:
    """Every key that has not the effect it asks for, with why. Raises as `settings_of`."""
    found: list[FieldViolation] = []
    known = {*COMMON.keys, *SOURCE.keys, *HERDMESH.keys, *KEYS.keys, "name", ASSIGNED, "task.index", "task.class"}
    clients = (*prefixes_of("source", "consumer"), *prefixes_of("source", "admin"))
    values = KEYS.parse(config)
    why_none, blamed = _no_syncs(config, values)
    if not why_none:
        side = "target" if values[_LOCATION] == "target" else "source"
        clients = (*clients, *prefixes_of("target", "admin"), *prefixes_of(side, "producer"))
        found += _syncs(config, values, naming_of(values))[1]
    elif blamed in ("transforms", "errors.tolerance"):
        found.append(FieldViolation(blamed, f"no offset syncs are written: {why_none}", f"write {_EMIT}=false"))
    for name, value in config.items():
        text = str(value or "").strip()
        if converter := converter_warning(name, text):
            found.append(converter)
        elif name in WITHOUT_EFFECT:
            why, same = WITHOUT_EFFECT[name]
            if text not in same:
                found.append(without_effect(name, why))
        elif why_none and name in _OF_SYNCS and name != blamed and not (name == _EMIT and text == "false"):
            found.append(without_effect(name, why_none))
        elif name in known or name.startswith((*SHARED_PREFIXES, *clients)):
            continue
        elif name.startswith(TARGET_PREFIXES):
            found.append(without_effect(name, TO_WORKERS_CLUSTER))
        else:
            message = f"{name} has no effect: this connector has no such setting"
            found.append(FieldViolation(name, message, "is it misspelt?"))
    for kind, own in (("consumer", _OWN), ("admin", ())):
        found += client_of("source", kind, config, KEYS.keys, own)[0].warnings
    return found


def converter_warning(name: str, text: str) -> FieldViolation | None:
    """Of a converter that does not leave bytes as they are."""
    if name not in CONVERTERS or not text or text.rpartition(".")[2] in (_BYTES.rpartition(".")[2], "ByteArray"):
        return None
    message = f"{name}: a mirror's keys, values and headers are bytes, and {text} may write others"
    return FieldViolation(name, message, f"leave it out, or write {_BYTES}")


def without_effect(name: str, why: str) -> FieldViolation:
    """A warning."""
    return FieldViolation(name, f"{name} has no effect: {why}", "leave it out")


def require_regexes(key: str, patterns: list[str]) -> None:
    """Raises ConfigError whose field is the key."""
    for pattern in patterns:
        try:
            compiled(pattern)
        except ConfigError as error:
            raise ConfigError.for_value(key, pattern, str(error), fix=error.fix) from error


def _batch_records(own: Own) -> int:
    key, text = own.get(_MAX_RECORDS, ("", str(_BATCH_RECORDS)))
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError.for_value(key, text, "must be a number, 1 or more", fix=str(_BATCH_RECORDS))
    return int(text)


def _from_end(own: Own) -> bool:
    key, text = own.get(_RESET, ("", "earliest"))
    if text.lower() not in ("earliest", "latest"):
        raise ConfigError.for_value(key, text, "must be earliest or latest", fix="earliest")
    return text.lower() == "latest"
