"""The write rules of each mutation: checks in, records out.

Owns the checks of every write RPC (existence, expected revision, epoch) and the records of its one transaction, in the
order Connect writes them, with the manifest last and the audit record (`audit`) beside it. Computes no revision: an
offset is not known before the transaction is in the topic.

`expected_revision` is of the config (PutConnectorConfig, RestoreConnector, DeleteConnector, RequestRestart), the target
state (SetTargetState), the task set (CommitTaskConfigs; PutTaskCount, which counts the producers of a set), the session
key (PutSessionKey). Logger levels, drains and offsets have no revision of their own, so PutLoggerLevel, RecordDrain and
RecordOffsets refuse one.

A plan is made on the scratch state of the group commit, so it sees all earlier decisions. A refused plan may be made
again on a later state, so it must depend on nothing but its arguments.

Invariant: a transaction that touches a connector ends with its manifest, built from exactly the records before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from msgspec.structs import replace

from herdmesh.configstore import errors
from herdmesh.configstore.state import audit, manifest, offset_changes
from herdmesh.configstore.state.config import ConfigState, next_block, next_epoch
from herdmesh.configstore.state.connector import (
    CONNECTOR_TOMBSTONE,
    TARGET_STATE_TOMBSTONE,
    ConnectorState,
    fold,
)
from herdmesh.configstore.state.mutations import (
    CommitTaskConfigs,
    DeleteConnector,
    LeaderToken,
    Mutation,
    PutConnectorConfig,
    PutLoggerLevel,
    PutSessionKey,
    PutTaskCount,
    RecordDrain,
    RecordOffsets,
    RequestRestart,
    RestoreConnector,
    SetTargetState,
    WriteContext,
)
from herdmesh.configstore.state.redaction import redacted_names
from herdmesh.configstore.state.requests import Request
from herdmesh.connect.json_text import jackson
from herdmesh.connect.topics import (
    RECORD_BYTES_MAX,
    AuditRecord,
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    Properties,
    TargetState,
    TargetStateRecord,
    TaskConfigRecord,
    TaskCountRecord,
    Tombstone,
    config_topic,
)
from herdmesh.rpc import revisions
from herdmesh.rpc.errors import (
    ConnectorExists,
    ConnectorNotFound,
    FieldViolation,
    InvalidConfig,
    RequestIdExpired,
    RequestIdUnknown,
    RequestInvalid,
    RevisionForeign,
    RevisionMismatch,
)
from herdmesh.topicstore.contract import Beside, NewRecord, Revision

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Records of one transaction; none when a retry found its first outcome, or nothing is to change. `outcome` goes
    into the response, `beside` into the transaction.
    """

    records: Sequence[NewRecord]
    outcome: Mapping[str, Any]
    beside: Beside | None = None


@dataclass(frozen=True, slots=True)
class _Decided:
    """A mutation that passed its checks: the records to write, and the outcome to return."""

    records: Sequence[NewRecord]
    changes: Mapping[str, Any]
    outcome: Mapping[str, Any] = field(default_factory=dict[str, Any])
    beside: Beside | None = None
    is_no_change: bool = False
    """The stored state is the requested one: nothing is written, neither to the topic nor to the history."""


def plan(state: ConfigState, mutation: Mutation, context: WriteContext) -> WritePlan:
    """Check `mutation` against `state` and return the records to write.

    Raises (all of `herdmesh.rpc.errors`): RequestInvalid, InvalidConfig, ConnectorNotFound, ConnectorExists,
    RevisionMismatch, RevisionForeign, StaleEpoch, RequestIdExpired, RequestIdUnknown.
    """
    connector = _connector_of(mutation)
    payload = audit.payload(mutation.request_json()) if context.request_id else ""
    if isinstance(mutation, RecordOffsets) and not mutation.ended and not context.retry_only:
        # Before the lookup of a retry: the caller that begins a change has a worker change offsets next.
        _require_leader(state, context)
    first = state.requests.find(context.request_id, (context.operation, connector, payload), context.now_ms)
    if first is not None and not _ends(mutation, first, context):
        told = offset_changes.again(state, connector, context.request_id, first.outcome)
        return WritePlan((), told if isinstance(mutation, RecordOffsets) else first.outcome)
    if context.retry_only:
        raise RequestIdUnknown(f"nothing was applied under request_id {context.request_id!r}")
    decided = _decide(state, mutation, context)
    if decided.is_no_change:
        return WritePlan((), decided.outcome)
    if context.audit_topic is None:
        return WritePlan(decided.records, decided.outcome, decided.beside)
    told = AuditRecord(
        request_id=context.request_id,
        caller=context.caller,
        time_ms=context.now_ms,
        operation=context.operation,
        connector=connector,
        outcome=decided.outcome,
        changes=decided.changes,
        payload=payload,
    )
    return WritePlan([*decided.records, audit.record(told, context.audit_topic)], decided.outcome, decided.beside)


def plan_epoch(state: ConfigState, leader_id: str, leader_address: str) -> Sequence[NewRecord]:
    """The record that gives leadership to `leader_id`, with the epoch and generations after those in `state`."""
    return [_encoded(next_epoch(state.leadership, leader_id, leader_address))]


def plan_block(state: ConfigState, leader: LeaderToken, above: int) -> Sequence[NewRecord]:
    """The record that reserves more generations for the leader's epoch; no record when it already has some from `above`
    on, because the response to its earlier request was lost. Raises StaleEpoch when another epoch is in force.
    """
    _require_epoch(state, leader)
    assert state.leadership is not None
    return [_encoded(next_block(state.leadership))] if state.leadership.generation_limit <= above else []


def _decide(state: ConfigState, mutation: Mutation, context: WriteContext) -> _Decided:
    match mutation:
        case PutConnectorConfig():
            return _put_config(state, mutation, context)
        case RestoreConnector():
            return _restore(state, mutation, context)
        case DeleteConnector():
            before = _existing(state, mutation.connector)
            _require_revision(before.config_revision, context)
            gone = [Tombstone(kind, before.name) for kind in (CONNECTOR_TOMBSTONE, TARGET_STATE_TOMBSTONE)]
            return _Decided(_transaction(before, gone, context), {"deleted": True})
        case SetTargetState():
            before = _existing(state, mutation.connector)
            _require_revision(before.target_state_revision, context)
            records = [TargetStateRecord(before.name, mutation.target_state)]
            return _Decided(_transaction(before, records, context), {"target_state": mutation.target_state.value})
        case CommitTaskConfigs():
            return _commit_tasks(state, mutation, context)
        case PutTaskCount():
            return _put_task_count(state, mutation, context)
        case RequestRestart():
            return _request_restart(state, mutation, context)
        case PutSessionKey(key=key):
            _require_leader(state, context)
            _require_revision(state.session_key_revision, context)
            if not key.key:
                raise RequestInvalid("a session key must not be empty", "session_key.key")
            return _Decided([_encoded(key)], {"algorithm": key.algorithm})
        case PutLoggerLevel(level=level):
            if context.expected_revision is not None:
                raise errors.no_revision("logger levels have no revision of their own")
            if not level.namespace or not level.level:
                raise RequestInvalid("logger and level must not be empty", "logger_level")
            return _Decided([_encoded(level)], {"logger": level.namespace, "level": level.level})
        case RecordDrain(worker_id=worker_id, draining=draining):
            if context.expected_revision is not None:
                raise errors.no_revision("drains have no revision of their own")
            if not worker_id:
                raise RequestInvalid("a drain is recorded for a worker: give its id", "worker_id")
            if not context.request_id:
                raise RequestInvalid("a drain is recorded under the id of its request: give it", "options.request_id")
            return _Decided([], {"worker": worker_id, "draining": draining})
        case RecordOffsets():
            return _record_offsets(state, mutation, context)
        case _:
            assert_never(mutation)


def _put_config(state: ConfigState, mutation: PutConnectorConfig, context: WriteContext) -> _Decided:
    before = _named(state, mutation.connector)
    if mutation.must_exist and mutation.must_not_exist:
        raise RequestInvalid("must_exist and must_not_exist exclude each other", "must_exist")
    if mutation.must_not_exist and before.config is not None:
        raise ConnectorExists(before.name)
    if mutation.must_exist and before.config is None:
        raise ConnectorNotFound(before.name)
    if mutation.only_if_changed and _is_equal_config(before, mutation):
        _require_revision(before.config_revision, context)
        return _Decided((), {}, {"created": False, "unchanged": True}, is_no_change=True)
    written = _write_config(before, mutation.config, mutation.initial_target_state, context)
    offsets = mutation.initial_offsets
    if offsets is None:
        return written
    if not mutation.must_not_exist:
        raise RequestInvalid("offsets can only be written with a new connector: set must_not_exist", "initial_offsets")
    count = len(offsets.records) + len(offsets.group_offsets)
    return _Decided(written.records, {**written.changes, "initial_offsets": count}, written.outcome, offsets)


def _is_equal_config(before: ConnectorState, mutation: PutConnectorConfig) -> bool:
    return before.config == mutation.config and mutation.initial_target_state is None


def _restore(state: ConfigState, mutation: RestoreConnector, context: WriteContext) -> _Decided:
    """The config that history keeps, with each secret from the request or else from the config in force."""
    before = _named(state, mutation.connector)
    if mutation.past is None:
        raise RequestIdExpired(
            f"request_id {context.request_id!r} is no longer known; send the request again under a new id"
        )
    past, given, in_force = mutation.past, mutation.secrets, before.config or {}
    missing = redacted_names(past)
    from_current = [name for name in missing if name not in given and name in in_force]
    violations = [
        FieldViolation(name, "history does not keep its value and the config in force has none: give it in secrets")
        for name in missing
        if name not in given and name not in in_force
    ]
    violations += [
        FieldViolation(name, "is not a redacted property of that revision: secrets may have values only for those")
        for name in sorted(given)
        if name not in missing
    ]
    if violations:
        raise InvalidConfig(violations)
    config = {**past, **{name: in_force[name] for name in from_current}, **given}
    written = _write_config(before, config, None, context)
    return _Decided(
        written.records,
        {**written.changes, "restored": revisions.to_text(mutation.revision)},
        {**written.outcome, "secrets_from_current": from_current},
    )


def _write_config(
    before: ConnectorState, config: Properties, target_state: TargetState | None, context: WriteContext
) -> _Decided:
    if config.get("name", before.name) != before.name:
        raise errors.name_differs(before.name, config["name"])
    _require_revision(before.config_revision, context)
    records: list[ConfigRecord] = []
    changes = {**audit.config_change(before.config, config)}
    if target_state is not None:
        records.append(TargetStateRecord(before.name, target_state))
        changes["target_state"] = target_state.value
    records.append(ConnectorRecord(before.name, config))
    return _Decided(_transaction(before, records, context), changes, {"created": before.config is None})


def _commit_tasks(state: ConfigState, mutation: CommitTaskConfigs, context: WriteContext) -> _Decided:
    _require_leader(state, context)
    before = _existing(state, mutation.connector)
    _require_revision(before.tasks_revision, context)
    _require_equal(
        mutation.config_revision,
        before.config_revision,
        context,
        "the config was changed after the tasks were made from it",
    )
    records: list[ConfigRecord] = [
        TaskConfigRecord(before.name, task, properties) for task, properties in enumerate(mutation.tasks)
    ]
    records.append(CommitRecord(before.name, len(mutation.tasks)))
    if mutation.fenced_generation is not None:
        if mutation.fenced_generation != before.task_config_generation:
            # Tasks of a set that the caller did not know may run: they would own the same resources as the new ones.
            stored = Revision(context.store_id, (before.tasks_revision,)) if before.tasks_revision else None
            raise RevisionMismatch(revisions.to_text(stored), "another task set is in force now")
        records.append(TaskCountRecord(before.name, len(mutation.tasks)))
    return _Decided(_transaction(before, records, context), {"tasks": len(mutation.tasks)})


def _request_restart(state: ConfigState, mutation: RequestRestart, context: WriteContext) -> _Decided:
    _require_leader(state, context)
    request = mutation.request
    before = _existing(state, request.connector)
    _require_revision(before.config_revision, context)
    changes: dict[str, Any] = {"include_tasks": request.include_tasks, "only_failed": request.only_failed}
    if not mutation.generation:
        if mutation.task is not None:
            raise RequestInvalid("the restart of a task needs a generation", "generation")
        return _Decided([_encoded(request)], {"restart": changes})
    if mutation.task is not None:
        changes["task"] = mutation.task
    # Connect keeps a record of a restart that the whole cluster carries out, not of the restart of a single instance.
    whole = mutation.task is None and (request.include_tasks or request.only_failed)
    kept = {task: at for task, at in before.restarts.items() if task < (before.task_count or 0)}
    after = replace(before, restarts={**kept, **dict.fromkeys(mutation.restarted, mutation.generation)})
    records = _transaction(after, [request] if whole else [], context)
    return _Decided(records, {"restart": changes}, {"items": mutation.response})


def _put_task_count(state: ConfigState, mutation: PutTaskCount, context: WriteContext) -> _Decided:
    _require_leader(state, context)
    before = _named(state, mutation.connector)
    _require_revision(before.tasks_revision, context)
    if not 0 <= mutation.task_count <= _INT32_MAX:
        raise RequestInvalid("a task count must not be negative", "task_count")
    records = [TaskCountRecord(before.name, mutation.task_count)]
    return _Decided(_transaction(before, records, context), {"task_count": mutation.task_count})


def _record_offsets(state: ConfigState, mutation: RecordOffsets, context: WriteContext) -> _Decided:
    if context.expected_revision is not None:
        raise errors.no_revision("offsets have no revision here")
    if not context.request_id:
        raise RequestInvalid("a change is recorded under the id of its request: give it", "options.request_id")
    name = _named(state, mutation.connector).name
    size_bytes = len(jackson.dumps(dict(mutation.response)))
    if size_bytes > RECORD_BYTES_MAX:
        raise errors.too_large(f"the record of a change of the offsets of {name}", size_bytes, RECORD_BYTES_MAX)
    # A late worker that was sent an earlier change finds this manifest and does not change the offsets.
    records = () if mutation.ended else _transaction(_existing(state, name), [], context)
    return _Decided(records, {"offsets": "changed" if mutation.ended else "begun"}, offset_changes.outcome(mutation))


def _ends(mutation: Mutation, first: Request, context: WriteContext) -> bool:
    """True for the end of a change of which only the beginning is recorded under its id."""
    ends = isinstance(mutation, RecordOffsets) and mutation.ended and not context.retry_only
    return ends and not offset_changes.has_ended(first.outcome)


def _transaction(
    before: ConnectorState, records: Sequence[ConfigRecord | Tombstone], context: WriteContext
) -> Sequence[NewRecord]:
    after = manifest.continued(before)
    for record in records:
        after, _ = fold(after, record, manifest.IN_FLIGHT_OFFSET)
    restated = manifest.restated(after)
    for record in restated:
        after, _ = fold(after, record, manifest.IN_FLIGHT_OFFSET)
    last = manifest.build(after, context.new_incarnation)
    return [_encoded(record) for record in (*records, *restated, last)]


def _encoded(record: ConfigRecord | Tombstone) -> NewRecord:
    key, value = config_topic.encode(record)
    size_bytes = len(key) + len(value or b"")
    if size_bytes > RECORD_BYTES_MAX:
        raise errors.too_large(key.decode("utf-8", "replace"), size_bytes, RECORD_BYTES_MAX)
    return NewRecord(key, value)


def _connector_of(mutation: Mutation) -> str:
    if isinstance(mutation, RequestRestart):
        return mutation.request.connector
    return "" if isinstance(mutation, PutSessionKey | PutLoggerLevel | RecordDrain) else mutation.connector


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
        stored = Revision(context.store_id, (actual,)) if actual else None
        raise RevisionMismatch(revisions.to_text(stored), message)


def _require_leader(state: ConfigState, context: WriteContext) -> None:
    """Raise unless the leader token is of the epoch granted last; leases do not matter here."""
    if context.leader is None:
        raise errors.leader_missing(context.operation)
    _require_epoch(state, context.leader)


def _require_epoch(state: ConfigState, leader: LeaderToken) -> None:
    current = state.leadership
    held = None if current is None else LeaderToken(current.epoch, current.leader_id)
    if held != leader:
        raise errors.stale_epoch(
            leader.epoch, leader.leader_id, 0 if held is None else held.epoch, "" if held is None else held.leader_id
        )
