"""Failpoints: named places in the code where a fault test can stop or kill the process.

Owns the parsing of HERDMESH_FAILPOINTS and the action at a failpoint. The part of the code that has failpoints owns
their names, their owners and the moment when they are armed (`herdmesh.engine.runtime.failpoints`,
`herdmesh.topicstore.stages`). Does nothing unless that variable is set.

The variable has entries `[OWNER/]NAME=stop[:always]`, `[OWNER/]NAME=kill` or `[OWNER/]NAME=hold`, separated by
commas or lines, or `@FILE` with such entries. OWNER is a connector or a store's topic; without it the entry applies to
every owner. Reaching an armed point writes one line `<name> <pid> <owner>` to the file HERDMESH_FAILPOINT_LOG and sends
SIGSTOP or SIGKILL to the own process: once per log and owner, whichever process gets there first, or every time with
`:always`.
With `hold` the thread blocks there for ever and the process lives on, so that the work of its other threads (records
that a client sends) gets done. The test sees the line, causes its fault, and sends SIGCONT or SIGKILL.

Invariant: the line is on disk before the process stops, and the thread that hit the point goes no further.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VARIABLE: Final = "HERDMESH_FAILPOINTS"
LOG_VARIABLE: Final = "HERDMESH_FAILPOINT_LOG"

_ACTIONS: Final = {"stop": signal.SIGSTOP, "kill": signal.SIGKILL, "hold": None}


@dataclass(frozen=True, slots=True)
class _Deed:
    signal: signal.Signals | None
    """Signal to send; None = hold."""
    always: bool


class Failpoints:
    """The failpoints `names` of one part of this process. Any thread may hit them."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._owner = ""
        self._armed: Mapping[str, _Deed] = {}
        self._seen: object = None  # version of @FILE that is armed

    def arm(self, owner: str) -> None:
        """Read and arm the entries for `owner`, the owner of the points that are hit from now on.

        Raises ValueError for an entry that is no failpoint of this part, so that a typo fails a test.
        """
        self._owner = owner
        self._seen, text = _read(os.environ.get(VARIABLE, ""))
        self._armed = self._parse(text)

    def rearm_if_changed(self) -> None:
        """Read @FILE again when it was replaced since, so that a running process can be armed. The file must be
        replaced in one step (`os.replace`). Raises ValueError as `arm` does.
        """
        variable = os.environ.get(VARIABLE, "")
        if variable.startswith("@") and _version(Path(variable[1:])) != self._seen:
            self.arm(self._owner)

    def hit(self, name: str) -> None:
        """Stop, kill or block here, if the point is armed."""
        deed = self._armed.get(name)
        if deed is None:
            return
        log = Path(os.environ[LOG_VARIABLE])
        if not deed.always and self._was_hit(log, name):
            return
        with log.open("a", encoding="utf-8") as lines:
            lines.write(f"{name} {os.getpid()} {self._owner}\n")
            lines.flush()
            os.fsync(lines.fileno())
        if deed.signal is None:
            threading.Event().wait()
        else:
            # To the own thread: a signal to the process is taken by any thread, and this one would run on for a moment.
            signal.pthread_kill(threading.get_ident(), deed.signal)

    def _parse(self, text: str) -> dict[str, _Deed]:
        armed: dict[str, _Deed] = {}
        for item in filter(None, (part.strip() for part in text.replace("\n", ",").split(","))):
            point, _, what = item.partition("=")
            wanted, _, name = point.rpartition("/")
            action, _, often = what.partition(":")
            known = name in self._names and action in _ACTIONS and often in ("", "always")
            if not known or (action != "stop" and often):
                raise ValueError(
                    f"{VARIABLE}: '{item}' is not [OWNER/]<name>=stop[:always], =kill or =hold of {self._names}"
                )
            if wanted in ("", self._owner):
                armed[name] = _Deed(_ACTIONS[action], often == "always")
        return armed

    def _was_hit(self, log: Path, name: str) -> bool:
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return any(line.split(" ", 2)[::2] == [name, self._owner] for line in lines)


def _read(variable: str) -> tuple[object, str]:
    """The version of @FILE (None: no file) and the entries."""
    if not variable.startswith("@"):
        return None, variable
    file = Path(variable[1:])
    version = _version(file)
    return version, file.read_text(encoding="utf-8") if version is not None else ""


def _version(file: Path) -> object:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
