"""Record format of the config topic (docs/reference/connect/config-topic.md, sections 2, 4 and 11).

Owns keys, values and the accept and refuse rules of every record kind. Owns no state: the config store applies records
to connectors (deferred tasks, inconsistency, fencing).

Invariant: `encode(decode(key, value)) == (key, value)` for every record that Connect writes, and `decode` accepts
exactly the records that Connect's KafkaConfigBackingStore accepts.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Annotated, Any, cast

import msgspec

from herdmesh.connect.errors import DataError
from herdmesh.connect.java import wrap_int32
from herdmesh.connect.json_text import jackson
from herdmesh.connect.topics.config_records import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    EpochRecord,
    LoggerRecord,
    ManifestRecord,
    Properties,
    RestartRecord,
    SessionKeyRecord,
    TargetState,
    TargetStateRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from herdmesh.connect.topics.decoding import (
    Tombstone,
    Undecodable,
    Unknown,
    key_bytes,
    key_text,
    parse_int32,
    parse_task_key,
)

RECORD_BYTES_MAX = 1_000_000
"""Maximum bytes of a key and its value. A broker accepts records of 1,048,588 bytes by default; this leaves space for
the batch around the record.
"""
SESSION_KEY = "session-key"
LEADER_KEY = "herdmesh-leader"

Decoded = ConfigRecord | Tombstone | Undecodable | Unknown
_Json = dict[str, Any]
_Decoder = Callable[[str, "int | None", Any], Decoded]

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

_CONNECTOR = "connector"
_TASK = "task"
_MANIFEST = "herdmesh-connector"


def connector_key(connector: str) -> bytes:
    """`connector-<c>`."""
    return key_bytes(f"connector-{connector}")


def target_state_key(connector: str) -> bytes:
    """`target-state-<c>`."""
    return key_bytes(f"target-state-{connector}")


def task_key(connector: str, task: int) -> bytes:
    """`task-<c>-<n>`."""
    return key_bytes(f"task-{connector}-{task}")


def commit_key(connector: str) -> bytes:
    """`commit-<c>`."""
    return key_bytes(f"commit-{connector}")


def manifest_key(connector: str) -> bytes:
    """`herdmesh-connector-<c>`."""
    return key_bytes(f"herdmesh-connector-{connector}")


def encode(record: ConfigRecord | Tombstone) -> tuple[bytes, bytes | None]:
    """Key and value of a record, or of the tombstone of a connector or target state."""
    if isinstance(record, Tombstone):
        return key_bytes(f"{record.kind}-{record.connector}"), None
    key, value = _ENCODERS[type(record)](record)
    return key_bytes(key), jackson.dumps(value)


def decode(key: bytes | None, value: bytes | None) -> Decoded:
    """Read one record. Connect treats null, empty and JSON-null values alike
    (docs/reference/connect/config-topic.md, section 2.1).
    """
    if key is None:
        return Undecodable("the key is null")
    text = key_text(key)
    kind, decoder = _kind_of(text)
    if decoder is None:
        return Unknown(text)
    name = text[len(kind) + 1 :]
    task: int | None = None
    if kind == _TASK:
        parsed = parse_task_key(text, 1)
        if parsed is None:
            return Undecodable(f"the key '{text}' names no task", kind)
        name, task = parsed
    if value and (plain := _plain_record(kind, name, task, value)) is not None:
        return plain
    try:
        parsed_value = jackson.loads(value)
    except DataError as error:
        return Undecodable(str(error), kind, name, task)
    try:
        return decoder(name, task, parsed_value)
    except _Refused as refusal:
        return Undecodable(str(refusal), kind, name, task)


def _plain_record(kind: str, name: str, task: int | None, value: bytes) -> ConfigRecord | None:
    """Read a record of the kinds that make up nearly the whole topic in one step; None for an unusual value."""
    if kind == _MANIFEST:
        return _plain_manifest(name, value)
    if kind not in _OF_PROPERTIES:
        return None
    properties = jackson.loads_properties(value)
    if properties is None:
        return None
    return ConnectorRecord(name, properties) if task is None else TaskConfigRecord(name, task, properties)


def _kind_of(text: str) -> tuple[str, _Decoder | None]:
    """Kind and decoder of a key. `connector` alone is no kind, nor is `session-key-x`: `session-key` is a whole key."""
    for kind, decoder in _BY_FIRST_WORD.get(text[: text.find("-")], ()):
        if kind in _WHOLE_KEYS:
            if text == kind:
                return kind, decoder
        elif text.startswith(kind) and text[len(kind) : len(kind) + 1] == "-":
            return kind, decoder
    return "", None


class _Refused(Exception):
    """Reason why a value does not match its key. Never leaves this module."""


def _map(value: Any) -> _Json:
    if value is None:
        raise _Refused("the value is null")
    if not isinstance(value, dict):
        raise _Refused("the value is not a JSON object")
    return cast(_Json, value)


def _properties(value: Any) -> Properties:
    properties = _map(value).get("properties")
    if not isinstance(properties, dict):
        raise _Refused("'properties' is not a JSON object")
    return cast(_Json, properties)


def _integer(value: _Json, field: str) -> int:
    number = value.get(field)
    if type(number) is not int:
        raise _Refused(f"'{field}' is not an integer")
    return number


def _text(value: _Json, field: str) -> str:
    text = value.get(field)
    if not isinstance(text, str):
        raise _Refused(f"'{field}' is not a string")
    return text


def _decode_target_state(name: str, _task: int | None, value: Any) -> Decoded:
    if value is None:
        return Tombstone("target-state", name)
    members = _map(value)
    # A string in state.v2 decides alone, even when the state is unknown; for any other value of it, `state` decides.
    state = members.get("state.v2")
    if not isinstance(state, str):
        state = _text(members, "state")
    if state not in TargetState.__members__:
        raise _Refused(f"unknown target state '{state}'")
    return TargetStateRecord(name, TargetState(state))


def _decode_connector(name: str, _task: int | None, value: Any) -> Decoded:
    return Tombstone("connector", name) if value is None else ConnectorRecord(name, _properties(value))


def _decode_task(name: str, task: int | None, value: Any) -> Decoded:
    assert task is not None  # decode() parsed it from the key
    return TaskConfigRecord(name, task, _properties(value))


def _decode_commit(name: str, _task: int | None, value: Any) -> Decoded:
    return CommitRecord(name, wrap_int32(_integer(_map(value), "tasks")))


def _decode_restart(name: str, _task: int | None, value: Any) -> Decoded:
    members = _map(value)
    # Connect reads a missing or wrongly typed flag as false, with a warning.
    return RestartRecord(name, members.get("include-tasks") is True, members.get("only-failed") is True)


def _decode_task_count(name: str, _task: int | None, value: Any) -> Decoded:
    return TaskCountRecord(name, wrap_int32(_integer(_map(value), "task-count")))


def _decode_session_key(_name: str, _task: int | None, value: Any) -> Decoded:
    members = _map(value)
    try:
        encoded = _text(members, "key")
        if len(encoded) % 4 and not encoded.endswith("="):
            encoded += "=" * (-len(encoded) % 4)  # Java's decoder accepts missing padding
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _Refused(f"'key' is not base64: {error}") from error
    if not key:
        raise _Refused("'key' is empty")
    return SessionKeyRecord(key, _text(members, "algorithm"), _integer(members, "creation-timestamp"))


def _decode_logger(name: str, _task: int | None, value: Any) -> Decoded:
    return LoggerRecord(name, _text(_map(value), "level"))


class _PlainManifest(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Manifest in its usual form, with members of the right types only. Jackson reads such a value in the same way."""

    incarnation: str
    applied_config: dict[str, str | None] | None
    task_count: _Int64
    task_digests: tuple[str, ...]
    task_config_generation: _Int64
    deleted: bool
    config_digest: str
    revisions: dict[str, _Int64]


_decode_plain_manifest = msgspec.json.Decoder(_PlainManifest).decode


def _plain_manifest(name: str, value: bytes) -> ManifestRecord | None:
    """Read a manifest in its usual form; None where it must be read member by member."""
    if len(value) > jackson.NAME_LENGTH_MAX:
        return None
    try:
        plain = _decode_plain_manifest(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return ManifestRecord(
        name,
        plain.incarnation,
        plain.applied_config,
        plain.task_count,
        plain.task_digests,
        plain.task_config_generation,
        plain.deleted,
        plain.config_digest,
        plain.revisions,
    )


def _decode_manifest(name: str, _task: int | None, value: Any) -> Decoded:
    if value is None:
        return Tombstone(_MANIFEST, name)
    members = _map(value)
    applied = members.get("applied_config")
    digests = members.get("task_digests", [])
    revisions = members.get("revisions", {})
    if applied is not None and not isinstance(applied, dict):
        raise _Refused("'applied_config' is not a JSON object")
    if not isinstance(digests, list) or not isinstance(revisions, dict):
        raise _Refused("'task_digests' is not a list or 'revisions' not a JSON object")
    return ManifestRecord(
        connector=name,
        incarnation=_text(members, "incarnation"),
        applied_config=cast("_Json | None", applied),
        task_count=_integer(members, "task_count"),
        task_digests=tuple(str(digest) for digest in cast("list[Any]", digests)),
        task_config_generation=_integer(members, "task_config_generation"),
        deleted=members.get("deleted") is True,
        config_digest=_text(members, "config_digest"),
        revisions={key: _integer(cast(_Json, revisions), key) for key in cast(_Json, revisions)},
        leftover_digests={number: str(digest) for number, digest in _numbered(members, "stray_digests").items()},
        restarts=_restarts(members),
        orphan_commit_offset=_integer(members, "orphan_commit_offset") if "orphan_commit_offset" in members else -1,
    )


def _numbered(members: _Json, name: str) -> dict[int, Any]:
    """A member that is an object with task numbers as keys; empty where it is missing."""
    value = members.get(name)
    if value is None:
        return {}
    numbered = {parse_int32(number): item for number, item in _map(value).items()}
    if None in numbered:
        raise _Refused(f"'{name}' has a member that is not a task number")
    return {number: item for number, item in numbered.items() if number is not None}


def _restarts(members: _Json) -> dict[int, int]:
    numbered = _numbered(members, "restarts")
    if any(type(generation) is not int for generation in numbered.values()):
        raise _Refused("'restarts' has a member that is not a generation")
    return {number: wrap_int32(generation) for number, generation in numbered.items()}


def _decode_epoch(_name: str, _task: int | None, value: Any) -> Decoded:
    members = _map(value)
    return EpochRecord(
        epoch=_integer(members, "epoch"),
        leader_id=_text(members, "leader_id"),
        leader_address=_text(members, "leader_address"),
        next_generation=_integer(members, "next_generation"),
    )


# In the order in which Connect tries the prefixes (docs/reference/connect/config-topic.md, section 4). Herdmesh's own
# are last, since Connect never takes them for its own.
_DECODERS: tuple[tuple[str, _Decoder], ...] = (
    ("target-state", _decode_target_state),
    (_CONNECTOR, _decode_connector),
    (_TASK, _decode_task),
    ("commit", _decode_commit),
    ("restart-connector", _decode_restart),
    ("tasks-fencing", _decode_task_count),
    (SESSION_KEY, _decode_session_key),
    ("logger-cluster", _decode_logger),
    (_MANIFEST, _decode_manifest),
    (LEADER_KEY, _decode_epoch),
)
_WHOLE_KEYS = frozenset((SESSION_KEY, LEADER_KEY))
# No prefix is the beginning of another up to its dash, so the first word of a key leaves at most two kinds to try.
_BY_FIRST_WORD: dict[str, list[tuple[str, _Decoder]]] = {}
for _kind, _decoder in _DECODERS:
    _BY_FIRST_WORD.setdefault(_kind.partition("-")[0], []).append((_kind, _decoder))
_OF_PROPERTIES = frozenset((_CONNECTOR, _TASK))


def _encode_target_state(record: TargetStateRecord) -> tuple[str, _Json]:
    legacy = "STARTED" if record.state is TargetState.STARTED else "PAUSED"
    return f"target-state-{record.connector}", {"state": legacy, "state.v2": record.state.value}


def _encode_manifest(record: ManifestRecord) -> tuple[str, _Json]:
    applied = record.applied_config
    value: _Json = {
        "incarnation": record.incarnation,
        "applied_config": None if applied is None else {key: applied[key] for key in sorted(applied)},
        "task_count": record.task_count,
        "task_digests": list(record.task_digests),
        "task_config_generation": record.task_config_generation,
        "deleted": record.deleted,
        "config_digest": record.config_digest,
        "revisions": {key: record.revisions[key] for key in sorted(record.revisions)},
    }
    if record.leftover_digests:  # few connectors have leftover digests
        value["stray_digests"] = {str(number): digest for number, digest in record.leftover_digests.items()}
    if record.restarts:
        value["restarts"] = {str(number): record.restarts[number] for number in sorted(record.restarts)}
    if record.orphan_commit_offset >= 0:
        value["orphan_commit_offset"] = record.orphan_commit_offset
    return f"herdmesh-connector-{record.connector}", value


def _encode_epoch(record: EpochRecord) -> tuple[str, _Json]:
    return LEADER_KEY, {
        "epoch": record.epoch,
        "leader_id": record.leader_id,
        "leader_address": record.leader_address,
        "next_generation": record.next_generation,
    }


def _encode_session_key(record: SessionKeyRecord) -> tuple[str, _Json]:
    return SESSION_KEY, {
        "key": base64.b64encode(record.key).decode("ascii"),
        "algorithm": record.algorithm,
        "creation-timestamp": record.creation_timestamp_ms,
    }


_ENCODERS: dict[type, Callable[[Any], tuple[str, _Json]]] = {
    ConnectorRecord: lambda r: (f"connector-{r.connector}", {"properties": dict(r.properties)}),
    TargetStateRecord: _encode_target_state,
    TaskConfigRecord: lambda r: (f"task-{r.connector}-{r.task}", {"properties": dict(r.properties)}),
    CommitRecord: lambda r: (f"commit-{r.connector}", {"tasks": r.tasks}),
    RestartRecord: lambda r: (
        f"restart-connector-{r.connector}",
        {"include-tasks": r.include_tasks, "only-failed": r.only_failed},
    ),
    TaskCountRecord: lambda r: (f"tasks-fencing-{r.connector}", {"task-count": r.task_count}),
    SessionKeyRecord: _encode_session_key,
    LoggerRecord: lambda r: (f"logger-cluster-{r.namespace}", {"level": r.level}),
    ManifestRecord: _encode_manifest,
    EpochRecord: _encode_epoch,
}
