"""Settings of the config store: from environment (`HERDMESH_<NAME>`) and flags (`--<name>`), read once at start.

Owns the names, defaults and meaning of each setting, and the values derived from them (topic names, identities).
`herdmesh.rpc.settings` reads and shows them.

Invariant: the identities derived here are Connect's own, so that a Java leader and this store fence each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, SecretStr, field_validator

from herdmesh.connect.java import DAY_MS
from herdmesh.rpc.settings import TOPIC_NAME_MAX, ServiceSettings, name_value_pairs, topic_name
from herdmesh.topicstore import TopicSettings

_FOR_EVER = -1
_AUDIT = "-audit"
#: Outcomes of requests are kept for a day (`state.requests.KEPT_MS`); a writer that takes over reads them from the
#: audit topic.
_AUDIT_RETENTION_MS_MIN = 2 * DAY_MS


class ConfigStoreSettings(ServiceSettings):
    """All settings of one config store process. Replicas of one store differ only in `listen`."""

    listen: str = Field(default="127.0.0.1:7201", description="host:port to serve gRPC on; port 0 = any free port")
    bootstrap_servers: str = Field(default="127.0.0.1:9092", description="Kafka, host:port,host:port")
    group_id: str = Field(default="connect-cluster", min_length=1, description="Connect's group.id")
    config_storage_topic: str = Field(default="connect-configs", min_length=1, description="the config topic")
    config_storage_replication_factor: int = Field(
        default=3, ge=-1, description="replicas of topics that this store creates; -1 = the broker's default"
    )
    config_storage_topic_configs: str = Field(
        default="", description="further settings of a topic this store creates: name=value,name=value"
    )
    config_audit_retention_ms: int = Field(
        default=30 * DAY_MS,
        description="how long history can be read and restored from, in ms, of an audit topic this store creates; "
        "at least 2 days, -1 = for ever",
    )
    election_session_timeout_ms: int = Field(
        default=6_000,
        ge=1_000,
        description="how long a writer may be silent before another takes over, in ms; the broker's "
        "group.min.session.timeout.ms (default 6000) is the minimum",
    )
    memory: bool = Field(default=False, description="keep everything in this process; for tests, nothing survives it")

    kafka_client_configs: SecretStr = Field(
        default=SecretStr(""),
        description="settings of every Kafka client, such as security.protocol: name=value,name=value",
    )

    @field_validator("config_storage_topic_configs", "kafka_client_configs")
    @classmethod
    def _pairs(cls, value: str | SecretStr) -> str | SecretStr:
        name_value_pairs(value.get_secret_value() if isinstance(value, SecretStr) else value)
        return value

    @field_validator("config_storage_topic")
    @classmethod
    def _named(cls, value: str) -> str:
        return topic_name(value, TOPIC_NAME_MAX - len(_AUDIT))

    @field_validator("config_audit_retention_ms")
    @classmethod
    def _long_enough(cls, value: int) -> int:
        if value < _AUDIT_RETENTION_MS_MIN and value != _FOR_EVER:
            raise ValueError(f"must be at least {_AUDIT_RETENTION_MS_MIN}, or {_FOR_EVER} for ever")
        return value

    @property
    def client_configs(self) -> Mapping[str, str]:
        """Configs for Kafka clients; may hold secrets."""
        return name_value_pairs(self.kafka_client_configs.get_secret_value())

    @property
    def audit_topic(self) -> str:
        """Name of the topic of audit records (caller, request, outcome), written in the same transactions."""
        return f"{self.config_storage_topic}{_AUDIT}"

    def topic_settings(self) -> TopicSettings:
        """The store's topic and the identities of its clients."""
        return TopicSettings(
            topic=self.config_storage_topic,
            transactional_id=f"connect-cluster-{self.group_id}",
            election_group=f"herdmesh-config-store-{self.group_id}",
            bootstrap_servers=self.bootstrap_servers,
            replication_factor=self.config_storage_replication_factor,
            topic_configs=name_value_pairs(self.config_storage_topic_configs),
            audit_topic=self.audit_topic,
            audit_topic_configs={"retention.ms": str(self.config_audit_retention_ms)},
            client_configs=self.client_configs,
            client_id_base=f"herdmesh-config-store-{self.group_id}",
            session_timeout_ms=self.election_session_timeout_ms,
        )
