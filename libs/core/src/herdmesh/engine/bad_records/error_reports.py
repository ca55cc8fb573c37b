"""Reports of a failed record: the log line, and the headers of a dead letter.

Owns the texts, which are Connect's (docs/reference/connect/data-model.md, sections 5.3 and 5.4); a test compares them
byte for byte. A stack trace is Python's in Java's format, so that tools for one can parse the other.

Invariant: the log has only a record's coordinates unless `errors.log.include.messages` is set; no text
has a secret that the worker resolved.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from herdmesh.connect.config import redacted
from herdmesh.connect.errors import class_name_of, error_text
from herdmesh.connect.model import Header, Schema, Struct
from herdmesh.connect.topics import ERROR_HEADER_PREFIX
from herdmesh.engine.bad_records.tolerance import Counts, Failure, SourceRecord

FRAMES_MAX = 100
_TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}

_log = logging.getLogger(__name__)


class LogReporter:
    """A line at level ERROR for each failure."""

    def __init__(self, connector: str, task: int, counts: Counts, *, messages: bool) -> None:
        self._task = f"{connector}-{task}"
        self._counts = counts
        self._messages = messages

    def report(self, failure: Failure) -> None:
        """Log the failure."""
        _log.error("%s", log_text(self._task, failure, messages=self._messages), exc_info=failure.error)
        self._counts.logged += 1


def log_text(task: str, failure: Failure, *, messages: bool) -> str:
    """Connect's line, without the exception."""
    text = f"Error encountered in task {task}. Executing stage '{failure.stage}' with class '{failure.class_name}'"
    if messages and isinstance(failure.record, SourceRecord):
        text += f", where source record is = {_source_text(failure.record)}"
    elif messages and not isinstance(failure.record, SourceRecord):
        text += f", where consumed record is {_consumed_text(failure.record)}"
    return redacted(f"{text}.")


def place_of(failure: Failure) -> str:
    """Place of the record: `topic t, partition 0, offset 5`, or the known part of it for a source's."""
    topic, partition, offset = _coordinates(failure.record)
    known = [("topic", topic), ("partition", partition), ("offset", offset)]
    text = ", ".join(f"{name} {value}" for name, value in known if value not in (-1, None))
    if not isinstance(failure.record, SourceRecord):
        return text
    batch = failure.record
    return (
        f"a record for {text}, at or before source offset {_text(batch.source_offset)} of source partition "
        f"{_text(batch.source_partition)}"
    )


def context_headers(connector: str, task: int, failure: Failure) -> list[tuple[str, bytes | None]]:
    """The headers with the place, the stage and the error of a failed record, in Connect's order. A source's record has
    no offset, and a partition only if its task chose one; for a record that a sink task created they are the task's
    values: -1, as Connect writes unknown ones.
    """
    error, place = failure.error, _coordinates(failure.record)
    message = message_of(error)
    told: list[tuple[str, str | None]] = [
        *zip(("topic", "partition", "offset"), map(str, place), strict=True),
        ("connector.name", connector),
        ("task.id", str(task)),
        ("stage", failure.stage),
        ("class.name", failure.class_name),
        ("exception.class.name", class_name_of(error)),
        ("exception.message", message if message is None else redacted(message)),
        ("exception.stacktrace", redacted(stack_trace(error))),
    ]
    return [(ERROR_HEADER_PREFIX + name, None if text is None else _utf8(text)) for name, text in told]


def message_of(error: BaseException) -> str | None:
    """The message like Java's `getMessage`: None for an error without one."""
    text = error_text(error)
    return text if error.args or text else None


def stack_trace(error: BaseException) -> str:
    """The error, its stack frames, innermost first, and its causes, in the format of `Throwable.printStackTrace`."""
    lines: list[str] = []
    seen: set[int] = set()
    prefix = ""
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        message = message_of(found)
        lines.append(f"{prefix}{class_name_of(found)}{'' if message is None else f': {message}'}")
        lines += _frames(found)
        prefix = "Caused by: "
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return "".join(f"{line}\n" for line in lines)


def _frames(error: BaseException) -> Iterator[str]:
    frames: list[str] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        module = trace.tb_frame.f_globals.get("__name__", "?")
        frames.append(f"\tat {module}.{code.co_qualname}({os.path.basename(code.co_filename)}:{trace.tb_lineno})")
        trace = trace.tb_next
    frames.reverse()
    yield from frames[:FRAMES_MAX]
    if len(frames) > FRAMES_MAX:
        yield f"\t... {len(frames) - FRAMES_MAX} more"


def _coordinates(record: Message | SourceRecord) -> tuple[str | None, int, int]:
    if isinstance(record, SourceRecord):
        return record.batch.topic, _known(record.batch.partition), -1
    return record.topic(), *_place(record)


def _place(message: Message) -> tuple[int, int]:
    return _known(message.partition()), _known(message.offset())


def _known(number: int | None) -> int:
    return -1 if number is None else number


def _consumed_text(message: Message) -> str:
    partition, offset = _place(message)
    text = f"{{topic='{message.topic()}', partition={partition}, offset={offset}"
    kind, time_ms = message.timestamp()
    if kind in _TIMESTAMP_TYPES:
        text += f", timestamp={time_ms}, timestampType={_TIMESTAMP_TYPES[kind]}"
    return f"{text}}}"


def _source_text(record: SourceRecord) -> str:
    """The text of Java's `SourceRecord.toString`."""
    batch, at = record.batch, record.at
    headers: Sequence[Header] = batch.headers[at] if batch.headers else ()
    shown = ", ".join(
        f"ConnectHeader(key={one.key}, value={_text(one.value)}, schema={_text(one.schema)})" for one in headers
    )
    fields = {
        "topic": f"'{batch.topic}'",
        "kafkaPartition": _text(batch.partition),
        "key": _text(batch.keys[at] if batch.keys else None),
        "keySchema": _text(batch.key_schema),
        "value": _text(batch.values[at]),
        "valueSchema": _text(batch.value_schema),
        "timestamp": _text(batch.timestamps_ms[at] if batch.timestamps_ms else None),
        "headers": f"ConnectHeaders(headers=[{shown}])" if headers else "ConnectHeaders(headers=)",
    }
    return (
        f"SourceRecord{{sourcePartition={_text(record.source_partition)}, sourceOffset={_text(record.source_offset)}}} "
        f"ConnectRecord{{{', '.join(f'{name}={text}' for name, text in fields.items())}}}"
    )


def _text(value: Any) -> str:
    """The value as Java prints it, except for bytes, for which Java prints the array's identity."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Struct):
        fields = zip(value.schema.fields, value.values, strict=True)
        return f"Struct{{{','.join(f'{field.name}={_text(one)}' for field, one in fields if one is not None)}}}"
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return f"{{{', '.join(f'{_text(key)}={_text(one)}' for key, one in items)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_text, cast('list[Any]', value)))}]"
    return str(value) if isinstance(value, str | int | float | Schema) else repr(value)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
