"""Asking a broker or a service whether it serves. Owns the one use of Kafka and gRPC clients in this package."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import grpc
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from grpc_health.v1 import health_pb2

_REQUEST_TIMEOUT_S = 2.0
_SILENT = logging.getLogger("herdmesh.devstack.readiness")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def serving_cluster(bootstrap: str) -> str | None:
    """The id of the cluster that serves clients at `bootstrap`, or None while none does. Blocks up to 2 s.

    An open port is not enough: a KRaft broker listens while the controller still keeps it fenced, and then it is in
    nobody's metadata. It serves when it lists itself.
    """
    admin = AdminClient(
        {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50}, logger=_SILENT
    )
    try:
        metadata = admin.list_topics(timeout=_REQUEST_TIMEOUT_S)
    except KafkaException:
        return None
    if not metadata.brokers:
        return None
    return metadata.cluster_id


async def serves(channel: grpc.aio.Channel, timeout_s: float = 2.0) -> bool:
    """True when the gRPC server behind `channel` answers SERVING for itself as a whole."""
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
