"""Records from lines of text, in three forms.

    lines    each line is a value. A converter gets its bytes; without a converter it is JSON if it parses, else text
    records  each line an object of topic, partition, offset, timestamp, key, value, headers, all of them optional;
             keys, values and headers are plain JSON, or {"base64": ...}. A converter gets a string as its UTF-8 bytes,
             anything else as its JSON text typed    each line a record in the form of
             `herdmesh.connect.json_text.record_json`, schemas and types included

Owns the forms and their detection. Invariant: a line gives one record or one `BadLine`; its number is kept.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

from herdmesh.cli.transform.options import Direction, RecordForm
from herdmesh.connect.errors import ConnectError
from herdmesh.connect.json_text import record_json
from herdmesh.connect.model import ConnectRecord, Header

_CHUNK_BYTES: Final = 1 << 18
_PLAIN: Final = frozenset({"topic", "partition", "offset", "timestamp", "key", "value", "headers"})
_TYPED: Final = frozenset({"keySchema", "valueSchema", "kind", "kafkaOffset"})


class BadLine(Exception):
    """A line that is not a record; the message has the correct form."""


@dataclass(frozen=True, slots=True)
class Given:
    """One record of the input. `source`: it comes from a source connector. For a converter, its key, value and headers
    are bytes.
    """

    line: int
    source: bool
    record: ConnectRecord


def line_batches(stream: BinaryIO, most: int) -> Iterator[list[tuple[int, bytes]]]:
    """The lines of a stream with their numbers from 1, at most `most` at once: only lines that are already available,
    so that a slow writer sees each line's result at once.
    """
    number, rest = 0, b""
    read = getattr(stream, "read1", stream.read)
    while chunk := read(_CHUNK_BYTES):
        if b"\n" not in chunk:
            rest += chunk
            continue
        *lines, rest = (rest + chunk).split(b"\n")
        for start in range(0, len(lines), most):
            part = lines[start : start + most]
            yield [(number + at, line) for at, line in enumerate(part, 1)]
            number += len(part)
    if rest:
        yield [(number + 1, rest)]


class RecordReader:
    """Reader of the lines of one input. Keeps the form that was detected in the first line."""

    def __init__(self, direction: Direction, form: RecordForm, topic: str, *, raw: bool | None = None) -> None:
        """`topic`: for records without a topic. `raw`: keys, values and headers are bytes; None = those of a sink."""
        self._direction, self._topic = direction, topic
        self.form = form
        self._raw = direction is Direction.SINK if raw is None else raw
        self._count = 0

    def read(self, number: int, line: bytes) -> Given | None:
        """The record of a line; None for a blank one between objects. Raises BadLine."""
        if self.form is RecordForm.AUTO and line.strip():
            self.form = _form_of(line)
        if self.form in (RecordForm.LINES, RecordForm.AUTO):
            record = ConnectRecord(self._topic, value=line if self._raw else _json_or_text(line))
            return self._placed(number, record, self._direction is Direction.SOURCE)
        if not line.strip():
            return None
        members = _object(line)
        if self.form is RecordForm.TYPED:
            return self._typed(number, members)
        return self._plain(number, members)

    def _plain(self, number: int, members: dict[str, Any]) -> Given:
        unknown = sorted(members.keys() - _PLAIN)
        if unknown:
            raise BadLine(f"no member of a record: {', '.join(unknown)}; known are {', '.join(sorted(_PLAIN))}")
        content = _raw_of if self._raw else _value_of
        record = ConnectRecord(
            _topic(members.get("topic", self._topic)), _number(members, "partition"),
            content("key", members.get("key")), content("value", members.get("value")),
            _number(members, "timestamp"),
            [Header(name, content(f"header {name}", value)) for name, value in _headers(members.get("headers"))],
            offset=_number(members, "offset"),
        )  # fmt: skip
        return self._placed(number, record, self._direction is Direction.SOURCE)

    def _typed(self, number: int, members: dict[str, Any]) -> Given:
        try:
            record = record_json.record_of({"topic": self._topic, **members})
        except ConnectError as error:
            raise BadLine(str(error)) from None
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise BadLine(f"not the typed form ({type(error).__name__}: {error}); --input records is simpler") from None
        if self._raw:
            record.key, record.value = _bytes_of("key", record.key), _bytes_of("value", record.value)
            record.headers = [Header(one.key, _bytes_of(f"header {one.key}", one.value)) for one in record.headers]
        kind = members.get("kind")
        source = self._direction is Direction.SOURCE or (kind == "source" and not self._raw)
        return self._placed(number, record, source)

    def _placed(self, number: int, record: ConnectRecord, source: bool) -> Given:
        """The record with a partition and an offset, which every record of a topic has."""
        if source:
            record.offset = None
        else:
            record.partition = 0 if record.partition is None else record.partition
            record.offset = self._count if record.offset is None else record.offset
        self._count += 1
        return Given(number, source, record)


def _form_of(line: bytes) -> RecordForm:
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        return RecordForm.LINES
    if not isinstance(found, dict):
        return RecordForm.LINES
    members = cast("dict[str, Any]", found)
    if not members.keys() & {"key", "value"} or members.keys() - _PLAIN - _TYPED - {"sourcePartition", "sourceOffset"}:
        return RecordForm.LINES
    return RecordForm.TYPED if members.keys() & _TYPED else RecordForm.RECORDS


def _object(line: bytes) -> dict[str, Any]:
    try:
        found: Any = json.loads(line)
    except RecursionError:
        raise BadLine("nested too deeply") from None
    except ValueError as error:
        raise BadLine(f"not JSON: {error}; plain lines are read with --input lines") from None
    if not isinstance(found, dict):
        raise BadLine('no object: write {"key": ..., "value": ...}; plain lines are read with --input lines')
    return cast("dict[str, Any]", found)


def _json_or_text(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line.decode("utf-8", "replace")


def _topic(topic: Any) -> str:
    if not isinstance(topic, str):
        raise BadLine(f'topic is {json.dumps(topic)}: write its name, "topic": "orders"')
    return topic


def _number(members: dict[str, Any], name: str) -> int | None:
    value = members.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise BadLine(f"{name} is {json.dumps(value)}: write a whole number, or leave it out")
    return value


def _headers(headers: Any) -> list[tuple[str, Any]]:
    if headers is None:
        return []
    if isinstance(headers, dict):
        return list(cast("dict[str, Any]", headers).items())
    found: list[tuple[str, Any]] = []
    for one in cast("list[Any]", headers) if isinstance(headers, list) else [None]:
        if not isinstance(one, dict) or not isinstance(cast("dict[str, Any]", one).get("key"), str):
            raise BadLine('headers: write {"name": value} or [{"key": "name", "value": value}]')
        members = cast("dict[str, Any]", one)
        found.append((members["key"], members.get("value")))
    return found


def _value_of(where: str, member: Any) -> Any:
    data = _base64(where, member)
    return member if data is None else data


def _raw_of(where: str, member: Any) -> bytes | None:
    if member is None:
        return None
    if isinstance(member, str):
        return member.encode("utf-8", "replace")
    data = _base64(where, member)
    if data is not None:
        return data
    return json.dumps(member, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _base64(where: str, member: Any) -> bytes | None:
    """The bytes of {"base64": ...}; None when it is something else."""
    if not isinstance(member, dict):
        return None
    members = cast("dict[str, Any]", member)
    if members.keys() != {"base64"} or not isinstance(members["base64"], str):
        return None
    try:
        return base64.b64decode(members["base64"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadLine(f"{where} is not Base64: {error}") from None


def _bytes_of(where: str, value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, memoryview):
        return bytes(cast("memoryview[int]", value))
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    raise BadLine(f'{where} is not bytes: to converters write {{"$bytes": ...}}; for values use --direction values')
