"""The conversion between the protos of `statusstore.v1` and the types of `state`.

Owns both directions, and the checks that a request must pass before the rules apply. Invariants:
`herdmesh.connect.topics.status_topic` can write everything that `put_from` accepts, and reads it back equal; no record
of a foreign writer makes a message fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from herdmesh.api.common.v1 import connector_pb2, identity_pb2, revision_pb2
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as read_pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as write_pb2
from herdmesh.connect.spi import Wait
from herdmesh.connect.topics import TOPICS_MAX, CommitScope, Condition, ConnectorStatus, State, TaskStatus, TopicStatus
from herdmesh.rpc import commit_scopes, java_values, revisions
from herdmesh.rpc.enums import WireEnum
from herdmesh.rpc.errors import RequestInvalid, RevisionForeign
from herdmesh.statusstore.effects.leases import ShownLease
from herdmesh.statusstore.state.leases import LeaseTable
from herdmesh.statusstore.state.statuses import AnyStatus, StoredStatus
from herdmesh.statusstore.state.writes import Put, PutMode, PutResult, RecordPosition
from herdmesh.topicstore.contract import Revision

#: A longer trace keeps its beginning and its end: the topic's records have a limit, and the cause is at one of the
#: ends.
TRACE_CHARACTERS_MAX: Final = 100_000
#: Maximum number of conditions of one status, one of each type; maximum characters of a condition's message, one line.
CONDITIONS_MAX: Final = 16
CONDITION_MESSAGE_MAX: Final = 1_000
#: Maximum length of the group in a commit scope: Kafka's protocol has no longer names.
GROUP_CHARACTERS_MAX: Final = 32_767
_CONDITION_TYPE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")

_STATES: Final = WireEnum(connector_pb2.RunState, State)
_MODES: Final = WireEnum(write_pb2.PutMode, PutMode)
_RESULTS: Final = WireEnum(write_pb2.PutResult, PutResult)


def named(connector: str, field: str = "connector") -> str:
    """The connector's name. Raises `RequestInvalid` when it is empty."""
    if not connector:
        raise RequestInvalid("the connector's name is empty", field)
    return connector


def state_from(number: connector_pb2.RunState.ValueType, field: str) -> State:
    """The state of a request. Raises `RequestInvalid` when it is not set. A state that only a newer release knows reads
    as UNASSIGNED: the topic's other readers, Java's among them, do not know it either.
    """
    if number == connector_pb2.RUN_STATE_UNSPECIFIED:
        raise RequestInvalid("the state is not set", field)
    return _STATES.enum_from(number, State.UNASSIGNED)


def put_from(message: write_pb2.StatusPut, writer: identity_pb2.WorkerIdentity, current: Revision, index: int) -> Put:
    """One put of a batch. Raises `RequestInvalid` naming the field, `RevisionForeign`."""
    field = f"puts[{index}]"
    if message.mode == write_pb2.PUT_MODE_UNSPECIFIED:
        raise RequestInvalid("mode is neither PUT nor PUT_SAFE", f"{field}.mode")
    # PUT_SAFE replaces a mode that only a newer release knows: it overwrites nothing that is newer.
    mode = _MODES.enum_from(message.mode, PutMode.PUT_SAFE)
    expected = None
    if message.HasField("expected_revision"):
        expected = _position(message.expected_revision, current, f"{field}.expected_revision")
    return Put(_status_from(message.status, writer, f"{field}.status"), mode, expected)


def _status_from(message: status_pb2.Status, writer: identity_pb2.WorkerIdentity, field: str) -> AnyStatus:
    state = state_from(message.state, f"{field}.state")
    worker_id = message.worker_id or writer.worker_id
    if not worker_id and state is not State.DESTROYED:
        raise RequestInvalid("no worker is named, neither in the status nor as writer", f"{field}.worker_id")
    incarnation = message.worker_incarnation
    if not incarnation and worker_id == writer.worker_id:
        incarnation = writer.incarnation
    common = ConnectorStatus(
        connector=named(message.connector, f"{field}.connector"),
        state=state,
        worker_id=worker_id,
        generation=message.generation,
        trace=_bounded(message.trace) if message.HasField("trace") else None,
        version=message.version if message.HasField("version") else None,
        conditions=_conditions_from(message.conditions, f"{field}.conditions"),
        commit_scope=_commit_scope_from(message, f"{field}.commit_scope"),
        worker_incarnation=incarnation,
    )
    if not message.HasField("task"):
        return common
    if message.task < 0:
        raise RequestInvalid(f"task {message.task} is negative", f"{field}.task")
    if state is State.STOPPED:
        raise RequestInvalid("a task is never STOPPED, only its connector", f"{field}.state")
    return TaskStatus(
        connector=common.connector,
        task=message.task,
        state=state,
        worker_id=worker_id,
        generation=common.generation,
        trace=common.trace,
        version=common.version,
        conditions=common.conditions,
        commit_scope=common.commit_scope,
        worker_incarnation=incarnation,
    )


def _bounded(trace: str) -> str:
    if len(trace) <= TRACE_CHARACTERS_MAX:
        return trace
    half = TRACE_CHARACTERS_MAX // 2
    return f"{trace[:half]}\n... {len(trace) - 2 * half} characters left out ...\n{trace[-half:]}"


def _conditions_from(messages: Sequence[connector_pb2.Condition], field: str) -> tuple[Condition, ...]:
    """The conditions, in the order of the request. Raises `RequestInvalid`."""
    if len(messages) > CONDITIONS_MAX:
        raise RequestInvalid(f"{len(messages)} conditions, at most {CONDITIONS_MAX} are kept", field)
    if len({message.type for message in messages}) < len(messages):
        raise RequestInvalid("two conditions of one type", field)
    return tuple(_condition_from(message, f"{field}[{index}]") for index, message in enumerate(messages))


def _condition_from(message: connector_pb2.Condition, field: str) -> Condition:
    if not _CONDITION_TYPE.fullmatch(message.type):
        raise RequestInvalid("a type is one word in upper case of at most 64 characters", f"{field}.type")
    if len(message.message) > CONDITION_MESSAGE_MAX or "\n" in message.message:
        raise RequestInvalid(f"a message is one line of at most {CONDITION_MESSAGE_MAX} characters", f"{field}.message")
    since_ms = message.since.ToMilliseconds() if message.HasField("since") else 0
    return Condition(message.type, message.message, since_ms, _wait_from(message, since_ms, field))


def _wait_from(message: connector_pb2.Condition, since_ms: int, field: str) -> Wait | None:
    """The wait of a condition, if any. Raises `RequestInvalid`."""
    if not message.HasField("wait"):
        return None
    wait = message.wait
    for name, text in (("waits_for", wait.waits_for), ("message", wait.message)):
        if len(text) > CONDITION_MESSAGE_MAX or "\n" in text:
            why = f"one line of at most {CONDITION_MESSAGE_MAX} characters"
            raise RequestInvalid(why, f"{field}.wait.{name}")
    next_ms = wait.next_time.ToMilliseconds() if wait.HasField("next_time") else 0
    return Wait(wait.waits_for, wait.message, since_ms, wait.tries, next_ms)


def _commit_scope_from(message: status_pb2.Status, field: str) -> CommitScope | None:
    """The commit scope of a status, if any. Raises `RequestInvalid`."""
    if not message.HasField("commit_scope"):
        return None
    count = len(message.commit_scope.topics) + len(message.commit_scope.elsewhere)
    if count > TOPICS_MAX:
        raise RequestInvalid(f"{count} topics, at most {TOPICS_MAX} are kept", f"{field}.topics")
    if len(message.commit_scope.group) > GROUP_CHARACTERS_MAX:
        count = len(message.commit_scope.group)
        raise RequestInvalid(f"{count} characters, a group has at most {GROUP_CHARACTERS_MAX}", f"{field}.group")
    return commit_scopes.from_proto(message.commit_scope)


def _position(message: revision_pb2.Revision, current: Revision, field: str) -> RecordPosition:
    """The position in a record's own revision, which holds the next offset of its partition and zeroes; all zeroes =
    nothing is stored.
    """
    revision = revisions.from_proto(message)
    if revision is None:
        raise RequestInvalid("the revision is empty", field)
    if revision.store_id != current.store_id:
        raise RevisionForeign(f"{field} is of store {revision.store_id!r}, this is {current.store_id!r}")
    places = [(partition, offset) for partition, offset in enumerate(revision.next_offsets) if offset]
    if len(revision.next_offsets) != len(current.next_offsets) or len(places) > 1:
        raise RequestInvalid("this is the revision of the whole store, not of one status", field)
    return RecordPosition(*places[0]) if places else RecordPosition(-1, 0)


def record_revision(stored: StoredStatus, current: Revision) -> Revision:
    """The revision of a status' own record."""
    offsets = [0] * len(current.next_offsets)
    offsets[stored.partition] = stored.offset + 1
    return Revision(current.store_id, tuple(offsets))


def status_to(stored: StoredStatus, current: Revision, leases: LeaseTable) -> status_pb2.Status:
    """A status for readers, joined with the lease of its worker."""
    status = stored.status
    effective, reason = leases.effective(status)
    message = status_pb2.Status(
        connector=status.connector,
        task=stored.task,
        state=_STATES.to_wire(status.state),
        trace=None if status.trace is None else java_values.text(status.trace),
        worker_id=None if status.worker_id is None else java_values.text(status.worker_id),
        generation=status.generation,
        version=None if status.version is None else java_values.text(status.version),
        commit_scope=commit_scopes.to_proto(status.commit_scope),
        worker_incarnation=java_values.text(status.worker_incarnation),
        revision=revisions.to_proto(record_revision(stored, current)),
        effective_state=_STATES.to_wire(effective),
        effective_reason=reason,
    )
    message.update_time.FromMilliseconds(max(stored.timestamp_ms, 0))
    for condition in status.conditions:
        added = message.conditions.add(
            type=java_values.text(condition.type), message=java_values.text(condition.message)
        )
        if condition.since_ms:
            added.since.CopyFrom(java_values.timestamp(condition.since_ms))
        if (wait := condition.wait) is not None:
            added.wait.waits_for, added.wait.message = java_values.text(wait.waits_for), java_values.text(wait.message)
            added.wait.tries = min(max(wait.tries, 0), 2**63 - 1)
            if wait.since_ms:
                added.wait.since.CopyFrom(java_values.timestamp(wait.since_ms))
            if wait.next_ms:
                added.wait.next_time.CopyFrom(java_values.timestamp(wait.next_ms))
    return message


def outcome_to(
    result: PutResult, stored: StoredStatus | None, current: Revision, leases: LeaseTable
) -> write_pb2.PutOutcome:
    """The outcome of a put, with the status that is stored now."""
    outcome = write_pb2.PutOutcome(result=_RESULTS.to_wire(result))
    if stored is not None:
        outcome.stored.CopyFrom(status_to(stored, current, leases))
    return outcome


def topic_from(message: status_pb2.TopicStatus) -> TopicStatus:
    """A topic in use. Raises `RequestInvalid`."""
    if not message.topic or ":" in message.topic:
        raise RequestInvalid(f"{message.topic!r} is not a topic's name", "topics.topic")
    discover_ms = message.discover_time.ToMilliseconds() if message.HasField("discover_time") else 0
    return TopicStatus(message.topic, named(message.connector, "topics.connector"), message.task, discover_ms)


def topic_to(status: TopicStatus) -> status_pb2.TopicStatus:
    """A topic in use, under the names of its key."""
    return status_pb2.TopicStatus(
        topic=java_values.text(status.topic),
        connector=java_values.text(status.connector),
        task=status.task,
        discover_time=java_values.timestamp(status.discover_timestamp_ms),
    )


def leases_to(leases: Iterable[ShownLease]) -> read_pb2.LeaseTable:
    """The whole table."""
    return read_pb2.LeaseTable(leases=[lease_to(lease) for lease in leases])


def lease_to(lease: ShownLease) -> status_pb2.Lease:
    """One lease."""
    message = status_pb2.Lease(
        worker_id=java_values.text(lease.worker_id), incarnation=java_values.text(lease.incarnation), live=lease.live
    )
    message.expire_time.FromMilliseconds(lease.expire_time_ms)
    return message
