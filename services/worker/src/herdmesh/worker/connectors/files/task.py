"""The task of `FileSink`: holds records in pieces, stages files, publishes what is committed.

Owns which record is in which file, and when to commit. Names, manifests and publishing: `engine.staging`; the files'
content: `formats`; the subfolders: `partitioners`.

Invariant: the staged files of a partition hold exactly the records put since its last `stage`, in order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from herdmesh.connect.connector import Config, PartitionId, SinkBatch, StagingSinkTask, TaskContext
from herdmesh.connect.errors import DataError
from herdmesh.connect.schemas import Schema
from herdmesh.engine import staging
from herdmesh.worker.connectors.files.locations import make_folder, opener
from herdmesh.worker.connectors.files.partitioners import Placed, TogetherPartitioner, escaped
from herdmesh.worker.connectors.files.settings import settings_of
from herdmesh.worker.connectors.payloads import needs_writing, plain_of


@dataclass(slots=True)
class _File:
    """What will be one file."""

    partition: PartitionId
    folder: str
    first_offset: int
    last_offset: int = -1
    pieces: list[Any] = field(default_factory=list[Any])
    row_counts: list[int] = field(default_factory=list[int])
    records: int = 0


class FileSinkTask(StagingSinkTask):
    """One task; holds at most `flush.records` records, or `rotate.bytes`, and what one batch brings beyond."""

    uses_keys = False

    def start(self, config: Config, context: TaskContext) -> None:
        self._settings = settings_of(config)
        self._format = self._settings.format
        self._partitioner = self._settings.partitioner
        self._together = isinstance(self._partitioner, TogetherPartitioner)
        self._reporter = context.reporter
        #: By partition and subfolder, those that take more.
        self._open: dict[tuple[PartitionId, str], _File] = {}
        self._full: list[_File] = []
        self._records = 0
        self._bytes = 0
        self._oldest_s: float | None = None
        location = self._settings.location
        make_folder(location)
        self._open_files = opener(self._settings.access)
        folder = self._open_files(location.text)
        self._staging = staging.StagingFolder(folder, context.group, context.run_id, self._open_files)

    def recover(self, manifests: Mapping[PartitionId, str]) -> None:
        self._staging.recover(
            {partition: staging.Manifest.decode(text) if text else None for partition, text in manifests.items()}
        )

    def put(self, batch: SinkBatch) -> None:
        partition = (batch.original_topic, batch.partition)
        above = escaped(batch.topic) if self._settings.topic_folders else ""
        if not len(batch):
            if self._together:  # the file's name will tell that these offsets were read
                self._file(partition, above, batch.first_offset).last_offset = batch.last_offset
            return
        values, schema = batch.values, batch.value_schema
        rows: Sequence[Any] = values
        if needs_writing(schema) and (self._format.takes_rows or self._partitioner.needs_rows):
            rows = plain_of(values, schema)
        if self._format.takes_rows:
            values, schema = rows, None
        folders = self._partitioner.folders(batch, rows)
        if isinstance(folders, str):
            folder = "/".join(filter(None, (above, folders)))
            self._add(partition, folder, values, schema, batch.offsets, (batch.first_offset, batch.last_offset))
        else:
            self._add_each(batch, above, values, schema, folders)
        if self._oldest_s is None:
            self._oldest_s = time.monotonic()

    def _add_each(
        self, batch: SinkBatch, above: str, values: Sequence[Any], schema: Schema | None, folders: Placed
    ) -> None:
        """Records with a folder each; those without one are given up, if the connector is to go on without them."""
        places: dict[str, list[int]] = {}
        for place, folder in enumerate(folders):
            if isinstance(folder, DataError):
                self._give_up(batch, place, folder)
            else:
                places.setdefault(folder, []).append(place)
        partition = (batch.original_topic, batch.partition)
        for folder, chosen in places.items():
            offsets: Sequence[int] = batch.offsets
            some = values
            if len(chosen) < len(values):
                some = [values[place] for place in chosen]
                offsets = [offsets[place] for place in chosen]
            full = "/".join(filter(None, (above, folder)))
            self._add(partition, full, some, schema, offsets, (offsets[0], offsets[-1]))

    def _add(
        self,
        partition: PartitionId,
        folder: str,
        values: Sequence[Any],
        schema: Schema | None,
        offsets: Sequence[int],
        offset_range: tuple[int, int],
    ) -> None:
        """Records of one shape to one subfolder: into its file, and new ones where that is full. `offset_range` may be
        wider than what `offsets` has."""
        begin, (first, last) = 0, offset_range
        while begin < len(values):
            file = self._file(partition, folder, first if begin == 0 else offsets[begin])
            end = len(values)
            if self._settings.file_records:
                end = min(end, begin + self._settings.file_records - file.records)
            part = values if end - begin == len(values) else values[begin:end]
            piece = self._format.pack(part, schema)
            file.pieces.append(piece)
            file.row_counts.append(len(part))
            file.records += len(part)
            file.last_offset = last if end == len(values) else offsets[end - 1]
            self._records += len(part)
            self._bytes += self._format.size_bytes(piece)
            if file.records == self._settings.file_records:
                self._full.append(self._open.pop((partition, folder)))
            begin = end

    def _file(self, partition: PartitionId, folder: str, first_offset: int) -> _File:
        file = self._open.get((partition, folder))
        if file is None:
            file = self._open[partition, folder] = _File(partition, folder, first_offset)
        return file

    def _give_up(self, batch: SinkBatch, place: int, why: DataError) -> None:
        where = f"topic {batch.original_topic}, partition {batch.partition}, offset {batch.offsets[place]}"
        error = DataError(f"{why} ({where})")
        if self._reporter is None:
            raise error
        self._reporter.report(batch, place, error)

    def commit_due(self) -> bool:
        if self._oldest_s is None:
            return False
        return (
            self._records >= self._settings.flush_records
            or self._bytes >= self._settings.rotate_bytes
            or bool(self._full)
            or time.monotonic() - self._oldest_s >= self._settings.rotate_s
        )

    def stage(self) -> Mapping[PartitionId, str]:
        self._staging.begin()
        files = [file for file in (*self._full, *self._open.values()) if file.records]
        names: dict[PartitionId, list[str]] = {}
        for file, name in zip(files, self._staging.each(self._write, files), strict=True):
            names.setdefault(file.partition, []).append(name)
        manifests = {partition: self._staging.staged(of_it).encode() for partition, of_it in names.items()}
        self._open.clear()
        self._full.clear()
        self._records = self._bytes = 0
        self._oldest_s = None
        return manifests

    def _write(self, file: _File) -> str:
        name = self._staging.new_name(
            file.partition, file.first_offset, file.last_offset, self._format.suffix, file.folder
        )
        with self._staging.writing(name) as stream:
            self._format.write(stream, file.pieces, file.row_counts)
        return name

    def publish(self, manifests: Mapping[PartitionId, str]) -> None:
        # A file that is gone was published, and moved on by a reader, while this process stood still.
        for text in manifests.values():
            staging.publish(staging.Manifest.decode(text), self._open_files)
