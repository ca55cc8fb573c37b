"""The configuration keys every connector has: Connect's common, sink and source keys, and ours.

Owns the tables only (reference configs 5; types, defaults, groups and orders as in Connect 4.3.1). Rules between keys:
`connector_config`.

Invariant: Connect's keys equal the ones the real classes declare (golden configdef vectors).
"""

from __future__ import annotations

from typing import Any

from herdmesh.connect.config import REQUIRED, ConfigDef, ConfigKey, Importance, Type, Validator
from herdmesh.connect.validators import (
    at_least,
    distinct_values,
    non_empty_string,
    non_empty_without_control_characters,
    one_of,
    one_of_ignoring_case,
    optional_at_least,
    optional_between,
    regex,
    unique_aliases,
)

_CONVERTER = Validator(
    "A concrete subclass of org.apache.kafka.connect.storage.Converter, A class with a public, no-argument constructor",
    lambda _field, _value: None,  # whether the class exists is checked where it is made: `chain_config`
)
_HEADER_CONVERTER = Validator(_CONVERTER.text.replace("storage.Converter", "storage.HeaderConverter"), _CONVERTER.check)


class _Group:
    """Makes keys of one group."""

    def __init__(self, name: str) -> None:
        self._name = name

    def key(
        self, order: int, name: str, kind: Type, default: Any, importance: Importance, width: str, title: str,
        doc: str, validator: Validator | None = None,
    ) -> ConfigKey:  # fmt: skip
        return ConfigKey(name, kind, default, importance, doc, validator, self._name, order, width, title)

    def version(self, order: int, name: str, importance: Importance, width: str, title: str) -> ConfigKey:
        return self.key(order, name, Type.STRING, None, importance, width, title, "Version of the plugin to use.")


_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_common, _errors = _Group("Common"), _Group("Error Handling")
_creation, _once = _Group("Topic Creation"), _Group("Exactly Once Support")
_offsets, _herdmesh = _Group("offsets.topic"), _Group("Herdmesh")

_IDENTITY_KEYS = (
    _common.key(1, "name", Type.STRING, REQUIRED, _HIGH, "MEDIUM", "Connector name",
                "Globally unique name to use for this connector.", non_empty_without_control_characters()),
    _common.key(2, "connector.class", Type.STRING, REQUIRED, _HIGH, "LONG", "Connector class",
                "Name or alias of the class for this connector."),
    _common.version(3, "connector.plugin.version", _MEDIUM, "MEDIUM", "Connector version"),
    _common.key(4, "tasks.max", Type.INT, 1, _HIGH, "SHORT", "Tasks max",
                "Maximum number of tasks to use for this connector.", at_least(1)),
    _common.key(5, "tasks.max.enforce", Type.BOOLEAN, True, _LOW, "SHORT", "Enforce tasks max",
                "Whether a connector that makes more tasks than tasks.max fails."),
)  # fmt: skip
_CONVERTER_KEYS = (
    _common.key(6, "key.converter", Type.CLASS, None, _LOW, "SHORT", "Key converter class",
                "Converter between record keys and the bytes in Kafka.", _CONVERTER),
    _common.version(7, "key.converter.plugin.version", _LOW, "SHORT", "Key converter version"),
    _common.key(8, "value.converter", Type.CLASS, None, _LOW, "SHORT", "Value converter class",
                "Converter between record values and the bytes in Kafka.", _CONVERTER),
    _common.version(9, "value.converter.plugin.version", _LOW, "SHORT", "Value converter version"),
    _common.key(10, "header.converter", Type.CLASS, None, _LOW, "SHORT", "Header converter class",
                "Converter between record headers and the bytes in Kafka.", _HEADER_CONVERTER),
    _common.version(11, "header.converter.plugin.version", _LOW, "SHORT", "Header converter version"),
)  # fmt: skip
_CHAIN_KEYS = (
    _Group("Transforms").key(12, "transforms", Type.LIST, [], _LOW, "LONG", "Transforms",
                             "Aliases for the transformations to be applied to records.",
                             unique_aliases("transformation aliases")),
    _Group("Predicates").key(13, "predicates", Type.LIST, [], _LOW, "LONG", "Predicates",
                             "Aliases for the predicates of transformations.", unique_aliases("predicate aliases")),
    _common.key(14, "config.action.reload", Type.STRING, "restart", _LOW, "MEDIUM", "Reload Action",
                "What to do when a config provider says that a value has changed.", one_of("none", "restart")),
)  # fmt: skip
_ERROR_KEYS = (
    _errors.key(1, "errors.retry.timeout", Type.LONG, 0, _MEDIUM, "MEDIUM", "Retry Timeout for Errors",
                "How long to retry a failed operation, in milliseconds; 0 = not, -1 = for ever."),
    _errors.key(2, "errors.retry.delay.max.ms", Type.LONG, 60_000, _MEDIUM, "MEDIUM",
                "Maximum Delay Between Retries for Errors", "The longest wait between two retries, in milliseconds."),
    _errors.key(3, "errors.tolerance", Type.STRING, "none", _MEDIUM, "SHORT", "Error Tolerance",
                "none: a bad record fails the task. all: it is skipped.", one_of("none", "all")),
    _errors.key(4, "errors.log.enable", Type.BOOLEAN, False, _MEDIUM, "SHORT", "Log Errors",
                "Log each error and the record it is about."),
    _errors.key(5, "errors.log.include.messages", Type.BOOLEAN, False, _MEDIUM, "SHORT", "Log Error Details",
                "Include the record itself in the log."),
)  # fmt: skip
_SINK_KEYS = (
    _common.key(4, "topics", Type.LIST, [], _HIGH, "LONG", "Topics",
                "List of topics to consume, separated by commas.", distinct_values(empty_allowed=True)),
    _common.key(4, "topics.regex", Type.STRING, "", _HIGH, "LONG", "Topics regex",
                "Regular expression giving topics to consume; instead of topics.", regex()),
    _errors.key(6, "errors.deadletterqueue.topic.name", Type.STRING, "", _MEDIUM, "MEDIUM",
                "Dead Letter Queue Topic Name", "Topic for records that could not be processed; empty = none."),
    _errors.key(7, "errors.deadletterqueue.topic.replication.factor", Type.SHORT, 3, _MEDIUM, "MEDIUM",
                "Dead Letter Queue Topic Replication Factor", "Used when that topic has to be created."),
    _errors.key(8, "errors.deadletterqueue.context.headers.enable", Type.BOOLEAN, False, _MEDIUM, "MEDIUM",
                "Enable Error Context Headers", "Add headers that tell what went wrong."),
)  # fmt: skip
_SOURCE_KEYS = (
    _creation.key(1, "topic.creation.groups", Type.LIST, [], _LOW, "LONG", "Topic Creation Groups",
                  "Groups of configurations for topics that are created.", unique_aliases("topic creation groups")),
    _once.key(2, "exactly.once.support", Type.STRING, "requested", _MEDIUM, "SHORT", "Exactly once support",
              "requested or required.", one_of_ignoring_case("REQUIRED", "REQUESTED")),
    _once.key(3, "transaction.boundary", Type.STRING, "poll", _MEDIUM, "SHORT", "Transaction Boundary",
              "When a transaction of source records ends.", one_of_ignoring_case("INTERVAL", "POLL", "CONNECTOR")),
    _once.key(4, "transaction.boundary.interval.ms", Type.LONG, None, _LOW, "SHORT", "Transaction boundary interval",
              "Milliseconds between commits when the boundary is interval.", optional_at_least(0)),
    _offsets.key(1, "offsets.storage.topic", Type.STRING, None, _LOW, "LONG", "Offsets topic",
                 "A topic of its own for this connector's source offsets.", non_empty_string()),
)  # fmt: skip

COMMON = ConfigDef(*_IDENTITY_KEYS, *_CONVERTER_KEYS, *_CHAIN_KEYS, *_ERROR_KEYS)
"""Keys of every connector (Java: ConnectorConfig)."""
SINK = COMMON.extended(*_SINK_KEYS)
"""Keys of every sink connector (Java: SinkConnectorConfig)."""
SOURCE = COMMON.extended(*_SOURCE_KEYS)
"""Keys of every source connector (Java: SourceConnectorConfig)."""
HERDMESH = ConfigDef(
    _herdmesh.key(1, "herdmesh.linger.ms", Type.LONG, 5_000, _LOW, "SHORT", "Linger",
                  "How long a run waits for records before its task goes idle, in milliseconds.", at_least(0)),
    _herdmesh.key(2, "herdmesh.trigger", Type.STRING, "available", _LOW, "SHORT", "Trigger",
                  "available: a task without records goes idle. continuous: it never does.",
                  one_of("available", "continuous")),
    _herdmesh.key(3, "herdmesh.offsets.missing", Type.STRING, "fail", _LOW, "SHORT", "Missing offsets",
                  "What to do when committed offsets are gone: fail, or reset to the beginning.",
                  one_of("fail", "reset")),
    _herdmesh.key(4, "herdmesh.restart.enabled", Type.BOOLEAN, None, _LOW, "SHORT", "Restart when failed",
                  "Whether tasks that failed are restarted by themselves; default: the herder's setting."),
    _herdmesh.key(5, "herdmesh.restart.attempts.max", Type.INT, None, _LOW, "SHORT", "Restarts",
                  "So many restarts within the window, then a task stays FAILED; default: the herder's setting.",
                  optional_between(1, 1_000)),
    _herdmesh.key(6, "herdmesh.restart.window.ms", Type.LONG, None, _LOW, "SHORT", "Restart window",
                  "The window in which restarts are counted, in milliseconds; default: the herder's setting.",
                  optional_at_least(1_000)),
    _herdmesh.key(7, "herdmesh.restart.backoff.ms", Type.LONG, None, _LOW, "SHORT", "Restart backoff",
                  "Time before the first restart, in milliseconds; doubles each time; default: the herder's setting.",
                  optional_at_least(1)),
    _herdmesh.key(8, "herdmesh.restart.backoff.max.ms", Type.LONG, None, _LOW, "SHORT", "Longest restart backoff",
                  "Longest time before a restart, in milliseconds; default: the herder's setting.",
                  optional_at_least(1)),
)  # fmt: skip
"""Keys of our own."""
