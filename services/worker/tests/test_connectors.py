"""The host of authors' connectors, without a state: instructions in, events out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

from herdmesh.connect.config.config_def import ConfigDef
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connect.spi.connector import Config, SourceConnector
from herdmesh.worker.effects.offsets.offsets import Offsets
from herdmesh.worker.effects.plugins.connectors import ConnectorHost
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state import events, instructions

WAIT_S = 60.0


class Eager(SourceConnector):
    """Connector that requests new task configs again and again."""

    class_name = "Eager"
    aliases = ()
    version = "1"
    running: ClassVar[list[Eager]] = []

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def start(self, config: Config) -> None:
        super().start(config)
        self.running.append(self)
        self.ask(1_000)

    def ask(self, times: int) -> None:
        assert self.context is not None
        for _ in range(times):
            self.context.request_task_reconfiguration()

    def task_class(self) -> str:
        return "none"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return []


class Told:
    """The events, in order; requests for task configs block until the gate is open."""

    def __init__(self) -> None:
        self.outdated = 0
        self.gate = asyncio.Event()
        self._others: asyncio.Queue[events.Event] = asyncio.Queue(10)

    async def emit(self, event: events.Event) -> None:
        if isinstance(event, events.TasksOutdated):
            self.outdated += 1
            await self.gate.wait()
        await self._others.put(event)

    async def next(self) -> events.Event:
        async with asyncio.timeout(WAIT_S):
            return await self._others.get()


async def test_a_connector_that_requests_task_configs_in_a_loop_has_one_request_pending() -> None:
    told = Told()
    specs = RunSpecs(WorkerSettings(), PluginRegistry([describe(Eager)]))
    host = ConnectorHost(specs, Offsets(specs, None), told.emit)
    host.start(instructions.StartConnector("c", 1, {"connector.class": "Eager"}))
    started = await told.next()
    assert isinstance(started, events.ConnectorStarted)
    assert started.failure is None
    assert told.outdated == 1
    told.gate.set()
    assert await told.next() == events.TasksOutdated("c", 1)
    await asyncio.to_thread(Eager.running.pop().ask, 1)
    assert await told.next() == events.TasksOutdated("c", 1)
    assert told.outdated == 2
    await host.close()


async def test_a_connector_whose_config_reference_is_gone_fails_to_restart(tmp_path: Path) -> None:
    """Its config is updated, or its worker lost, after the file that it refers to is gone."""
    told = Told()
    told.gate.set()
    properties = "config.providers=file,config.providers.file.class=File"
    settings = WorkerSettings(worker_properties=properties)  # pyright: ignore[reportArgumentType] - as text
    specs = RunSpecs(settings, PluginRegistry([describe(Eager)]))
    host = ConnectorHost(specs, Offsets(specs, None), told.emit)
    secrets = tmp_path / "s.properties"
    secrets.write_text("pw=there\n")
    config: dict[str, str | None] = {"connector.class": "Eager", "password": f"${{file:{secrets}:pw}}"}
    host.start(instructions.StartConnector("c", 1, config))
    while not isinstance(begun := await told.next(), events.ConnectorStarted):
        pass
    assert (begun.op_id, begun.failure, Eager.running.pop().config["password"]) == (1, None, "there")
    host.stop(instructions.StopConnector("c", 2))
    while not isinstance(await told.next(), events.ConnectorStopped):
        pass
    secrets.unlink()
    host.start(instructions.StartConnector("c", 3, config))
    failed = await told.next()
    assert isinstance(failed, events.ConnectorStarted)
    assert failed.failure is not None
    assert failed.failure.error_class is ErrorClass.BAD_CONFIG
    assert failed.failure.message.startswith("password: ")
    assert Eager.running == [], "the author's code was not asked"
    await host.close()
