"""Whether a task is still part of the task set in force, read from the config topic itself.

Owns one question, asked after a take-over by a run whose worker has not heard its leader lately. A fence alone cannot
answer it: a worker that is cut off from its leader, and not from Kafka, may take the id of an old task set back from
the new one, and the new set divides the partitions otherwise. Connect's own tasks ask the same (reference/herder.md 5,
`testVerifyTaskGeneration`).

Invariant: a new task set is committed before the old one is fenced (design 5), so whoever takes over after that fence
finds the commit when it reads to the end after taking over; whoever took over before it is fenced.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from herdmesh.connect import config_topic
from herdmesh.connect.config_records import ManifestRecord
from herdmesh.engine import clients
from herdmesh.engine.contract import ErrorClass, RunSpec, TaskSetClaim
from herdmesh.engine.errors import TaskFailed, TaskFenced

_TIMEOUT_S = 30.0
_POLL_S = 0.5
_BATCH = 1_000
_KEY_PREFIX = b"herdmesh-connector-"


def verify(spec: RunSpec) -> None:
from herdmesh.engine.settings import access_of
    """Return when the run's task is part of the set in force, or nobody doubts it.

    Raises:
        TaskFenced: another task set is in force, or the connector is gone.
        TaskFailed: RETRIABLE, when the config topic cannot be read to its end.
    """
    claim = spec.claim
    if claim is None:
        return
    manifest = _newest(spec, claim)
    if manifest is None:
        return  # nothing was written about the connector since the claim was made
    digests = manifest.task_digests
    digest = f"{manifest.task_config_generation}:{digests[spec.task]}" if spec.task < len(digests) else ""
    if manifest.deleted or manifest.incarnation != claim.incarnation or digest != claim.task_digest:
        raise TaskFenced(
            f"{spec.connector}-{spec.task} belongs to a task set that is not in force any more; its worker was cut off "
            "from its leader"
        )


def _newest(spec: RunSpec, claim: TaskSetClaim) -> ManifestRecord | None:
    """The last manifest of the connector in the config topic from the claim's place on."""
    key = _KEY_PREFIX + spec.connector.encode()
    found: ManifestRecord | None = None
    consumer = clients.consumer(spec, f"{spec.group_id}-claims", access_of(spec, "consumer"))
    try:
        consumer.assign([TopicPartition(claim.config_topic, 0, claim.offset)])
        deadline_s = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline_s:
            first = consumer.consume(_BATCH, 0) or [consumer.poll(_POLL_S)]
            for message in filter(None, first):
                if message.error() is not None:
                    if _is_end(message, claim):
                        return found
                    continue
                if message.key() == key:
                    record = config_topic.decode(key, message.value())
                    found = record if isinstance(record, ManifestRecord) else found
    finally:
        _close(consumer)
    raise TaskFailed(
        f"the config topic {claim.config_topic} could not be read to its end: nobody knows whether the task is wanted",
        ErrorClass.RETRIABLE,
    )


def _is_end(message: Message, claim: TaskSetClaim) -> bool:
    """True at the end of the topic; False for what the client goes on after by itself."""
    error = message.error()
    assert error is not None
    if error.code() == KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]
        return True
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.UNKNOWN_TOPIC_OR_PART):  # pyright: ignore[reportPrivateUsage]
        raise TaskFailed(
            f"the config topic {claim.config_topic} is not the one this task was made from: {error.str()}; does the "
            "worker's config_storage_topic name the cluster's?",
            ErrorClass.RETRIABLE,
        )
    if error.fatal():
        raise KafkaException(error)
    return False


def _close(consumer: Consumer) -> None:
    consumer.unassign()
    consumer.close()
