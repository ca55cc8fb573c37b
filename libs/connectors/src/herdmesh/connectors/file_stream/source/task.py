"""The task of `FileStreamSource`: reads the lines that are appended to one file.

Owns reading, splitting lines and the position. Invariant: only complete
lines are sent, and the position is the byte after the last of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np

from herdmesh.connect.model import Numbers, PackedBytes, PackedTexts, is_utf8
from herdmesh.connect.spi import Standing
from herdmesh.connectors.file_stream.settings import absent_file, require_file
from herdmesh.connectors.file_stream.source.connector import FileStreamSource
from herdmesh.sdk import Config, ConfigError, OffsetsLost, Schema, SourceBatch, SourceTask, SourceTaskContext

READ_BYTES = 524_288
"""Bytes of one read. With a megabyte a line costs half as much again,
because the allocator returns such blocks to the system each time.
"""
WAKE_AFTER_MS = 1_000

_STRING = Schema("STRING")
_LF_BYTES = np.uint64(1)
_LINE_END = re.compile(rb"\r\n|\n|\r")


class FileStreamSourceTask(SourceTask):
    """The task of `FileStreamSource`: tails one file."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        settings = FileStreamSource.config_def().parse(config)
        self._path: str = require_file(config, "read from")
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
        #: bytes of each line with its end.
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
        """Read the next lines; True if there are complete lines."""
        if self._file is None and not self._open():
            return False
        assert self._file is not None
        # Read on when a line is longer than one read: returning "nothing" would end the run before the line is
        # complete.
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
            file = open(self._path, "rb")  # noqa: SIM115 - stays open as long as the task lives
        except FileNotFoundError as error:
            self._no_file.goes_on(*absent_file(self._path, error))
            return False
        self._no_file.over()
        self._file = file
        self._check_size(os.fstat(file.fileno()).st_size)
        file.seek(self._position)
        return True

    def _check_size(self, size: int) -> None:
        """Detect a truncated or replaced file: one that is shorter than what was read from it."""
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


def split_lines(data: bytes) -> tuple[list[bytes], bytes]:
    """Split data into complete lines with their ends (LF, CR LF or a lone CR), and the rest.

    A CR at the end of the data stays in the rest: an LF may follow it.
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
