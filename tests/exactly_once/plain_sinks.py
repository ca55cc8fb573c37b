"""The two sinks of the paths without their exactly-once mechanism: at least once, as any `SinkTask` is
(guarantee D2). A mesh's workers find them by `install`.

    PlainPostgresSink   `PostgresSink` whose ledger's offsets are ignored: the group's offsets decide
    PlainParquetSink    a file for each flush, written before the offsets are committed, and never checked again

Owns no assertion. Not `SparkSink`: its databases have a ledger, too, and its files cost a JVM for each task and a job
of Spark's for each partition and commit, twice a second in this mesh.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from herdmesh.connect.config.config_def import REQUIRED, ConfigDef, ConfigKey, Importance, Type
from herdmesh.connect.spi.connector import Config, PartitionId, SinkBatch, SinkConnector, SinkTask, TaskContext
from herdmesh.connectors.postgres.sink.connector import PostgresSink
from herdmesh.connectors.postgres.sink.task import PostgresSinkTask

_arrow: Any = pyarrow
_parquet: Any = pyarrow.parquet


def install(folder: Path) -> None:
    """Create a folder that, on the path of a process, makes both importable."""
    info = folder / "plain_sinks-0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plain-sinks\nVersion: 0.0\n")
    names = (PlainPostgresSink.__name__, PlainParquetSink.__name__)
    lines = "".join(f"{name} = {__name__}:{name}\n" for name in names)
    (info / "entry_points.txt").write_text(f"[herdmesh.connectors]\n{lines}")


class PlainPostgresSink(PostgresSink):
    """See above."""

    class_name = "PlainPostgresSink"
    aliases = ()
    version = "0.0"

    def task_class(self) -> str:
        return f"{__name__}:WithoutLedger"


class WithoutLedger(PostgresSinkTask):
    """Writes the ledger as usual, and does not report its offsets."""

    def claim(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, int]:
        super().claim(partitions)
        return {}


class PlainParquetSink(SinkConnector):
    """See above."""

    class_name = "PlainParquetSink"
    version = "0.0"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(ConfigKey("directory", Type.STRING, REQUIRED, Importance.HIGH, "Where the files go."))

    def task_class(self) -> str:
        return f"{__name__}:PlainParquetSinkTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config)] * max_tasks


class PlainParquetSinkTask(SinkTask):
    """One file for each flush that has records."""

    uses_keys = False

    def start(self, config: Config, context: TaskContext) -> None:
        self._folder = Path(str(config["directory"]))
        self._folder.mkdir(exist_ok=True)
        self._values: list[Any] = []

    def put(self, batch: SinkBatch) -> None:
        self._values += batch.values

    def flush(self) -> None:
        if not self._values:
            return
        name = f"{uuid.uuid4().hex}.parquet"
        _parquet.write_table(_arrow.Table.from_pylist(self._values), self._folder / f".{name}")
        (self._folder / f".{name}").rename(self._folder / name)
        self._values.clear()
