"""The task of `FileStreamSink`: appends the values of records as lines, at least once.

Owns writing. Departure: the sink writes compact JSON for every value that is no string (ADR 0002).

Invariant: a batch is one write, so the lines of several tasks do not mix.
"""

from __future__ import annotations

import os
import stat
from typing import IO

from herdmesh.connectors.file_stream.settings import require_file
from herdmesh.connectors.values import lines_of, payloads, taken
from herdmesh.sdk import Config, ConfigError, SinkBatch, SinkTask, TaskContext


class FileStreamSinkTask(SinkTask):
    """Appends lines. Tasks of one connector append to one file: a batch is one write, so lines do not mix."""

    uses_keys = False

    def start(self, config: Config, context: TaskContext) -> None:
        self._context = context
        self._payloads = payloads(defaults=context.value_defaults)
        path = require_file(config, "write to")
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
