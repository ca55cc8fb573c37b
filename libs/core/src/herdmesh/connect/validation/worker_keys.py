"""Worker properties of Connect 4.3.1: the effect of each on a worker, and warnings about unknown ones.

Owns the names and the place where each is set in Herdmesh; docs/reference/known-keys.md is generated from it. It also
checks the properties file of `herd run`. Logins and encryption: `clients.client_security`.

Invariant: a property that Connect has is read by a worker, or is in `NOT_READ`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from herdmesh.connect.clients import is_access
from herdmesh.connect.config import FieldViolation
from herdmesh.connect.validation.unknown_keys import unknown

#: As in DistributedConfig, StandaloneConfig and RestServerConfig.
WORKER_KEYS = frozenset((
    "access.control.allow.methods", "access.control.allow.origin", "admin.listeners", "bootstrap.servers",
    "client.dns.lookup", "client.id", "config.providers", "config.storage.replication.factor",
    "config.storage.topic", "connect.protocol", "connections.max.idle.ms",
    "connector.client.config.override.allowlist", "connector.client.config.override.policy",
    "exactly.once.source.support", "group.id", "header.converter", "header.converter.plugin.version",
    "heartbeat.interval.ms", "inter.worker.key.generation.algorithm", "inter.worker.key.size",
    "inter.worker.key.ttl.ms", "inter.worker.signature.algorithm", "inter.worker.verification.algorithms",
    "key.converter", "key.converter.plugin.version", "listeners", "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy", "metric.reporters",
    "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms", "offset.flush.interval.ms",
    "offset.flush.timeout.ms", "offset.storage.file.filename", "offset.storage.partitions",
    "offset.storage.replication.factor", "offset.storage.topic", "plugin.discovery", "plugin.path",
    "rebalance.timeout.ms", "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
    "request.timeout.ms", "response.http.headers.config", "rest.advertised.host.name", "rest.advertised.listener",
    "rest.advertised.port", "rest.extension.classes", "retry.backoff.max.ms", "retry.backoff.ms",
    "scheduled.rebalance.max.delay.ms", "send.buffer.bytes", "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms", "status.storage.partitions",
    "status.storage.replication.factor", "status.storage.topic", "task.shutdown.graceful.timeout.ms",
    "topic.creation.enable", "topic.tracking.allow.reset", "topic.tracking.enable", "value.converter",
    "value.converter.plugin.version", "worker.sync.timeout.ms", "worker.unsync.backoff.ms",
))  # fmt: skip
#: Read from a worker's properties, in addition to those below a prefix.
READ = frozenset((
    "config.providers", "connector.client.config.override.allowlist", "connector.client.config.override.policy",
    "exactly.once.source.support", "header.converter", "key.converter", "offset.flush.interval.ms",
    "offset.storage.file.filename", "offset.storage.partitions", "offset.storage.replication.factor",
    "topic.creation.enable", "value.converter",
))  # fmt: skip
_REST = ("services serve gRPC, and there is no REST server", "leave it out")
_GROUP = ("workers join no group: the herder places tasks, by timeouts of its own", "leave it out")
_CLIENT = ("a setting of clients is below admin., consumer. or producer.", "write it below these")
_METRICS = ("metrics are served for Prometheus", "leave it out")
_VERSION = ("there is one version of each converter, the installed one", "leave it out")
#: Reason why a worker property has no effect, and the replacement.
NOT_READ: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        (
            *("access.control.allow.methods", "access.control.allow.origin", "admin.listeners", "listeners"),
            *("response.http.headers.config", "rest.advertised.host.name", "rest.advertised.listener"),
            *("rest.advertised.port", "rest.extension.classes"),
        ),
        _REST,
    ),
    **dict.fromkeys(
        (
            *("connect.protocol", "heartbeat.interval.ms", "rebalance.timeout.ms", "worker.sync.timeout.ms"),
            *("worker.unsync.backoff.ms", "inter.worker.signature.algorithm", "inter.worker.verification.algorithms"),
        ),
        _GROUP,
    ),
    **dict.fromkeys(
        (
            *("client.dns.lookup", "client.id", "connections.max.idle.ms", "metadata.max.age.ms"),
            *("metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy", "receive.buffer.bytes"),
            *("reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms", "retry.backoff.max.ms"),
            *("retry.backoff.ms", "send.buffer.bytes", "socket.connection.setup.timeout.max.ms"),
            "socket.connection.setup.timeout.ms",
        ),
        _CLIENT,
    ),
    **dict.fromkeys(
        ("metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"), _METRICS
    ),
    **dict.fromkeys(
        ("header.converter.plugin.version", "key.converter.plugin.version", "value.converter.plugin.version"), _VERSION
    ),
    **{
        name: (f"it is a setting of {owner}", f"set {setting}")
        for name, owner, setting in (
            ("bootstrap.servers", "each service", "HERDMESH_BOOTSTRAP_SERVERS"),
            ("group.id", "each service", "HERDMESH_GROUP_ID"),
            ("config.storage.topic", "the config store and workers", "HERDMESH_CONFIG_STORAGE_TOPIC"),
            ("config.storage.replication.factor", "the config store", "HERDMESH_CONFIG_STORAGE_REPLICATION_FACTOR"),
            ("status.storage.topic", "the status store", "HERDMESH_STATUS_STORAGE_TOPIC"),
            ("status.storage.partitions", "the status store", "HERDMESH_STATUS_STORAGE_PARTITIONS"),
            ("status.storage.replication.factor", "the status store", "HERDMESH_STATUS_STORAGE_REPLICATION_FACTOR"),
            ("offset.storage.topic", "workers", "HERDMESH_OFFSET_STORAGE_TOPIC"),
            ("plugin.path", "workers", "HERDMESH_PLUGIN_PATH"),
            ("task.shutdown.graceful.timeout.ms", "workers", "HERDMESH_STOP_TIMEOUT_MS"),
            ("session.timeout.ms", "the herder", "HERDMESH_SESSION_TIMEOUT_MS"),
            ("scheduled.rebalance.max.delay.ms", "the herder", "HERDMESH_SCHEDULED_REBALANCE_MAX_DELAY_MS"),
            ("topic.tracking.enable", "the herder", "HERDMESH_TOPIC_TRACKING_ENABLE"),
            ("topic.tracking.allow.reset", "the herder", "HERDMESH_TOPIC_TRACKING_ALLOW_RESET"),
            ("inter.worker.key.generation.algorithm", "the herder", "HERDMESH_INTER_WORKER_KEY_GENERATION_ALGORITHM"),
            ("inter.worker.key.size", "the herder", "HERDMESH_INTER_WORKER_KEY_SIZE"),
            ("inter.worker.key.ttl.ms", "the herder", "HERDMESH_INTER_WORKER_KEY_TTL_MS"),
        )
    },
    "offset.flush.timeout.ms": (
        "a commit takes as long as Kafka and the target need, at most a minute",
        "leave it out",
    ),
    "plugin.discovery": ("plugins are found by the metadata that their installer wrote", "leave it out"),
}
_PREFIXES = (
    *("key.converter.", "value.converter.", "header.converter.", "internal.key.converter", "internal.value.converter"),
    *("config.providers.", "admin.", "consumer.", "producer.", "listeners.https.", "metrics.context."),
    *("config.storage.", "status.storage.", "offset.storage.", "ssl.", "sasl.", "herdmesh."),
)
"""Prefixes with any number of names; `clients.librdkafka_settings` checks those of clients."""


def is_known(name: str) -> bool:
    """True for a worker property of Connect or Herdmesh."""
    return name in WORKER_KEYS or name.startswith(_PREFIXES) or is_access(name)


def not_read(names: Iterable[str]) -> list[FieldViolation]:
    """Warnings for the properties of Connect that are not read from a worker's properties."""
    return [
        FieldViolation(name, f"{name} has no effect here: {NOT_READ[name][0]}", NOT_READ[name][1])
        for name in names
        if name in NOT_READ
    ]


def unknown_properties(names: Iterable[str]) -> list[FieldViolation]:
    """Warnings for unknown properties, each with the known property that was probably meant."""
    why = "neither Connect nor Herdmesh knows this property"
    return [unknown(name, why, WORKER_KEYS) for name in names if not is_known(name)]
