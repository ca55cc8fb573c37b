"""Task of `SparkSink`: buffers records, stages them as
Parquet, and has Spark write committed files to the target.

Owns the assignment of records to files, and when to commit. Publishing: `handover`; writing by Spark: `targets`; names
and manifests: `engine.staging`.

Invariant: the staged files of a partition hold exactly the records put since its last `stage`, in order. Spark is
started with the first record, so a run without records starts no JVM.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from herdmesh.connectors.files import Location, make_folder
from herdmesh.connectors.spark.sink import handover
from herdmesh.connectors.spark.sink.handover import HandoverFolder
from herdmesh.connectors.spark.sink.settings import settings_of
from herdmesh.connectors.spark.sink.tables import Rows, format_for_spark, refuse_far_years
from herdmesh.connectors.spark.sink.targets import target_of
from herdmesh.connectors.values import convert_batch
from herdmesh.engine.sink import short_topic
from herdmesh.sdk import (
    Config,
    Files,
    Manifest,
    PartitionId,
    SinkBatch,
    StagingFolder,
    StagingSinkTask,
    TaskContext,
    publish,
)


@dataclass(slots=True)
class _File:
    """The content of one future file."""

    partition: PartitionId
    first_offset: int
    last_offset: int
    rows: Rows


class SparkSinkTask(StagingSinkTask):
    """Task of `SparkSink`; buffers at most `flush.records`
    records, or `rotate.bytes`, plus the rest of one batch.
    """

    uses_keys = False

    def start(self, config: Config, context: TaskContext) -> None:
        self._settings = settings_of(config)
        self._context = context
        self._format = format_for_spark(defaults=context.value_defaults)
        self._group = context.group
        self._target = target_of(self._settings)
        folder = handover.folder_of(self._settings.staging, context.group)
        make_folder(Location.parse(str(folder)))
        self._folder = HandoverFolder(folder, self._write)
        self._identity = handover.identity_of(folder)
        #: Listed before the takeover: only files that exist now may be cleaned.
        self._found = self._folder.written_files()
        self._staging = StagingFolder(self._folder, context.group, context.run_id, self._open_files)
        #: Incomplete files by partition, and complete files, whose next record had another schema.
        self._open: dict[PartitionId, _File] = {}
        self._full: list[_File] = []
        self._records = 0
        self._bytes = 0
        self._oldest_s: float | None = None
        #: Last number used, by writer; for targets that keep numbers.
        self._numbers: dict[str, int] = {}
        #: Files that only the last commit named, and files that only the commit before it named.
        self._written: list[str] = []
        self._written_before: list[str] = []

    def recover(self, manifests: Mapping[PartitionId, str]) -> None:
        named = {partition: Manifest.decode(text) if text else None for partition, text in manifests.items()}
        self._staging.recover(named)
        here = [one for one in named.values() if one is not None and one.folder == self._folder.location]
        kept = {name for one in here for name in self._names(one)}
        self._folder.forget(set(handover.of_partitions(self._found, manifests.keys())) - kept)
        self._written += kept

    def put(self, batch: SinkBatch) -> None:
        if not len(batch):
            return
        for some, piece in convert_batch(batch, self._pack, self._context.skip_record):
            self._keep(some, piece)
        if self._records and self._oldest_s is None:
            self._oldest_s = time.monotonic()
            self._target.begin()

    def _pack(self, batch: SinkBatch) -> Any:
        piece = self._format.pack(batch.values, batch.value_schema)
        if self._settings.refuses_far_years:
            refuse_far_years(piece)
        return piece

    def _keep(self, batch: SinkBatch, piece: Any) -> None:
        partition, shape = (batch.original_topic, batch.partition), self._format.shape(piece)
        file = self._open.get(partition)
        if file is not None and not file.rows.takes(shape):
            self._full.append(self._open.pop(partition))
            file = None
        if file is None:
            file = self._open[partition] = _File(partition, batch.offsets[0], -1, Rows())
        file.rows.add(piece, shape, len(batch))
        file.last_offset = batch.offsets[-1]
        self._bytes += self._format.size_bytes(piece)
        self._records += len(batch)

    def commit_due(self) -> bool:
        if self._oldest_s is None:
            return False
        return (
            self._records >= self._settings.flush_records
            or self._bytes >= self._settings.rotate_bytes
            or time.monotonic() - self._oldest_s >= self._settings.rotate_s
        )

    def stage(self) -> Mapping[PartitionId, str]:
        self._staging.begin()
        self._folder.forget(self._written_before)
        self._written_before, self._written = self._written, []
        names: dict[PartitionId, list[str]] = {}
        for file in (*self._full, *self._open.values()):
            names.setdefault(file.partition, []).append(self._stage(file))
        manifests = {partition: self._staging.staged(of_it).encode() for partition, of_it in names.items()}
        self._open.clear()
        self._full.clear()
        self._records = self._bytes = 0
        self._oldest_s = None
        return manifests

    def publish(self, manifests: Mapping[PartitionId, str]) -> None:
        for text in manifests.values():
            manifest = Manifest.decode(text)
            self._written += self._names(manifest)
            # A missing file was written, and deleted by a later owner, while this process was suspended.
            publish(manifest, self._open_files)

    def _stage(self, file: _File) -> str:
        number = self._next_number(file.partition)
        suffix = handover.suffix_of(number)
        name = self._staging.new_name(file.partition, file.first_offset, file.last_offset, suffix)
        with self._staging.writing(name) as stream:
            file.rows.write(stream)
        return name

    def _next_number(self, partition: PartitionId) -> int | None:
        if not self._target.keeps_numbers:
            return None
        topic, number = partition
        writer = handover.writer_of(self._group, f"{short_topic(topic)}+{number}", self._identity)
        last = self._numbers.get(writer)
        self._numbers[writer] = (self._target.last_number(writer) if last is None else last) + 1
        return self._numbers[writer]

    def _names(self, manifest: Manifest) -> tuple[str, ...]:
        full = manifest.with_names(self._folder)
        return () if full is None else full.names

    def _write(self, path: Path, name: str) -> None:
        identity = handover.identity_of(path.parents[1])  # the folder may be that of an earlier config
        self._target.write(path, handover.writer_of(self._group, name, identity), handover.number_of(name))

    def _open_files(self, location: str) -> Files:
        return HandoverFolder(location, self._write)
