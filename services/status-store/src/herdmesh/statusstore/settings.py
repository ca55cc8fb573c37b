"""Settings of the status store, from flags and HERDMESH_* (see `herdmesh.rpc.settings`).

Owns names, defaults and units, and the topic settings made from them. Invariant: frozen; read once in `__main__`.
"""

from __future__ import annotations

from pydantic import Field, SecretStr, field_validator

from herdmesh.rpc.settings import ServiceSettings, name_value_pairs, topic_name
from herdmesh.topicstore.settings import TopicSettings


class StatusStoreSettings(ServiceSettings):
    """Settings of one status store replica."""

    listen: str = Field(default="127.0.0.1:7202", description="host:port to serve gRPC on; port 0 = any free port")
    bootstrap_servers: str = Field(default="127.0.0.1:9092", description="Kafka brokers, host:port, comma separated")
    group_id: str = Field(default="connect-cluster", min_length=1, description="Connect's group.id: names the cluster")
    status_storage_topic: str = Field(default="connect-status", description="the status topic")
    status_storage_partitions: int = Field(default=5, ge=1, description="partitions of the status topic")
    status_storage_replication_factor: int = Field(
        default=3,
        ge=-1,
        description="replicas of the status topic when this store creates it; -1 = the broker's default",
    )
    status_storage_topic_configs: str = Field(
        default="", description="further settings of a topic this store creates: name=value,name=value"
    )
    lease_ms: int = Field(default=6000, ge=500, le=60_000, description="lease of a worker that requests none, in ms")
    peers: str = Field(
        default="",
        description="host:port of all replicas, comma separated; a replica relays the writer's leases from there",
    )
    kafka_client_configs: SecretStr = Field(
        default=SecretStr(""),
        description="settings of every Kafka client, such as security.protocol: name=value,name=value",
    )
    election_session_timeout_ms: int = Field(
        default=6_000,
        ge=1_000,
        description="how long a writer may be silent before another takes over, in ms; the broker's "
        "group.min.session.timeout.ms (default 6000) is the minimum",
    )
    memory: bool = Field(default=False, description="keep everything in this process and nothing in Kafka")

    @field_validator("status_storage_topic_configs", "kafka_client_configs")
    @classmethod
    def _pairs(cls, value: str | SecretStr) -> str | SecretStr:
        name_value_pairs(value.get_secret_value() if isinstance(value, SecretStr) else value)
        return value

    @field_validator("status_storage_topic")
    @classmethod
    def _named(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("Must specify topic for connector status.")  # Connect's own text
        return topic_name(value)

    def topic_settings(self) -> TopicSettings:
        """The topic, and the identities that all replicas of this mesh share."""
        return TopicSettings(
            topic=self.status_storage_topic,
            transactional_id=f"herdmesh-status-{self.group_id}",
            election_group=f"herdmesh-status-store-{self.group_id}",
            partitions=self.status_storage_partitions,
            bootstrap_servers=self.bootstrap_servers,
            replication_factor=self.status_storage_replication_factor,
            topic_configs=name_value_pairs(self.status_storage_topic_configs),
            client_configs=name_value_pairs(self.kafka_client_configs.get_secret_value()),
            session_timeout_ms=self.election_session_timeout_ms,
            client_id_base=f"herdmesh-status-store-{self.listen.replace(':', '-')}",
        )
