"""Offsets file of source connectors, for standalone mode, in Connect's format (`connect.offsets_file`).

Owns the file while it is open: a lock file beside it keeps other processes out, and one task does all writes of this
process, batching the waiting ones.

Invariants: `store` returns only when the whole file with the new offsets is on the disk under its name. At any moment
the file is the old one or the new one, never a part. Stored offsets survive a kill -9.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from herdmesh.connect.errors import DataError
from herdmesh.connect.topics import offsets_file, offsets_topic
from herdmesh.worker.errors import OffsetFileUnusable
from herdmesh.worker.threads import in_thread

_LOCK_SUFFIX: Final = ".lock"
_NEW_SUFFIX: Final = ".new"
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class OffsetFile:
    """One open offsets file. Call `store` on one event loop, `of` from any thread."""

    def __init__(self, path: str) -> None:
        # Symbolic links are resolved: a write must replace the target of the link, not the link.
        self._path = Path(os.path.realpath(path))
        self._lock: int | None = None
        self._kept: offsets_file.Offsets = {}
        self._waiting: dict[bytes, bytes | None] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._writing: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Lock the file and read it; a missing or empty file is an empty map, as in Connect. Blocks while reading.

        Raises:
            OffsetFileUnusable: another process has it, its folder is not writable, or it has other content.
        """
        self._lock = self._locked()
        try:
            try:
                data = self._path.read_bytes()
            except FileNotFoundError:
                data = b""
            self._kept = offsets_file.decode(data) if data else {}
            # Written at once, so that an unwritable file is detected now and not after the first records have been
            # sent.
            self._write(self._kept)
        except (OSError, DataError) as error:
            self.close()
            raise OffsetFileUnusable(f"the offsets file {self._path} cannot be used: {error}") from error
        _log.info("offsets_file", path=str(self._path), entries=len(self._kept))

    def close(self) -> None:
        """Close and unlock the file. A store in progress takes effect or not, as after a kill."""
        if self._writing is not None:
            self._writing.cancel()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def of(self, connector: str) -> dict[bytes, bytes]:
        """The connector's offsets by source partition, in the bytes of the offsets topic."""
        found: dict[bytes, bytes] = {}
        for key, value in self._kept.items():
            decoded = offsets_topic.decode_key(key)
            if key is not None and value is not None and isinstance(decoded, tuple) and decoded[0] == connector:
                found[key] = value
        return found

    async def store(self, offsets: Mapping[bytes, bytes | None]) -> None:
        """Add or replace offsets; None removes one. Returns when they are on the disk.

        Raises:
            OSError: they are not on the disk; the file is unchanged.
        """
        self._waiting |= offsets
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(stored)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_waiting(), name="offsets file")
        await stored

    async def _write_waiting(self) -> None:
        try:
            while self._waiters:
                waiting, self._waiting = self._waiting, {}
                waiters, self._waiters = self._waiters, []
                merged: offsets_file.Offsets = {
                    key: value for key, value in {**self._kept, **waiting}.items() if value is not None
                }
                error: OSError | None = None
                try:
                    await in_thread("offsets file", lambda data=merged: self._write(data))
                    self._kept = merged
                except OSError as failed:
                    _log.warning("offsets_not_stored", path=str(self._path), error=str(failed))
                    error = failed
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_result(None) if error is None else waiter.set_exception(error)
        finally:
            self._writing = None

    def _write(self, offsets: offsets_file.Offsets) -> None:
        """Write and sync a temporary file, rename it over the file, and sync the folder, so that the name survives
        too."""
        new = self._path.with_name(self._path.name + _NEW_SUFFIX)
        with new.open("wb") as file:
            file.write(offsets_file.encode(offsets))
            file.flush()
            os.fsync(file.fileno())
        if self._path.exists():
            shutil.copymode(self._path, new)
        os.replace(new, self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _locked(self) -> int:
        path = self._path.with_name(self._path.name + _LOCK_SUFFIX)
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise OffsetFileUnusable(f"the offsets file {self._path} cannot be used: {error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise OffsetFileUnusable(
                f"the offsets file {self._path} is in use by another process; stop it, or name another file"
            ) from None
        return lock
