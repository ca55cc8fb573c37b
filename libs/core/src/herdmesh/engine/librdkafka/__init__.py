"""Kafka clients of a run, and replacements for calls that confluent-kafka lacks or gets wrong.

Owns the creation and calls of clients, batches read and queued by librdkafka's own calls (`native.c`), and offsets of
groups. Knows no task and no connector. Invariant: only here are librdkafka's private parts used; each is named in
docs/internals/bugs.md.
"""

from __future__ import annotations

from herdmesh.engine.librdkafka.batch_consumer import (
    BatchConsumer,
    Heard,
)
from herdmesh.engine.librdkafka.client_trial import (
    client_violations,
    missing_files,
    poll_interval_max_ms,
    worker_violations,
)
from herdmesh.engine.librdkafka.clients import (
    CALL_TIMEOUT_S,
    RECONNECT,
    RETRY_TIMEOUT_S,
    close_in_background,
    forgotten,
    nothing,
    offset_of,
    opened,
    raise_guess,
    retried,
)
from herdmesh.engine.librdkafka.column_queue import (
    ANY_PARTITION,
    NOW_MS,
    ColumnQueue,
    column_queue,
)
from herdmesh.engine.librdkafka.group_offsets import (
    group_offsets,
)
from herdmesh.engine.librdkafka.record_columns import (
    RecordColumns,
)
from herdmesh.engine.librdkafka.topic_creation import (
    ensure_topic,
)
from herdmesh.engine.librdkafka.unacknowledged import (
    Unacknowledged,
)

__all__ = [
    "ANY_PARTITION",
    "CALL_TIMEOUT_S",
    "NOW_MS",
    "RECONNECT",
    "RETRY_TIMEOUT_S",
    "BatchConsumer",
    "ColumnQueue",
    "Heard",
    "RecordColumns",
    "Unacknowledged",
    "client_violations",
    "close_in_background",
    "column_queue",
    "ensure_topic",
    "forgotten",
    "group_offsets",
    "missing_files",
    "nothing",
    "offset_of",
    "opened",
    "poll_interval_max_ms",
    "raise_guess",
    "retried",
    "worker_violations",
]
