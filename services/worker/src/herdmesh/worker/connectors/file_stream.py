"""Kafka's file connectors: a source that tails a text file, a sink that appends lines (reference data-model 8).

Owns the two connectors, their tasks and their config keys, in Connect's names and texts. Standard input and output are
not supported: a task runs in whatever process Spark gives it.

Departures: positions are bytes throughout (Connect mixes bytes and characters, and so goes astray after multi-byte
text); the sink writes compact JSON for everything that is no string (ADR 0002).

Invariant: the source sends complete lines only, and its position is the byte after the last of them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from herdmesh.connect.packed import Numbers, PackedBytes, PackedTexts, is_utf8
from herdmesh.connect.waits import Absent, Standing
from herdmesh.sdk import (
    REQUIRED,
    Config,
    ConfigDef,
    ConfigError,
    ConfigKey,
    FieldViolation,
    Importance,
    OffsetsLost,
    PartitionId,
    Schema,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    TaskContext,
    Type,
)
from herdmesh.sdk.validators import non_empty_string
from herdmesh.worker.connectors.common import topic_problems, warned_settings
from herdmesh.worker.connectors.values.lines import lines_of
from herdmesh.worker.connectors.values.payloads import payloads
from herdmesh.worker.connectors.values.refusals import taken

VERSION = "4.3.1"
"""Connect's version: what these two answer to is its behaviour."""
READ_BYTES = 524_288
"""A megabyte is taken from the system and given back each time: half as much again for each line."""
BATCH_SIZE_DEFAULT = 2_000
WAKE_AFTER_MS = 1_000

_STRING = Schema("STRING")
_LF_BYTES = np.uint64(1)
_LINE_END = re.compile(rb"\r\n|\n|\r")


class FileStreamSource(SourceConnector):
    """`FileStreamSource`: each line of a file becomes a record. Always one task."""

    class_name = "org.apache.kafka.connect.file.FileStreamSourceConnector"
    aliases = ("FileStreamSource", "FileStreamSourceConnector")
    version = VERSION
    java_task_class = "org.apache.kafka.connect.file.FileStreamSourceTask"
    _keys = ConfigDef(
        ConfigKey(
            "file",
            Type.STRING,
            None,
            Importance.HIGH,
            "Source filename. If not specified, the standard input will be used",
        ),
        ConfigKey("topic", Type.STRING, REQUIRED, Importance.HIGH, "The topic to publish data to", non_empty_string()),
        ConfigKey(
            "batch.size",
            Type.INT,
            BATCH_SIZE_DEFAULT,
            Importance.LOW,
            "The maximum number of records the source task can read from the file each time it is polled",
        ),
    )

    @classmethod
    def config_def(cls) -> ConfigDef:
        return cls._keys

    def validate(self, config: Config) -> Sequence[ConfigError]:
        return [*_without_file(config, "read from"), *topic_problems(config, "topic")]

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return warned_settings(config, self._keys.keys, self.kind, java="file-source")

    def start(self, config: Config) -> None:
        self._keys.parse(config)
        _require_file(config, "read from")
        super().start(config)

    def task_class(self) -> str:
        return f"{FileStreamSourceTask.__module__}:{FileStreamSourceTask.__name__}"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config)]

    def exactly_once_support(self, config: Config) -> bool | None:
        return not _without_file(config, "read from")

    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        _require_file(config, "read from")
        for partition, offset in offsets:
            if offset is None:
                continue  # whatever is there can be forgotten, also what should never have been there
            if partition is None:
                raise ConfigError("Partition objects cannot be null")
            if "filename" not in partition:
                raise ConfigError("Partition objects should contain the key 'filename'")
            if "position" not in offset:
                raise ConfigError("Offset objects should either be null or contain the key 'position'")
            position = offset["position"]
            if isinstance(position, bool) or not isinstance(position, int):
                raise ConfigError("The value for the 'position' key in the offset is expected to be a Long value")
            if position < 0:
                raise ConfigError("The value for the 'position' key in the offset should be a non-negative value")
        return True

    def sign(self, task_config: Config) -> str | None:
        try:
            found = os.stat(task_config.get("file") or "")
        except OSError as error:
            return Absent(*_absent(task_config.get("file") or "", error))
        return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"


class FileStreamSourceTask(SourceTask):
    """Tails one file."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        settings = FileStreamSource.config_def().parse(config)
        self._path: str = _require_file(config, "read from")
        self._topic: str = settings["topic"]
        self._batch_records = max(1, int(settings["batch.size"]))
        self._poll_records_max = context.poll_records_max
        self._partition: Mapping[str, Any] = {"filename": self._path}
        self._keep_position_lost = (config.get("herdmesh.offsets.missing") or "").strip() != "reset"
        self._position = _stored_position(context.committed_offset(self._partition))
        self._file: IO[bytes] | None = None
        self._no_file = Standing()
        self._unread = b""
        self._texts: Sequence[str] = ()
        #: bytes of each with its end.
        self._sizes: Numbers = np.zeros(0, np.uint64)
        self._next = 0

    def poll(self) -> SourceBatch | None:
        begin = self._next
        if begin >= len(self._texts):
            begin = 0
            if not self._read_lines():
                return None
        end = self._next = begin + min(self._batch_records, self._poll_records_max())
        values = self._texts[begin:end]
        self._position += int(self._sizes[begin:end].sum())
        return SourceBatch(self._topic, values, self._partition, {"position": self._position}, value_schema=_STRING)

    def _read_lines(self) -> bool:
        """Read on; True when there are complete lines."""
        if self._file is None and not self._open():
            return False
        assert self._file is not None
        # A line that is longer than a read is read on: "nothing" would end the run before it is complete.
        while chunk := self._file.read(max(READ_BYTES, len(self._unread))):
            self._take_apart(self._unread + chunk)
            if self._texts:
                return True
        self._check_size(os.fstat(self._file.fileno()).st_size)
        return False

    def _take_apart(self, data: bytes) -> None:
        self._next = 0
        end = data.rfind(b"\n") + 1
        if b"\r" not in data and is_utf8(whole := data[:end]):
            packed = PackedBytes.lines(whole)
            self._texts, self._sizes, self._unread = PackedTexts(packed), packed.lengths + _LF_BYTES, data[end:]
        else:
            lines, self._unread = split_lines(data)
            self._texts = [line.rstrip(b"\r\n").decode("utf-8", "replace") for line in lines]
            self._sizes = np.fromiter(map(len, lines), np.uint64, len(lines))

    def _open(self) -> bool:
        try:
            file = open(self._path, "rb")  # noqa: SIM115 - lasts as long as the task
        except FileNotFoundError as error:
            self._no_file.goes_on(*_absent(self._path, error))
            return False
        self._no_file.over()
        self._file = file
        self._check_size(os.fstat(file.fileno()).st_size)
        file.seek(self._position)
        return True

    def _check_size(self, size: int) -> None:
        """A file that became shorter than what was read is another file: never pretend to have read it."""
        read = self._position + len(self._unread)
        if size >= read:
            return
        if self._keep_position_lost:
            raise OffsetsLost(
                f"the file {self._path} has {size} bytes, {read} were read before: it was truncated or replaced; "
                "set herdmesh.offsets.missing=reset to read it from its beginning"
            )
        assert self._file is not None
        self._position, self._unread = 0, b""
        self._file.seek(0)

    def wake_after_ms(self) -> int:
        return WAKE_AFTER_MS

    def stop(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()


def _absent(path: str, error: OSError) -> tuple[str, str]:
    """What is waited for while the file cannot be looked at, and why."""
    why = "it does not exist" if isinstance(error, FileNotFoundError) else f"it cannot be looked at: {error.strerror}"
    return f"file {path}", f"{why} on this worker; it is read as soon as it is there (file)"


def split_lines(data: bytes) -> tuple[list[bytes], bytes]:
    """Complete lines with their ends (LF, CR LF or a lone CR), and what is left.

    A CR at the end of the data is left: an LF may follow it.
    """
    if b"\r" not in data:
        lines = data.splitlines(keepends=True)
        return (lines, b"") if data.endswith(b"\n") else (lines[:-1], lines[-1] if lines else b"")
    lines: list[bytes] = []
    begin = 0
    for found in _LINE_END.finditer(data):
        if found.group() == b"\r" and found.end() == len(data):
            break
        lines.append(data[begin : found.end()])
        begin = found.end()
    return lines, data[begin:]


def _stored_position(offset: Mapping[str, Any] | None) -> int:
    position = (offset or {}).get("position")
    if position is None:
        return 0
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        raise ConfigError("Offset position is the incorrect type", fix="alter the offset to a number from 0")
    return position


class FileStreamSink(SinkConnector):
    """`FileStreamSink`: appends each record's value as a line to a file, at least once."""

    class_name = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    aliases = ("FileStreamSink", "FileStreamSinkConnector")
    version = VERSION
    java_task_class = "org.apache.kafka.connect.file.FileStreamSinkTask"
    _keys = ConfigDef(
        ConfigKey(
            "file",
            Type.STRING,
            None,
            Importance.HIGH,
            "Destination filename. If not specified, the standard output will be used",
        )
    )

    @classmethod
    def config_def(cls) -> ConfigDef:
        return cls._keys

    def validate(self, config: Config) -> Sequence[ConfigError]:
        missing = _without_file(config, "write to")
        return missing or _not_appendable(Path(_require_file(config, "write to")))

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return warned_settings(config, self._keys.keys, self.kind, java="file-sink")

    def start(self, config: Config) -> None:
        _require_file(config, "write to")
        super().start(config)

    def task_class(self) -> str:
        return f"{FileStreamSinkTask.__module__}:{FileStreamSinkTask.__name__}"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config) for _ in range(max_tasks)]

    def alter_offsets(self, config: Config, offsets: Mapping[PartitionId, int | None]) -> bool:
        return True  # the group's are all it has


class FileStreamSinkTask(SinkTask):
    """Appends lines. Tasks of one connector append to one file: a batch is one write, so lines do not mix."""

    uses_keys = False

    def start(self, config: Config, context: TaskContext) -> None:
        self._context = context
        self._payloads = payloads(defaults=context.value_defaults)
        path = _require_file(config, "write to")
        try:
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - lasts as long as the task
        except OSError as error:
            raise ConfigError(f"the file {path} cannot be written: {error.strerror}", field="file") from error
        #: A pipe or a terminal has nothing to make durable, and answers EINVAL when it is asked to.
        self._is_on_disk = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)

    def put(self, batch: SinkBatch) -> None:
        for _, data in taken(batch, self._lines, self._context.give_up):
            _write_all(self._file, data)

    def _lines(self, batch: SinkBatch) -> bytes:
        return lines_of(batch.values, batch.value_schema, self._payloads)

    def flush(self) -> None:
        if self._is_on_disk:
            os.fsync(self._file.fileno())

    def stop(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()


def _write_all(file: IO[bytes], data: bytes) -> None:
    """One write if the system takes it whole, as it does for files unless the disk is full."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _require_file(config: Config, doing: str) -> str:
    problems = _without_file(config, doing)
    if problems:
        raise problems[0]
    return (config.get("file") or "").strip()


def _without_file(config: Config, doing: str) -> list[ConfigError]:
    if (config.get("file") or "").strip():
        return []
    message = f'Missing configuration "file": there is no standard stream to {doing} in a worker'
    return [ConfigError(message, field="file", fix="name a file")]


def _not_appendable(path: Path) -> list[ConfigError]:
    """Why the file cannot be written, seen from this machine."""
    if path.is_dir():
        return [ConfigError(f"file: {path} is a folder", field="file", fix="name a file in it")]
    if path.exists():
        writable = os.access(path, os.W_OK)
    else:
        writable = path.absolute().parent.is_dir() and os.access(path.absolute().parent, os.W_OK | os.X_OK)
    if writable:
        return []
    fix = "name a file in an existing folder you may write to"
    return [ConfigError(f"file: {path} cannot be written", field="file", fix=fix)]
