"""Findings about the stack of a data folder, for `herd doctor`: what is wrong with its supervisor and its processes.

Owns the texts with their next steps. Reads the state file and the list of processes; queries no service.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from herdmesh.devstack.layout import ServiceState, StackLayout


@dataclass(frozen=True, slots=True)
class StackFinding:
    """One finding. `reason`: SUPERVISOR_GONE, SERVICE_DOWN or SERVICE_RESTARTS; `part`: the supervisor or a service."""

    reason: str
    part: str
    message: str
    next_step: str


_RESTARTS_NOTED = 3
"""A service that was restarted so often since the stack started has a lasting fault."""


def stack_findings(data_dir: Path) -> list[StackFinding]:
    """All findings about the stack of a data folder; empty when it is healthy, stopped, or was never started.

    Raises `DataFolderUnusable`.
    """
    layout = StackLayout(data_dir)
    state = layout.read_state()
    if state is None:
        return []
    alive = [one for one in state.services if one.mark is not None and one.mark.alive() is not None]
    if state.supervisor is None or state.supervisor.alive() is None:
        return [_supervisor_gone(layout, state.supervisor.pid if state.supervisor else None, alive)] if alive else []
    logs = layout.logs_dir
    found: list[StackFinding] = []
    for service in state.services:
        log = layout.broker_dir / "broker.log" if service.name == "broker" else logs / f"{service.name}.log"
        if service.state in ("failed", "restarting"):
            detail = f": {service.detail}" if service.detail else ""
            message = f"{service.name} does not serve{detail}; it was restarted {service.restarts} times"
            found.append(StackFinding("SERVICE_DOWN", service.name, message, f"Read the end of {log}."))
        elif service.restarts >= _RESTARTS_NOTED:
            message = f"{service.name} serves, and was restarted {service.restarts} times since the stack started"
            found.append(StackFinding("SERVICE_RESTARTS", service.name, message, f"Read {log} for the causes."))
    return found


def _supervisor_gone(layout: StackLayout, pid: int | None, alive: list[ServiceState]) -> StackFinding:
    names = ", ".join(one.name for one in alive)
    who = f"process {pid}, the supervisor of {layout.data_dir}," if pid else f"the supervisor of {layout.data_dir}"
    return StackFinding(
        "SUPERVISOR_GONE",
        "supervisor",
        f"{who} is gone, and {names} still run: nothing restarts them when they end",
        f"`herd up --data {layout.data_dir}` starts supervisor and services again with the same data; "
        f"`herd down --data {layout.data_dir}` stops what runs.",
    )
