"""Messages of the stores: their watches as events, the state's writes as requests.

Owns the mapping of `configstore.v1` and `statusstore.v1`.
"""

from __future__ import annotations

import hashlib
import json

from herdmesh.api.common.v1 import identity_pb2, offsets_pb2
from herdmesh.api.configstore.v1 import config_pb2
from herdmesh.api.configstore.v1 import config_write_service_pb2 as write_pb
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as status_write_pb
from herdmesh.herder.state.model import ClusterLevel, ConnectorEntry, Lease, SessionKey, StatusEntry
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import (
    ChangeOffsets,
    OffsetsAnswer,
    OffsetsRecorded,
    RestartItem,
    WriteOptions,
)
from herdmesh.herder.wire import restart_notes, values
from herdmesh.rpc import commit_scopes, properties, revisions
from herdmesh.session import wire as session_wire
from herdmesh.session.model import OffsetEntry, UnitId
from herdmesh.topicstore.contract import Revision


def entry(message: config_pb2.ConnectorEntry) -> ConnectorEntry:
    """Everything stored about one connector."""
    return ConnectorEntry(
        name=message.name,
        has_config=message.has_config,
        config=properties.from_proto(message.config),
        config_revision=revisions.from_proto(message.config_revision),
        target=values.target_state(message.target_state),
        target_revision=revisions.from_proto(message.target_state_revision),
        tasks=tuple(properties.from_proto(task) for task in message.tasks),
        task_digests=tuple(message.task_digests),
        task_count=message.task_count,
        inconsistent=message.inconsistent,
        applied_config=properties.from_proto(message.applied_config) if message.HasField("applied_config") else None,
        incarnation=message.incarnation,
        task_set_version=message.task_config_generation,
        task_count_record=message.task_count_record if message.HasField("task_count_record") else None,
        pending_fencing=message.pending_fencing,
        foreign=message.foreign,
        restarts={None if task < 0 else task: generation for task, generation in message.restarts.items()},
    )


def cluster_level(message: config_pb2.LoggerLevel) -> ClusterLevel:
    """A logger level of the cluster."""
    revision = Revision(message.revision.store_id, tuple(message.revision.next_offsets))
    return ClusterLevel(message.logger, message.level, revision)


def status_unit(message: status_pb2.Status) -> UnitId:
    """The key of a status."""
    return UnitId(message.connector, message.task if message.HasField("task") else None)


def status(message: status_pb2.Status) -> StatusEntry:
    """A status as written; the state joins leases itself, from the newest table."""
    note, conditions = restart_notes.note(message.conditions)
    return StatusEntry(
        unit=status_unit(message),
        state=values.run_state(message.state),
        worker_id=message.worker_id,
        worker_incarnation=message.worker_incarnation,
        generation=message.generation,
        trace=message.trace if message.HasField("trace") else None,
        commit_scope=commit_scopes.from_proto(message.commit_scope) if message.HasField("commit_scope") else None,
        version=message.version if message.HasField("version") else None,
        conditions=conditions,
        note=note,
        revision=revisions.from_proto(message.revision) if message.HasField("revision") else None,
    )


def put_status(wanted: ins.PutStatus, request_id: str) -> status_write_pb.PutStatusesRequest:
    """Each change over exactly the record for which it was decided, under the name of the worker that wrote that
    record.
    """
    return status_write_pb.PutStatusesRequest(
        request_id=request_id, puts=[_status_put(change) for change in wanted.changes]
    )


def _status_put(change: ins.StatusChange) -> status_write_pb.StatusPut:
    over = change.over
    status = status_pb2.Status(
        connector=over.unit.connector,
        task=over.unit.task,
        state=session_wire.RUN_STATES.to_wire(change.state),
        trace=change.trace,
        worker_id=over.worker_id,
        generation=over.generation,
        version=over.version,
        commit_scope=commit_scopes.to_proto(over.commit_scope),
        worker_incarnation=over.worker_incarnation,
        conditions=[values.condition(condition) for condition in over.conditions],
    )
    status.conditions.extend(map(values.condition, restart_notes.conditions(change.note, change.state)))
    return status_write_pb.StatusPut(
        status=status,
        mode=status_write_pb.PUT_MODE_PUT_SAFE,
        expected_revision=revisions.to_proto(over.revision),
    )


def lease(message: status_pb2.Lease) -> Lease:
    return Lease(message.worker_id, message.incarnation, message.live)


def put_config(wanted: ins.PutConfig, request_id: str) -> write_pb.PutConnectorConfigRequest:
    request = write_pb.PutConnectorConfigRequest(
        options=_options(wanted.options, request_id),
        connector=wanted.connector,
        config=properties.to_proto(wanted.config),
        must_exist=wanted.must_exist,
        must_not_exist=wanted.must_not_exist,
        only_if_changed=wanted.only_if_changed,
    )
    if wanted.patch is not None:
        request.patch.CopyFrom(properties.to_proto(wanted.patch))
    if wanted.initial_target is not None:
        request.initial_target_state = session_wire.TARGET_STATES.to_wire(wanted.initial_target)
    if isinstance(wanted.initial_offsets, offsets_pb2.PreparedOffsets):
        request.initial_offsets.CopyFrom(wanted.initial_offsets)
    return request


def delete_config(wanted: ins.DeleteConfig, request_id: str) -> write_pb.DeleteConnectorRequest:
    return write_pb.DeleteConnectorRequest(options=_options(wanted.options, request_id), connector=wanted.connector)


def put_target(wanted: ins.PutTarget, request_id: str) -> write_pb.SetTargetStateRequest:
    return write_pb.SetTargetStateRequest(
        options=_options(wanted.options, request_id),
        connector=wanted.connector,
        target_state=session_wire.TARGET_STATES.to_wire(wanted.target),
    )


def put_logger(wanted: ins.PutLogger, request_id: str) -> write_pb.PutLoggerLevelRequest:
    return write_pb.PutLoggerLevelRequest(
        options=_options(wanted.options, request_id),
        logger_level=config_pb2.LoggerLevel(logger=wanted.logger, level=wanted.level),
    )


def record_drain(wanted: ins.RecordDrain, request_id: str) -> write_pb.RecordDrainRequest:
    options = _options(wanted.options, request_id)
    return write_pb.RecordDrainRequest(options=options, worker_id=wanted.worker_id, draining=wanted.draining)


def record_offsets(wanted: ins.RecordOffsets, request_id: str, leader_id: str) -> write_pb.RecordOffsetsRequest:
    told = config_pb2.OffsetsTold(
        offsets=[
            config_pb2.PartitionOffset(partition_json=one.partition_json, offset_json=one.offset_json)
            for one in wanted.response.offsets
        ],
        message=wanted.response.message,
    )
    options = _options(wanted.options, request_id)
    if not wanted.ended:  # a former leader may still record the end of a change that it began
        options.leader.CopyFrom(leader_token(wanted.epoch, leader_id))
    return write_pb.RecordOffsetsRequest(
        options=options,
        connector=wanted.connector,
        change=_digest(wanted.change),
        ended=wanted.ended,
        told=told,
    )


def offsets_recorded(response: write_pb.RecordOffsetsResponse) -> OffsetsRecorded:
    """Progress of the change by the store's records."""
    told = OffsetsAnswer(
        tuple(
            OffsetEntry(one.partition_json, one.offset_json if one.HasField("offset_json") else None)
            for one in response.told.offsets
        ),
        response.told.message,
    )
    return OffsetsRecorded(response.ended, told, response.repeated, response.overtaken)


def _digest(change: ChangeOffsets) -> str:
    """Digest that distinguishes changes of offsets of one connector."""
    offsets = [(one.partition_json, one.offset_json) for one in change.offsets]
    asked = json.dumps([offsets, change.reset, change.rewind_to_ms, change.allow_forward])
    return hashlib.sha256(asked.encode("ascii")).hexdigest()


def request_restart(wanted: ins.RequestRestart, request_id: str, leader_id: str) -> write_pb.RequestRestartRequest:
    options = _options(wanted.options, request_id)
    options.leader.CopyFrom(leader_token(wanted.epoch, leader_id))
    return write_pb.RequestRestartRequest(
        options=options,
        restart=config_pb2.RestartRequest(
            connector=wanted.connector, include_tasks=wanted.include_tasks, only_failed=wanted.only_failed
        ),
        task=wanted.task,
        items=[
            config_pb2.RestartItem(
                task=item.task,
                state=session_wire.RUN_STATES.to_wire(item.state),
                restarted=item.restarted,
                worker_id=item.worker_id,
            )
            for item in wanted.items
        ],
        generation=wanted.generation,
    )


def restarted(response: write_pb.RequestRestartResponse) -> tuple[RestartItem, ...]:
    """The answer that the first caller of a restart got."""
    return tuple(
        RestartItem(
            item.task if item.HasField("task") else None, values.run_state(item.state), item.restarted, item.worker_id
        )
        for item in response.items
    )


def commit_tasks(wanted: ins.CommitTasks, request_id: str, leader_id: str) -> write_pb.CommitTaskConfigsRequest:
    return write_pb.CommitTaskConfigsRequest(
        options=_leader_options(request_id, wanted.epoch, leader_id),
        connector=wanted.connector,
        tasks=[properties.to_proto(task) for task in wanted.tasks],
        config_revision=revisions.to_proto(wanted.config_revision),
        fenced_generation=wanted.fenced_generation,
    )


def put_task_count(wanted: ins.PutTaskCount, request_id: str, leader_id: str) -> write_pb.PutTaskCountRequest:
    return write_pb.PutTaskCountRequest(
        options=_leader_options(request_id, wanted.epoch, leader_id),
        connector=wanted.connector,
        task_count=wanted.task_count,
    )


def put_session_key(
    wanted: ins.RotateSessionKey, request_id: str, leader_id: str, key: bytes, created_ms: int
) -> write_pb.PutSessionKeyRequest:
    message = config_pb2.SessionKey(key=key, algorithm=wanted.algorithm)
    message.create_time.FromMilliseconds(created_ms)
    return write_pb.PutSessionKeyRequest(
        options=_leader_options(request_id, wanted.epoch, leader_id), session_key=message
    )


def session_key(message: config_pb2.SessionKey, now_ms: int) -> SessionKey:
    """Age and kind of a key, for the state; `now_ms` is the wall clock."""
    return SessionKey(message.algorithm, len(message.key), now_ms - message.create_time.ToMilliseconds())


def leader_token(epoch: int, leader_id: str) -> identity_pb2.LeaderToken:
    return identity_pb2.LeaderToken(epoch=epoch, leader_id=leader_id)


def _options(options: WriteOptions, request_id: str) -> write_pb.WriteOptions:
    message = write_pb.WriteOptions(request_id=request_id, caller=options.caller, retry_only=options.retry_only)
    if options.expected_revision is not None:
        message.expected_revision.CopyFrom(revisions.to_proto(options.expected_revision))
    return message


def _leader_options(request_id: str, epoch: int, leader_id: str) -> write_pb.WriteOptions:
    return write_pb.WriteOptions(
        request_id=request_id, caller=f"herder {leader_id}", leader=leader_token(epoch, leader_id)
    )
