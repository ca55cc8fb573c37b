"""Readiness checks of a broker, a service, and a store, with the condition that keeps the store from serving.

Owns the only use of Kafka and gRPC clients in this package. Invariant: a check returns within its timeout, whether
anything listens or not.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2

from herdmesh.api.common.v1 import store_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2, config_read_service_pb2_grpc
from herdmesh.api.herder.v1 import admin_messages_pb2, connector_service_pb2_grpc
from herdmesh.api.statusstore.v1 import status_read_service_pb2, status_read_service_pb2_grpc
from herdmesh.devstack.errors import AccessUnusable
from herdmesh.rpc.enums import name_of

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

_REQUEST_TIMEOUT_S = 2.0
_SILENT = logging.getLogger("herdmesh.devstack.readiness")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def serving_cluster(
    bootstrap: str, access: Mapping[str, str] | None = None, said: Callable[[str], None] = lambda _: None
) -> str | None:
    """The id of the cluster that serves clients at `bootstrap`, or None while none does. Blocks up to 2 s.

    An open port is not enough: a KRaft broker listens while the controller still keeps it fenced, and then no metadata
    lists it. It serves when it lists itself.

    Args:
        access: settings for login and encryption, under librdkafka's names.
        said: called with the client's connection errors while no broker serves.

    Raises:
        AccessUnusable: no client can be created with this `access`.
    """
    metadata = _metadata(bootstrap, access, said)
    return metadata.cluster_id if metadata is not None else None


def broker_count(bootstrap: str, access: Mapping[str, str], said: Callable[[str], None]) -> int:
    """The number of brokers of the cluster at `bootstrap`, 0 while none serves. Arguments, bounds and errors as of
    `serving_cluster`.
    """
    metadata = _metadata(bootstrap, access, said)
    return len(metadata.brokers) if metadata is not None else 0


def _metadata(bootstrap: str, access: Mapping[str, str] | None, said: Callable[[str], None]) -> ClusterMetadata | None:
    # imported here: every command of `herd` imports this module, and few of them use Kafka's client
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    from herdmesh.kafka.logins import ready

    def on_error(error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # it follows the error that has the reason
            said(error.str())

    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 10, "error_cb": on_error}
    config |= {"reconnect.backoff.max.ms": 50, **(access or {})}
    try:
        admin = AdminClient(ready(config), logger=_SILENT)
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        raise AccessUnusable(cause.str()) from error
    try:
        metadata = admin.list_topics(timeout=_REQUEST_TIMEOUT_S)
    except KafkaException:
        admin.poll(0)
        return None
    return metadata if metadata.brokers else None


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The id of a Kafka cluster and the partitions that need attention; partitions as `topic-number`."""

    cluster_id: str
    offline_partitions: list[str]
    under_replicated_partitions: list[str]


def cluster_health(bootstrap: str, access: Mapping[str, str], timeout_s: float) -> ClusterHealth | str:
    """The health of the cluster at `bootstrap`, or the reason why no broker answered. Blocks up to `timeout_s`;
    creates no topic. Raises AccessUnusable for a client that cannot be created with this `access`.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    from herdmesh.kafka.logins import ready

    reasons: list[str] = []

    def on_error(error: KafkaError) -> None:
        reasons.append(error.str())

    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "error_cb": on_error, **access}
    try:
        admin = AdminClient(ready(config), logger=_SILENT)
    except KafkaException as error:
        raise AccessUnusable(str(error.args[0].str())) from error
    try:
        found: Any = admin.list_topics(timeout=timeout_s)
    except KafkaException as error:
        admin.poll(0)
        return reasons[0] if reasons else str(error.args[0].str())
    offline: list[str] = []
    behind: list[str] = []
    for topic in found.topics.values():
        for partition in topic.partitions.values():
            name = f"{topic.topic}-{partition.id}"
            if partition.leader < 0:
                offline.append(name)
            elif len(partition.isrs) < len(partition.replicas):
                behind.append(name)
    return ClusterHealth(str(found.cluster_id), sorted(offline), sorted(behind))


async def serves(channel: grpc.aio.Channel, timeout_s: float = 2.0) -> bool:
    """True when the gRPC server behind `channel` reports SERVING for itself as a whole."""
    # by method name: the generated health stub carries no types
    check: Callable[..., Awaitable[health_pb2.HealthCheckResponse]] = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    try:
        reply = await check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
    except grpc.aio.AioRpcError:
        return False
    return reply.status == health_pb2.HealthCheckResponse.SERVING


async def follows(channel: grpc.aio.Channel, own_address: str, timeout_s: float = 2.0) -> bool:
    """True when the herder behind `channel` names another as the leader, and that one reports SERVING."""
    ask: Callable[..., Awaitable[Any]] = connector_service_pb2_grpc.ConnectorServiceStub(channel).GetCluster
    try:
        leader_address: str = (await ask(admin_messages_pb2.GetClusterRequest(), timeout=timeout_s)).leader_address
    except grpc.aio.AioRpcError:
        return False
    if leader_address in ("", own_address):
        return False
    async with grpc.aio.insecure_channel(leader_address) as leader:
        return await serves(leader, timeout_s)


@dataclass(frozen=True, slots=True)
class StoreTrouble:
    """Reason why a store does not fully serve: the name of its condition, its own message with the fix, and whether an
    operator has to fix it.
    """

    condition: str
    message: str
    lasting: bool


_LASTING = frozenset(
    {
        store_pb2.STORE_CONDITION_CLEANUP_POLICY_WRONG,
        store_pb2.STORE_CONDITION_PARTITION_COUNT_WRONG,
        store_pb2.STORE_CONDITION_NOT_AUTHORIZED,
        store_pb2.STORE_CONDITION_FOREIGN_WRITER,
    }
)


async def store_trouble(channel: grpc.aio.Channel, role: str, timeout_s: float = 2.0) -> StoreTrouble | None:
    """The trouble that the store behind `channel` reports; None when it is healthy, or does not respond."""
    try:
        status = await store_status(channel, role, timeout_s)
    except grpc.aio.AioRpcError:
        return None
    if status.condition == store_pb2.STORE_CONDITION_HEALTHY:
        return None
    name = name_of(store_pb2.StoreCondition, status.condition)
    return StoreTrouble(name, status.message, status.condition in _LASTING)


async def store_status(channel: grpc.aio.Channel, role: str, timeout_s: float) -> store_pb2.StoreStatus:
    """The status of the replica behind `channel`; `role` is `config-store` or `status-store`. Raises the channel's
    errors.
    """
    ask: Callable[..., Awaitable[Any]]
    if role == "config-store":
        ask = config_read_service_pb2_grpc.ConfigReadServiceStub(channel).GetStoreStatus
        request: Any = config_read_service_pb2.GetStoreStatusRequest()
    else:
        ask = status_read_service_pb2_grpc.StatusReadServiceStub(channel).GetStoreStatus
        request = status_read_service_pb2.GetStoreStatusRequest()
    answer = await ask(request, timeout=timeout_s)
    status: store_pb2.StoreStatus = answer.status
    return status
