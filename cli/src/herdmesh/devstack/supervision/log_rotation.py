"""Rotation of the logs of a stack: a log that has grown to its limit continues empty, and its text is in `NAME.log.1`.

Owns the limit, the number of older files and the rotation itself. Does not write logs. The services, the JVMs and the
runs write to a log through file descriptors that they inherited, some of them without a supervisor, so no file can be
closed or replaced: the text is copied and the file is emptied. All writers append (O_APPEND), so the next line of each
is at the start of the emptied file.

Invariant: the logs of one service have at most `KEPT + 1` times `BYTES_MAX`, and what is written between two rotations.
A line that is written in the microseconds between the end of the copy and the emptying is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

BYTES_MAX: Final = 16 * 1024 * 1024
KEPT: Final = 3
"""Number of older files of a log: `.1` is the latest."""
INTERVAL_S: Final = 10.0


def rotate(log: Path, bytes_max: int = BYTES_MAX, kept: int = KEPT) -> bool:
    """Move the text of a log that has more than `bytes_max` bytes to `NAME.1`, and older files to the next number; the
    last one is removed. False when the log is smaller, or is not there.

    Raises:
        OSError: the text could not be copied, for example on a full disk; the log is unchanged.
    """
    try:
        if log.stat().st_size <= bytes_max:
            return False
    except FileNotFoundError:
        return False
    partial = _numbered(log, 1).with_suffix(".partial")
    try:
        with log.open("rb") as source, partial.open("wb") as target:
            shutil.copyfileobj(source, target)
            for number in range(kept - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(_numbered(log, number), _numbered(log, number + 1))
            os.replace(partial, _numbered(log, 1))
            shutil.copyfileobj(source, target)  # lines written meanwhile
            target.flush()
            os.truncate(log, 0)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return True


async def rotate_all(logs: Callable[[], Iterable[Path]], interval_s: float = INTERVAL_S) -> None:
    """Rotate these logs when they have grown, until cancelled. A log that cannot be rotated is tried again later."""
    while True:
        for log in logs():
            with contextlib.suppress(OSError):
                await asyncio.to_thread(rotate, log)
        await asyncio.sleep(interval_s)


def _numbered(log: Path, number: int) -> Path:
    return log.with_name(f"{log.name}.{number}")
