"""Changed behaviour of a service of the newer release: it sends values that this release does not know.

Python imports this file by its name as the service starts. Owns the serializers of everything that the service sends.

- Every message, and every message in it, has the field `tomorrow`.
- Enums that are only displayed (a failure's class, texts of the CLI) have their new value.
- A worker has a plugin of a new kind; one heartbeat in three is a message of a new kind, and one reports a new state of
  a running task.
- A herder pauses units by a new target state; one heartbeat in three is a message of a new kind.
- A status is put in a new mode.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from herdmesh.rpc import encoded

TOMORROW = 90
#: Numbers of today's contracts, which this file cannot import: the service has yet to start.
_RUNNING, _PAUSED, _PUT_SAFE = 2, 2, 2
_TOLD = {
    ("Failure", "error_class"),
    ("Connector", "target_state"),
    ("Connector", "type"),
    ("TaskProgress", "activity"),
    ("Worker", "state"),
    ("StoreStatus", "role"),
}
_beats = count()
_reports: list[bytes] = []
_noted: set[str] = set()


def sent(kind: Any) -> Callable[[Any], bytes]:
    """The serializer of a kind of message."""

    def serialize(message: Any) -> bytes:
        newer = kind.FromString(message if type(message) is bytes else message.SerializeToString())
        change = _CHANGES.get(newer.DESCRIPTOR.name)
        if change is not None:
            change(newer)
        _extend(newer)
        data: bytes = newer.SerializeToString()
        return data

    return serialize


def _extend(message: Any) -> None:
    name = message.DESCRIPTOR.name
    for field, value in message.ListFields():
        if (name, field.name) in _TOLD:
            setattr(message, field.name, TOMORROW)
            _note(f"{name}.{field.name}")
        elif field.message_type is None:
            continue
        elif field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for one in value.values():
                    _extend(one)
        else:
            for one in value if field.is_repeated else (value,):
                _extend(one)
    if "tomorrow" in message.DESCRIPTOR.fields_by_name:
        message.tomorrow = "sunny"
        _note("field")


def _of_worker(message: Any) -> None:
    kind = message.WhichOneof("message")
    if kind == "hello":
        message.hello.plugins.add(class_name="com.example.Tomorrow", kind=TOMORROW)
        _note("plugin")
    elif kind == "report" and message.report.state == _RUNNING and message.report.unit.HasField("task"):
        _reports[:] = [message.report.SerializeToString()]
    elif kind == "heartbeat":
        turn = next(_beats) % 3
        if turn == 1:
            message.tomorrow_message = "sunny"
            _note("message-of-worker")
        elif turn == 2 and _reports:
            message.report.MergeFromString(_reports[0])
            message.report.state = TOMORROW
            _note("state")


def _of_herder(message: Any) -> None:
    kind = message.WhichOneof("message")
    if kind == "heartbeat" and next(_beats) % 3 == 1:
        message.tomorrow_message = "sunny"
        _note("message-of-herder")
    elif kind in ("set_target_state", "start") and getattr(message, kind).target_state == _PAUSED:
        getattr(message, kind).target_state = TOMORROW
        _note("target")


def _of_statuses(message: Any) -> None:
    for put in message.puts:
        if put.mode == _PUT_SAFE:
            put.mode = TOMORROW
            _note("mode")


def _note(what: str) -> None:
    """Note an addition once for each life of a service, so that a test knows of it."""
    if what not in _noted:
        _noted.add(what)
        with Path(os.environ["HERDMESH_NEWER_SENT"]).open("a") as file:
            file.write(f"{what}\n")


_CHANGES: dict[str, Callable[[Any], None]] = {
    "SessionRequest": _of_worker,
    "SessionResponse": _of_herder,
    "PutStatusesRequest": _of_statuses,
}


def _serialized_by(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    return serialize


# Messages that are encoded once for many receivers are changed as well.
encoded.serializer = _serialized_by
