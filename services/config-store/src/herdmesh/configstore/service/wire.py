"""The conversion between the config store's values and its protos.

Owns both directions, and the refusal of malformed requests. Decides nothing.

Invariant: a value in a foreign writer's config that is not a string crosses the wire as JSON text and comes back as the
same value. No record of a foreign writer makes a message fail: one odd record must not hide all others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, assert_never, cast

from herdmesh.api.common.v1 import connector_pb2, identity_pb2, offsets_pb2, revision_pb2
from herdmesh.api.configstore.v1 import config_pb2, config_read_service_pb2, config_write_service_pb2
from herdmesh.configstore.state import changes
from herdmesh.configstore.state.config import ConfigState
from herdmesh.configstore.state.connector import ChangeKind, ConnectorState
from herdmesh.configstore.state.mutations import LeaderToken, RequestRestart
from herdmesh.configstore.state.redaction import redacted_names
from herdmesh.connect.errors import DataError
from herdmesh.connect.json_text import jackson
from herdmesh.connect.topics import AuditRecord, LoggerRecord, Properties, RestartRecord, SessionKeyRecord, TargetState
from herdmesh.rpc import java_values, properties, revisions
from herdmesh.rpc.enums import WireEnum
from herdmesh.rpc.errors import FieldViolation, InvalidConfig, RequestInvalid
from herdmesh.topicstore import Beside, GroupOffset, NewRecord, Revision

_Read = config_read_service_pb2

_INT32_MAX = 2**31 - 1
_TARGET_STATES = WireEnum(connector_pb2.TargetState, TargetState)
_KINDS = WireEnum(_Read.ConnectorChangeKind, ChangeKind)


def beside_from_proto(message: offsets_pb2.PreparedOffsets, own_topics: Collection[str]) -> Beside:
    """The prepared offsets of a create, as a topic store's value. Raises RequestInvalid for impossible offsets."""
    for record in message.records:
        if not record.topic or record.topic in own_topics:
            raise RequestInvalid(f"{record.topic!r} is not a topic for offsets", "initial_offsets.records.topic")
    if message.group_offsets and not message.group:
        raise RequestInvalid("name the consumer group of the offsets", "initial_offsets.group")
    if any(one.offset < 0 or one.partition < 0 or not one.topic for one in message.group_offsets):
        raise RequestInvalid(
            "expected a partition of a topic, and an offset of at least 0", "initial_offsets.group_offsets"
        )
    return Beside(
        [NewRecord(one.key, one.value if one.HasField("value") else None, one.topic) for one in message.records],
        message.group,
        [GroupOffset(one.topic, one.partition, one.offset, one.metadata) for one in message.group_offsets],
    )


def entry(state: ConnectorState, store_id: str) -> config_pb2.ConnectorEntry:
    """One connector as stored."""
    tasks = state.tasks
    message = config_pb2.ConnectorEntry(
        name=state.name,
        has_config=state.config is not None,
        tasks=[properties_to_proto(task.properties) for task in tasks],
        task_digests=[task.digest for task in tasks],
        task_count=state.task_count or 0,
        inconsistent=state.inconsistent,
        incarnation=java_values.text(state.incarnation),
        task_config_generation=state.task_config_generation,
        task_count_record=state.task_count_record,
        pending_fencing=state.pending_fencing,
        foreign=state.foreign,
        restarts=state.restarts or None,  # setting a map field, even to an empty map, costs a check of its type
        stray_tasks={
            number: properties_to_proto(task.properties)
            for number, task in state.task_configs.items()
            if not 0 <= number < len(tasks)
        }
        or None,
    )
    if state.config is not None:
        message.config.CopyFrom(properties_to_proto(state.config))
    if state.applied_config is not None:
        message.applied_config.CopyFrom(properties_to_proto(state.applied_config))
    if state.target_state is not None:
        message.target_state = _TARGET_STATES.to_wire(state.target_state)
    for field, revision in (
        (message.config_revision, state.config_revision),
        (message.target_state_revision, state.target_state_revision),
        (message.tasks_revision, state.tasks_revision),
    ):
        if revision:
            field.CopyFrom(_revision(store_id, revision))
    return message


def leadership(value: changes.Leadership | None) -> config_pb2.Leadership:
    """Leadership as stored; an empty message for none."""
    if value is None:
        return config_pb2.Leadership()
    return config_pb2.Leadership(
        epoch=value.epoch,
        leader_id=java_values.text(value.leader_id),
        leader_address=java_values.text(value.leader_address),
        generation_first=value.generation_first,
        generation_limit=value.generation_limit,
    )


def session_key(key: SessionKeyRecord, revision: int, store_id: str) -> config_pb2.SessionKey:
    """A session key, `revision` being the offset after its record."""
    return config_pb2.SessionKey(
        key=key.key,
        algorithm=java_values.text(key.algorithm),
        create_time=java_values.timestamp(key.creation_timestamp_ms),
        revision=_revision(store_id, revision),
    )


def session_key_from_proto(message: config_pb2.SessionKey) -> SessionKeyRecord:
    """The record of a session key."""
    if not message.algorithm or not message.HasField("create_time"):
        raise RequestInvalid("algorithm and create_time must be set", "session_key")
    return SessionKeyRecord(message.key, message.algorithm, message.create_time.ToMilliseconds())


def request_restart_from_proto(message: config_write_service_pb2.RequestRestartRequest) -> RequestRestart:
    """A restart request. The response for its caller goes through the store unchanged: task number or null, state,
    whether it is restarted, and its worker.
    """
    restart, items = message.restart, message.items
    return RequestRestart(
        RestartRecord(restart.connector, restart.include_tasks, restart.only_failed),
        message.task if message.HasField("task") else None,
        [item.task if item.HasField("task") else -1 for item in items if item.restarted],
        message.generation,
        [[item.task if item.HasField("task") else None, item.state, item.restarted, item.worker_id] for item in items],
    )


def restart_items_to_proto(told: Any) -> list[config_pb2.RestartItem]:
    """The restart response for a caller, from the stored outcome of the request. Outcomes of an earlier release name no
    worker.
    """
    return [
        config_pb2.RestartItem(task=task, state=state, restarted=restarted, worker_id=worker[0] if worker else "")
        for task, state, restarted, *worker in told or ()
    ]


def offset_outcome_from_proto(message: config_pb2.OffsetsTold) -> Mapping[str, Any]:
    """Offsets and a message, as the audit topic keeps them."""
    offsets = [
        [one.partition_json, one.offset_json if one.HasField("offset_json") else None] for one in message.offsets
    ]
    return {"offsets": offsets, "message": message.message}


def offset_outcome_to_proto(told: Any) -> config_pb2.OffsetsTold:
    """The message from an outcome that `offset_outcome_from_proto` made."""
    offsets = [
        config_pb2.PartitionOffset(partition_json=partition, offset_json=offset)
        for partition, offset in told["offsets"]
    ]
    return config_pb2.OffsetsTold(offsets=offsets, message=told["message"])


def logger_from_proto(message: config_pb2.LoggerLevel) -> LoggerRecord:
    """The record of a logger level."""
    return LoggerRecord(message.logger, message.level)


def chosen(state: ConfigState, names: Iterable[str]) -> list[ConnectorState]:
    """The named connectors, sorted; all stored connectors where none is named."""
    named = [state.connector(name) for name in sorted(set(names))]
    return [connector for connector in named if connector.is_remembered] if named else list(state.stored())


def snapshot_head(state: ConfigState, revision: Revision) -> config_read_service_pb2.GetSnapshotResponse:
    """The fields of a snapshot other than its connectors."""
    response = _Read.GetSnapshotResponse(meta=revisions.meta(revision), leadership=leadership(state.leadership))
    if state.session_key is not None:
        key = session_key(state.session_key, state.session_key_revision, revision.store_id)
        response.session_key.CopyFrom(key)
    return response


def change(value: changes.Change, store_id: str) -> config_read_service_pb2.WatchResponse:
    """One event of a watch, without its revision."""
    match value:
        case changes.ConnectorChanged():
            changed = _Read.ConnectorChanged(name=value.name, kinds=[_KINDS.to_wire(kind) for kind in value.kinds])
            if value.before is not None:
                changed.before.CopyFrom(entry(value.before, store_id))
            if value.after is not None:
                changed.after.CopyFrom(entry(value.after, store_id))
            return _Read.WatchResponse(connector_changed=changed)
        case changes.LeadershipChanged():
            return _Read.WatchResponse(leadership_changed=leadership(value.leadership))
        case changes.RestartRequested():
            request = value.request
            return _Read.WatchResponse(
                restart_requested=config_pb2.RestartRequest(
                    connector=request.connector, include_tasks=request.include_tasks, only_failed=request.only_failed
                )
            )
        case changes.SessionKeyChanged():
            return _Read.WatchResponse(session_key_changed=session_key(value.key, value.revision, store_id))
        case changes.LoggerLevelChanged():
            level = config_pb2.LoggerLevel(
                logger=value.level.namespace,
                level=java_values.text(value.level.level),
                revision=_revision(store_id, value.revision),
            )
            return _Read.WatchResponse(logger_level_changed=level)
        case _:
            assert_never(value)


def snapshot_part(state: ConnectorState, store_id: str) -> config_read_service_pb2.WatchResponse:
    """One connector of the snapshot that opens a watch. It has no revision: nobody can resume inside a snapshot."""
    return _Read.WatchResponse(
        connector_changed=_Read.ConnectorChanged(
            name=state.name, kinds=[_Read.CONNECTOR_CHANGE_KIND_SNAPSHOT], after=entry(state, store_id)
        )
    )


def history_entry(record: AuditRecord) -> config_read_service_pb2.HistoryEntry:
    """One change from its audit record. Fields that do not have our format are left out: others may write to that topic
    too.
    """
    told = record.changes
    config, changed, state = told.get("config"), told.get("changed"), told.get("target_state")
    count = told.get("tasks", told.get("task_count"))
    message = _Read.HistoryEntry(
        time=java_values.timestamp(record.time_ms),
        caller=java_values.text(record.caller),
        operation=java_values.text(record.operation),
        request_id=java_values.text(record.request_id),
        deleted=told.get("deleted") is True,
        changed_properties=[java_values.text(name) for name in _texts(changed)],
        task_count=count if type(count) is int and 0 <= count <= _INT32_MAX else None,
    )
    for field, text in ((message.revision, record.revision), (message.restored_revision, told.get("restored"))):
        with contextlib.suppress(ValueError):
            revision = revisions.from_text(text) if isinstance(text, str) else None
            if revision is not None:
                field.CopyFrom(revisions.to_proto(revision))
    if isinstance(told.get("restart"), dict):
        message.restart.CopyFrom(_restart_asked(cast("dict[str, object]", told["restart"])))
    if isinstance(config, dict):
        properties_after = cast(Properties, config)
        message.config_after.CopyFrom(properties_to_proto(properties_after))
        message.redacted_properties.extend(java_values.text(name) for name in redacted_names(properties_after))
    if state in TargetState.__members__:
        message.target_state_after = _TARGET_STATES.to_wire(TargetState(state))
    return message


def _restart_asked(asked: dict[str, object]) -> config_read_service_pb2.RestartAsked:
    task = asked.get("task")
    return _Read.RestartAsked(
        include_tasks=asked.get("include_tasks") is True,
        only_failed=asked.get("only_failed") is True,
        task=task if type(task) is int and 0 <= task <= _INT32_MAX else None,
    )


def properties_to_proto(config: Properties) -> connector_pb2.Properties:
    """A config. A value that is neither text nor null goes as JSON, and so does text that is not Unicode (JSON has an
    escape for half a surrogate pair, UTF-8 has not).
    """
    return properties.to_proto(
        {
            java_values.text(name): value
            if value is None or (isinstance(value, str) and java_values.text(value) == value)
            else properties.JsonValue(_json_text(value))
            for name, value in config.items()
        }
    )


def properties_from_proto(message: connector_pb2.Properties) -> Properties:
    """A config as it will be stored. Raises InvalidConfig where text marked as JSON is not JSON."""
    config: dict[str, Any] = {}
    for name, value in properties.from_proto(message).items():
        try:
            config[name] = jackson.loads(value.text.encode()) if isinstance(value, properties.JsonValue) else value
        except DataError as error:
            raise InvalidConfig([FieldViolation(name, "is not JSON")]) from error
    return config


def target_state_from_proto(number: connector_pb2.TargetState.ValueType, field: str) -> TargetState | None:
    """The target state of a request, None when unspecified. Raises RequestInvalid for a value that only a newer release
    knows: any other state would not be the requested one.
    """
    wanted = _TARGET_STATES.enum_from(number, None)
    if number and wanted is None:
        raise RequestInvalid(f"this release knows no target state {number}; use STARTED, PAUSED or STOPPED", field)
    return wanted


def leader_token(message: identity_pb2.LeaderToken) -> LeaderToken:
    """The leader token of a request."""
    return LeaderToken(message.epoch, message.leader_id)


def _json_text(value: object) -> str:
    return jackson.dumps(value).decode()


def _texts(value: object) -> list[str]:
    """The texts of a JSON list; an empty list for any other value."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str)]


def _revision(store_id: str, offset: int) -> revision_pb2.Revision:
    return revisions.to_proto(Revision(store_id, (offset,)))
