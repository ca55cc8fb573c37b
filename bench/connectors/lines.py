"""Lines of a file as records, and records as lines, written by an author with the SDK: each once with batches and once
with single records. Java's counterpart is its own FileStream pair, which supports only single records.

Owns the two sources and the two sinks. `connectors.file_stream` is the connector of that job that ships; these are the
plainest that keep the SDK's promises, so that the rows of the bench show the cost of the SDK.

Invariant: a source's position is the byte after the last complete line that it returned; a sink's lines are written
when `flush` returns.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

from herdmesh.sdk import (
    REQUIRED,
    Config,
    ConfigDef,
    ConfigError,
    ConfigKey,
    ConnectRecord,
    DataError,
    Importance,
    RecordSinkTask,
    RecordSourceTask,
    Schema,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SourceBatch,
    SourceConnector,
    SourceRecord,
    SourceTask,
    SourceTaskContext,
    TaskContext,
    Type,
)

_READ_BYTES = 262_144
_STRING = Schema("STRING")
_FILE = ConfigKey("file", Type.STRING, REQUIRED, Importance.HIGH, "The file.")
_TOPIC = ConfigKey("topic", Type.STRING, REQUIRED, Importance.HIGH, "The topic of its lines.")


class BatchLinesSource(SourceConnector):
    """Lines of a file, a batch at a time."""

    class_name: ClassVar[str] = "bench.BatchLinesSource"
    version = "1.0"
    _task: ClassVar[str] = "BatchLinesSourceTask"
    _keys = ConfigDef(_FILE, _TOPIC)

    @classmethod
    def config_def(cls) -> ConfigDef:
        return cls._keys

    def start(self, config: Config) -> None:
        self._keys.parse(config)
        super().start(config)

    def task_class(self) -> str:
        return f"{__name__}:{self._task}"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config)]

    def exactly_once_support(self, config: Config) -> bool | None:
        return True


class RecordLinesSource(BatchLinesSource):
    """Lines of a file, a record at a time."""

    class_name = "bench.RecordLinesSource"
    _task = "RecordLinesSourceTask"


class BatchLinesSourceTask(SourceTask):
    """Reads from the committed byte on, in batches."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self._topic = str(config["topic"])
        self._partition: Mapping[str, Any] = {"file": config["file"]}
        self._position = _position(context.committed_offset(self._partition))
        self._file = _opened(config, "rb")
        self._file.seek(self._position)

    def poll(self) -> SourceBatch | None:
        lines = self._file.readlines(_READ_BYTES)
        if lines and not lines[-1].endswith(b"\n"):
            self._file.seek(-len(lines.pop()), os.SEEK_CUR)
        if not lines:
            return None
        data = b"".join(lines)
        self._position += len(data)
        values = data.decode("utf-8", "replace").split("\n")
        values.pop()  # the text after the last line end
        return SourceBatch(self._topic, values, self._partition, {"position": self._position}, value_schema=_STRING)

    def stop(self) -> None:
        _close(self)


class RecordLinesSourceTask(RecordSourceTask):
    """Reads from the committed byte on, record by record."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        super().start(config, context)
        self._topic = str(config["topic"])
        self._partition: Mapping[str, Any] = {"file": config["file"]}
        self._position = _position(context.committed_offset(self._partition))
        self._file = _opened(config, "rb")
        self._file.seek(self._position)

    def poll_records(self) -> Iterator[SourceRecord]:
        for line in self._file:
            if not line.endswith(b"\n"):
                self._file.seek(self._position)
                return
            self._position += len(line)
            value = line[:-1].decode("utf-8", "replace")
            yield SourceRecord(self._topic, value, self._partition, {"position": self._position}, value_schema=_STRING)

    def stop(self) -> None:
        _close(self)


class BatchLinesSink(SinkConnector):
    """Records as lines of a file, a batch at a time."""

    class_name: ClassVar[str] = "bench.BatchLinesSink"
    version = "1.0"
    _task: ClassVar[str] = "BatchLinesSinkTask"
    _keys = ConfigDef(_FILE)

    @classmethod
    def config_def(cls) -> ConfigDef:
        return cls._keys

    def start(self, config: Config) -> None:
        self._keys.parse(config)
        super().start(config)

    def task_class(self) -> str:
        return f"{__name__}:{self._task}"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        """Always one task: two would write into each other's lines."""
        return [dict(self.config)]


class RecordLinesSink(BatchLinesSink):
    """Records as lines of a file, a record at a time."""

    class_name = "bench.RecordLinesSink"
    _task = "RecordLinesSinkTask"


class BatchLinesSinkTask(SinkTask):
    """Appends a batch's lines in one write."""

    uses_keys = False

    def start(self, config: Config, context: TaskContext) -> None:
        self._file = _opened(config, "ab")

    def put(self, batch: SinkBatch) -> None:
        values = list(batch.values)
        try:
            text = "\n".join(values)
        except TypeError:
            text = "\n".join(map(_text, values))
        self._file.write(text.encode("utf-8", "replace"))
        self._file.write(b"\n")
        self._file.flush()

    def flush(self) -> None:
        os.fsync(self._file.fileno())

    def stop(self) -> None:
        _close(self)


class RecordLinesSinkTask(RecordSinkTask):
    """Appends line by line."""

    uses_keys = False

    def start(self, config: Config, context: TaskContext) -> None:
        super().start(config, context)
        self._file = _opened(config, "ab")

    def put_records(self, records: Sequence[ConnectRecord]) -> None:
        for record in records:
            self._file.write(_text(record.value).encode("utf-8", "replace"))
            self._file.write(b"\n")
        self._file.flush()

    def flush(self) -> None:
        os.fsync(self._file.fileno())

    def stop(self) -> None:
        _close(self)


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if not isinstance(value, str):
        raise DataError(f"a line is a text, and the record's value is a {type(value).__name__}")
    return value


def _position(offset: Mapping[str, Any] | None) -> int:
    return 0 if offset is None else int(offset["position"])


def _opened(config: Config, mode: Literal["rb", "ab"]) -> IO[bytes]:
    path = Path(config.get("file") or "")
    try:
        return path.open(mode)
    except OSError as error:
        raise ConfigError(f"file: {path}: {error.strerror}", field="file", fix="name a file that is there") from error


def _close(task: object) -> None:
    """Close the file, also if `start` failed before it was opened."""
    file: IO[bytes] | None = getattr(task, "_file", None)
    if file is not None:
        file.close()
