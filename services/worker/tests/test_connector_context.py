"""Requests of a connector to its worker other than new task configs: to be FAILED, and its tasks' committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from herdmesh.connect.config.config_def import ConfigDef
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConnectError, RetriableError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connect.spi.connector import Config, SourceConnector
from herdmesh.connectors.file_stream.source.connector import FileStreamSource
from herdmesh.session.model import Failure, RunState, TargetState
from herdmesh.worker.effects.offsets.offset_file import OffsetFile
from herdmesh.worker.effects.offsets.offsets import Offsets
from herdmesh.worker.effects.plugins.connectors import ConnectorHost
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state import events, instructions
from herdmesh.worker.state.model import PutMode
from libs.core.tests.engine.harness import Kafka
from services.worker.tests import leader
from services.worker.tests.test_offsets import NOWHERE, Bench, bench, sink, source
from services.worker.tests.test_state_machine import CONNECTOR, generate, machine, only, start_connector

WAIT_S = 20.0
FAILURE = Failure("the source is gone", error_class=ErrorClass.RETRIABLE)


class Failing(SourceConnector):
    """Connector that raises an error through its context in `start`, and again whenever a test has it do so."""

    class_name = "Failing"
    aliases = ()
    version = "1"
    running: ClassVar[list[Failing]] = []

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def start(self, config: Config) -> None:
        super().start(config)
        self.running.append(self)
        if config.get("when") == "start":
            self.fail("the source is gone")

    def fail(self, text: str) -> None:
        assert self.context is not None
        self.context.raise_error(RetriableError(text))

    def task_class(self) -> str:
        return "none"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return []


class Asking(FileStreamSource):
    """Connector that reads its tasks' committed offsets when it is started."""

    class_name = "example.Asking"
    aliases = ("Asking",)
    found: ClassVar[list[list[Mapping[str, Any] | None]]] = []

    def start(self, config: Config) -> None:
        super().start(config)
        if self.context is not None:
            self.found.append(self.context.committed_offsets([{"filename": config["file"]}, None, {"filename": "b"}]))


class Host:
    """A host of one connector class, and its events."""

    def __init__(self, here: Bench) -> None:
        self._said: asyncio.Queue[events.Event] = asyncio.Queue(10)
        self.host = ConnectorHost(here.specs, Offsets(here.specs, here.offset_file), self._said.put)

    async def next(self) -> events.Event:
        async with asyncio.timeout(WAIT_S):
            return await self._said.get()

    def is_silent(self) -> bool:
        return self._said.empty()


def having(kind: type[FileStreamSource | Failing], bootstrap: str = NOWHERE, offsets: str = "connect-offsets") -> Bench:
    settings = WorkerSettings(
        bootstrap_servers=bootstrap, offset_storage_topic=offsets, offset_storage_partitions=2,
        offset_storage_replication_factor=1,
    )  # fmt: skip
    return Bench(RunSpecs(settings, PluginRegistry([describe(kind)])))


@pytest.mark.parametrize("when", ["start", "later"])
async def test_a_connector_that_raises_an_error_is_failed_with_its_text_and_stopped(when: str) -> None:
    """Also when it raises within `start`, after which the state handles it."""
    said, state = Host(having(Failing)), machine()
    call = only(instructions.StartConnector, state.handle(start_connector(), 0.0))
    said.host.start(instructions.StartConnector("c", call.op_id, {"connector.class": "Failing", "when": when}))
    started = await said.next()
    assert isinstance(started, events.ConnectorStarted)
    state.handle(started, 0.1)
    connector = Failing.running.pop()
    if when == "later":
        await asyncio.to_thread(connector.fail, "the source is gone")
    raised = await said.next()
    out = state.handle(raised, 0.2)
    status = only(instructions.WriteStatus, out)
    assert (status.state, status.mode) == (RunState.FAILED, PutMode.PUT_SAFE)
    assert status.failure is not None
    assert status.failure.message == "the source is gone"
    assert status.failure.error_class is ErrorClass.RETRIABLE
    assert only(instructions.SendReport, out).state is RunState.FAILED
    assert only(instructions.StopConnector, out).connector == "c"
    await asyncio.to_thread(connector.fail, "it is gone still")
    said.host.stop(instructions.StopConnector("c", 2))
    assert await said.next() == events.ConnectorStopped("c", 2), "an instance fails once"
    await said.host.close()
    assert said.is_silent()


def test_a_failed_connector_makes_no_task_configs_until_it_is_stopped_or_started_again() -> None:
    state = machine()
    call = only(instructions.StartConnector, state.handle(start_connector(), 0.0))
    state.handle(events.ConnectorStarted("c", call.op_id), 0.1)
    assert state.handle(events.ConnectorRaised("c", call.op_id + 1, FAILURE), 0.2) == [], "of another instance"
    stop = only(instructions.StopConnector, state.handle(events.ConnectorRaised("c", call.op_id, FAILURE), 0.3))
    assert state.handle(events.ConnectorRaised("c", call.op_id, FAILURE), 0.3) == []
    assert state.handle(events.TasksOutdated("c", call.op_id), 0.3) == []
    state.handle(leader.set_target(1, CONNECTOR, TargetState.PAUSED), 0.4)
    assert state.handle(events.ConnectorStopped("c", stop.op_id), 0.5) == [], "FAILED it is, and not PAUSED"
    assert only(instructions.SendTaskConfigs, state.handle(generate(), 0.6)).failure == FAILURE
    out = state.handle(leader.set_target(1, CONNECTOR, TargetState.STARTED), 0.7)
    assert not any(isinstance(one, instructions.StartConnector) for one in out)
    out = state.handle(leader.set_target(1, CONNECTOR, TargetState.STOPPED), 0.8)
    assert only(instructions.WriteStatus, out).state is RunState.STOPPED
    again = state.handle(leader.set_target(1, CONNECTOR, TargetState.STARTED), 0.9)
    assert only(instructions.StartConnector, again).op_id > stop.op_id


def test_a_connector_stopped_while_its_failed_instance_ends_starts_again() -> None:
    state = machine()
    call = only(instructions.StartConnector, state.handle(start_connector(), 0.0))
    state.handle(events.ConnectorStarted("c", call.op_id), 0.1)
    stop = only(instructions.StopConnector, state.handle(events.ConnectorRaised("c", call.op_id, FAILURE), 0.2))
    state.handle(leader.set_target(1, CONNECTOR, TargetState.STOPPED), 0.3)
    out = state.handle(events.ConnectorStopped("c", stop.op_id), 0.4)
    assert only(instructions.WriteStatus, out).state is RunState.STOPPED
    assert only(instructions.StartConnector, state.handle(leader.set_target(1, CONNECTOR, TargetState.STARTED), 0.5))


@pytest.mark.kafka
async def test_a_source_connector_reads_its_tasks_committed_offsets(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    here = having(Asking, kafka_bootstrap, tmp_topic("offsets"))
    file, topic = tmp_path / "in.txt", tmp_topic()
    file.write_text("first\nsecond\n")
    config = {**source(file, topic), "connector.class": "Asking"}
    said = Host(here)
    started = instructions.StartConnector(str(config["name"]), 1, config)
    for position in (None, {"position": 13}):
        Asking.found.clear()
        said.host.start(started)
        assert await said.next() == events.ConnectorStarted(started.connector, 1), "without a failure"
        assert Asking.found == [[position, None, None]]
        if position is None:
            await asyncio.to_thread(here.run, config)
    await said.host.close()
    assert len(Kafka(kafka_bootstrap).records(topic)) == 2


def test_committed_offsets_come_from_the_file_in_standalone_mode_and_are_refused_to_a_sink(tmp_path: Path) -> None:
    file = OffsetFile(str(tmp_path / "offsets"))
    file.open()
    try:
        here, config = bench(NOWHERE), source(tmp_path / "a")
        here.offset_file = file
        here.alter(config, ({"filename": "a"}, {"position": 3}))
        offsets = Offsets(here.specs, file)
        assert offsets.committed("src-t", config, [{"filename": "b"}, {"filename": "a"}]) == [None, {"position": 3}]
        assert offsets.committed("another", config, [{"filename": "a"}]) == [None]
        with pytest.raises(ConnectError, match="a sink connector has no source offsets"):
            offsets.committed("snk-t", sink(tmp_path / "b", "t"), [None])
    finally:
        file.close()
