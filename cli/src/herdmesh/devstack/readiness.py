"""Asking a broker whether it serves. Owns the one use of a Kafka client in this package."""

from __future__ import annotations

import logging

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

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
