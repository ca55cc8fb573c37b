"""Check that a task still belongs to the task set in force, read from the config topic itself.

Owns one query, made by every run after its take-over. The fence alone cannot answer it: a worker that is cut off from
its leader, or follows one whose epoch is over, may take the id of an old task set back from the new one, and the new
set divides the partitions differently. Connect's own tasks check the same (docs/reference/connect/herder.md, section 5,
`testVerifyTaskGeneration`).

Almost always nothing was written since the leader's, or an earlier run's, last read: then the end of the topic is
sufficient, and it is fetched while the run makes other requests. Only if the end has moved are the records between
read.

Invariant: a new task set is committed before the old one is fenced (docs/design/herder.md, section 5). So an owner that
takes over after that fence finds the commit when it reads the end after its take-over; an owner from before is fenced.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec  # the package re-exports it, but not for type checkers

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.topics import ManifestRecord, config_topic
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime import RunSpec, TaskFailed, TaskFenced, TaskSetClaim, access_of, progress_ticks
from herdmesh.kafka.listed_offsets import list_offsets

_TIMEOUT_S = 30.0
_POLL_S = 0.5
_BATCH = 1_000
_KEY_PREFIX = b"herdmesh-connector-"
_REFUSED = frozenset((KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED))


def contradicts(manifest: ManifestRecord, claim: TaskSetClaim, task: int) -> bool:
    """True when the manifest contradicts the claim: its task set is not in force, a connector exists that should not,
    or one that should not change has a new record.
    """
    if not claim.incarnation:
        return not manifest.deleted
    if not claim.task_digest:
        return True
    digests = manifest.task_digests
    digest = f"{manifest.task_config_generation}:{digests[task]}" if task < len(digests) else ""
    return manifest.deleted or manifest.incarnation != claim.incarnation or digest != claim.task_digest


def begin_check(spec: RunSpec, admin: AdminClient, consumer: Consumer | None = None) -> ClaimCheck:
    """Request the end of the config topic. Call it after the take-over; waits for the topic's metadata, but not for the
    result. `consumer` is used to read, if necessary, while it has no assignment; without it one is created.
    """
    return ClaimCheck(spec, admin, consumer)


class ClaimCheck:
    """One query under way. Call `verify` before anything is moved, removed or reported."""

    def __init__(self, spec: RunSpec, admin: AdminClient, consumer: Consumer | None) -> None:
        self._spec = spec
        self._admin = admin
        self._consumer = consumer
        self._claim = spec.claim
        self._asked = None if spec.claim is None else self._ask(spec.claim)

    def verify(self) -> int | None:
        """The offset up to which nothing contradicts the claim; None when there is nothing to verify.

        Raises:
            TaskFenced: another task set is in force, or the connector was deleted.
            TaskFailed: RETRIABLE, when the config topic cannot be read to its end.
        """
        claim, spec = self._claim, self._spec
        if claim is None:
            return None
        try:
            end = self._end(claim)
            if end < claim.offset:
                raise _another_topic(claim, f"it ends at {end}")
            # A transaction is at least a record and its marker; a marker alone may be the part that the leader had not
            # read.
            manifest = self._newest(claim, end) if end > claim.offset + 1 else None
        except KafkaException as error:
            raise _unreadable(claim, error) from error
        if manifest is not None and contradicts(manifest, claim, spec.task):
            raise TaskFenced(_why_not(spec, claim))
        return max(end, claim.offset)

    def _newest(self, claim: TaskSetClaim, end: int) -> ManifestRecord | None:
        if self._consumer is not None:
            return _newest(self._spec, claim, end, self._consumer)
        access = access_of(self._spec, "consumer")
        consumer = clients.consumer(self._spec, f"{self._spec.group_id}-claims", access)
        try:
            return _newest(self._spec, claim, end, consumer)
        finally:
            consumer.close()

    def _ask(self, claim: TaskSetClaim) -> Future[Any]:
        partition = TopicPartition(claim.config_topic, 0)
        return list_offsets(
            self._admin,
            {partition: OffsetSpec.latest()},
            isolation_level=IsolationLevel.READ_COMMITTED,
            timeout_s=clients.CALL_TIMEOUT_S,
        )[partition]

    def _end(self, claim: TaskSetClaim) -> int:
        def answered() -> int:
            asked, self._asked = self._asked or self._ask(claim), None
            return clients.offset_of(asked.result())

        return clients.retried(answered)


def _why_not(spec: RunSpec, claim: TaskSetClaim) -> str:
    if not claim.incarnation:
        return f"a connector {spec.connector} was created meanwhile, which the requesting herder had not read yet"
    if not claim.task_digest:
        return f"connector {spec.connector} was changed, or another change of its offsets began, after this request"
    return (
        f"{spec.connector}-{spec.task} belongs to a task set that was replaced; the herder that started it had not "
        "read the new one yet"
    )


def _newest(spec: RunSpec, claim: TaskSetClaim, end: int, consumer: Consumer) -> ManifestRecord | None:
    """The last manifest of the connector in the config topic from the claim's offset to `end`."""
    key = _KEY_PREFIX + spec.connector.encode()
    found: ManifestRecord | None = None
    # A connected client that does not know the topic yet would look for its leader only after up to a second.
    clients.retried(lambda: consumer.list_topics(claim.config_topic, clients.CALL_TIMEOUT_S))
    consumer.incremental_assign([TopicPartition(claim.config_topic, 0, claim.offset)])
    try:
        deadline_s = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline_s:
            progress_ticks.moved()
            first = consumer.consume(_BATCH, 0) or [consumer.poll(_POLL_S)]
            for message in filter(None, first):
                if message.error() is not None:
                    if _is_end(message, claim):
                        return found
                    continue
                if message.key() == key:
                    record = config_topic.decode(key, message.value())
                    found = record if isinstance(record, ManifestRecord) else found
                if _last_before(end, message):
                    return found
    finally:
        consumer.incremental_unassign([TopicPartition(claim.config_topic, 0)])
    raise TaskFailed(
        f"the config topic {claim.config_topic} could not be read to its end, so it is unknown whether the task is "
        "still wanted",
        ErrorClass.RETRIABLE,
    )


def _last_before(end: int, message: Message) -> bool:
    """True when only the marker of its transaction can be between a record and the end: the end-of-partition event
    would come only after the client has waited there for more.
    """
    offset = message.offset()
    return offset is not None and offset + 2 >= end


def _is_end(message: Message, claim: TaskSetClaim) -> bool:
    """True at the end of the topic; False for errors after which the client continues by itself."""
    error = message.error()
    assert error is not None
    if error.code() == KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]
        return True
    if error.code() == KafkaError._AUTO_OFFSET_RESET:  # pyright: ignore[reportPrivateUsage]
        raise _another_topic(claim, error.str())
    if error.fatal() or error.code() in (*_REFUSED, KafkaError.UNKNOWN_TOPIC_OR_PART):
        raise KafkaException(error)
    return False


def _another_topic(claim: TaskSetClaim, why: str) -> TaskFailed:
    return TaskFailed(
        f"the config topic {claim.config_topic} is not the one this task was made from: {why}; check that the worker's "
        "config_storage_topic names the cluster's topic",
        ErrorClass.RETRIABLE,
    )


def _unreadable(claim: TaskSetClaim, error: KafkaException) -> TaskFailed:
    cause: KafkaError = error.args[0]
    if cause.code() in _REFUSED:
        hint = "grant the workers' user Describe and Read on it"
    elif cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        hint = "check that the worker's config_storage_topic names the cluster's topic"
    else:
        hint = "it is retried"
    return TaskFailed(
        f"the config topic {claim.config_topic} cannot be read, so it is unknown whether the task is still wanted: "
        f"{cause.str()}; {hint}",
        ErrorClass.RETRIABLE,
    )
