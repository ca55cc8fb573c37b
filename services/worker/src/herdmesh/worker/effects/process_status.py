"""Processor time, memory and disks of this worker: its process, the processes it started, and each run.

Owns the measurement, by `/proc` and the file system. Judges nothing. Invariant: a process that ends meanwhile, or a
system without `/proc`, makes a value 0 or leaves it out, and raises nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.worker.v1 import worker_service_pb2 as pb
from herdmesh.session.model import UnitId
from herdmesh.worker.effects.runs.memory_watch import used_bytes
from herdmesh.worker.effects.runs.process_trees import started_by

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class ProcessStatus:
    """The processes of one worker. `sees_runs` False: its runs are on other machines."""

    def __init__(self, incarnation: str, slots: int, *, sees_runs: bool = True) -> None:
        self.incarnation = incarnation
        self._release = version("herdmesh-worker")
        self._slots = slots
        self._sees_runs = sees_runs

    def measured(self, pids: Mapping[UnitId, int]) -> pb.GetWorkerStatusResponse:
        """The use now; `pids` are the processes of the runs. Reads some files per process: call it in a thread."""
        found = pb.GetWorkerStatusResponse(version=self._release, slots=self._slots, disks=_disks())
        found.report_time.GetCurrentTime()
        if not Path("/proc/self/stat").exists():
            return found
        own, runs = os.getpid(), dict(pids) if self._sees_runs else {}
        trees = started_by({own, *runs.values()})
        found.own.CopyFrom(_usage([own, *(one.pid for one in trees[own])]))
        for unit, pid in sorted(runs.items(), key=lambda one: one[0].order):
            usage = _usage([pid, *(one.pid for one in trees[pid])])
            task = connector_pb2.TaskId(connector=unit.connector, task=unit.task or 0)
            found.runs.append(pb.RunUsage(task=task, pid=pid, usage=usage))
        return found


def _usage(pids: Iterable[int]) -> pb.ProcessUsage:
    found = pb.ProcessUsage()
    for pid in pids:
        found.cpu_ms += _cpu_ms(pid)
        found.memory_bytes += used_bytes(pid)
    return found


def _cpu_ms(pid: int) -> int:
    """Processor time of a process, without its children; 0 = it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    fields = stat.rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000 // _TICKS_PER_S if len(fields) > 12 else 0


def _disks() -> list[pb.DiskUsage]:
    """The disks of the working folder and of the folder for temporary files, each disk once."""
    found: dict[int, pb.DiskUsage] = {}
    for path in (os.getcwd(), tempfile.gettempdir()):
        try:
            device, used = os.stat(path).st_dev, shutil.disk_usage(path)
        except OSError:
            continue
        found.setdefault(device, pb.DiskUsage(path=path, total_bytes=used.total, free_bytes=used.free))
    return list(found.values())
