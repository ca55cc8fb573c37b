"""All that the offsets topics say of one source connector, for its run and for whoever asks about its offsets.

Owns which topics there are and which of them counts: the worker's and, over it, the connector's own
(reference offsets-topic 3). How a topic is read is `source_offsets`.

Invariant: who holds the fence gets what the connector's earlier owners committed, whole; who only looks gets what is
decided, and waits for nobody's transaction.
"""

from __future__ import annotations

from functools import partial

from confluent_kafka.admin import AdminClient

from herdmesh.engine import clients, source_offsets
from herdmesh.engine.beyond import Beyond
from herdmesh.engine.contract import ErrorClass, RunSpec
from herdmesh.engine.errors import TaskFailed
from herdmesh.engine.fence import Fence
from herdmesh.engine.hung_offsets import OffsetsFinisher
from herdmesh.engine.settings import SourceSettings, offsets_topic_settings
from herdmesh.engine.source_offsets import SourceOffsets


def topics(settings: SourceSettings) -> list[str]:
    """Where the offsets are; what the last one says counts."""
    return [topic for topic in (settings.offsets_copy, settings.offsets_topic) if topic is not None]


def refuse_records(spec: RunSpec, settings: SourceSettings, topic: str) -> None:
    """No record of the connector may go where its offsets are. Raises TaskFailed: BAD_CONFIG, with Connect's text."""
    if topic == settings.offsets_topic and spec.source_offsets is None:
        raise TaskFailed(
            "Source tasks may not produce to their own offsets topics when exactly-once support is enabled: "
            f"{topic} has the offsets of {spec.connector}; send its records to another topic",
            ErrorClass.BAD_CONFIG,
        )


def read(spec: RunSpec, settings: SourceSettings, admin: AdminClient, fence: Fence | None) -> SourceOffsets:
    """The committed offsets. `fence`: taken over, by who is to go on from them, and a topic that is not there is
    created; None = by who only looks, while the connector may run, and finds no offsets in such a topic.

    Raises:
        ConfigError: a topic that forgets, or cannot be created.
        TaskFailed: RETRIABLE when the end is not reached in time.
    """
    offsets = SourceOffsets(spec.connector)
    for topic in topics(settings):
        _read_topic(spec, settings, admin, fence, topic, offsets)
    return offsets


def _read_topic(
    spec: RunSpec,
    settings: SourceSettings,
    admin: AdminClient,
    fence: Fence | None,
    topic: str,
    offsets: SourceOffsets,
) -> None:
    if fence is not None:
        source_offsets.ensure_topic(admin, topic, *offsets_topic_settings(spec))
    elif topic not in clients.retried(lambda: admin.list_topics(timeout=clients.CALL_TIMEOUT_S)).topics:
        return
    if topic != spec.offset_storage_topic:
        source_offsets.refuse_forgetful(admin, topic)
    group = f"connect-{spec.connector}"
    access = settings.offsets_consumer
    consumer = clients.consumer(spec, group, access)
    unstable = partial(clients.consumer, spec, group, access, isolation_level="read_uncommitted")
    try:
        beyond = Beyond(topic, spec.connector, admin, unstable)
        if fence is None:
            source_offsets.read_decided(consumer, topic, beyond, offsets)
        else:
            hung = OffsetsFinisher(topic, spec.connector, spec.transactional_id, fence, unstable)
            source_offsets.read(consumer, topic, spec.connector, beyond, hung, offsets)
    finally:
        consumer.close()
