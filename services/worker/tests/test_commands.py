"""Replies to the leader's commands, from the parts of a worker that give them: plugins, plans, loggers, failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from herdmesh.api.common.v1 import connector_pb2, offsets_pb2
from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb2
from herdmesh.connect.config.config_def import ConfigDef, ConfigKey, Importance, Type
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connect.spi.connector import Config, SourceConnector
from herdmesh.connectors.file_stream.source.connector import FileStreamSource
from herdmesh.session import wire as session_wire
from herdmesh.session import worker_commands
from herdmesh.session.messages import SendCommand
from herdmesh.session.model import OffsetEntry
from herdmesh.worker.effects.dead_letters.requests import DeadLetters
from herdmesh.worker.effects.offsets.offset_forms import OffsetsResult, Prepared
from herdmesh.worker.effects.offsets.offsets import Offsets
from herdmesh.worker.effects.plugins.plugins import Found, Plugins, discover
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.effects.stores import commands
from herdmesh.worker.effects.stores.commands import Commands
from herdmesh.worker.run.loggers import Loggers
from herdmesh.worker.settings import WorkerSettings

RETRIABLE, BAD_CONFIG = connector_pb2.ERROR_CLASS_RETRIABLE, connector_pb2.ERROR_CLASS_BAD_CONFIG
NEVER = threading.Event()


class Fussy(SourceConnector):
    """Connector that makes as many task configs as `makes`, and remembers the calls."""

    class_name = "org.example.Fussy"
    version = "1"
    calls: ClassVar[list[str]] = []

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("makes", Type.STRING, "1", Importance.HIGH, "How many."),
            ConfigKey("tasks.max", Type.INT, 7, Importance.LOW, "Its own idea."),
        )

    def start(self, config: Config) -> None:
        self.calls.append("start")
        super().start(config)

    def task_class(self) -> str:
        return "nowhere:Task"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        makes = self.config.get("makes") or "1"
        if makes == "for ever":
            NEVER.wait()
        if makes == "trouble":
            raise RuntimeError("no such table")
        return [{"part": str(number)} for number in range(int(makes))]

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.fixture
def here() -> Iterator[Commands]:
    NEVER.clear()
    Fussy.calls.clear()
    registry = PluginRegistry([describe(Fussy), describe(FileStreamSource)])
    specs = RunSpecs(WorkerSettings(), registry)
    yield Commands(
        WorkerSettings(), specs, Plugins(Found(registry)), Loggers(), Offsets(specs, None), DeadLetters(specs, None)
    )
    NEVER.set()


def ask(
    here: Commands, question: worker_commands.WorkerCommand, command_id: str = "1"
) -> session_pb2.CommandReply | None:
    """The reply; None when nothing was sent."""
    said: list[session_pb2.SessionRequest] = []

    async def asked() -> None:
        here.execute(command_id, question, said.append)
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    asyncio.run(asked())
    return said[0].reply if said else None


def failure(here: Commands, question: worker_commands.WorkerCommand) -> connector_pb2.Failure:
    reply = ask(here, question)
    assert reply is not None
    assert reply.HasField("failure")
    return reply.failure


def planned(here: Commands, **config: str) -> session_pb2.CommandReply:
    reply = ask(
        here, worker_commands.PlanTaskConfigs({"connector.class": "org.example.Fussy", "name": "f", **config}, 2)
    )
    assert reply is not None
    return reply


# --- plans


def test_a_plan_starts_a_temporary_instance_and_stops_it(here: Commands) -> None:
    reply = planned(here, makes="2")
    assert [task.entries["part"].text for task in reply.tasks] == ["0", "1"]
    assert reply.tasks[0].entries["task.class"].text == "nowhere:Task"
    assert Fussy.calls == ["start", "stop"]


def test_a_plan_returns_more_task_configs_than_tasks_max_unchanged(here: Commands) -> None:
    assert len(planned(here, makes="3").tasks) == 3


def test_a_plan_whose_connector_fails_has_the_failure_and_stops_the_instance(here: Commands) -> None:
    reply = planned(here, makes="trouble")
    assert reply.failure.message == "RuntimeError: no such table"
    assert Fussy.calls == ["start", "stop"]


def test_a_plan_of_a_hanging_connector_ends_with_a_failure(here: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_PLAN_TIMEOUT_S", 0.1)
    reply = planned(here, makes="for ever")
    assert reply.failure.error_class == RETRIABLE
    assert "did not make task configs within" in reply.failure.message


def test_a_plan_of_an_unknown_class_fails_as_bad_config(here: Commands) -> None:
    question = worker_commands.PlanTaskConfigs({"connector.class": "Nonsense", "name": "f"}, 2)
    assert failure(here, question).error_class == BAD_CONFIG


# --- plugins


def test_a_plugins_own_keys_come_first_and_override_common_ones(here: Commands) -> None:
    reply = ask(here, worker_commands.DescribePlugin("org.example.Fussy"))
    assert reply is not None
    assert [field.name for field in reply.plugin_fields[:2]] == ["makes", "tasks.max"]
    assert reply.plugin_fields[1].default_value == "7"
    names = [field.name for field in reply.plugin_fields]
    assert len(names) == len(set(names))
    assert "herdmesh.linger.ms" in names


def test_every_plugin_in_hello_can_be_described(here: Commands) -> None:
    listed = Plugins(discover(""))
    kinds = {plugin.kind for plugin in listed.all()}
    assert {connector_pb2.PLUGIN_KIND_SOURCE, connector_pb2.PLUGIN_KIND_SINK} <= kinds
    assert {connector_pb2.PLUGIN_KIND_CONVERTER, connector_pb2.PLUGIN_KIND_TRANSFORMATION} <= kinds
    for plugin in listed.all():
        for name in (plugin.class_name, *plugin.aliases):
            listed.fields(name)


def test_describing_an_unknown_plugin_fails(here: Commands) -> None:
    assert failure(here, worker_commands.DescribePlugin("Nonsense")).message == "Unknown plugin Nonsense."


# --- loggers, and commands without a reply


def test_loggers_are_listed_and_set(here: Commands) -> None:
    changed = ask(here, worker_commands.SetLogger("test.commands.x", "DEBUG"))
    assert changed is not None
    assert [(entry.logger, entry.level) for entry in changed.loggers] == [("test.commands.x", "DEBUG")]
    listed = ask(here, worker_commands.ListLoggers("test.commands"))
    assert listed is not None
    assert [entry.logger for entry in listed.loggers] == ["test.commands.x"]
    assert "invalid log level" in failure(here, worker_commands.SetLogger("test.commands.x", "LOUD")).message


def test_a_command_without_an_id_is_executed_without_a_reply(here: Commands) -> None:
    assert ask(here, worker_commands.SetLogger("test.commands.y", "ERROR"), command_id="") is None
    listed = ask(here, worker_commands.ListLoggers("test.commands.y"))
    assert listed is not None
    assert listed.loggers[0].level == "ERROR"


def test_refused_offsets_fail_as_bad_config_with_connects_text(here: Commands) -> None:
    config: Config = {"connector.class": "FileStreamSource", "name": "f", "file": "a", "topic": "t"}
    refused = failure(
        here,
        worker_commands.AlterOffsets(
            "f", config, (OffsetEntry('{"filename":"a"}', '{"position":-1}'),), timeout_ms=5_000
        ),
    )
    assert refused.error_class == BAD_CONFIG
    assert refused.message == "The value for the 'position' key in the offset should be a non-negative value"


@pytest.mark.parametrize("prepare", [False, True])
def test_the_command_decides_whether_offsets_are_only_prepared(prepare: bool) -> None:
    command = session_pb2.AlterOffsetsCommand(command_id="7", connector="f", timeout_ms=5_000, prepare=prepare)
    sent = session_pb2.SessionResponse(epoch=3, alter_offsets=command).SerializeToString()
    asked = session_wire.message_from(session_pb2.SessionResponse.FromString(sent))
    assert asked == SendCommand("7", worker_commands.AlterOffsets("f", {}, prepare=prepare, timeout_ms=5_000))


def test_a_reply_has_prepared_offsets_only_if_they_were_prepared(
    here: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def alter(_self: Offsets, question: worker_commands.AlterOffsets) -> OffsetsResult:
        prepared = Prepared(
            (("t", b"k", b"v"), ("t", b"empty", b""), ("t", b"gone", None)), "g", (("in", 2, 1 << 40, "staged"),)
        )
        return OffsetsResult((("{}", "{}"),), "done", prepared if question.prepare else None)

    monkeypatch.setattr(Offsets, "alter", alter)

    def replied(*, prepare: bool) -> session_pb2.OffsetsReply:
        reply = ask(here, worker_commands.AlterOffsets("f", {}, prepare=prepare, timeout_ms=5_000))
        assert reply is not None
        return session_pb2.CommandReply.FromString(reply.SerializeToString()).offsets

    assert not replied(prepare=False).HasField("prepared")
    told = replied(prepare=True)
    assert (len(told.offsets), told.message) == (1, "done")
    with_value, with_empty, tombstone = told.prepared.records
    assert (with_value.topic, with_value.key, with_value.value) == ("t", b"k", b"v")
    assert (with_empty.HasField("value"), tombstone.HasField("value")) == (True, False)
    assert told.prepared.group == "g"
    in_2 = offsets_pb2.GroupOffset(topic="in", partition=2, offset=1 << 40, metadata="staged")
    assert list(told.prepared.group_offsets) == [in_2]
