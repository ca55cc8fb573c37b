"""Process trees of this machine: which process started which.

Owns the reading of `/proc`. Ends none, remembers none. A process whose parent ended belongs to nobody here: the kernel
no longer says who started it.

Invariant: a process is told from a later one of its number by its begin.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple


class ProcessId(NamedTuple):
    """A process, and no later one of its number."""

    pid: int
    begin: int
    """In the kernel's ticks since the machine began."""


def started_by(roots: Collection[int]) -> Mapping[int, frozenset[ProcessId]]:
    """Of each of these processes those that it started, and that these started. Reads a file for each process of the
    machine, so it is called in a thread."""
    children: dict[int, list[ProcessId]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and (found := _read(int(entry.name))) is not None:
            parent, process = found
            children.setdefault(parent, []).append(process)
    return {root: frozenset(_below(root, children)) for root in roots}


def is_there(process: ProcessId) -> bool:
    """True while it has not ended."""
    found = _read(process.pid)
    return found is not None and found[1] == process


def _below(root: int, children: Mapping[int, list[ProcessId]]) -> list[ProcessId]:
    found: list[ProcessId] = []
    waiting, seen = [root], {root}
    while waiting:
        fresh = [one for one in children.get(waiting.pop(), ()) if one.pid not in seen]
        seen.update(one.pid for one in fresh)
        waiting += [one.pid for one in fresh]
        found += fresh
    return found


def _read(pid: int) -> tuple[int, ProcessId] | None:
    """A process' parent, and itself; None = it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()  # what is in the brackets may be anything
    return (int(fields[1]), ProcessId(pid, int(fields[19]))) if len(fields) > 19 else None
