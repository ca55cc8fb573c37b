"""What each mutation writes: rules in, records out.

Owns the checks of every write RPC (existence, expected revision, epoch) and the records of its one transaction, in the
order Connect writes them, with the manifest last and the audit record beside it. Computes no revision: nobody knows an
offset before the transaction is in the topic.

A plan is made on the scratch state of the group commit, so everything decided before it is already in there, and it
may be made again on a later state if it refused; it must therefore depend on nothing but its arguments.

Invariant: a transaction that touches a connector ends with its manifest, built from exactly the records before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from herdmesh.configstore import errors
from herdmesh.configstore.state import manifest
from herdmesh.configstore.state.config import ConfigState, next_epoch
from herdmesh.configstore.state.connector import (
    CONNECTOR_TOMBSTONE,
    TARGET_STATE_TOMBSTONE,
    ConnectorState,
    fold,
)
from herdmesh.connect import audit_topic, config_topic
from herdmesh.connect.audit_topic import AuditRecord
from herdmesh.connect.config_records import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    LoggerRecord,
    Properties,
    RestartRecord,
    SessionKeyRecord,
    TargetState,
    TargetStateRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from herdmesh.connect.records import Tombstone
from herdmesh.rpc.errors import ConnectorExists, ConnectorNotFound, RequestInvalid, RevisionForeign, RevisionMismatch
from herdmesh.topicstore.contract import NewRecord, Revision

# A broker takes records of 1,048,588 bytes by default; this leaves room for the key and the batch around it.
RECORD_BYTES_MAX = 1_000_000
_INT32_MAX = 2**31 - 1
_SECRET = re.compile(r"password|passphrase|secret|token|credential|private.?key|api.?key|jaas", re.IGNORECASE)
_REDACTED = "[redacted]"


@dataclass(frozen=True, slots=True)
class LeaderToken:
    """Epoch and herder that a caller claims to lead with."""

    epoch: int
    leader_id: str


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What every mutation brings along.

    `expected_revision` is of the object's own record, None = unconditional. `now_ms` is the wall clock and
    `new_incarnation` a fresh id, both taken when the request came: a plan may be made several times and must come out
    the same.
    """

    operation: str
    now_ms: int
    new_incarnation: str
    store_id: str = ""
    audit_topic: str | None = None
    request_id: str = ""
    expected_revision: Revision | None = None
    caller: str = ""
    leader: LeaderToken | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Records of one transaction; none when a retry found its first outcome. `outcome` is told by the answer."""

    records: Sequence[NewRecord]
    outcome: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PutConnectorConfig:
    """Create or replace a config. The initial target state goes before it in the same transaction."""

    connector: str
    config: Properties
    must_not_exist: bool = False
    must_exist: bool = False
    initial_target_state: TargetState | None = None


@dataclass(frozen=True, slots=True)
class DeleteConnector:
    """Remove config and target state."""

    connector: str


@dataclass(frozen=True, slots=True)
class SetTargetState:
    """Store what the user wants of an existing connector."""

    connector: str
    target_state: TargetState


@dataclass(frozen=True, slots=True)
class CommitTaskConfigs:
    """Replace the task set; `config_revision` is of the config the tasks were made from, None = not checked."""

    connector: str
    tasks: Sequence[Properties]
    config_revision: Revision | None = None


@dataclass(frozen=True, slots=True)
class PutTaskCount:
    """Store how many transactional producers may be alive. Connect asks for no connector of that name, nor do we."""

    connector: str
    task_count: int


@dataclass(frozen=True, slots=True)
class RequestRestart:
    """Store a restart request for whoever watches."""

    request: RestartRecord


@dataclass(frozen=True, slots=True)
class PutSessionKey:
    """Store the key of Connect's internal requests."""

    key: SessionKeyRecord


@dataclass(frozen=True, slots=True)
class PutLoggerLevel:
    """Store a cluster-wide logger level."""

    level: LoggerRecord


Mutation = (
    PutConnectorConfig
    | DeleteConnector
    | SetTargetState
    | CommitTaskConfigs
    | PutTaskCount
    | RequestRestart
    | PutSessionKey
    | PutLoggerLevel
)


def plan(state: ConfigState, mutation: Mutation, context: WriteContext) -> Plan:
    """Check `mutation` against `state` and say what to write.

    Raises (all of `herdmesh.rpc.errors`): RequestInvalid, InvalidConfig, ConnectorNotFound, ConnectorExists,
    RevisionMismatch, RevisionForeign, StaleEpoch, RequestIdExpired.
    """
    connector = _connector_of(mutation)
    first = state.requests.find(context.request_id, context.operation, connector, context.now_ms)
    if first is not None:
        return Plan((), first.outcome)
    match mutation:
        case PutConnectorConfig():
            return _put_config(state, mutation, context)
        case DeleteConnector():
            before = _existing(state, mutation.connector)
            _require_revision(before.config_revision, context)
            gone = [Tombstone(kind, before.name) for kind in (CONNECTOR_TOMBSTONE, TARGET_STATE_TOMBSTONE)]
            return _transaction(before, gone, context, changes={"deleted": True})
        case SetTargetState():
            before = _existing(state, mutation.connector)
            _require_revision(before.target_state_revision, context)
            records = [TargetStateRecord(before.name, mutation.target_state)]
            return _transaction(before, records, context, changes={"target_state": mutation.target_state.value})
        case CommitTaskConfigs():
            return _commit_tasks(state, mutation, context)
        case PutTaskCount():
            _require_leader(state, context)
            before = _named(state, mutation.connector)
            if not 0 <= mutation.task_count <= _INT32_MAX:
                raise RequestInvalid("a task count must not be negative", "task_count")
            records = [TaskCountRecord(before.name, mutation.task_count)]
            return _transaction(before, records, context, changes={"task_count": mutation.task_count})
        case RequestRestart():
            _require_leader(state, context)
            before = _existing(state, mutation.request.connector)
            return _plain(mutation.request, before.name, context)
        case PutSessionKey():
            _require_leader(state, context)
            if not mutation.key.key:
                raise RequestInvalid("a session key must not be empty", "session_key.key")
            return _plain(mutation.key, "", context)
        case PutLoggerLevel():
            if not mutation.level.namespace or not mutation.level.level:
                raise RequestInvalid("logger and level must not be empty", "logger_level")
            return _plain(mutation.level, "", context)


def plan_epoch(state: ConfigState, leader_id: str, leader_address: str) -> Sequence[NewRecord]:
    """The record that hands leadership to `leader_id`, with the epoch and generations after those in `state`."""
    return [_encoded(next_epoch(state.leadership, leader_id, leader_address))]


def _put_config(state: ConfigState, mutation: PutConnectorConfig, context: WriteContext) -> Plan:
    before = _named(state, mutation.connector)
    if mutation.must_exist and mutation.must_not_exist:
        raise RequestInvalid("must_exist and must_not_exist exclude each other", "must_exist")
    if mutation.config.get("name", before.name) != before.name:
        raise errors.name_differs(before.name, mutation.config["name"])
    if mutation.must_not_exist and before.config is not None:
        raise ConnectorExists(before.name)
    if mutation.must_exist and before.config is None:
        raise ConnectorNotFound(before.name)
    _require_revision(before.config_revision, context)
    records: list[ConfigRecord] = []
    changes: dict[str, Any] = {"config": redacted(mutation.config)}
    if mutation.initial_target_state is not None:
        records.append(TargetStateRecord(before.name, mutation.initial_target_state))
        changes["target_state"] = mutation.initial_target_state.value
    records.append(ConnectorRecord(before.name, mutation.config))
    return _transaction(before, records, context, changes=changes, outcome={"created": before.config is None})


def _commit_tasks(state: ConfigState, mutation: CommitTaskConfigs, context: WriteContext) -> Plan:
    _require_leader(state, context)
    before = _existing(state, mutation.connector)
    _require_revision(before.tasks_revision, context)
    _require_equal(
        mutation.config_revision,
        before.config_revision,
        context,
        "the config has moved on since the tasks were made from it",
    )
    records: list[ConfigRecord] = [
        TaskConfigRecord(before.name, task, properties) for task, properties in enumerate(mutation.tasks)
    ]
    records.append(CommitRecord(before.name, len(mutation.tasks)))
    return _transaction(before, records, context, changes={"tasks": len(mutation.tasks)})


def _transaction(
    before: ConnectorState,
    records: Sequence[ConfigRecord | Tombstone],
    context: WriteContext,
    *,
    changes: Mapping[str, Any],
    outcome: Mapping[str, Any] | None = None,
) -> Plan:
    after = manifest.continued(before)
    for record in records:
        after, _ = fold(after, record, manifest.IN_FLIGHT_OFFSET)
    restated = manifest.restated(after)
    for record in restated:
        after, _ = fold(after, record, manifest.IN_FLIGHT_OFFSET)
    last = manifest.build(after, context.new_incarnation)
    encoded = [_encoded(record) for record in (*records, *restated, last)]
    return Plan([*encoded, *_audit(context, before.name, changes, outcome or {})], outcome or {})


def _plain(record: ConfigRecord, connector: str, context: WriteContext) -> Plan:
    return Plan([_encoded(record), *_audit(context, connector, {}, {})], {})


def _audit(
    context: WriteContext, connector: str, changes: Mapping[str, Any], outcome: Mapping[str, Any]
) -> Sequence[NewRecord]:
    if context.audit_topic is None:
        return ()
    key, value = audit_topic.encode(
        AuditRecord(
            request_id=context.request_id,
            caller=context.caller,
            time_ms=context.now_ms,
            operation=context.operation,
            connector=connector,
            outcome=outcome,
            changes=changes,
        )
    )
    return [NewRecord(key, value, context.audit_topic)]


def redacted(config: Properties) -> dict[str, Any]:
    """`config` for the audit topic: values of properties that are named like a secret are replaced. A `${...}`
    placeholder is no secret, it says where one is kept."""
    return {
        name: _REDACTED
        if _SECRET.search(name) and value is not None and not (isinstance(value, str) and value.startswith("${"))
        else value
        for name, value in config.items()
    }


def _encoded(record: ConfigRecord | Tombstone) -> NewRecord:
    key, value = config_topic.encode(record)
    size_bytes = len(key) + len(value or b"")
    if size_bytes > RECORD_BYTES_MAX:
        raise errors.too_large(key.decode("utf-8", "replace"), size_bytes, RECORD_BYTES_MAX)
    return NewRecord(key, value)


def _connector_of(mutation: Mutation) -> str:
    if isinstance(mutation, RequestRestart):
        return mutation.request.connector
    return "" if isinstance(mutation, (PutSessionKey, PutLoggerLevel)) else mutation.connector


def _named(state: ConfigState, name: str) -> ConnectorState:
    if not name:
        raise errors.name_missing()
    return state.connector(name)


def _existing(state: ConfigState, name: str) -> ConnectorState:
    before = _named(state, name)
    if before.config is None:
        raise ConnectorNotFound(name)
    return before


def _require_revision(actual: int, context: WriteContext) -> None:
    _require_equal(context.expected_revision, actual, context)


def _require_equal(expected: Revision | None, actual: int, context: WriteContext, message: str = "") -> None:
    if expected is None:
        return
    if expected.store_id != context.store_id:
        raise RevisionForeign(f"a revision of store {expected.store_id!r} was given to store {context.store_id!r}")
    if expected.next_offsets != (actual,):
        raise RevisionMismatch(f"{context.store_id}@{actual}" if actual else "", message)


def _require_leader(state: ConfigState, context: WriteContext) -> None:
    """Only the epoch that was granted last may write this; leases decide nothing here."""
    if context.leader is None:
        raise errors.leader_missing(context.operation)
    current = state.leadership
    held = None if current is None else LeaderToken(current.epoch, current.leader_id)
    if held != context.leader:
        raise errors.stale_epoch(
            context.leader.epoch,
            context.leader.leader_id,
            0 if held is None else held.epoch,
            "" if held is None else held.leader_id,
        )
