"""Config keys that every connector has: Connect's common, sink and source keys, and Herdmesh's own.

Owns the tables (docs/reference/connect/configs.md, section 5; types, defaults, groups and orders as in Connect 4.3.1).
Rules between keys: `connector_rules`.

Invariant: Connect's keys equal those that the real classes declare (golden configdef vectors).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from herdmesh.connect.config import (
    APPLICATION,
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    GUARANTEE,
    ISOLATION,
    PROCESS,
    REQUIRED,
    SHARED,
    ConfigDef,
    ConfigKey,
    Importance,
    RawConfig,
    Recommender,
    Type,
    Validator,
    at_least,
    distinct_values,
    non_empty_string,
    non_empty_without_control_characters,
    one_of,
    one_of_ignoring_case,
    optional_at_least,
    optional_between,
    optional_size,
    plugin_version,
    positive_or_broker_default,
    regex,
    regexes,
    unique_aliases,
)

_CONVERTER = Validator(
    "A concrete subclass of org.apache.kafka.connect.storage.Converter, A class with a public, no-argument constructor",
    lambda _field, _value: None,  # needs the classes of a worker: `framework_keys` replaces this validator
)
_HEADER_CONVERTER = Validator(_CONVERTER.text.replace("storage.Converter", "storage.HeaderConverter"), _CONVERTER.check)


def versions_of(name: str, known: Callable[[str | None], Sequence[str]]) -> Recommender:
    """Recommender for the version of the plugin that key `name` names: the known versions of its class. The field is
    hidden while no class is named.
    """
    return Recommender(
        lambda _name, parsed: known(parsed.get(name)), lambda _name, parsed: parsed.get(name) is not None
    )


class _Group:
    """Factory for the keys of one group."""

    def __init__(self, name: str) -> None:
        self._name = name

    def key(
        self, order: int, name: str, kind: Type, default: Any, importance: Importance, width: str, title: str,
        doc: str, validator: Validator | None = None,
    ) -> ConfigKey:  # fmt: skip
        return ConfigKey(name, kind, default, importance, doc, validator, self._name, order, width, title)

    def version(self, order: int, what: str, importance: Importance, width: str) -> ConfigKey:
        name = f"{what.replace(' ', '.')}.plugin.version"
        title, doc = f"{what.capitalize()} version", f"Version of the {what}."
        key = self.key(order, name, Type.STRING, None, importance, width, title, doc, plugin_version())
        named = "connector.class" if what == "connector" else what.replace(" ", ".")
        return replace(key, recommender=versions_of(named, lambda _class_name: ()))


MEMORY_MIN_BYTES: Final = 128 << 20
"""Minimum memory of a task's process, imports included."""
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_common, _errors = _Group("Common"), _Group("Error Handling")
_creation, _once = _Group("Topic Creation"), _Group("Exactly Once Support")
_offsets, _herdmesh = _Group("offsets.topic"), _Group("Herdmesh")

_IDENTITY_KEYS = (
    _common.key(1, "name", Type.STRING, REQUIRED, _HIGH, "MEDIUM", "Connector name",
                "Globally unique name to use for this connector.", non_empty_without_control_characters()),
    _common.key(2, "connector.class", Type.STRING, REQUIRED, _HIGH, "LONG", "Connector class",
                "Name or alias of the class for this connector. Must be a subclass of "
                "org.apache.kafka.connect.connector.Connector. If the connector is "
                "org.apache.kafka.connect.file.FileStreamSinkConnector, you can either specify this full name,  or "
                'use "FileStreamSink" or "FileStreamSinkConnector" to make the configuration a bit shorter'),
    _common.version(3, "connector", _MEDIUM, "MEDIUM"),
    _common.key(4, "tasks.max", Type.INT, 1, _HIGH, "SHORT", "Tasks max",
                "Maximum number of tasks to use for this connector.", at_least(1)),
    _common.key(5, "tasks.max.enforce", Type.BOOLEAN, True, _LOW, "SHORT", "Enforce tasks max",
                "(Deprecated) Whether to enforce that the tasks.max property is respected by the connector. By "
                "default, connectors that generate too many tasks will fail, and existing sets of tasks that "
                "exceed the tasks.max property will also be failed. If this property is set to false, then "
                "connectors will be allowed to generate more than the maximum number of tasks, and existing sets "
                "of tasks that exceed the tasks.max property will be allowed to run. This property is deprecated "
                "and will be removed in an upcoming major release."),
)  # fmt: skip
_CONVERTER_KEYS = (
    _common.key(6, "key.converter", Type.CLASS, None, _LOW, "SHORT", "Key converter class",
                "Converter class used to convert between Kafka Connect format and the serialized form that is "
                "written to Kafka. This controls the format of the keys in messages written to or read from Kafka, "
                "and since this is independent of connectors it allows any connector to work with any "
                "serialization format. Examples of common formats include JSON and Avro.", _CONVERTER),
    _common.version(7, "key converter", _LOW, "SHORT"),
    _common.key(8, "value.converter", Type.CLASS, None, _LOW, "SHORT", "Value converter class",
                "Converter class used to convert between Kafka Connect format and the serialized form that is "
                "written to Kafka. This controls the format of the values in messages written to or read from "
                "Kafka, and since this is independent of connectors it allows any connector to work with any "
                "serialization format. Examples of common formats include JSON and Avro.", _CONVERTER),
    _common.version(9, "value converter", _LOW, "SHORT"),
    _common.key(10, "header.converter", Type.CLASS, None, _LOW, "SHORT", "Header converter class",
                "HeaderConverter class used to convert between Kafka Connect format and the serialized form that "
                "is written to Kafka. This controls the format of the header values in messages written to or read "
                "from Kafka, and since this is independent of connectors it allows any connector to work with any "
                "serialization format. Examples of common formats include JSON and Avro. By default, the "
                "SimpleHeaderConverter is used to serialize header values to strings and deserialize them by "
                "inferring the schemas.", _HEADER_CONVERTER),
    _common.version(11, "header converter", _LOW, "SHORT"),
)  # fmt: skip
_CHAIN_KEYS = (
    _Group("Transforms").key(12, "transforms", Type.LIST, [], _LOW, "LONG", "Transforms",
                             "Aliases for the transformations to be applied to records.",
                             unique_aliases("transformation aliases")),
    _Group("Predicates").key(13, "predicates", Type.LIST, [], _LOW, "LONG", "Predicates",
                             "Aliases for the predicates used by transformations.",
                             unique_aliases("predicate aliases")),
    _common.key(14, "config.action.reload", Type.STRING, "restart", _LOW, "MEDIUM", "Reload Action",
                "The action that Connect should take on the connector when changes in external configuration "
                "providers result in a change in the connector's configuration properties. A value of 'none' "
                "indicates that Connect will do nothing. A value of 'restart' indicates that Connect should "
                "restart/reload the connector with the updated configuration properties.The restart may actually "
                "be scheduled in the future if the external configuration provider indicates that a configuration "
                "value will expire in the future.", one_of("none", "restart")),
)  # fmt: skip
_ERROR_KEYS = (
    _errors.key(1, "errors.retry.timeout", Type.LONG, 0, _MEDIUM, "MEDIUM", "Retry Timeout for Errors",
                "The maximum duration in milliseconds that a failed operation will be reattempted. The default is "
                "0, which means no retries will be attempted. Use -1 for infinite retries."),
    _errors.key(2, "errors.retry.delay.max.ms", Type.LONG, 60_000, _MEDIUM, "MEDIUM",
                "Maximum Delay Between Retries for Errors",
                "The maximum duration in milliseconds between consecutive retry attempts. Jitter will be added to "
                "the delay once this limit is reached to prevent thundering herd issues."),
    _errors.key(3, "errors.tolerance", Type.STRING, "none", _MEDIUM, "SHORT", "Error Tolerance",
                "Behavior for tolerating errors during connector operation. 'none' is the default value and "
                "signals that any error will result in an immediate connector task failure; 'all' changes the "
                "behavior to skip over problematic records.", one_of("none", "all")),
    _errors.key(4, "errors.log.enable", Type.BOOLEAN, False, _MEDIUM, "SHORT", "Log Errors",
                "If true, write each error and the details of the failed operation and problematic record to the "
                "Connect application log. This is 'false' by default, so that only errors that are not tolerated "
                "are reported."),
    _errors.key(5, "errors.log.include.messages", Type.BOOLEAN, False, _MEDIUM, "SHORT", "Log Error Details",
                "Whether to include in the log the Connect record that resulted in a failure. For sink records, "
                "the topic, partition, offset, and timestamp will be logged. For source records, the key and value "
                "(and their schemas), all headers, and the timestamp, Kafka topic, Kafka partition, source "
                "partition, and source offset will be logged. This is 'false' by default, which will prevent "
                "record keys, values, and headers from being written to log files."),
)  # fmt: skip
_SINK_KEYS = (
    _common.key(4, "topics", Type.LIST, [], _HIGH, "LONG", "Topics",
                "List of topics to consume, separated by commas", distinct_values(empty_allowed=True)),
    _common.key(4, "topics.regex", Type.STRING, "", _HIGH, "LONG", "Topics regex",
                "Regular expression giving topics to consume. Under the hood, the regex is compiled to a "
                "<code>java.util.regex.Pattern</code>. Only one of topics or topics.regex should be specified.",
                regex()),
)  # fmt: skip
_DEAD_LETTER_KEYS = (
    _errors.key(6, "errors.deadletterqueue.topic.name", Type.STRING, "", _MEDIUM, "MEDIUM",
                "Dead Letter Queue Topic Name",
                "The name of the topic to be used as the dead letter queue (DLQ) for messages that result in an "
                "error when processed by this sink connector, or its transformations or converters. The topic name "
                "is blank by default, which means that no messages are to be recorded in the DLQ."),
    _errors.key(7, "errors.deadletterqueue.topic.replication.factor", Type.SHORT, 3, _MEDIUM, "MEDIUM",
                "Dead Letter Queue Topic Replication Factor",
                "Replication factor used to create the dead letter queue topic when it doesn't already exist."),
    _errors.key(8, "errors.deadletterqueue.context.headers.enable", Type.BOOLEAN, False, _MEDIUM, "MEDIUM",
                "Enable Error Context Headers",
                "If true, add headers containing error context to the messages written to the dead letter queue. "
                "To avoid clashing with headers from the original record, all error context header keys, all error "
                "context header keys will start with <code>__connect.errors.</code>"),
)  # fmt: skip
_SOURCE_KEYS = (
    _creation.key(1, "topic.creation.groups", Type.LIST, [], _LOW, "LONG", "Topic Creation Groups",
                  "Groups of configurations for topics created by source connectors",
                  unique_aliases("topic creation groups")),
    _once.key(2, "exactly.once.support", Type.STRING, "requested", _MEDIUM, "SHORT", "Exactly once support",
              'Permitted values are requested, required. If set to "required", forces a preflight check for the '
              "connector to ensure that it can provide exactly-once semantics with the given configuration. Some "
              "connectors may be capable of providing exactly-once semantics but not signal to Connect that they "
              "support this; in that case, documentation for the connector should be consulted carefully before "
              'creating it, and the value for this property should be set to "requested". Additionally, if the '
              'value is set to "required" but the worker that performs preflight validation does not have '
              "exactly-once support enabled for source connectors, requests to create or validate the connector "
              "will fail.", one_of_ignoring_case("REQUIRED", "REQUESTED")),
    _once.key(3, "transaction.boundary", Type.STRING, "poll", _MEDIUM, "SHORT", "Transaction Boundary",
              "Permitted values are: poll, interval, connector. If set to 'poll', a new producer transaction will "
              "be started and committed for every batch of records that each task from this connector provides to "
              "Connect. If set to 'connector', relies on connector-defined transaction boundaries; note that not "
              "all connectors are capable of defining their own transaction boundaries, and in that case, attempts "
              "to instantiate a connector with this value will fail. Finally, if set to 'interval', commits "
              "transactions only after a user-defined time interval has passed.",
              one_of_ignoring_case("INTERVAL", "POLL", "CONNECTOR")),
    _once.key(4, "transaction.boundary.interval.ms", Type.LONG, None, _LOW, "SHORT", "Transaction boundary interval",
              "If 'transaction.boundary' is set to 'interval', determines the interval for producer transaction "
              "commits by connector tasks. If unset, defaults to the value of the worker-level "
              "'offset.flush.interval.ms' property. It has no effect if a different transaction.boundary is "
              "specified.", optional_at_least(0)),
    _offsets.key(1, "offsets.storage.topic", Type.STRING, None, _LOW, "LONG", "Offsets topic",
                 "The name of a separate offsets topic to use for this connector. If empty or not specified, the "
                 "worker’s global offsets topic name will be used. If specified, the offsets topic will be created "
                 "if it does not already exist on the Kafka cluster targeted by this connector (which may be "
                 "different from the one used for the worker's global offsets topic if the bootstrap.servers "
                 "property of the connector's producer has been overridden from the worker's). Only applicable in "
                 "distributed mode; in standalone mode, setting this property will have no effect.",
                 non_empty_string()),
)  # fmt: skip

COMMON = ConfigDef(*_IDENTITY_KEYS, *_CONVERTER_KEYS, *_CHAIN_KEYS, *_ERROR_KEYS)
"""Keys of every connector (Java: ConnectorConfig)."""
SINK = COMMON.extended(*_SINK_KEYS, *_DEAD_LETTER_KEYS)
"""Keys of every sink connector (Java: SinkConnectorConfig)."""
SOURCE = COMMON.extended(*_SOURCE_KEYS)
"""Keys of every source connector (Java: SourceConnectorConfig)."""
DEAD_LETTERS = ConfigDef(*_DEAD_LETTER_KEYS)
"""Keys for the dead letters of sources: Connect has dead letters of sinks only, and no such keys for sources."""
ERRORS = ConfigDef(*_ERROR_KEYS, *_DEAD_LETTER_KEYS)
"""Keys for the handling of a failed record."""
_BROKERS = "not larger than the number of brokers in the Kafka cluster"
_REPLICAS = positive_or_broker_default(
    f"Replication factor must be positive and {_BROKERS}", f"Positive number {_BROKERS}"
)
_PARTITIONS = positive_or_broker_default("Number of partitions must be positive", "Positive number")


def group_names(config: RawConfig) -> tuple[str, ...]:
    """The topic creation groups other than default, in order. Listing default has no effect, as in Connect."""
    listed = (name.strip() for name in str(config.get("topic.creation.groups") or "").split(","))
    return tuple(dict.fromkeys(name for name in listed if name and name != "default"))


def topic_creation(groups: Sequence[str]) -> ConfigDef:
    """Keys for the creation of topics by sources (KIP-158): for the default group, whose values apply where another
    group has none, and for the named groups. Connect checks these keys only when a task starts, and then requires
    partitions and replication factor of the default group; here the broker's defaults apply when they are left out.
    """
    keys: list[ConfigKey] = []
    for group in ("default", *groups):
        prefix = f"topic.creation.{group}."
        whose, unsaid = ("topics", -1) if group == "default" else (f"topics of the group {group}", None)
        keys += [
            ConfigKey(prefix + "replication.factor", Type.SHORT, unsaid, Importance.LOW,
                      f"The replication factor of {whose} that are created; -1 takes the broker's default.", _REPLICAS),
            ConfigKey(prefix + "partitions", Type.INT, unsaid, Importance.LOW,
                      f"The number of partitions of {whose} that are created; -1 takes the broker's default.",
                      _PARTITIONS),
        ]  # fmt: skip
        if group != "default":  # the default group has all topics of no other group; it needs no patterns
            for name, what in (("include", "of the group"), ("exclude", "excluded from the group, even if included")):
                keys.append(ConfigKey(prefix + name, Type.LIST, [], Importance.LOW,
                                      f"Regular expressions of topics that are {what}.", regexes()))  # fmt: skip
    return ConfigDef(*keys)


HERDMESH = ConfigDef(
    _herdmesh.key(1, "herdmesh.linger.ms", Type.LONG, 5_000, _LOW, "SHORT", "Linger",
                  "How long a task waits for records before it goes idle, in milliseconds.", at_least(0)),
    _herdmesh.key(2, "herdmesh.trigger", Type.STRING, "available", _LOW, "SHORT", "Trigger",
                  "available: a task without records goes idle. continuous: it never does.",
                  one_of("available", "continuous")),
    _herdmesh.key(3, "herdmesh.offsets.missing", Type.STRING, "fail", _LOW, "SHORT", "Missing offsets",
                  "Behavior when committed offsets no longer exist: fail, or reset to the beginning.",
                  one_of("fail", "reset")),
    _herdmesh.key(4, "herdmesh.restart.enabled", Type.BOOLEAN, None, _LOW, "SHORT", "Restart when failed",
                  "Whether failed tasks are restarted automatically; default: the herder's setting."),
    _herdmesh.key(5, "herdmesh.restart.attempts.max", Type.INT, None, _LOW, "SHORT", "Restarts",
                  "Maximum number of restarts within the window, after which a task stays FAILED; default: the "
                  "herder's setting.",
                  optional_between(1, 1_000)),
    _herdmesh.key(6, "herdmesh.restart.window.ms", Type.LONG, None, _LOW, "SHORT", "Restart window",
                  "The window in which restarts are counted, in milliseconds; default: the herder's setting.",
                  optional_at_least(1_000)),
    _herdmesh.key(7, "herdmesh.restart.backoff.ms", Type.LONG, None, _LOW, "SHORT", "Restart backoff",
                  "Time before the first restart, in milliseconds; doubles each time; default: the herder's setting.",
                  optional_at_least(1)),
    _herdmesh.key(8, "herdmesh.restart.backoff.max.ms", Type.LONG, None, _LOW, "SHORT", "Longest restart backoff",
                  "Maximum time before a restart, in milliseconds; default: the herder's setting.",
                  optional_at_least(1)),
    _herdmesh.key(9, "herdmesh.rate.records.per.second", Type.LONG, None, _LOW, "SHORT", "Records per second",
                  "Maximum number of records per second that all tasks of the connector, on all workers, read (sinks) "
                  "or poll (sources); default: no limit.", optional_at_least(1)),
    _herdmesh.key(10, "herdmesh.rate.bytes.per.second", Type.LONG, None, _LOW, "SHORT", "Bytes per second",
                  "Maximum number of bytes per second, like herdmesh.rate.records.per.second, of keys and values as "
                  "stored in Kafka; default: no limit.", optional_at_least(1)),
    _herdmesh.key(11, "herdmesh.transaction.max.bytes", Type.LONG, None, _LOW, "SHORT", "Bytes of a transaction",
                  "Bytes of keys and values after which a source task commits its transaction early; records of one "
                  "poll stay together. Default: no limit.", optional_at_least(1)),
    _herdmesh.key(12, "herdmesh.memory.max", Type.STRING, None, _LOW, "SHORT", "Memory of a task",
                  "Maximum memory of a task's process, such as 512MB; a process that exceeds it is killed and its task "
                  "is FAILED. Default: the worker's setting.", optional_size(MEMORY_MIN_BYTES)),
    _herdmesh.key(13, ISOLATION, Type.STRING, SHARED, _LOW, "SHORT", "Isolation",
                  "shared: each run of a task has a process for itself, which another run may use afterwards if the "
                  "connector allows it. process: each run has a new process. application: as process, under a Spark "
                  "application of the connector, one on each worker that has tasks of it.",
                  one_of(SHARED, PROCESS, APPLICATION)),
    _herdmesh.key(14, GUARANTEE, Type.STRING, EXACTLY_ONCE, _LOW, "SHORT", "Delivery guarantee",
                  "exactly_once: a source's records and their offsets share a transaction. at_least_once: its records "
                  "are outside of transactions and visible at once; after a crash some may be duplicated, none is "
                  "lost.",
                  one_of(EXACTLY_ONCE, AT_LEAST_ONCE)),
)  # fmt: skip
"""Herdmesh's own keys."""
