"""The properties of a Connect worker (4.3.1), and what is said of one that neither Connect nor Herdmesh knows.

Owns the names only; which of them have an effect is for who reads them. Logins and encryption: `client_security`.
"""

from __future__ import annotations

from collections.abc import Iterable

from herdmesh.connect.client_security import is_access
from herdmesh.connect.config import FieldViolation
from herdmesh.connect.unknown_keys import unknown

#: As DistributedConfig, StandaloneConfig and RestServerConfig define them.
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
_PREFIXES = (
    *("key.converter.", "value.converter.", "header.converter.", "internal.key.converter", "internal.value.converter"),
    *("config.providers.", "admin.", "consumer.", "producer.", "listeners.https.", "metrics.context."),
    *("config.storage.", "status.storage.", "offset.storage.", "ssl.", "sasl.", "herdmesh."),
)
"""Of names without end; what is below the clients' is judged by `client_settings`."""


def is_known(name: str) -> bool:
    """Whether Connect or Herdmesh has such a property of a worker."""
    return name in WORKER_KEYS or name.startswith(_PREFIXES) or is_access(name)


def unknown_properties(names: Iterable[str]) -> list[FieldViolation]:
    """A warning for each property that nobody knows, with the one that may be meant."""
    why = "neither Connect nor Herdmesh knows this property"
    return [unknown(name, why, WORKER_KEYS) for name in names if not is_known(name)]
