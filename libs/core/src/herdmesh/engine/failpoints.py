"""Places where a fault test can freeze a run.

Owns the parsing of HERDMESH_FAILPOINTS and the stop itself. Does nothing at all unless that variable is set.

The variable holds entries `[CONNECTOR/]NAME=stop[:always]`, separated by commas or lines, or `@FILE` with such entries,
read anew at the start of every run, so that a test can arm a worker that already runs. Reaching an armed point writes
one line `<name> <pid> <connector>` to the file HERDMESH_FAILPOINT_LOG and sends SIGSTOP to the own process: once per
log and connector, whichever process gets there first, or every time with `:always`. The test sees the line, does its
harm, and sends SIGCONT or SIGKILL.

Invariant: the line is on disk before the process stands still.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

NAMES: Final = ("before-write", "after-write", "after-offset-commit", "before-publish")

_connector = ""
_armed: dict[str, bool] = {}
"""Name -> stop every time; what the current run's connector has to mind."""


def arm(connector: str) -> None:
    """Read what is armed for a run of this connector. Called once at the start of a run.

    Raises ValueError for what is not a failpoint, so that a typo fails a test.
    """
    global _connector, _armed
    _connector, _armed = connector, {}
    text = os.environ.get("HERDMESH_FAILPOINTS", "")
    if text.startswith("@"):
        file = Path(text.removeprefix("@"))
        text = file.read_text() if file.exists() else ""
    for item in filter(None, (part.strip() for part in text.replace("\n", ",").split(","))):
        point, _, action = item.partition("=")
        wanted, _, name = point.rpartition("/")
        action, _, often = action.partition(":")
        if name not in NAMES or action != "stop" or often not in ("", "always"):
            raise ValueError(f"HERDMESH_FAILPOINTS: '{item}' is not [CONNECTOR/]<name>=stop[:always] of {NAMES}")
        if wanted in ("", connector):
            _armed[name] = often == "always"


def hit(name: str) -> None:
    """Stand still here if a test asked for it."""
    if not _armed or name not in _armed:
        return
    log = Path(os.environ["HERDMESH_FAILPOINT_LOG"])
    if not _armed.get(name) and _was_hit(log, name):
        return
    with log.open("a", encoding="utf-8") as lines:
        lines.write(f"{name} {os.getpid()} {_connector}\n")
        lines.flush()
        os.fsync(lines.fileno())
    os.kill(os.getpid(), signal.SIGSTOP)


def _was_hit(log: Path, name: str) -> bool:
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return any(line.split(" ", 2)[::2] == [name, _connector] for line in lines)
