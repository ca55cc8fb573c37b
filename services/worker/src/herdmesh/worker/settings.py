"""Settings of a worker: one frozen object, read once from HERDMESH_* and flags. Owns names, defaults and units."""

from __future__ import annotations

import functools
import os
from typing import Final, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from herdmesh.connect.clients import OVERRIDE_ALLOWLIST, OVERRIDE_POLICY, client_access, policy_of, worker_warnings
from herdmesh.connect.config import FieldViolation, bytes_of, text_of_bytes
from herdmesh.connect.config_providers import ConfigProviders, Resolved
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.validation import MEMORY_MIN_BYTES, NOT_READ, not_read, unknown_properties
from herdmesh.engine.librdkafka import worker_violations
from herdmesh.rpc.settings import AdvertisedSettings, is_wildcard, name_value_pairs, topic_name

_CLIENTS = ("admin", "consumer", "producer")
_STORES: Final = "that store creates its topic, with the configs of its own setting"
_GRPC: Final = "workers serve gRPC"
_AS_CONNECT: Final = "Connect ignores it too"
#: Properties of a Connect worker (docs/reference/connect/configs.md, section 4) that have no effect here, and why.
_WITHOUT_EFFECT: Final = {
    "config.storage.": f"{_STORES} (config_storage_topic_configs)",
    "status.storage.": f"{_STORES} (status_storage_topic_configs)",
    "offset.storage.cleanup.policy": "the offsets topic is always compacted",
    "metrics.context.": "labels for all series are given where they are collected, or by OTEL_RESOURCE_ATTRIBUTES",
    "listeners.https.": _GRPC,
    "admin.listeners.https.": _GRPC,
    "internal.key.converter": _AS_CONNECT,
    "internal.value.converter": _AS_CONNECT,
}
_STANDBYS_LOCAL: Final = 2
_WARM_LOCAL: Final = 4
_REUSE_WAIT_S: Final = 30.0
"""How long a process that executed a run waits for another one, beyond the standby processes."""


def default_slots() -> int:
    """Concurrent runs: four per core, since a run mostly waits for Kafka, and at least eight (docs/design/worker.md,
    section 1).
    """
    return max(8, 4 * (os.cpu_count() or 1))


class WorkerSettings(AdvertisedSettings):
    """All settings of a worker. Times in ms."""

    listen: str = Field(default="127.0.0.1:7204", description="host:port to serve gRPC on")
    worker_id: str = Field(default="", description="name of the worker; empty = its advertised address")
    herder: str = Field(default="127.0.0.1:7203", description="herders, comma separated host:port")
    status_store: str = Field(default="127.0.0.1:7202", description="status stores, comma separated host:port")
    bootstrap_servers: str = Field(default="127.0.0.1:9092", description="Kafka brokers")
    group_id: str = Field(default="connect-cluster", description="Connect's group.id; part of every task's fence")
    config_storage_topic: str = Field(
        default="connect-configs",
        description="Connect's config topic, which a task checks when it starts; empty = no check",
    )
    offset_storage_topic: str = Field(default="connect-offsets", description="Connect's offsets topic, for sources")
    offset_storage_partitions: int = Field(
        default=25, ge=1, description="partitions of the offsets topic when it is created"
    )
    offset_storage_replication_factor: int = Field(
        default=3, ge=1, description="replicas of the offsets topic when it is created"
    )
    dead_letter_replication_factor: int = Field(
        default=3,
        ge=-1,
        description="replicas of a dead letter queue that a task creates, where its connector does not set "
        "errors.deadletterqueue.topic.replication.factor; -1 = the broker's default",
    )
    offset_storage_file: str = Field(
        default="",
        description="Connect's standalone offsets file; if set, source offsets are stored in it instead of in the "
        "topic",
    )
    offset_flush_interval_ms: int = Field(default=60_000, ge=1, description="interval at which tasks commit offsets")
    key_converter: str = Field(default="org.apache.kafka.connect.json.JsonConverter", description="default for keys")
    value_converter: str = Field(default="org.apache.kafka.connect.json.JsonConverter", description="same for values")
    connector_client_config_override_policy: str = Field(
        default="All",
        description="settings of its clients that a connector may override: All, None, Principal or Allowlist",
    )
    connector_client_config_override_allowlist: str = Field(
        default="", description="client options the policy Allowlist allows, comma separated"
    )
    worker_properties: SecretStr = Field(
        default=SecretStr(""),
        description="further properties of a Connect worker, such as consumer.fetch.min.bytes: name=value,name=value",
    )
    plugin_path: str = Field(
        default="",
        description="Connect's plugin.path: folders, comma separated, each a virtual environment with connectors, a "
        "folder of such, or a folder of those folders (docs/how-to/plugins.md)",
    )
    linger_ms: int = Field(
        default=5_000, ge=0, description="time without a record after which a run ends or becomes warm"
    )
    warm_runs_max: int = Field(
        default=-1,
        ge=-1,
        description="maximum number of warm runs, which continue without work while no task waits for a slot, so that "
        "a record "
        "after a pause is not delayed; each takes about 20 MB and less than a hundredth of a core; 0 = none; -1 = half "
        "the "
        "slots, 4 at most, and 0 with spark_master, where each would hold an executor's core. Connectors that set "
        "herdmesh.linger.ms have none",
    )
    slots: int = Field(default_factory=default_slots, ge=1, description="maximum number of concurrent runs")
    standbys: int = Field(
        default=-1,
        ge=-1,
        description="processes that wait for a task to start, each about 15 MB; 0 = none, so that each run launches "
        "its own; -1 = 2, and 0 with spark_master, where each would hold an executor's core",
    )
    share_ms: int = Field(default=2_000, ge=0, description="time that a run continues once another task waits")
    stop_timeout_ms: int = Field(default=5_000, ge=0, description="time for a run to stop before it is killed")
    stalled_ms: int = Field(
        default=30_000,
        ge=1_000,
        description="time without progress after which a run is shown as STALLED; consumer.max.poll.interval.ms ends "
        "it",
    )
    leave_timeout_ms: int = Field(
        default=10_000,
        ge=0,
        description="time for the herder to move all units to other workers before the worker stops",
    )
    watch_interval_ms: int = Field(default=150, ge=10, description="interval between checks of idle sinks' partitions")
    memory_max: str = Field(
        default="",
        description="maximum memory of a run's process, such as 512MB; empty = no limit; a connector's "
        "herdmesh.memory.max overrides it",
    )
    spark_master: str = Field(default="", description="empty = local[slots]")
    spark_driver_memory: str = Field(default="512m", description="heap of the JVM; no record passes through it")
    spark_jars: str = Field(
        default="",
        description="jars for tasks that have a Spark of their own (SparkSink, SparkJdbcSource, SparkStreamSource) or "
        "Hadoop's client (FileSink): JDBC drivers, formats, file systems; comma separated paths on every machine "
        "that executes runs",
    )
    spark_home: str = Field(
        default="",
        description="the Spark that such tasks start, where a format's jar needs an older one than the worker's: the "
        "folder with its bin and jars, on every machine that executes runs; empty = the worker's",
    )

    @field_validator("worker_properties")
    @classmethod
    def _pairs(cls, value: SecretStr) -> SecretStr:
        name_value_pairs(value.get_secret_value())
        return value

    @field_validator("offset_storage_topic")
    @classmethod
    def _named(cls, value: str) -> str:
        return topic_name(value)

    @field_validator("memory_max")
    @classmethod
    def _size(cls, value: str) -> str:
        if value and (bytes_of(value) or 0) < MEMORY_MIN_BYTES:
            raise ValueError(f"{value} is not a size of {text_of_bytes(MEMORY_MIN_BYTES)} or more, such as 512MB")
        return value

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        if self.memory_max and not self.sees_runs:
            raise ValueError("memory_max bounds runs on this machine; with spark_master bound the executors' memory")
        try:
            policy_of(self.worker_config())
            for client in _CLIENTS:
                client_access(client, self.worker_config())
        except ConfigError as error:
            raise ValueError(f"{error} ({error.fix})") from error
        if wrong := worker_violations(self.worker_config()):
            raise ValueError("; ".join(f"{one.message} ({one.fix})" for one in wrong))
        return self

    @field_validator("worker_id")
    @classmethod
    def _names_one_worker(cls, value: str) -> str:
        if ":" in value and is_wildcard(value):
            raise ValueError(
                f"{value} is the same on every host, and workers of one id evict each other: name this host"
            )
        return value

    @property
    def memory_max_bytes(self) -> int:
        """Memory limit of runs whose connector sets none; 0 = no limit."""
        return bytes_of(self.memory_max) or 0

    @property
    def sees_runs(self) -> bool:
        """True when runs are processes of this machine."""
        return not self.spark_master or self.spark_master.startswith("local")

    def access(self) -> dict[str, str]:
        """Credentials and encryption of the worker's own Kafka clients, in librdkafka's settings: as for admin clients
        in Connect, or as for connectors' clients where admin clients have no settings.
        """
        for client in _CLIENTS:
            if found := client_access(client, self.worker_config()).config:
                return dict(found)
        return {}

    def standby_count(self) -> int:
        """The number of standby processes."""
        return self.standbys if self.standbys >= 0 else 0 if self.spark_master else _STANDBYS_LOCAL

    def reuse_wait_s(self) -> float:
        """How long a process waits for another run; on a cluster each holds an executor's core, and does not wait."""
        return 0.0 if self.spark_master else _REUSE_WAIT_S

    def warm_count(self) -> int:
        """The limit of warm runs."""
        if self.warm_runs_max >= 0:
            return self.warm_runs_max
        return 0 if self.spark_master else min(_WARM_LOCAL, self.slots // 2)

    def worker_config(self) -> dict[str, str | None]:
        """Defaults that a connector's config overrides, under Connect's names."""
        return dict(_resolved(tuple(self._written().items())).config)

    def worker_secrets(self) -> frozenset[str]:
        """Values of resolved references in the worker's own properties: every user of `worker_config` must redact
        them."""
        return _resolved(tuple(self._written().items())).secrets

    def warnings(self) -> list[FieldViolation]:
        """Properties without the intended effect, and why."""
        config = self.worker_config()
        unread = [
            FieldViolation(key, f"{key} has no effect: {why}", "leave it out")
            for key in config
            for prefix, why in _WITHOUT_EFFECT.items()
            if key.startswith(prefix) and key not in NOT_READ
        ]
        written = self._properties()
        return [*worker_warnings(config), *unread, *not_read(written), *unknown_properties(written)]

    def _properties(self) -> dict[str, str]:
        return name_value_pairs(self.worker_properties.get_secret_value())

    def _written(self) -> dict[str, str | None]:
        schemas_default = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
        config: dict[str, str | None] = {
            "group.id": self.group_id,
            "key.converter": self.key_converter,
            "value.converter": self.value_converter,
            **schemas_default,
            "offset.flush.interval.ms": str(self.offset_flush_interval_ms),
            "offset.storage.partitions": str(self.offset_storage_partitions),
            "offset.storage.replication.factor": str(self.offset_storage_replication_factor),
            "errors.deadletterqueue.topic.replication.factor": str(self.dead_letter_replication_factor),
            OVERRIDE_POLICY: self.connector_client_config_override_policy,
            OVERRIDE_ALLOWLIST: self.connector_client_config_override_allowlist,
            **self._properties(),
        }
        if self.offset_storage_file:
            config["offset.storage.file.filename"] = self.offset_storage_file
        return config


@functools.lru_cache(maxsize=8)
def _resolved(config: tuple[tuple[str, str | None], ...]) -> Resolved:
    """The worker's properties with references resolved once, by providers of its own, as in Connect. Raises
    ConfigError.
    """
    providers = ConfigProviders.of(dict(config))
    try:
        return providers.resolve(dict(config))
    finally:
        providers.close()
