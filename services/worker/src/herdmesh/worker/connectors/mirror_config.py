"""What a mirror's configuration says: MirrorMaker 2's keys, read, and a warning for each that has no effect here.

Owns the keys, their translation and the warnings. What names mean is `mirror_names`'s, what Kafka's client settings are
to librdkafka `connect.client_settings`'s. Makes no client.

    source.cluster.*                      for every client of the source cluster
    consumer.*, source.consumer.*         for the one that reads records; the later wins
    admin.*, source.admin.*               for the one that asks for topics

Invariant: a key is honoured, or refused, or named in a warning; none is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from herdmesh.connect.client_settings import ClientSettings, client_settings
from herdmesh.connect.config import REQUIRED, ConfigDef, ConfigKey, FieldViolation, Importance, Type, Validator
from herdmesh.connect.connector import Config
from herdmesh.connect.connector_keys import COMMON, HERDMESH, SOURCE
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.javaregex import compiled
from herdmesh.connect.validators import at_least, distinct_values, non_empty_string, one_of
from herdmesh.engine.source_cluster import SourceCluster
from herdmesh.worker.connectors.mirror_names import Naming, Selection

SOURCE_ALIAS, TARGET_ALIAS = "source.cluster.alias", "target.cluster.alias"
BOOTSTRAP = "source.cluster.bootstrap.servers"
TOPICS, EXCLUDE, PROPERTIES_EXCLUDE = "topics", "topics.exclude", "config.properties.exclude"
ASSIGNED = "task.assigned.partitions"
"""Of a task's config, as in Java."""
_MIRROR = "org.apache.kafka.connect.mirror."
_DEFAULT, _IDENTITY = f"{_MIRROR}DefaultReplicationPolicy", f"{_MIRROR}IdentityReplicationPolicy"
_POLICY, _SEPARATOR = "replication.policy.class", "replication.policy.separator"
_REFRESH_S, _REPLICATION = "refresh.topics.interval.seconds", "replication.factor"
_ISOLATION, _MAX_RECORDS, _RESET = "isolation.level", "max.poll.records", "auto.offset.reset"
_LEVELS = ("read_committed", "read_uncommitted")
_PREFIXES = {
    "consumer": ("source.cluster.", "consumer.", "source.consumer."),
    "admin": ("source.cluster.", "admin.", "source.admin."),
}
_BATCH_RECORDS = 2_000
_HIGH, _LOW = Importance.HIGH, Importance.LOW

_DISTINCT = distinct_values(empty_allowed=True)


def _each_of(*choices: str) -> Validator:
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
    ConfigKey("replication.policy.internal.topic.separator.enabled", Type.BOOLEAN, True, _LOW,
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
    ConfigKey("offset-syncs.topic.replication.factor", Type.SHORT, 3, _LOW,
              "Replication factor for offset-syncs topic."),
    ConfigKey("offset.lag.max", Type.LONG, 100, _LOW,
              "How out-of-sync a remote partition can be before it is resynced."),
    ConfigKey("offset-syncs.topic.location", Type.STRING, "source", _LOW,
              "The location (source/target) of the offset-syncs topic.", one_of("source", "target")),
    ConfigKey("emit.offset-syncs.enabled", Type.BOOLEAN, True, _LOW,
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
              "and the metrics will always use the new names.", _each_of("legacy", "new")),
    ConfigKey(BOOTSTRAP, Type.STRING, REQUIRED, _HIGH, "Brokers of the source cluster, host:port, separated by commas. "
              "Records go to the cluster of the workers.", non_empty_string()),
)  # fmt: skip
"""MirrorMaker's, in its order, and last what it does not declare; docs/differences.md has what it declares besides."""


def _check_interval(field: str, value: Any) -> None:
    if not value:
        raise ConfigError.for_value(field, value, "Value must be at least 1, or negative for never", fix="600")


_RULES: Mapping[str, Validator] = {
    SOURCE_ALIAS: non_empty_string(),
    _SEPARATOR: non_empty_string(),
    _REPLICATION: at_least(-1),
    _REFRESH_S: Validator("not 0", _check_interval),
}
"""What MirrorMaker does not look at when it validates, and fails of when it starts."""
_SYNC = "a topic gets its settings when it is created, and nobody changes them afterwards"
_ACLS = "access rules are not copied"
_OFFSET_SYNCS = "no offset-syncs topic is written, as there is no checkpoint connector"
_TARGET = "records go to the workers' cluster, by their clients (producer.override.*)"
#: MirrorMaker's keys without effect: why, and the values that ask for nothing else.
_WITHOUT_EFFECT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "sync.topic.configs.enabled": (_SYNC, ("false",)),
    "sync.topic.configs.interval.seconds": (_SYNC, ()),
    "sync.topic.acls.enabled": (_ACLS, ("false",)),
    "sync.topic.acls.interval.seconds": (_ACLS, ()),
    "emit.offset-syncs.enabled": (_OFFSET_SYNCS, ("false",)),
    "offset-syncs.topic.replication.factor": (_OFFSET_SYNCS, ()),
    "offset-syncs.topic.location": (_OFFSET_SYNCS, ()),
    "offset.lag.max": (_OFFSET_SYNCS, ()),
    "consumer.poll.timeout.ms": ("a task never waits long for records", ()),
    "admin.timeout.ms": ("questions to a cluster are given 10 s", ()),
    "topic.filter.class": ("topics are chosen by topics and topics.exclude", (f"{_MIRROR}DefaultTopicFilter",)),
    "config.property.filter.class": (
        "settings are chosen by config.properties.exclude", (f"{_MIRROR}DefaultConfigPropertyFilter",),
    ),
    "forwarding.admin.class": (
        "it names a Java class, and this connector runs no Java", ("org.apache.kafka.clients.admin.ForwardingAdmin",),
    ),
    "replication.policy.internal.topic.separator.enabled": ("there are no internal topics here", ()),
    "metric.reporters": ("it is of Java's own metrics", ()),
    "metric.names.formats": ("it is of Java's own metrics", ()),
    "add.source.alias.to.metrics": ("it is of Java's own metrics", ("false",)),
}  # fmt: skip
_TARGET_PREFIXES = ("target.cluster.", "target.producer.", "target.admin.", "target.consumer.", "producer.",
                    "source.producer.")  # fmt: skip
#: What all connectors have below these.
_SHARED_PREFIXES = ("transforms.", "predicates.", "key.converter", "value.converter", "header.converter", "errors.",
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


def settings_of(config: Config) -> MirrorSettings:
    """Read the configuration. Raises ConfigError whose field is the key."""
    values = KEYS.parse(config)
    for key, rule in _RULES.items():
        rule.check(key, values[key])
    policy = values[_POLICY]
    if policy.rpartition(".")[2] not in (_DEFAULT.rpartition(".")[2], _IDENTITY.rpartition(".")[2]):
        fix = f"write {_DEFAULT} or {_IDENTITY}"
        raise ConfigError.for_value(_POLICY, policy, "only Kafka's own policies exist here", fix=fix)
    naming = Naming(
        values[SOURCE_ALIAS],
        values[TARGET_ALIAS],
        values[_SEPARATOR],
        keeps_names=policy.endswith("IdentityReplicationPolicy"),
    )
    for key in (TOPICS, EXCLUDE, PROPERTIES_EXCLUDE):
        _require_regexes(key, values[key] or [])
    consumer, own = _client("consumer", config)
    admin, _ = _client("admin", config)
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
    )


def warnings_of(config: Config) -> list[FieldViolation]:
    """Every key that has not the effect it asks for, with why. Raises as `settings_of`."""
    found: list[FieldViolation] = []
    known = {*COMMON.keys, *SOURCE.keys, *HERDMESH.keys, *KEYS.keys, "name", ASSIGNED, "task.index", "task.class"}
    for name, value in config.items():
        text = str(value or "").strip()
        if name in CONVERTERS and text and text.rpartition(".")[2] not in (_BYTES.rpartition(".")[2], "ByteArray"):
            message = f"{name}: a mirror's keys, values and headers are bytes, and {text} may write others"
            found.append(FieldViolation(name, message, f"leave it out, or write {_BYTES}"))
        elif name in _WITHOUT_EFFECT:
            why, same = _WITHOUT_EFFECT[name]
            if text not in same:
                found.append(_without_effect(name, why))
        elif name in known or name.startswith((*_SHARED_PREFIXES, *_PREFIXES["consumer"], *_PREFIXES["admin"])):
            continue
        elif name.startswith(_TARGET_PREFIXES):
            found.append(_without_effect(name, _TARGET))
        else:
            message = f"{name} has no effect: this connector has no such setting"
            found.append(FieldViolation(name, message, "is it misspelt?"))
    for kind in ("consumer", "admin"):
        client, _ = _client(kind, config)
        found += client.warnings
    return found


def _without_effect(name: str, why: str) -> FieldViolation:
    return FieldViolation(name, f"{name} has no effect: {why}", "leave it out")


def _require_regexes(key: str, patterns: list[str]) -> None:
    for pattern in patterns:
        try:
            compiled(pattern)
        except ConfigError as error:
            raise ConfigError.for_value(key, pattern, str(error), fix=error.fix) from error


_Own = dict[str, tuple[str, str]]
"""Settings that this connector reads itself, with the key each was written as."""


def _client(kind: str, config: Config) -> tuple[ClientSettings, _Own]:
    """A client of the source cluster in librdkafka's words, with warnings under the keys that were written; those of
    `source.cluster.*` are told of the consumer alone. Raises ConfigError whose field is the key."""
    written: dict[str, str] = {}
    values: dict[str, str | None] = {}
    for prefix in _PREFIXES[kind]:
        for full, value in config.items():
            name = full.removeprefix(prefix)
            if full.startswith(prefix) and not name.startswith("override.") and full not in KEYS.keys:
                written[name], values[name] = full, value
    own = {
        name: (written.pop(name), str(values.pop(name) or "").strip())
        for name in (_ISOLATION, _MAX_RECORDS, _RESET)
        if kind == "consumer" and name in written
    }
    under = f"{kind}.override."
    try:
        found = client_settings(kind, {}, {under + name: value for name, value in values.items()})
    except ConfigError as error:
        full = written.get(error.field.removeprefix(under), error.field)
        raise ConfigError(str(error).replace(error.field, full), field=full, fix=error.fix) from error
    said = [
        FieldViolation(full, one.message.replace(one.field, full), one.fix)
        for one in found.warnings
        if (full := written.get(one.field.removeprefix(under), one.field)) and not _told_before(kind, full)
    ]
    return ClientSettings(found.config, found.engine, said), own


def _told_before(kind: str, full: str) -> bool:
    return kind == "admin" and full.startswith("source.cluster.")


def _batch_records(own: _Own) -> int:
    key, text = own.get(_MAX_RECORDS, ("", str(_BATCH_RECORDS)))
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError.for_value(key, text, "must be a number, 1 or more", fix=str(_BATCH_RECORDS))
    return int(text)


def _from_end(own: _Own) -> bool:
    key, text = own.get(_RESET, ("", "earliest"))
    if text.lower() not in ("earliest", "latest"):
        raise ConfigError.for_value(key, text, "must be earliest or latest", fix="earliest")
    return text.lower() == "latest"
