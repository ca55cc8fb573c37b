"""The data folder of a stack: a state file, logs and the broker's data.

Owns the paths, the remembered ports and the state file `stack.json`. Does not start anything. Invariant: the state file
is replaced atomically, and a process named in it counts only when its pid *and* its creation time match, so that a
reused pid is never mistaken for a process of the stack.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from herdmesh.devstack.ports import PortReservations, free_port

#: The usual ports; others are used when these are busy, and remembered. A second replica is 10 above.
USUAL_PORTS = {"config-store": 7201, "status-store": 7202, "herder": 7203}
WORKER_PORT_FIRST = 7204


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process, identified so that a later one with the same pid is another."""

    pid: int
    create_time_s: float

    @staticmethod
    def of(pid: int) -> ProcessMark:
        try:
            return ProcessMark(pid, psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            return ProcessMark(pid, 0.0)

    def alive(self) -> psutil.Process | None:
        """The process itself while it lives (a zombie does not)."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.create_time_s) < 0.01
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


@dataclass(slots=True)
class ServiceState:
    """One process of the stack as `herd up` shows it. `state`: starting, serving, restarting, stopped or failed."""

    name: str
    address: str
    state: str = "starting"
    restarts: int = 0
    mark: ProcessMark | None = None
    detail: str = ""


@dataclass(slots=True)
class StackState:
    """Everything that another process needs to talk to the stack or to end it."""

    supervisor: ProcessMark | None = None
    ready: bool = False
    bootstrap_servers: str = ""
    # all replicas of each role, host:port, comma separated
    herder: str = ""
    config_store: str = ""
    status_store: str = ""
    services: list[ServiceState] = field(default_factory=lambda: [])


class StackLayout:
    """Paths and remembered facts of one data folder."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.resolve()
        self.logs_dir = self.data_dir / "logs"
        self.broker_dir = self.data_dir / "broker"
        self.state_file = self.data_dir / "stack.json"
        self._ports_file = self.data_dir / "ports.json"

    def create(self) -> None:
        self.logs_dir.mkdir(parents=True, exist_ok=True)

    def read_state(self) -> StackState | None:
        """The state as last written, or None where no stack was ever started here."""
        try:
            raw: dict[str, Any] = json.loads(self.state_file.read_text())
        except FileNotFoundError:
            return None
        except ValueError:  # a state file is a hint about processes, never the only copy of anything
            return None
        services = [ServiceState(**one) for one in raw.pop("services")]
        for service in services:
            service.mark = _mark(service.mark)
        return StackState(supervisor=_mark(raw.pop("supervisor")), services=services, **raw)

    def write_state(self, state: StackState) -> None:
        _replace(self.state_file, json.dumps(asdict(state), indent=1))

    def choose_ports(
        self, names: Iterable[str], reservations: PortReservations, *, usual: bool = True
    ) -> dict[str, int]:
        """A free port per name: the one remembered, else the usual one, else any; remembered for the next start, and
        reserved until the servers listen.

        `usual=False` never uses the usual ports, so that a test stack does not disturb a user's stack.
        """
        remembered: dict[str, int] = json.loads(self._ports_file.read_text()) if self._ports_file.exists() else {}
        chosen: dict[str, int] = {}
        for name in names:
            wishes = [remembered[name]] if name in remembered else []
            if usual:
                wishes.append(_usual_port(name))
            chosen[name] = free_port(wishes, chosen.values(), reservations.take)
        _replace(self._ports_file, json.dumps(remembered | chosen))
        return chosen


def role_of(name: str) -> str:
    """`worker` for `worker-2`, `config-store` for `config-store` and `config-store-2`."""
    role, _, number = name.rpartition("-")
    return role if number.isdigit() else name


def _mark(raw: Any) -> ProcessMark | None:
    return ProcessMark(**raw) if raw else None


def _usual_port(name: str) -> int:
    if name.startswith("worker-"):
        return WORKER_PORT_FIRST + int(name.removeprefix("worker-")) - 1
    role, _, number = name.rpartition("-")
    return USUAL_PORTS[role] + 10 * (int(number) - 1) if number.isdigit() else USUAL_PORTS[name]


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    os.replace(partial, path)
