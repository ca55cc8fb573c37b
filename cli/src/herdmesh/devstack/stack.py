"""The whole mesh on one machine: broker, two stores, herder and workers under one supervisor.

Owns the order of start and stop, the environment each service gets, and the state file that others read. Owns nothing
of the mesh: each service is the ordinary `python -m herdmesh.<part>`. Invariant: `ready` in the state file is true only
when every service reported SERVING (a herder that does not lead: when it follows one that does), and after `stop()` no
process that the stack started is alive.

Replicas are named by number: `herder`, `herder-2`, ...; `config-store`, `config-store-2`, ...; workers from `worker-1`.

The supervisor can be killed too. The next start then adopts the broker that still runs, ends the orphaned services and
starts new ones: users' configs and states are in Kafka, not in these processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from herdmesh import scratch
from herdmesh.devstack import jars
from herdmesh.devstack._broker_config import ELECTION_SESSION_MS
from herdmesh.devstack.broker import Broker
from herdmesh.devstack.errors import DataFolderGone, DataFolderUnusable, DevstackError
from herdmesh.devstack.existing_kafka import ExistingKafka, fitting_replication_factor
from herdmesh.devstack.java import find_java
from herdmesh.devstack.layout import ProcessMark, ServiceState, StackLayout, StackState, role_of, usual_port
from herdmesh.devstack.left_behind import STOP_GRACE_S, end_services, refuse_if_supervised
from herdmesh.devstack.ports import HOST, PortReservations, listener
from herdmesh.devstack.process import ManagedProcess
from herdmesh.devstack.readiness import follows, serves, store_trouble
from herdmesh.devstack.supervision import log_rotation, notices
from herdmesh.devstack.supervision.folder_lock import FolderLock

MODULES = {
    "config-store": "herdmesh.configstore",
    "status-store": "herdmesh.statusstore",
    "herder": "herdmesh.herder",
    "worker": "herdmesh.worker",
}
STORES = ("config-store", "status-store")
START_TIMEOUT_S = 180.0
GROUP_DEFAULT = "connect-cluster"
BROKER_PORT = 9092
_PROBE_INTERVAL_S = 0.1
_FOLDER_INTERVAL_S = 1.0
_SPACE_MIN = 64 * 1024
"""Bytes: with less a disk counts as full."""


class ServiceNotReady(DevstackError):
    """A service did not serve in time, or ended while starting (the tail of its log is in the message), or a store
    reports a condition that an operator has to fix first (the message is its own).
    """


@dataclass(frozen=True, slots=True)
class StackSettings:
    """Settings of a stack. `worker_env` and `service_env` add to every worker's / every service's environment."""

    data_dir: Path
    workers: int = 1
    herders: int = 1
    store_replicas: int = 1
    """Number of replicas of each store."""
    restart: bool = True
    usual_ports: bool = True
    service_env: Mapping[str, str] = field(default_factory=lambda: {})
    worker_env: Mapping[str, str] = field(default_factory=lambda: {})
    broker: Broker | None = None
    """A broker that already runs and does not belong to the stack; None = the stack starts its own."""
    kafka: ExistingKafka | None = None
    """A cluster that is used in place of a broker; `broker` is None then."""
    group_id: str = GROUP_DEFAULT
    """Name of the mesh in the cluster. Another name than the default has topics of its own: `NAME-configs`, ..."""
    broker_config: Mapping[str, str] = field(default_factory=lambda: {})
    broker_jvm: Sequence[str] = ()
    """For the stack's own broker: entries of server.properties, and options of its JVM."""
    python: str = sys.executable
    """The interpreter of the services; with the interpreter of another source tree they run that tree's code."""


class Stack:
    """One running stack. Not safe for two callers at a time; `on_change` is called on the event loop."""

    def __init__(self, settings: StackSettings, on_change: Callable[[], None] = lambda: None) -> None:
        self.settings = settings
        self.layout = StackLayout(settings.data_dir)
        self.state = StackState()
        self.folder_gone = asyncio.Event()
        """Set when the data folder was moved or removed: the caller then stops the stack."""
        self.broker = settings.broker or Broker(
            self.layout.broker_dir,
            port=BROKER_PORT if settings.usual_ports else 0,
            settings=settings.broker_config,
            jvm=settings.broker_jvm,
        )
        self.processes: dict[str, ManagedProcess] = {}
        self._services: dict[str, ServiceState] = {}
        self._on_change = on_change
        self._watchers: list[asyncio.Task[None]] = []
        self._stopping = False
        self._lock = FolderLock(self.layout)
        self._ports = PortReservations()
        self._replication_factor = 1

    @property
    def bootstrap(self) -> str:
        """Addresses of Kafka, `host:port`, comma separated. Known once Kafka serves."""
        return self.settings.kafka.bootstrap if self.settings.kafka is not None else self.broker.bootstrap

    async def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start everything and return when all of it serves.

        Raises `StackAlreadyRunning`, `ServiceNotReady`, `DataFolderUnusable`, `KafkaUnusable`, and the errors of
        `Broker.start`. No process is left running then.
        """
        self.layout.create()
        await self._take_folder()
        try:
            await self._fetch_jars()
            async with asyncio.timeout(timeout_s):
                self._watchers.append(asyncio.create_task(log_rotation.rotate_all(self.layout.logs), name="rotate"))
                self._watchers.append(asyncio.create_task(self._watch_folder(), name="watch folder"))
                await self._start_broker()
                names = self._names()
                ports = self.layout.choose_ports(names, self._ports, usual=self.settings.usual_ports)
                self._remember_addresses(ports)
                await asyncio.to_thread(self._note_ports, ports)
                # All at once: every client waits for its servers, and Spark needs the time for itself.
                for name in names:
                    await self._start_service(name, ports[name])
                await self._all_serving(names)
        except TimeoutError:
            waiting = [name for name, one in self._services.items() if one.state != "serving"]
            tails = "\n".join(
                f"--- {name}: {self._services[name].detail}\n{self.processes[name].log_tail()}"
                for name in waiting
                if name in self.processes  # the broker is none of them
            )
            await self.stop()
            raise ServiceNotReady(f"not serving after {timeout_s:g} s: {', '.join(waiting)}\n{tails}") from None
        except OSError as error:
            await self.stop()
            raise self._failure_of(error) from error
        except BaseException:
            await self.stop()
            raise
        self.state.ready = True
        self._publish()

    async def stop(self) -> None:
        """Stop workers first (they release their tasks), then herder, stores, broker. Bounded by the sum of the grace
        periods.
        """
        self._stopping = True
        self.state.ready = False
        for watcher in self._watchers:
            watcher.cancel()
        for role, grace_s in STOP_GRACE_S.items():
            group = [name for name in self.processes if role_of(name) == role]
            await asyncio.gather(*(self.processes[name].stop(grace_s) for name in group))
            for name in group:
                self._set(name, "stopped")
        # folders of workers that were killed, by a test or after the grace period
        await asyncio.to_thread(scratch.remove_abandoned, scratch.WORKER)
        if self._has_own_broker:
            await self.broker.stop()
            self._set("broker", "stopped")
        self._ports.release()
        self.state.supervisor = None
        self._publish()
        self._lock.release()

    async def kill(self) -> None:
        """End all processes at once, in place of `stop` or while it waits (cancel it first). What was not committed is
        repeated at the next start.
        """
        self._stopping = True
        self.state.ready = False
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*(process.stop(0.0) for process in self.processes.values()))
        if self._has_own_broker:
            self.broker.kill()
        for name in [*self.processes, *(["broker"] if self._has_own_broker else [])]:
            self._set(name, "stopped")
        await asyncio.to_thread(scratch.remove_abandoned, scratch.WORKER)
        self._ports.release()
        self.state.supervisor = None
        self._publish()
        self._lock.release()

    @property
    def _has_own_broker(self) -> bool:
        return self.settings.broker is None and self.settings.kafka is None

    async def add_worker(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Start one more worker, and return its name when it serves. Raises TimeoutError."""
        name = f"worker-{sum(role_of(one) == 'worker' for one in self.processes) + 1}"
        ports = self.layout.choose_ports([name], self._ports, usual=False)
        async with asyncio.timeout(timeout_s):
            await self._start_service(name, ports[name])
            await self._all_serving([name])
        return name

    async def restart_broker(self) -> None:
        """Start the broker again after it died; it recovers its own data."""
        await self.broker.start()
        self._broker_serves()

    async def wait_serving(self, name: str) -> None:
        """Wait until the service reports SERVING, or is a herder that follows one that does. Raises `ServiceNotReady`
        when it ends and is not restarted, or when another process has its port.
        """
        address, role = self._services[name].address, role_of(name)
        async with grpc.aio.insecure_channel(address) as channel:
            while True:
                process = self.processes[name]
                if process.exit_code is not None and not self.settings.restart:
                    tail = process.log_tail()
                    raise ServiceNotReady(f"{name} ended with exit code {process.exit_code} while starting\n{tail}")
                if await serves(channel) or (role == "herder" and await follows(channel, address)):
                    if await self._is_a_stranger(name):
                        await asyncio.sleep(_PROBE_INTERVAL_S)
                        continue
                    self._services[name].detail = ""
                    self._set(name, "serving")
                    return
                if role in STORES and (trouble := await store_trouble(channel, role)) is not None:
                    self._services[name].detail = f"{trouble.condition}: {trouble.message}"
                    self._publish()
                await asyncio.sleep(_PROBE_INTERVAL_S)

    async def _is_a_stranger(self, name: str) -> bool:
        """True when the process that listens at the service's address is not, or no longer, its own: two stacks that
        start in the same second can choose the same port, and then the other's service responds. Raises
        `ServiceNotReady` when that other process keeps the port.
        """
        port = int(self._services[name].address.rpartition(":")[2])
        process = self.processes[name]
        other = await asyncio.to_thread(listener, port)
        if other is None or (process.mark is not None and other == process.mark.pid):
            return False
        if process.exit_code is not None or process.restarts:
            taken = f"{name} cannot listen on port {port}: process {other} does. End that process, or start again: "
            self._services[name].detail = f"port {port} is taken by process {other}"
            self._publish()
            raise ServiceNotReady(f"{taken}another port is chosen then")
        return True

    async def _all_serving(self, names: Sequence[str]) -> None:
        """Wait until all of them serve. Raises `ServiceNotReady` when the disk is full, or a store reports a condition
        that an operator has to fix first: waiting longer would not help.
        """
        serving = asyncio.gather(*(self.wait_serving(name) for name in names))
        mending = [asyncio.create_task(self._until_to_be_mended(name)) for name in names if role_of(name) in STORES]
        mending.append(asyncio.create_task(self._until_disk_is_full()))
        try:
            await asyncio.wait([serving, *mending], return_when=asyncio.FIRST_COMPLETED)
            for one in mending:
                if one.done():
                    raise ServiceNotReady(one.result())
            await serving
        finally:
            for one in [serving, *mending]:
                one.cancel()
            await asyncio.gather(serving, *mending, return_exceptions=True)

    async def _until_to_be_mended(self, name: str) -> str:
        """Wait until the store reports a condition that an operator has to fix; returns its message."""
        async with grpc.aio.insecure_channel(self._services[name].address) as channel:
            while True:
                trouble = await store_trouble(channel, role_of(name))
                if trouble is not None and trouble.lasting:
                    return f"{name}: {trouble.condition}: {trouble.message}"
                await asyncio.sleep(_PROBE_INTERVAL_S)

    async def _until_disk_is_full(self) -> str:
        """Wait until nothing can be written into the data folder; returns the message."""
        while True:
            with contextlib.suppress(OSError):
                if shutil.disk_usage(self.layout.data_dir).free < _SPACE_MIN:
                    return (
                        f"the disk of {self.layout.data_dir} is full, and Kafka cannot write. Free space, or name a "
                        "folder on another disk with --data DIR"
                    )
            await asyncio.sleep(_FOLDER_INTERVAL_S)

    def addresses(self, role: str) -> Sequence[str]:
        """host:port of each service of a role, in order of their names."""
        return [one.address for name, one in self._services.items() if role_of(name) == role]

    def _names(self) -> Sequence[str]:
        """Every service of this stack, in the order of their start."""
        replicas = {"config-store": self.settings.store_replicas, "status-store": self.settings.store_replicas}
        replicas["herder"] = self.settings.herders
        numbered = [(role, number) for role, count in replicas.items() for number in range(1, count + 1)]
        names = [role if number == 1 else f"{role}-{number}" for role, number in numbered]
        return [*names, *(f"worker-{number}" for number in range(1, self.settings.workers + 1))]

    async def _take_folder(self) -> None:
        self._lock.take()
        try:
            previous = refuse_if_supervised(self.layout, os.getpid())
            if previous is not None:
                await end_services(previous, orderly=False)
            self.state.supervisor = ProcessMark.of(os.getpid())
            self.layout.write_state(self.state)  # raises where the folder cannot be written, before anything is started
        except BaseException:
            self._lock.release()
            raise
        self._publish()

    async def _fetch_jars(self) -> None:
        """Fetch the broker's jars, at the first start on this machine. Not within the time for a start: the network
        decides how long it takes.
        """
        count = jars.to_fetch("broker") if self._has_own_broker else 0
        if not count:
            return
        await asyncio.to_thread(find_java)
        detail = f"{count} jars of Kafka ({jars.BROKER_MB} MB, once) into {jars.cache_dir()}"
        self._services["broker"] = ServiceState("broker", "", "fetching", detail=detail)
        self._publish()
        await jars.fetch_ahead("broker")

    async def _start_broker(self) -> None:
        if self.settings.kafka is not None:
            await self._use(self.settings.kafka)
            return
        self._services["broker"] = ServiceState("broker", "")
        self._publish()
        if self.settings.broker is not None:
            self._broker_serves()
            return
        self._note(notices.replicas(1, 1))
        if not await self.broker.adopt():
            await self.broker.start()
        self._broker_serves()
        self._watchers.append(asyncio.create_task(self._watch_broker(), name="watch broker"))

    async def _use(self, kafka: ExistingKafka) -> None:
        self._services["kafka"] = ServiceState("kafka", kafka.bootstrap)
        self._publish()
        brokers = await asyncio.to_thread(kafka.count_brokers)
        self._replication_factor = fitting_replication_factor(brokers)
        self._note(notices.replicas(brokers, self._replication_factor))
        if kafka.ignored:
            self._note(f"settings of --command-config without effect: {', '.join(kafka.ignored)}")
        self.state.bootstrap_servers = kafka.bootstrap
        self.state.command_config = str(kafka.file or "")
        self._set("kafka", "serving")

    def _note(self, notice: str) -> None:
        if notice:
            self.state.notices.append(notice)

    def _note_ports(self, ports: Mapping[str, int]) -> None:
        """Note the services that do not listen on their usual ports."""
        if not self.settings.usual_ports:
            return
        if self._has_own_broker:
            client = int(self.broker.bootstrap.rpartition(":")[2])
            self._note(notices.unusual_port("broker", client, BROKER_PORT, self.broker.data_dir / "ports.json"))
        for name, port in ports.items():
            self._note(notices.unusual_port(name, port, usual_port(name), self.layout.ports_file))

    def _broker_serves(self) -> None:
        service = self._services["broker"]
        service.address = self.state.bootstrap_servers = self.broker.bootstrap
        service.mark = ProcessMark.of(self.broker.pid) if self.broker.pid is not None else None
        self._set("broker", "serving")

    async def _watch_folder(self) -> None:
        """Without its folder a stack cannot be found by any command, and a broker that starts again would have no
        topics.
        """
        while not self.folder_gone.is_set():
            await asyncio.sleep(_FOLDER_INTERVAL_S)
            if not self.layout.is_in_place():
                self.folder_gone.set()

    async def _watch_broker(self) -> None:
        while True:
            await asyncio.sleep(0.3)
            if self.broker.is_running() or self._stopping or not self.layout.is_in_place():
                continue
            if not self.settings.restart:
                self._set("broker", "failed")
                continue
            service = self._services["broker"]
            service.restarts += 1
            self._set("broker", "restarting")
            try:
                await self.restart_broker()
            except DevstackError as error:
                service.detail = str(error).splitlines()[0]
                self._set("broker", "failed")
                await asyncio.sleep(2.0)

    def _remember_addresses(self, ports: Mapping[str, int]) -> None:
        def all_of(role: str) -> str:
            return ",".join(f"{HOST}:{port}" for name, port in ports.items() if role_of(name) == role)

        self.state.herder = all_of("herder")
        self.state.config_store = all_of("config-store")
        self.state.status_store = all_of("status-store")

    async def _start_service(self, name: str, port: int) -> None:
        address = f"{HOST}:{port}"
        role = role_of(name)
        factor = str(self._replication_factor)
        env = {
            "HERDMESH_LISTEN": address,
            "HERDMESH_BOOTSTRAP_SERVERS": self.bootstrap,
            "HERDMESH_CONFIG_STORE": self.state.config_store,
            "HERDMESH_STATUS_STORE": self.state.status_store,
            "HERDMESH_HERDER": self.state.herder,
            **({"HERDMESH_PEERS": self.state.status_store} if self.settings.store_replicas > 1 else {}),
            "HERDMESH_CONFIG_STORAGE_REPLICATION_FACTOR": factor,
            "HERDMESH_STATUS_STORAGE_REPLICATION_FACTOR": factor,
            "HERDMESH_OFFSET_STORAGE_REPLICATION_FACTOR": factor,
            "HERDMESH_DEAD_LETTER_REPLICATION_FACTOR": factor,
            **self._of_kafka(),
            **self.settings.service_env,
            **(self.settings.worker_env if role == "worker" else {}),
        }
        self._services[name] = ServiceState(name, address)
        process = ManagedProcess(
            name,
            [self.settings.python, "-m", MODULES[role]],
            env,
            self.layout.logs_dir / f"{name}.log",
            lambda: self._process_changed(name),
            restart=self.settings.restart,
        )
        self.processes[name] = process
        await process.start()

    def _of_kafka(self) -> Mapping[str, str]:
        """Environment that depends on whose Kafka it is, and on the name of the mesh."""
        group = self.settings.group_id
        named = {} if group == GROUP_DEFAULT else {"HERDMESH_GROUP_ID": group, **topics_of(group)}
        if self.settings.kafka is not None:
            return {**named, **self.settings.kafka.environment()}
        # the stack's own broker allows a shorter time than Kafka's default
        return {**named, "HERDMESH_ELECTION_SESSION_TIMEOUT_MS": str(ELECTION_SESSION_MS)}

    def _failure_of(self, error: OSError) -> DevstackError:
        if not self.layout.is_in_place():
            return DataFolderGone(self.layout.data_dir)
        if error.filename is None or Path(os.fsdecode(error.filename)).is_relative_to(self.layout.data_dir):
            return DataFolderUnusable(self.layout.data_dir, error)
        return DevstackError(f"the stack cannot start: {os.fsdecode(error.filename)}: {error.strerror}")

    def _process_changed(self, name: str) -> None:
        process = self.processes[name]
        service = self._services[name]
        service.mark = process.mark
        service.restarts = process.restarts
        if self._stopping:
            return
        if process.mark is None:
            service.detail = f"exit code {process.exit_code}"
            self._set(name, "restarting" if self.settings.restart else "failed")
        elif process.restarts:
            self._set(name, "restarting")
            self._watchers.append(asyncio.create_task(self.wait_serving(name), name=f"wait for {name}"))
        else:
            self._set(name, "starting")

    def _set(self, name: str, state: str) -> None:
        if name in self._services:
            self._services[name].state = state
        self._publish()

    def _publish(self) -> None:
        self.state.services = list(self._services.values())
        with contextlib.suppress(DataFolderUnusable):  # a full disk: services continue, the next change is written
            self.layout.write_state(self.state)
        self._on_change()


def topics_of(group_id: str) -> dict[str, str]:
    """The topics of a mesh that does not have the default name."""
    return {
        f"HERDMESH_{kind}_STORAGE_TOPIC": f"{group_id}-{suffix}"
        for kind, suffix in (("CONFIG", "configs"), ("STATUS", "status"), ("OFFSET", "offsets"))
    }
