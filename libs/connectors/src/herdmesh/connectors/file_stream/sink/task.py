"""The task of `FileStreamSink`: appends the values of records as lines, at least once.

Owns writing. Departure from Connect: values other than strings are written as compact JSON (ADR 0002).

Invariant: a batch is one write, so the lines of several tasks do not mix.
"""

from __future__ import annotations

import os
import stat
from typing import IO

from herdmesh.connectors.file_stream.settings import require_file
from herdmesh.connectors.values import convert_batch, lines_of, payloads
from herdmesh.sdk import Config, ConfigError, SinkBatch, SinkTask, TaskContext


class FileStreamSinkTask(SinkTask):
    """The task of `FileStreamSink`. All tasks of a connector append
    to one file: a batch is one write, so lines do not mix.
    """

    uses_keys = False

    def start(self, config: Config, context: TaskContext) -> None:
        self._context = context
        self._payloads = payloads(defaults=context.value_defaults)
        path = require_file(config, "write to")
        try:
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - stays open as long as the task lives
        except OSError as error:
            raise ConfigError(f"the file {path} cannot be written: {error.strerror}", field="file") from error
        #: `fsync` of a pipe or a terminal fails with EINVAL: there is nothing to make durable.
        self._is_on_disk = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)

    def put(self, batch: SinkBatch) -> None:
        for _, data in convert_batch(batch, self._lines, self._context.skip_record):
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
    """Write all data, in one system call if possible. It is possible for files unless the disk is full."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
