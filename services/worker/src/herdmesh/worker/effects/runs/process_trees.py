"""Process trees of this machine: the children of each process.

Owns the reading of `/proc`. Ends no process and remembers none. A process whose parent ended has no tree here: the
kernel no longer knows who started it.

Invariant: a process is distinguished from a later one of the same pid by its start time.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple


class ProcessId(NamedTuple):
    """A process, distinguished from later ones of its pid."""

    pid: int
    begin: int
    """Start time, in the kernel's ticks since boot."""


def started_by(roots: Collection[int]) -> Mapping[int, frozenset[ProcessId]]:
    """The descendants of each of these processes. Reads one file per process of the machine, so call it in a thread."""
    children: dict[int, list[ProcessId]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and (found := _read(int(entry.name))) is not None:
            parent, process = found
            children.setdefault(parent, []).append(process)
    return {root: frozenset(_below(root, children)) for root in roots}


def is_there(process: ProcessId) -> bool:
    """True while the process has not ended."""
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
    """A process' parent, and the process itself; None = it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()  # the name in parentheses may have any character
    return (int(fields[1]), ProcessId(pid, int(fields[19]))) if len(fields) > 19 else None
