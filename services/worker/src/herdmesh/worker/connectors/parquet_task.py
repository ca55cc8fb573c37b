"""The task of `ParquetSink`: buffers columns, stages one Parquet file per partition, publishes what is committed.

Owns the buffer and the files' content. Names, manifests and publishing: `engine.staging`; types: `columns`.

Invariant: a staged file holds exactly the records put since the last `stage` of its partition, in order.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet

from herdmesh.connect.connector import Config, PartitionId, SinkBatch, StagingSinkTask, TaskContext
from herdmesh.connect.errors import ConfigError
from herdmesh.engine import staging
from herdmesh.worker.connectors.columns import Chunk, chunk_of, table_of
from herdmesh.worker.connectors.parquet import (
    COMPRESSION,
    DIRECTORY,
    FLUSH_RECORDS,
    ROTATE_INTERVAL_MS,
    ParquetSink,
    folder_problem,
)
from herdmesh.worker.connectors.payloads import needs_writing, plain_of

SUFFIX = ".parquet"
_parquet: Any = pyarrow.parquet


@dataclass(slots=True)
class _Buffer:
    """What was put for one partition and is not staged yet."""

    first_offset: int
    last_offset: int = -1
    chunks: list[Chunk] = field(default_factory=list[Chunk])
    row_counts: list[int] = field(default_factory=list[int])


class ParquetSinkTask(StagingSinkTask):
    """One task; buffers at most `flush.records` records and what one batch brings beyond."""

    uses_keys = False

    def start(self, config: Config, context: TaskContext) -> None:
        settings = ParquetSink.config_def().parse(config)
        self._folder = Path(settings[DIRECTORY])
        self._flush_records: int = settings[FLUSH_RECORDS]
        self._rotate_s: float = settings[ROTATE_INTERVAL_MS] / 1000
        self._compression: str = settings[COMPRESSION]
        self._buffers: dict[PartitionId, _Buffer] = {}
        self._records = 0
        self._oldest_s: float | None = None
        _make_folder(self._folder)
        self._staging = staging.StagingFolder(self._folder, context.group, context.run_id)

    def recover(self, manifests: Mapping[PartitionId, str]) -> None:
        self._staging.recover(
            {partition: staging.Manifest.decode(text) if text else None for partition, text in manifests.items()}
        )

    def put(self, batch: SinkBatch) -> None:
        partition = (batch.original_topic, batch.partition)
        buffer = self._buffers.get(partition)
        if buffer is None:
            buffer = self._buffers[partition] = _Buffer(batch.first_offset)
        buffer.last_offset = batch.last_offset
        if not len(batch):
            return
        schema = batch.value_schema
        rows = plain_of(batch.values, schema) if needs_writing(schema) else batch.values
        buffer.chunks.append(chunk_of(rows))
        buffer.row_counts.append(len(batch))
        self._records += len(batch)
        if self._oldest_s is None:
            self._oldest_s = time.monotonic()

    def commit_due(self) -> bool:
        if self._oldest_s is None:
            return False
        return self._records >= self._flush_records or time.monotonic() - self._oldest_s >= self._rotate_s

    def stage(self) -> Mapping[PartitionId, str]:
        manifests: dict[PartitionId, str] = {}
        for partition, buffer in self._buffers.items():
            if not buffer.chunks:
                continue
            name = self._staging.new_name(partition, buffer.first_offset, buffer.last_offset, SUFFIX)
            self._write(self._staging.staged_path(name), buffer)
            manifests[partition] = self._staging.staged([name]).encode()
        self._buffers.clear()
        self._records = 0
        self._oldest_s = None
        return manifests

    def _write(self, path: Path, buffer: _Buffer) -> None:
        table = table_of(buffer.chunks, buffer.row_counts)
        with open(path, "xb") as file:
            _parquet.write_table(table, file, compression=self._compression)
            file.flush()
            os.fsync(file.fileno())

    def publish(self, manifests: Mapping[PartitionId, str]) -> None:
        # A file that is gone was published, and moved on by a reader, while this process stood still.
        for text in manifests.values():
            staging.publish(staging.Manifest.decode(text))


def _make_folder(folder: Path) -> None:
    """Raises ConfigError for the field `directory`."""
    problem = folder_problem(folder)
    if problem is not None:
        raise problem
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{DIRECTORY}: {folder} cannot be made: {error.strerror}", field=DIRECTORY) from error
