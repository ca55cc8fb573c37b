"""Places where a fault test can freeze a run.

Owns the parsing of HERDMESH_FAILPOINTS and the stop itself. Does nothing at all unless that variable is set.

`HERDMESH_FAILPOINTS="before-write=stop,after-offset-commit=stop:always"`: reaching the named point writes one line
`<name> <pid>` to the file HERDMESH_FAILPOINT_LOG and sends SIGSTOP to the own process: once per process, or every time
with `:always`. The test sees the line, does its harm, and sends SIGCONT or SIGKILL.

Invariant: the line is on disk before the process stands still.
"""

from __future__ import annotations

import os
import signal
from typing import Final

NAMES: Final = ("before-write", "after-write", "after-offset-commit", "before-publish")


def _parse(text: str) -> dict[str, bool]:
    """Name -> stop every time. Raises ValueError for what is not a failpoint, so that a typo fails a test."""
    points: dict[str, bool] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, action = item.partition("=")
        action, _, often = action.partition(":")
        if name not in NAMES or action != "stop" or often not in ("", "always"):
            raise ValueError(f"HERDMESH_FAILPOINTS: '{item}' is not <name>=stop[:always] of {', '.join(NAMES)}")
        points[name] = often == "always"
    return points


_armed: Final = _parse(os.environ.get("HERDMESH_FAILPOINTS", ""))


def hit(name: str) -> None:
    """Stand still here if a test asked for it."""
    if not _armed or name not in _armed:
        return
    if not _armed[name]:
        del _armed[name]
    with open(os.environ["HERDMESH_FAILPOINT_LOG"], "a", encoding="utf-8") as log:
        log.write(f"{name} {os.getpid()}\n")
        log.flush()
        os.fsync(log.fileno())
    os.kill(os.getpid(), signal.SIGSTOP)
