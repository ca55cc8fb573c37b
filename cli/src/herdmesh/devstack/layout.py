"""The data folder of a stack: a state file, logs and the broker's data.

Owns the paths, the remembered ports and the state file `stack.json`. Does not start anything.

Invariants: the state file is replaced atomically. A process named in it counts only when its pid *and* its creation
time match, so that a reused pid is never mistaken for a process of the stack. A state file counts only in the folder in
which it was written, so that nobody stops the stack of a folder by stopping that of a copy. No file is written once the
folder was moved or removed.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from herdmesh.devstack.errors import DataFolderUnusable
from herdmesh.devstack.ports import PortReservations, free_port

#: The usual ports; others are used when these are busy, and remembered. A second replica is 10 above.
USUAL_PORTS = {"config-store": 7201, "status-store": 7202, "herder": 7203}
WORKER_PORT_FIRST = 7204
_SPACE_MIN = 256 * 1024
"""Bytes of logs and state that the first seconds of a stack write."""


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
    """One process of the stack as `herd up` shows it. `state`: fetching (its jars), starting, serving,
    restarting, stopped or failed.
    """

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
    command_config: str = ""
    """File with the client settings of TLS and login for those brokers; "" = none."""
    # all replicas of each role, host:port, comma separated
    herder: str = ""
    config_store: str = ""
    status_store: str = ""
    services: list[ServiceState] = field(default_factory=lambda: [])
    notices: list[str] = field(default_factory=lambda: [])
    """What differs from the usual: a port that was taken, the replication factor of a small cluster."""

    @property
    def is_supervised(self) -> bool:
        """True while its supervisor lives."""
        return self.supervisor is not None and self.supervisor.alive() is not None

    @property
    def has_ended(self) -> bool:
        """True when it was stopped, or its supervisor is gone, and no process of it is left."""
        stopped = bool(self.services) and all(one.state == "stopped" for one in self.services)
        lost = self.supervisor is not None and not self.is_supervised
        return (stopped or lost) and all(one.mark is None or one.mark.alive() is None for one in self.services)

    @property
    def has_broker(self) -> bool:
        """True when its Kafka is a broker of its own, which ends with it."""
        return any(one.name == "broker" for one in self.services)


class StackLayout:
    """Paths and remembered facts of one data folder."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.resolve()
        self.logs_dir = self.data_dir / "logs"
        self.broker_dir = self.data_dir / "broker"
        self.state_file = self.data_dir / "stack.json"
        self.ports_file = self.data_dir / "ports.json"
        self.lock_file = self.data_dir / "stack.lock"
        self._inode: int | None = None

    def create(self) -> None:
        """Raises `DataFolderUnusable`, also for a disk without space: the first thing that is missing then is the log
        with the reason.
        """
        try:
            self.logs_dir.mkdir(parents=True, exist_ok=True)
            self._inode = self.data_dir.stat().st_ino
            probe = self.logs_dir / ".space"
            try:
                probe.write_bytes(bytes(_SPACE_MIN))
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            raise DataFolderUnusable(self.data_dir, error) from error

    def is_in_place(self) -> bool:
        """False when the folder that `create` found was moved or removed since."""
        try:
            return self._inode in (None, self.data_dir.stat().st_ino)
        except OSError:
            return False

    def read_state(self) -> StackState | None:
        """The state as last written; None where no stack was ever started in this folder, and in a copy of a folder.
        Raises `DataFolderUnusable`.
        """
        try:
            raw: dict[str, Any] = json.loads(self.state_file.read_text())
            if raw.pop("folder_inode", None) not in (None, self.data_dir.stat().st_ino):
                return None
            services = [ServiceState(**one) for one in raw.pop("services")]
            for service in services:
                service.mark = _mark(service.mark)
            return StackState(supervisor=_mark(raw.pop("supervisor")), services=services, **raw)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DataFolderUnusable(self.data_dir, error) from error
        # A state file is a hint about processes, never the only copy of anything.
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def write_state(self, state: StackState) -> None:
        """Raises `DataFolderUnusable`."""
        try:
            if self._inode is None:
                self.data_dir.mkdir(parents=True, exist_ok=True)
            elif not self.is_in_place():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.data_dir))
            written = {**asdict(state), "folder_inode": self.data_dir.stat().st_ino}
            _replace(self.state_file, json.dumps(written, indent=1))
        except OSError as error:
            raise DataFolderUnusable(self.data_dir, error) from error

    def places(self) -> list[tuple[Path, str]]:
        """Every path of the folder that a user may look for, and its content."""
        return [
            (self.data_dir, "everything of this stack; remove it while nothing runs to start anew"),
            (self.logs_dir / "supervisor.log", "starts, restarts and ends of the services (`herd up --detach`)"),
            (self.logs_dir / "config-store.log", "log of the config store"),
            (self.logs_dir / "status-store.log", "log of the status store"),
            (self.logs_dir / "herder.log", "log of the herder"),
            (self.logs_dir / "worker-1.log", "log of worker 1, of its JVM and of its tasks"),
            (self.broker_dir / "broker.log", "log of the Kafka broker"),
            (self.broker_dir / "kafka", "the topics"),
            (self.state_file, "state, address and process of each service"),
            (self.ports_file, "ports of the services, for the next start"),
        ]

    def logs(self) -> list[Path]:
        """The logs of all processes of the stack."""
        return [*sorted(self.logs_dir.glob("*.log")), self.broker_dir / "broker.log"]

    def choose_ports(
        self, names: Iterable[str], reservations: PortReservations, *, usual: bool = True
    ) -> dict[str, int]:
        """A free port per name: the one remembered, else the usual one, else any; remembered for the next start, and
        reserved until the servers listen.

        `usual=False` never uses the usual ports, so that a test stack does not disturb a user's stack.
        """
        remembered = self._remembered_ports()
        chosen: dict[str, int] = {}
        for name in names:
            wishes = [remembered[name]] if name in remembered else []
            if usual:
                wishes.append(usual_port(name))
            chosen[name] = free_port(wishes, chosen.values(), reservations.take)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        _replace(self.ports_file, json.dumps(remembered | chosen))
        return chosen

    def _remembered_ports(self) -> dict[str, int]:
        """A damaged file counts as none."""
        try:
            found: dict[str, int] = json.loads(self.ports_file.read_text())
            return {name: int(port) for name, port in found.items()}
        except (FileNotFoundError, ValueError, AttributeError, TypeError):
            return {}


def role_of(name: str) -> str:
    """`worker` for `worker-2`, `config-store` for `config-store` and `config-store-2`."""
    role, _, number = name.rpartition("-")
    return role if number.isdigit() else name


def _mark(raw: Any) -> ProcessMark | None:
    return ProcessMark(**raw) if raw else None


def usual_port(name: str) -> int:
    """The port of a service when nothing else has it."""
    if name.startswith("worker-"):
        return WORKER_PORT_FIRST + int(name.removeprefix("worker-")) - 1
    role, _, number = name.rpartition("-")
    return USUAL_PORTS[role] + 10 * (int(number) - 1) if number.isdigit() else USUAL_PORTS[name]


def _replace(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    os.replace(partial, path)
