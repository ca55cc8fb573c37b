"""Record format of the status topic (docs/reference/connect/status-topic.md, sections 2, 5 and 10"Seen on 4.3.1").

Owns the three record kinds with their keys, values and accept and refuse rules. Owns no cache: the status store decides
which status applies (stale UNASSIGNED, PUT_SAFE). msgspec reads an ordinary value in one step (`_PlainStatus`); any
other value is read member by member.

Invariant: `encode(decode(key, value)) == (key, value)` for every record that Connect writes. Herdmesh's own members
come after `version`, only when they are set, and Java ignores them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, cast

import msgspec

from herdmesh.connect.errors import DataError
from herdmesh.connect.java import wrap_int32
from herdmesh.connect.json_text import jackson
from herdmesh.connect.spi import Wait
from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.connect.topics.decoding import Tombstone, Undecodable, Unknown, key_bytes, key_text, parse_task_key

_Json = dict[str, Any]


class State(StrEnum):
    """State of a connector or task. DESTROYED is never written: it is a tombstone."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    DESTROYED = "DESTROYED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"


class Condition(msgspec.Struct, frozen=True, gc=False):
    """Entry of a task's status beside its state, such as STALLED or RESTARTING (Herdmesh's addition).

    `type` is in upper case, `message` one line for an operator, `since_ms` epoch milliseconds, 0 = unknown.
    """

    type: str
    message: str = ""
    since_ms: int = 0
    wait: Wait | None = None
    """Parts of a condition of type WAITING; the wait began at `since_ms`."""


class ConnectorStatus(msgspec.Struct, frozen=True, gc=False):
    """`status-connector-<c>`.

    `worker_id` is host:port (None only where a foreign writer left null), `generation` the writer's (int32), `trace`
    the stack trace of a FAILED connector, `version` that of the connector plugin. `conditions`, `commit_scope` and
    `worker_incarnation` are Herdmesh's, absent by default.
    """

    connector: str
    state: State
    worker_id: str | None
    generation: int
    trace: str | None = None
    version: str | None = None
    conditions: tuple[Condition, ...] = ()
    commit_scope: CommitScope | None = None
    worker_incarnation: str = ""


class TaskStatus(msgspec.Struct, frozen=True, gc=False):
    """`status-task-<c>-<n>`; members as in `ConnectorStatus`. `commit_scope`: of its last commit, None = no commit."""

    connector: str
    task: int
    state: State
    worker_id: str | None
    generation: int
    trace: str | None = None
    version: str | None = None
    conditions: tuple[Condition, ...] = ()
    commit_scope: CommitScope | None = None
    worker_incarnation: str = ""


class TopicStatus(msgspec.Struct, frozen=True, gc=False):
    """`status-topic-<topic>:connector-<c>`: the connector uses the topic.

    `topic` and `connector` come from the key, by which Connect stores the status. `named_topic` and `named_connector`
    come from the value, None when it agrees with the key. `task` is the task that used the topic first.
    """

    topic: str
    connector: str
    task: int
    discover_timestamp_ms: int
    named_topic: str | None = None
    named_connector: str | None = None


_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _PlainStatus(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Value of a status in its usual form, with members of the right types only. Jackson reads such a value in the same
    way.
    """

    state: State
    generation: _Int32
    worker_id: str | None = None
    trace: str | None = None
    version: str | None = None
    commit_scope: CommitScope | None = None
    worker_incarnation: str = ""


class _PlainTopic(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    connector: str
    task: _Int32
    discover_timestamp_ms: _Int64 = msgspec.field(name="discoverTimestamp")


class _PlainTopicStatus(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    topic: _PlainTopic


_decode_plain_status = msgspec.json.Decoder(_PlainStatus).decode
_decode_plain_topic = msgspec.json.Decoder(_PlainTopicStatus).decode

StatusRecord = ConnectorStatus | TaskStatus | TopicStatus
Decoded = StatusRecord | Tombstone | Undecodable | Unknown

_FIRST_WORD = "status-"
_CONNECTOR = "status-connector"
_TASK = "status-task"
_TOPIC = "status-topic"
_TOPIC_SEPARATOR = ":connector-"


def connector_status_key(connector: str) -> bytes:
    """`status-connector-<c>`."""
    return key_bytes(f"{_CONNECTOR}-{connector}")


def task_status_key(connector: str, task: int) -> bytes:
    """`status-task-<c>-<n>`."""
    return key_bytes(f"{_TASK}-{connector}-{task}")


def topic_status_key(topic: str, connector: str) -> bytes:
    """`status-topic-<topic>:connector-<c>`."""
    return key_bytes(f"{_TOPIC}-{topic}{_TOPIC_SEPARATOR}{connector}")


def encode(record: StatusRecord | Tombstone) -> tuple[bytes, bytes | None]:
    """Key and value; a status with state DESTROYED becomes its tombstone."""
    if isinstance(record, Tombstone):
        return _tombstone_key(record), None
    if isinstance(record, TopicStatus):
        value: _Json = {
            "topic": {
                "name": record.topic if record.named_topic is None else record.named_topic,
                "connector": record.connector if record.named_connector is None else record.named_connector,
                "task": record.task,
                "discoverTimestamp": record.discover_timestamp_ms,
            }
        }
        return topic_status_key(record.topic, record.connector), jackson.dumps(value)
    if isinstance(record, TaskStatus):
        key = task_status_key(record.connector, record.task)
    else:
        key = connector_status_key(record.connector)
    return key, None if record.state is State.DESTROYED else jackson.dumps(_status_value(record))


def decode(key: bytes | None, value: bytes | None) -> Decoded:
    """Read one record. Only a null value is a tombstone here: an empty one is unreadable
    (docs/reference/connect/status-topic.md, section 5.1)."""
    if key is None:
        return Undecodable("the key is null")
    text = key_text(key)
    second_dash = text.find("-", len(_FIRST_WORD))
    kind = text[: max(second_dash, 0)]
    decoder = _DECODERS.get(kind)
    if decoder is None:
        return Unknown(text)
    try:
        return decoder(text, value)
    except (DataError, _Refused) as error:
        return Undecodable(str(error), kind)


class _Refused(Exception):
    """Reason why a key or value is malformed. Never leaves this module."""


def _tombstone_key(record: Tombstone) -> bytes:
    if record.kind == _TOPIC:
        return topic_status_key(record.topic or "", record.connector)
    if record.kind == _TASK and record.task is not None:
        return task_status_key(record.connector, record.task)
    return connector_status_key(record.connector)


def _status_value(record: ConnectorStatus | TaskStatus) -> _Json:
    value: _Json = {
        "state": record.state.value,
        "trace": record.trace,
        "worker_id": record.worker_id,
        "generation": record.generation,
        "version": record.version,
    }
    if record.conditions:
        value["conditions"] = [_condition_value(item) for item in record.conditions]
    if record.commit_scope is not None:
        value["commit_scope"] = _commit_scope_value(record.commit_scope)
    if record.worker_incarnation:
        value["worker_incarnation"] = record.worker_incarnation
    return value


def _commit_scope_value(scope: CommitScope) -> _Json:
    value: _Json = {"group": scope.group, "topics": list(scope.topics)}
    if scope.elsewhere:
        value["elsewhere"] = list(scope.elsewhere)
    if scope.topic_ids:
        value["topic_ids"] = list(scope.topic_ids)
    return value


def _condition_value(condition: Condition) -> _Json:
    value: _Json = {"type": condition.type, "message": condition.message}
    if condition.since_ms:
        value["since_ms"] = condition.since_ms
    if condition.wait is not None:
        wait = condition.wait
        value["wait"] = {
            "waits_for": wait.waits_for, "message": wait.message, "tries": wait.tries, "next_ms": wait.next_ms,
        }  # fmt: skip
    return value


def _decode_connector(key: str, value: bytes | None) -> Decoded:
    connector = key[len(_CONNECTOR) + 1 :]
    if not connector:
        raise _Refused("the key names no connector")
    if value is None:
        return Tombstone(_CONNECTOR, connector)
    plain = _plain_status(value)
    if plain is None:
        return ConnectorStatus(connector, **_status_members(value))
    return ConnectorStatus(
        connector,
        plain.state,
        plain.worker_id,
        plain.generation,
        plain.trace,
        plain.version,
        (),
        plain.commit_scope,
        plain.worker_incarnation,
    )


def _decode_task(key: str, value: bytes | None) -> Decoded:
    parsed = parse_task_key(key, 2)
    if parsed is None:
        raise _Refused(f"the key '{key}' names no task")
    connector, task = parsed
    if value is None:
        return Tombstone(_TASK, connector, task)
    plain = _plain_status(value)
    if plain is None:
        return TaskStatus(connector, task, **_status_members(value))
    return TaskStatus(
        connector,
        task,
        plain.state,
        plain.worker_id,
        plain.generation,
        plain.trace,
        plain.version,
        (),
        plain.commit_scope,
        plain.worker_incarnation,
    )


def _decode_topic(key: str, value: bytes | None) -> Decoded:
    # Connect skips the length of the separator without comparing its text (docs/reference/connect/status-topic.md,
    # section 5.3); topics cannot contain a colon.
    rest = key[len(_TOPIC) + 1 :]
    colon = rest.find(":")
    topic, connector = rest[: max(colon, 0)], rest[colon + len(_TOPIC_SEPARATOR) :]
    if colon < 0 or not topic or not connector:
        raise _Refused(f"the key '{key}' names no topic and connector")
    if value is None:
        return Tombstone(_TOPIC, connector, topic=topic)
    told = _topic_members(value)
    return TopicStatus(
        topic,
        connector,
        told.task,
        told.discover_timestamp_ms,
        None if told.name == topic else told.name,
        None if told.connector == connector else told.connector,
    )


# By the part of a key before its second dash; a key without a second dash has no kind.
_DECODERS: dict[str, Callable[[str, bytes | None], Decoded]] = {
    _CONNECTOR: _decode_connector,
    _TASK: _decode_task,
    _TOPIC: _decode_topic,
}


def _plain_status(value: bytes) -> _PlainStatus | None:
    """Read a status in its usual form; None where it must be read member by member."""
    try:
        return _decode_plain_status(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _topic_members(value: bytes) -> _PlainTopic:
    try:
        return _decode_plain_topic(value).topic
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass  # Jackson may still accept it
    members = _map(_map(jackson.loads(value), "the value").get("topic"), "'topic'")
    return _PlainTopic(
        _text(members, "name"),
        _text(members, "connector"),
        wrap_int32(_integer(members, "task")),
        _integer(members, "discoverTimestamp"),
    )


def _status_members(value: bytes) -> _Json:
    members = _map(jackson.loads(value), "the value")
    state = members.get("state")
    if not isinstance(state, str) or state not in State.__members__:
        raise _Refused(f"unknown state '{state}'")
    return {
        "state": State(state),
        "worker_id": _text_or_null(members, "worker_id"),
        "generation": wrap_int32(_integer(members, "generation")),
        "trace": _text_or_null(members, "trace"),
        "version": _text_or_null(members, "version"),
        "conditions": _conditions(members.get("conditions")),
        "commit_scope": _commit_scope(members.get("commit_scope")),
        "worker_incarnation": _text_or_empty(members.get("worker_incarnation")),
    }


def _conditions(value: Any) -> tuple[Condition, ...]:
    """Herdmesh's own member, read leniently: the form of a newer writer must not hide the status itself."""
    if not isinstance(value, list):
        return ()
    items = [cast(_Json, item) for item in cast("list[Any]", value) if isinstance(item, dict)]
    return tuple(
        Condition(
            _text_or_empty(item.get("type")),
            _text_or_empty(item.get("message")),
            _integer_or_zero(item.get("since_ms")),
            _wait(item.get("wait"), _integer_or_zero(item.get("since_ms"))),
        )
        for item in items
    )


def _wait(value: Any, since_ms: int) -> Wait | None:
    if not isinstance(value, dict):
        return None
    members = cast(_Json, value)
    return Wait(
        _text_or_empty(members.get("waits_for")),
        _text_or_empty(members.get("message")),
        since_ms,
        _integer_or_zero(members.get("tries")),
        _integer_or_zero(members.get("next_ms")),
    )


def _commit_scope(value: Any) -> CommitScope | None:
    """Herdmesh's own member: an unreadable one means no commit."""
    if not isinstance(value, dict):
        return None
    members = cast(_Json, value)
    group, topics, elsewhere = members.get("group"), _texts(members.get("topics")), _texts(members.get("elsewhere", []))
    if not isinstance(group, str) or topics is None or elsewhere is None:
        return None
    ids = _texts(members.get("topic_ids", [])) or ()
    return CommitScope(group, topics, elsewhere, ids if len(ids) == len(topics) else ())


def _texts(value: Any) -> tuple[str, ...] | None:
    """A list of texts as a tuple; None for any other value."""
    if not isinstance(value, list):
        return None
    texts = tuple(item for item in cast("list[Any]", value) if isinstance(item, str))
    return texts if len(texts) == len(cast("list[Any]", value)) else None


def _integer_or_zero(value: Any) -> int:
    return value if type(value) is int else 0


def _text_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _map(value: Any, what: str) -> _Json:
    if not isinstance(value, dict):
        raise _Refused(f"{what} is not a JSON object")
    return cast(_Json, value)


def _text(members: _Json, field: str) -> str:
    text = members.get(field)
    if not isinstance(text, str):
        raise _Refused(f"'{field}' is not a string")
    return text


def _text_or_null(members: _Json, field: str) -> str | None:
    return None if members.get(field) is None else _text(members, field)


def _integer(members: _Json, field: str) -> int:
    number = members.get(field)
    if type(number) is not int:
        raise _Refused(f"'{field}' is not an integer")
    return number
