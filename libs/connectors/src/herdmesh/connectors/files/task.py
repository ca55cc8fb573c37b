"""Task of `FileSink`: buffers records in pieces, stages files, publishes committed ones.

Owns the assignment of records to files, and when to commit. Names, manifests and publishing: `engine.staging`; the
files' content: `formats`; the subfolders: `partitioners`.

Invariant: the staged files of a partition hold exactly the records put since its last `stage`, in order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from herdmesh.connectors.files.formats import format_of
from herdmesh.connectors.files.locations import make_folder, opener
from herdmesh.connectors.files.partitioners import Placed, TogetherPartitioner, topic_folder
from herdmesh.connectors.files.settings import settings_of
from herdmesh.connectors.values import chosen_of, convert_batch, part_of
from herdmesh.sdk import (
    Config,
    DataError,
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
    folder: str
    first_offset: int
    last_offset: int = -1
    shape: Any = None
    """Shape of its pieces (`Format.shape`); None = a piece of any shape fits."""
    pieces: list[Any] = field(default_factory=list[Any])
    row_counts: list[int] = field(default_factory=list[int])
    records: int = 0


class FileSinkTask(StagingSinkTask):
    """Task of `FileSink`; buffers at most `flush.records` records, or `rotate.bytes`, plus the rest of one batch."""

    uses_keys = False

    def start(self, config: Config, context: TaskContext) -> None:
        self._settings = settings_of(config, defaults=context.value_defaults)
        self._format = format_of(self._settings.format)
        self._partitioner = self._settings.partitioner
        self._together = isinstance(self._partitioner, TogetherPartitioner)
        self._context = context
        #: Incomplete files by partition and subfolder: one for each shape, the most recently used last.
        self._open: dict[tuple[PartitionId, str], list[_File]] = {}
        self._full: list[_File] = []
        self._records = 0
        self._bytes = 0
        self._oldest_s: float | None = None
        location = self._settings.location
        self._subfolder_bytes_max = location.subfolder_bytes_max
        make_folder(location)
        self._open_files = opener(self._settings.access)
        folder = self._open_files(location.text)
        self._staging = StagingFolder(folder, context.group, context.run_id, self._open_files)

    def recover(self, manifests: Mapping[PartitionId, str]) -> None:
        self._staging.recover(
            {partition: Manifest.decode(text) if text else None for partition, text in manifests.items()}
        )

    def put(self, batch: SinkBatch) -> None:
        above = topic_folder(batch.topic) if self._settings.topic_folders else ""
        if isinstance(above, DataError):
            for place in range(len(batch)):
                self._context.skip_record(batch, place, above)
            return
        held = self._records
        folders = self._partitioner.folders(batch) if len(batch) else ""
        if isinstance(folders, str):
            self._add_to(batch, "/".join(filter(None, (above, folders))))
        else:
            self._add_each(batch, above, folders)
        if self._together and self._records == held:  # no record is left, but the file's name must cover these offsets
            partition = (batch.original_topic, batch.partition)
            self._file(partition, above, None, batch.first_offset).last_offset = batch.last_offset
        if self._records > held and self._oldest_s is None:
            self._oldest_s = time.monotonic()

    def _add_each(self, batch: SinkBatch, above: str, folders: Placed) -> None:
        """Add records that each have a folder; report those without one as failed records."""
        places: dict[str, list[int]] = {}
        for place, folder in enumerate(folders):
            if isinstance(folder, DataError):
                self._context.skip_record(batch, place, folder)
            else:
                places.setdefault(folder, []).append(place)
        for folder, chosen in places.items():
            some = batch if len(chosen) == len(batch) else chosen_of(batch, chosen)
            self._add_to(some, "/".join(filter(None, (above, folder))))

    def _add_to(self, batch: SinkBatch, folder: str) -> None:
        """Add records to a subfolder; report them as failed if its path is longer than the file system allows."""
        size_bytes, most = len(folder.encode()), self._subfolder_bytes_max
        if size_bytes <= most:
            self._add(batch, folder)
            return
        why = f"its folder name has {size_bytes} bytes, and {self._settings.location.text} allows {most}"
        for place in range(len(batch)):
            self._context.skip_record(
                batch, place, DataError(f"the record cannot be written: {why} ({folder[:80]}...)")
            )

    def _add(self, batch: SinkBatch, folder: str) -> None:
        """Add records of one schema to one subfolder: to its file, and to new files once that is full."""
        begin, records_max = 0, self._settings.file_records
        while begin < len(batch):
            room = records_max - self._records_of(batch, folder) if records_max else len(batch)
            end = min(len(batch), begin + room)
            part = batch if end - begin == len(batch) else part_of(batch, begin, end)
            for some, piece in convert_batch(part, self._pack, self._context.skip_record):
                self._keep(some, piece, folder)
            begin = end

    def _pack(self, batch: SinkBatch) -> Any:
        return self._format.pack(batch.values, batch.value_schema)

    def _records_of(self, batch: SinkBatch, folder: str) -> int:
        """Return the number of records in the fullest file that the next piece could be added to."""
        files = self._open.get(((batch.original_topic, batch.partition), folder), ())
        return max((file.records for file in files), default=0)

    def _keep(self, batch: SinkBatch, piece: Any, folder: str) -> None:
        key = ((batch.original_topic, batch.partition), folder)
        file = self._file(*key, self._format.shape(piece), batch.first_offset)
        file.pieces.append(piece)
        file.row_counts.append(len(batch))
        file.records += len(batch)
        file.last_offset = batch.last_offset
        self._records += len(batch)
        self._bytes += self._format.size_bytes(piece)
        if file.records == self._settings.file_records:
            self._full.append(file)
            self._open[key].remove(file)

    def _file(self, partition: PartitionId, folder: str, shape: Any, first_offset: int) -> _File:
        """Return the file for a piece of that shape; a new one if there is none. Moves it to the end of its list."""
        files = self._open.setdefault((partition, folder), [])
        found = next((one for one in reversed(files) if shape is None or one.shape in (None, shape)), None)
        if found is None:
            found = _File(partition, folder, first_offset)
        else:
            files.remove(found)
        if shape is not None:
            found.shape = shape
        files.append(found)
        return found

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
        files = [file for file in (*self._full, *chain.from_iterable(self._open.values())) if file.records]
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
        # A missing file was published, and moved by a reader, while this process was suspended.
        for text in manifests.values():
            publish(Manifest.decode(text), self._open_files)
