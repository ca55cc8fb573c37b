"""A whole standalone worker in one process: config store and status store on the memory engine, herder, worker with its
SparkSession. Each is the service's own `serve`, and they communicate over loopback gRPC as always.

Owns the order of start and stop, and the settings of each part. Owns no connector: clients create them over the API, as
`herd run` does.

Invariant: all lasting data is in Kafka and in the offsets file; stopping is staged (worker, herder, stores, Spark) and
bounded, and a part that ends by itself ends the process with the reason.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from pydantic import SecretStr

from herdmesh.configstore.__main__ import serve as serve_config_store
from herdmesh.configstore.settings import ConfigStoreSettings
from herdmesh.connect.config_providers import ConfigProviders
from herdmesh.devstack.existing_kafka import fitting_replication_factor
from herdmesh.devstack.supervision import notices
from herdmesh.herder.__main__ import serve as serve_herder
from herdmesh.herder.settings import HerderSettings
from herdmesh.standalone.errors import PartEnded, Problem
from herdmesh.standalone.files import ConnectorFile
from herdmesh.standalone.worker_properties import WorkerPlan
from herdmesh.statusstore.__main__ import serve as serve_status_store
from herdmesh.statusstore.effects.store import make_store
from herdmesh.statusstore.settings import StatusStoreSettings
from herdmesh.worker.__main__ import Ground, ground
from herdmesh.worker.__main__ import serve_on as serve_worker_on
from herdmesh.worker.effects.plugins import discover, validate
from herdmesh.worker.errors import WorkerError
from herdmesh.worker.settings import WorkerSettings

LOOPBACK: Final = "127.0.0.1"
_DEAD_LETTER_REPLICAS: Final = "dead_letter_replication_factor"
_ANY_PORT: Final = f"{LOOPBACK}:0"
_STORE_END_S: Final = 5.0
_HERDER_END_S: Final = 5.0
#: Added to the time that the tasks may take: for statuses, the session, the server, Spark.
_WORKER_END_EXTRA_S: Final = 15.0
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

Serve = Callable[[asyncio.Event, Callable[[int], None]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of the process, each `host:port`: `api` for everything but history, which the config store serves,
    and health of the stores, which each store serves itself.
    """

    api: str
    config_store: str
    status_store: str


def invalid_connectors(plan: WorkerPlan, connectors: Sequence[ConnectorFile]) -> list[Problem]:
    """All errors that the worker would find in any of the connectors; checked before anything starts."""
    settings = worker_settings(plan, "", "")
    found, worker = discover(settings.plugin_path), settings.worker_config()
    try:
        providers = ConfigProviders.of(worker)
        problems: list[Problem] = []
        for connector in connectors:
            validation = validate(connector.config, found.registry, worker, providers)
            problems += [
                connector.problem(one.name, f"{error} ({fix})" if fix else error)
                for one in validation.fields
                for error, fix in zip(one.errors, one.fixes, strict=True)
            ]
        return problems
    finally:
        found.close()


async def serve(plan: WorkerPlan, listen: str, stop: asyncio.Event, on_ready: Callable[[Addresses], None]) -> None:
    """Run until `stop` is set; calls `on_ready` with the addresses once clients can create connectors.

    Raises:
        PartEnded: a part did not start, or ended by itself.
    """
    try:
        # First: it forks, and gRPC does not survive a fork.
        async with ground(worker_settings(plan, "", ""), stop) as ready:
            if not stop.is_set():
                await _serve_on(ready, plan, listen, stop, on_ready)
    except WorkerError as error:
        raise PartEnded(str(error)) from error


async def _serve_on(
    ready: Ground, plan: WorkerPlan, listen: str, stop: asyncio.Event, on_ready: Callable[[Addresses], None]
) -> None:
    parts: list[_Part] = []
    starting = asyncio.create_task(_start(ready, plan, listen, parts))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            return
        on_ready(starting.result())
        await asyncio.wait({stopped, *(part.task for part in parts)}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            raise next(part.why_ended() for part in parts if part.task.done())
    finally:
        starting.cancel()
        stopped.cancel()
        await asyncio.gather(starting, stopped, return_exceptions=True)
        for part in reversed(parts):
            await part.end()


class _Part:
    """One service's `serve`, in a task."""

    def __init__(self, name: str, run: Serve, end_s: float) -> None:
        self._name = name
        self._end_s = end_s
        self._stop = asyncio.Event()
        self._port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.task = asyncio.ensure_future(run(self._stop, self._port.set_result))

    async def listening(self) -> int:
        """Wait for the port and return it. Raises PartEnded."""
        await asyncio.wait({self.task, self._port}, return_when=asyncio.FIRST_COMPLETED)
        if not self._port.done():
            raise self.why_ended()
        return self._port.result()

    def why_ended(self) -> PartEnded:
        """The error of a part whose task is done."""
        error = None if self.task.cancelled() else self.task.exception()
        if error is None:
            return PartEnded(f"the {self._name} ended by itself")
        ended = PartEnded(f"the {self._name} ended: {error or type(error).__name__}")
        ended.__cause__ = error
        return ended

    async def end(self) -> None:
        """Request the part's stop and wait for it; cancel it when it takes too long."""
        self._stop.set()
        done, _ = await asyncio.wait({self.task}, timeout=self._end_s)
        if not done:
            _log.warning("cut_off", part=self._name, after_s=self._end_s)
            self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def _start(ready: Ground, plan: WorkerPlan, listen: str, parts: list[_Part]) -> Addresses:
    """Start all parts in their order."""
    identity = _identity(plan.offsets_file)
    config = ConfigStoreSettings(listen=_ANY_PORT, memory=True, metrics=False, group_id=identity)
    status = StatusStoreSettings(listen=_ANY_PORT, memory=True, metrics=False, group_id=identity)
    parts.append(_Part("config store", lambda end, told: serve_config_store(config, end, told), _STORE_END_S))
    parts.append(
        _Part("status store", lambda end, told: serve_status_store(end, status, make_store(status), told), _STORE_END_S)
    )
    config_store, status_store = [f"{LOOPBACK}:{await part.listening()}" for part in parts]
    herder = HerderSettings(
        listen=listen,
        config_store=config_store,
        status_store=status_store,
        **plan.herder,  # pyright: ignore[reportArgumentType] - as in `worker_settings`
    )
    parts.append(_Part("herder", lambda end, told: serve_herder(herder, end, told), _HERDER_END_S))
    address = f"{listen.rpartition(':')[0]}:{await parts[-1].listening()}"
    worker = worker_settings(plan, address, status_store)
    end_s = worker.leave_timeout_ms / 1000 + _WORKER_END_EXTRA_S
    parts.append(_Part("worker", lambda end, told: serve_worker_on(ready, worker, end, told), end_s))
    await parts[-1].listening()
    return Addresses(address, config_store, status_store)


def worker_settings(plan: WorkerPlan, herder: str, status_store: str) -> WorkerSettings:
    """The worker's settings, once the addresses it dials are known. Dead letter queues fit the cluster, unless the
    environment sets their replicas.
    """
    pairs = (f"{name}={value}".replace(",", "\\,") for name, value in plan.passed.items())
    settings = WorkerSettings(
        listen=_ANY_PORT,
        metrics=False,
        worker_id=herder,
        herder=herder,
        status_store=status_store,
        group_id=_identity(plan.offsets_file),
        config_storage_topic="",  # there is no config topic, and no other owner either
        worker_properties=SecretStr(",".join(pairs)),
        **plan.settings,  # pyright: ignore[reportArgumentType] - by name; the table is tested against the settings
    )
    if plan.brokers and _DEAD_LETTER_REPLICAS not in settings.model_fields_set:
        return settings.model_copy(update={_DEAD_LETTER_REPLICAS: fitting_replication_factor(plan.brokers)})
    return settings


def dead_letter_note(plan: WorkerPlan) -> str:
    """The notice of a cluster that is too small for Connect's default replicas of a dead letter queue; "" when it is
    not, or the environment sets another number.
    """
    settings = worker_settings(plan, "", "")
    factor = settings.dead_letter_replication_factor
    fits = factor == fitting_replication_factor(plan.brokers)
    return notices.dead_letter_replicas(plan.brokers, factor) if plan.brokers and fits else ""


def _identity(offsets_file: str) -> str:
    """The replacement of `group.id` in the names of fences. It is the same for the next process on the same offsets,
    and for no other, so that the last runs of a killed process cannot write beside that one.
    """
    place = f"{socket.gethostname()}:{os.path.realpath(offsets_file)}"
    return f"standalone-{hashlib.sha256(place.encode()).hexdigest()[:12]}"
