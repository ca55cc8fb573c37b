"""Processor time and memory of processes, as the kernel counts them.

Invariant: the processor time of a process that ended and was waited for by one of these is still counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import psutil


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    """Seconds of processor time so far, of these and of their ended children."""
    found = [process.cpu_times() for process in processes if process.is_running()]
    return sum(times.user + times.system + times.children_user + times.children_system for times in found)


def memory_mb(processes: Sequence[psutil.Process]) -> float:
    """Memory in MB by the kernel's proportional set size: a page that forks share counts once."""
    return sum(process.memory_full_info().pss for process in processes if process.is_running()) / 1e6
