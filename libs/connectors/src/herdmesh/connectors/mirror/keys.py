"""Config keys of `MirrorSourceConnector`, as MirrorMaker 2 declares them, and two of Herdmesh.

Owns names, defaults and texts. Their meaning: `source.settings`. The other connectors of the mirror reuse some of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from herdmesh.connectors.mirror.client_settings import BOOTSTRAP, TARGET_BOOTSTRAP
from herdmesh.sdk import REQUIRED, ConfigDef, ConfigError, ConfigKey, Importance, Type, Validator
from herdmesh.sdk.validators import distinct_values, non_empty_string, one_of

SOURCE_ALIAS, TARGET_ALIAS = "source.cluster.alias", "target.cluster.alias"
TOPICS, EXCLUDE, PROPERTIES_EXCLUDE = "topics", "topics.exclude", "config.properties.exclude"
ASSIGNED = "task.assigned.partitions"
"""Key of a task's config, as in Java."""
MIRROR = "org.apache.kafka.connect.mirror."
DEFAULT_POLICY, IDENTITY_POLICY = f"{MIRROR}DefaultReplicationPolicy", f"{MIRROR}IdentityReplicationPolicy"
POLICY, SEPARATOR = "replication.policy.class", "replication.policy.separator"
REFRESH_S, REPLICATION = "refresh.topics.interval.seconds", "replication.factor"
EMIT, LOCATION, LAG = "emit.offset-syncs.enabled", "offset-syncs.topic.location", "offset.lag.max"
SYNCS_REPLICATION = "offset-syncs.topic.replication.factor"
CONFIGS, CONFIGS_S = "sync.topic.configs.enabled", "sync.topic.configs.interval.seconds"
INTERNAL_SEPARATOR = "replication.policy.internal.topic.separator.enabled"
BYTE_ARRAY_CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"
CONVERTERS: Mapping[str, str] = dict.fromkeys(
    ("key.converter", "value.converter", "header.converter"), BYTE_ARRAY_CONVERTER
)
"""The mirror's default converters: records are copied as bytes."""
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
    ConfigKey(POLICY, Type.STRING, DEFAULT_POLICY, _LOW, "Class which defines the remote topic naming convention."),
    ConfigKey(SEPARATOR, Type.STRING, ".", _LOW, "Separator used in remote topic naming convention."),
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
    ConfigKey("topic.filter.class", Type.STRING, f"{MIRROR}DefaultTopicFilter", _LOW,
              "TopicFilter to use. Selects topics to replicate."),
    ConfigKey("config.property.filter.class", Type.STRING, f"{MIRROR}DefaultConfigPropertyFilter", _LOW,
              "ConfigPropertyFilter to use. Selects topic config  properties to replicate."),
    ConfigKey("consumer.poll.timeout.ms", Type.LONG, 1_000, _LOW, "Timeout when polling source cluster."),
    ConfigKey("refresh.topics.enabled", Type.BOOLEAN, True, _LOW,
              "Whether to periodically check for new topics and partitions."),
    ConfigKey(REFRESH_S, Type.LONG, 600, _LOW, "Frequency of topic refresh."),
    ConfigKey(CONFIGS, Type.BOOLEAN, True, _LOW,
              "Whether to periodically configure remote topics to match their corresponding upstream topics."),
    ConfigKey(CONFIGS_S, Type.LONG, 600, _LOW, "Frequency of topic config sync."),
    ConfigKey("sync.topic.acls.enabled", Type.BOOLEAN, True, _LOW,
              "Whether to periodically configure remote topic ACLs to match their corresponding upstream topics."),
    ConfigKey("sync.topic.acls.interval.seconds", Type.LONG, 600, _LOW, "Frequency of topic ACL sync."),
    ConfigKey(REPLICATION, Type.INT, 2, _LOW, "Replication factor for newly created remote topics."),
    ConfigKey(SYNCS_REPLICATION, Type.SHORT, 3, _LOW,
              "Replication factor for offset-syncs topic."),
    ConfigKey(LAG, Type.LONG, 100, _LOW,
              "How out-of-sync a remote partition can be before it is resynced."),
    ConfigKey(LOCATION, Type.STRING, "source", _LOW,
              "The location (source/target) of the offset-syncs topic.", one_of("source", "target")),
    ConfigKey(EMIT, Type.BOOLEAN, True, _LOW,
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
              "workers', host:port, separated by commas. Needed to write offset syncs and to change topic settings of "
              "copies."),
)  # fmt: skip
"""MirrorMaker's keys, in its order, then keys that it reads without declaring them; docs/reference/differences.md lists
its other declared keys.
"""


def check_interval(field: str, value: Any) -> None:
    """Raise ConfigError for 0."""
    if not value:
        raise ConfigError.for_value(field, value, "Value must be at least 1, or negative for never", fix="600")
