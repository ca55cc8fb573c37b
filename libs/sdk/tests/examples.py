"""Connectors for the tests of the standard suite: one correct source, two correct sinks, and variants that each break
one promise.

Owns no test. The name of a broken variant says how it differs from the correct one, so the expected failure of the
suite is known.
"""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from herdmesh.sdk import (
    REQUIRED,
    Config,
    ConfigDef,
    ConfigError,
    ConfigKey,
    DataError,
    Importance,
    LedgerSinkTask,
    Manifest,
    PartitionId,
    Schema,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    SqlLedger,
    StagingFolder,
    StagingSinkTask,
    Struct,
    TaskContext,
    Type,
    publish,
)
from herdmesh.sdk.testing import BadConfig, SinkWorld, SourceWorld, json_number

FILE = ConfigKey("file", Type.STRING, REQUIRED, Importance.HIGH, "The file.")
TOPIC = ConfigKey("topic", Type.STRING, REQUIRED, Importance.HIGH, "The topic.")
SIZE = ConfigKey("batch.size", Type.INT, 100, Importance.LOW, "Records taken at once.")


# A source: each line of a file is a record.


class LinesSource(SourceConnector):
    """A correct source."""

    class_name, version = "test.LinesSource", "1.0"
    task: ClassVar[str] = "LinesTask"
    _keys = ConfigDef(FILE, TOPIC, SIZE)

    @classmethod
    def config_def(cls) -> ConfigDef:
        return cls._keys

    def validate(self, config: Config) -> Sequence[ConfigError]:
        path = Path(config.get("file") or "missing")
        if not path.is_dir():
            return ()
        return [ConfigError(f"file: {path} is a folder", field="file", fix="name a file in it")]

    def start(self, config: Config) -> None:
        self._keys.parse(config)
        super().start(config)

    def task_class(self) -> str:
        return f"{__name__}:{self.task}"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config)]

    def exactly_once_support(self, config: Config) -> bool | None:
        return True


class LinesTask(SourceTask):
    """Reads from the committed line on."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self.path, self.topic = Path(str(config["file"])), str(config["topic"])
        self.context = context
        self.partition: Mapping[str, Any] = {"file": str(self.path)}
        self.line: int = self.place()

    def place(self) -> int:
        committed = self.context.committed_offset(self.partition)
        return 0 if committed is None else int(committed["line"])

    def poll(self) -> SourceBatch | None:
        rows = self.rows()
        if not rows:
            return None
        self.line += len(rows)
        return SourceBatch(self.topic, rows, self.partition, self.offset(len(rows)))

    def rows(self) -> list[Any]:
        lines = self.path.read_text().splitlines()[self.line :]
        return [json.loads(line) for line in lines[: self.context.poll_records_max()]]

    def offset(self, _count: int) -> Mapping[str, Any] | None:
        return {"line": self.line}


class LinesWorld(SourceWorld):
    """A file of JSON lines."""

    def config(self) -> dict[str, str]:
        path = self.folder / "lines"
        path.touch()
        return {"file": str(path), "topic": self.name}

    def bad_configs(self) -> Sequence[BadConfig]:
        return [({"file": str(self.folder)}, "file")]

    def write(self, numbers: range) -> None:
        with (self.folder / "lines").open("a") as file:
            file.writelines(f'{{"id": {number}}}\n' for number in numbers)

    def write_changed(self, numbers: range) -> bool:
        with (self.folder / "lines").open("a") as file:
            file.writelines(f'{{"id": "{number}", "more": [1]}}\n' for number in numbers)
        return True

    def number_of(self, value: bytes) -> int:
        return json_number(value, "id")


class OffsetForgotten(LinesTask):
    def offset(self, _count: int) -> Mapping[str, Any] | None:
        return None


class OffsetTooHigh(LinesTask):
    def offset(self, _count: int) -> Mapping[str, Any] | None:
        return {"line": self.line + 1}


class OffsetOfTheFirst(LinesTask):
    def offset(self, count: int) -> Mapping[str, Any] | None:
        return {"line": self.line - count}


class OffsetUnread(LinesTask):
    def place(self) -> int:
        return 0


class OffsetNoJson(LinesTask):
    def offset(self, _count: int) -> Mapping[str, Any] | None:
        return {"line": object()}


class PlaceInMemory(LinesTask):
    """A broken task: keeps its position in the memory of the process, by file; skips records that were polled and not
    committed.
    """

    places: ClassVar[dict[Path, int]] = {}

    def place(self) -> int:
        return self.places.get(self.path, 0)

    def poll(self) -> SourceBatch | None:
        batch = super().poll()
        self.places[self.path] = self.line
        return batch


class MovesOnCommit(LinesTask):
    """A broken task: polls the same records until they are committed."""

    polled = 0

    def poll(self) -> SourceBatch | None:
        rows = self.rows()
        self.polled = len(rows)
        offset = {"line": self.line + self.polled}
        return SourceBatch(self.topic, rows, self.partition, offset) if rows else None

    def commit(self) -> None:
        self.line += self.polled


class Backwards(LinesTask):
    def rows(self) -> list[Any]:
        return super().rows()[::-1]


class StopNeedsStart(LinesTask):
    def stop(self) -> None:
        self.path.exists()


class UnevenColumns(LinesTask):
    def poll(self) -> SourceBatch | None:
        batch = super().poll()
        if batch is not None:
            batch.keys = ["k"] * (len(batch) + 1)
        return batch


class AnotherSchema(LinesTask):
    def poll(self) -> SourceBatch | None:
        batch = super().poll()
        if batch is not None:
            batch.value_schema = Schema("STRING")
        return batch


class TooManyTasks(LinesSource):
    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config) for _ in range(max_tasks + 1)]


class OtherTasksEachTime(LinesSource):
    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [{**self.config, "client": uuid.uuid4().hex}]


class UnnamedFields(LinesSource):
    def validate(self, config: Config) -> Sequence[ConfigError]:
        return (
            [ConfigError(f"{config.get('file')} is a folder")] if Path(config.get("file") or "missing").is_dir() else ()
        )


class UnreadConfig(LinesSource):
    """A broken connector: accepts any config; its task does not check the config either."""

    task = "UnreadingTask"

    def start(self, config: Config) -> None:
        self.config = dict(config)


class UnreadingTask(LinesTask):
    def start(self, config: Config, context: SourceTaskContext) -> None:
        super().start({"file": "missing", "topic": "missing", **config}, context)


class OwnOffsetsRefused(LinesSource):
    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        raise ConfigError("no offset can be set", field="offsets")


# Sinks: each record is a line with its id, at least once, or in files that are published once.


class LinesSink(SinkConnector):
    """A correct sink."""

    class_name, version = "test.LinesSink", "1.0"
    task: ClassVar[str] = "LinesSinkTask"
    _keys = ConfigDef(FILE)

    @classmethod
    def config_def(cls) -> ConfigDef:
        return cls._keys

    def start(self, config: Config) -> None:
        self._keys.parse(config)
        super().start(config)

    def task_class(self) -> str:
        return f"{__name__}:{self.task}"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config) for _ in range(max_tasks)]


def line_of(value: Any) -> bytes:
    """Line that both sinks write for a value."""
    if value is None:
        return b"null\n"
    found = value.get("id") if isinstance(value, Struct) else value["id"]
    return b"%d\n" % found


def append(path: Path, lines: Sequence[bytes]) -> None:
    """Append the lines; they are in the file when the function returns."""
    with path.open("ab") as file:
        file.write(b"".join(lines))
        file.flush()
        os.fsync(file.fileno())


class LinesSinkTask(SinkTask):
    """Collects lines, and appends them in `flush`."""

    uses_keys = False

    def start(self, config: Config, context: TaskContext) -> None:
        self.path = Path(str(config["file"]))
        self.lines: list[bytes] = []

    def put(self, batch: SinkBatch) -> None:
        self.lines += [line_of(value) for value in batch.values]

    def flush(self) -> None:
        self.append(self.lines)
        self.lines = []

    def append(self, lines: Sequence[bytes]) -> None:
        append(self.path, lines)


class LinesSinkWorld(SinkWorld):
    """A file of lines."""

    def config(self) -> dict[str, str]:
        return {"file": str(self.folder / "out")}

    def found(self) -> list[int]:
        path = self.folder / "out"
        if not path.exists():
            return []
        return [int(line) for line in path.read_text().splitlines() if line != "null"]


class IdempotentWorld(LinesSinkWorld):
    """Declares that a redelivered record is stored once."""

    is_idempotent = True


class PickyWorld(LinesSinkWorld):
    """Declares that tombstones are refused."""

    takes_tombstones = False


class FailsForTheBatch(LinesSinkTask):
    """A broken task: raises the error of one record, so the run ends."""

    def put(self, batch: SinkBatch) -> None:
        for value in batch.values:
            if isinstance(value, Struct) and value.values[-1] == 5:
                raise DataError("a name that is no text")
        super().put(batch)


class GivesUpTheBatch(FailsForTheBatch):
    """A broken task: skips all records of a batch because of one."""

    def start(self, config: Config, context: TaskContext) -> None:
        super().start(config, context)
        self.context = context

    def put(self, batch: SinkBatch) -> None:
        try:
            super().put(batch)
        except DataError as error:
            for place in range(len(batch)):
                self.context.skip_record(batch, place, error)


class LosesOnFlush(LinesSinkTask):
    """A broken task: writes only in `stop`, which a killed process never reaches."""

    def flush(self) -> None:
        return

    def stop(self) -> None:
        if hasattr(self, "lines"):
            self.append(self.lines)


class FlushesHalf(LinesSinkTask):
    def flush(self) -> None:
        half = len(self.lines) // 2
        self.append(self.lines[: max(1, half)])
        self.lines = self.lines[max(1, half) :]


class FlushNeedsRecords(LinesSinkTask):
    def flush(self) -> None:
        self.append([self.lines[0], *self.lines[1:]])
        self.lines = []


class NoTombstones(LinesSinkTask):
    def put(self, batch: SinkBatch) -> None:
        self.lines += [
            b"%d\n" % (value.get("id") if isinstance(value, Struct) else value["id"]) for value in batch.values
        ]


class FieldsOfTheFirst(LinesSinkTask):
    """A broken task: uses the fields of the first record for all records."""

    names: Sequence[str] = ()

    def put(self, batch: SinkBatch) -> None:
        for value in batch.values:
            if value is not None:
                names = list(value.schema.places) if isinstance(value, Struct) else list(value)
                self.names = self.names or names
                if list(names) != list(self.names):
                    raise KeyError(f"no column for {names}")
        super().put(batch)


class SinkStopNeedsStart(LinesSinkTask):
    def stop(self) -> None:
        self.lines.clear()


class StagedSink(LinesSink):
    """A correct exactly-once sink."""

    class_name = "test.StagedSink"
    task = "StagedTask"


class StagedTask(StagingSinkTask):
    """Writes one file of lines for each partition and commit."""

    uses_keys = False

    def start(self, config: Config, context: TaskContext) -> None:
        self.folder = Path(str(config["file"]))
        self.folder.mkdir(exist_ok=True)
        self.staging = StagingFolder(self.folder, context.group, context.run_id)
        self.batches: dict[PartitionId, list[SinkBatch]] = {}

    def recover(self, manifests: Mapping[PartitionId, str]) -> None:
        self.staging.recover({one: Manifest.decode(text) if text else None for one, text in manifests.items()})

    def put(self, batch: SinkBatch) -> None:
        self.batches.setdefault((batch.original_topic, batch.partition), []).append(batch)

    def commit_due(self) -> bool:
        return False

    def stage(self) -> Mapping[PartitionId, str]:
        manifests: dict[PartitionId, str] = {}
        for partition, batches in self.batches.items():
            name = self.staging.new_name(partition, batches[0].first_offset, batches[-1].last_offset, ".lines")
            lines = [line_of(value) for batch in batches for value in batch.values]
            self.staging.staged_path(name).write_bytes(b"".join(lines))
            manifests[partition] = self.staging.staged([name]).encode()
        self.forget()
        return manifests

    def forget(self) -> None:
        self.batches = {}

    def publish(self, manifests: Mapping[PartitionId, str]) -> None:
        for text in manifests.values():
            publish(Manifest.decode(text))


class StagedWorld(SinkWorld):
    """A folder of files of lines; hidden files do not count as output."""

    def config(self) -> dict[str, str]:
        return {"file": str(self.folder / "out")}

    def found(self) -> list[int]:
        files = [path for path in (self.folder / "out").glob("*") if not path.name.startswith(".")]
        lines = [line for path in sorted(files) for line in path.read_text().splitlines()]
        return [int(line) for line in lines if line != "null"]


class ShowsWhatIsStaged(StagedTask):
    def stage(self) -> Mapping[PartitionId, str]:
        manifests = super().stage()
        self.publish(manifests)
        return manifests


class RecoversNothing(StagedTask):
    def recover(self, manifests: Mapping[PartitionId, str]) -> None:
        return


class RecoverDeletes(StagedTask):
    """A broken task: recovery deletes all staged files, committed ones included."""

    def recover(self, manifests: Mapping[PartitionId, str]) -> None:
        self.staging.recover(dict.fromkeys(manifests))


class StagesTwice(StagedTask):
    def forget(self) -> None:
        return


class PublishAppends(StagedTask):
    """A broken task: publishing appends the staged lines to one file, as often as it is called."""

    def publish(self, manifests: Mapping[PartitionId, str]) -> None:
        for text in manifests.values():
            manifest = Manifest.decode(text)
            for name in manifest.names:
                staged = self.folder / (manifest.prefix + name)
                with (self.folder / "all").open("ab") as file:
                    file.write(staged.read_bytes())

    def recover(self, manifests: Mapping[PartitionId, str]) -> None:
        self.publish({one: text for one, text in manifests.items() if text})


# A sink with a ledger: a SQLite database in a file, which holds the next offset.


class LedgerSink(LinesSink):
    """A correct exactly-once sink."""

    class_name = "test.LedgerSink"
    task = "LedgerTask"


class LedgerTask(LedgerSinkTask):
    """Writes a batch and updates the offset row of its partition in one transaction."""

    uses_keys = False

    def start(self, config: Config, context: TaskContext) -> None:
        self.connection = sqlite3.connect(str(config["file"]), timeout=5, isolation_level=None)
        self.ledger = SqlLedger(self.connection.execute, "ledger", context.connector, context.run_id, marker="?")
        self.connection.execute("PRAGMA synchronous = OFF")  # safe: the test does not crash the machine
        self.connection.execute(self.ledger.definition)
        self.connection.execute("CREATE TABLE IF NOT EXISTS ids (id bigint)")

    def claim(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, int]:
        return self.ledger.claim(partitions)

    def begin(self, starts: Mapping[PartitionId, int]) -> None:
        self.ledger.begin(starts)

    def put(self, batch: SinkBatch) -> None:
        with self.connection:
            self.connection.execute("BEGIN IMMEDIATE")
            if self.ledger.move(batch):
                self.write(batch)

    def write(self, batch: SinkBatch) -> None:
        ids = [line_of(value).decode() for value in batch.values if value is not None]
        self.connection.executemany("INSERT INTO ids VALUES (?)", [(int(one),) for one in ids])

    def advance(self, positions: Mapping[PartitionId, int]) -> None:
        self.ledger.advance(positions)

    def forget(self, partitions: Sequence[PartitionId]) -> None:
        self.ledger.forget(partitions)

    def stop(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()


class LedgerWorld(SinkWorld):
    """A SQLite database in a file."""

    def config(self) -> dict[str, str]:
        return {"file": str(self.folder / "out")}

    def found(self) -> list[int]:
        if not (self.folder / "out").exists():
            return []
        connection = sqlite3.connect(self.folder / "out")
        try:
            return [row[0] for row in connection.execute("SELECT id FROM ids")]
        except sqlite3.OperationalError:  # no such table yet
            return []
        finally:
            connection.close()


class MovesAfterwards(LedgerTask):
    """A broken task: updates the offset row in a transaction of its own, after the records."""

    def put(self, batch: SinkBatch) -> None:
        self.write(batch)


class WritesAfterwards(LedgerTask):
    """A broken task: updates the offset row first; the records follow when offsets are committed."""

    def put(self, batch: SinkBatch) -> None:
        self.ledger.move(batch)
        self.late = [*getattr(self, "late", []), batch]

    def advance(self, positions: Mapping[PartitionId, int]) -> None:
        for batch in getattr(self, "late", []):
            self.write(batch)
        self.late = []
