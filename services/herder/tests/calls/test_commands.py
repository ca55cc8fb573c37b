"""Commands to workers: plugin definitions, offsets written before a create; sent again when a worker is lost, once for
each call, and forgotten with it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from herdmesh.herder.state.model import Plugin, PluginKind, RefusedPlugin
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.instructions import DeleteConfig, PutConfig
from herdmesh.herder.state.model.requests import (
    Answer,
    CreateConnector,
    DeleteConnector,
    GetPlugin,
    PluginDescribed,
    UpdateConnector,
    ValidateConfig,
    Validated,
    WriteOptions,
    Written,
)
from herdmesh.rpc.errors import (
    ConnectorExists,
    HerdmeshError,
    InvalidConfig,
    NoLeader,
    NoWorker,
    OffsetsRefused,
    PluginNotFound,
    Timeout,
)
from herdmesh.session import worker_commands as qu
from herdmesh.session.model import OffsetEntry, Properties, UnitId
from services.herder.tests.world import World, sink
from services.herder.tests.world_commands import AWAY, REFUSED
from services.herder.tests.world_worker import SINK, SOURCE

MASK = Plugin("org.example.Mask$Value", ("Mask$Value",), PluginKind.TRANSFORMATION, "1.0")
AT_7 = (OffsetEntry('{"filename":"a.txt"}', '{"position":7}'),)


@pytest.fixture
def world() -> World:
    """A leader and two workers; only the first has a transformation."""
    world = World()
    world.lead()
    world.worker("w1", (SINK, SOURCE, MASK))
    world.worker("w2")
    return world


def asked(world: World, kind: type[qu.WorkerCommand]) -> list[str]:
    """The workers that got such a command, once for each time."""
    return [worker.id for worker in world.workers.values() for one in worker.answers.asked if isinstance(one, kind)]


def create(name: str = "a", config: Properties | None = None) -> CreateConnector:
    return CreateConnector(name, config or sink(1), initial_offsets=AT_7)


def retry(request_id: str) -> WriteOptions:
    return WriteOptions(request_id=request_id)


def outcome(world: World, number: int) -> Answer | HerdmeshError:
    return world.answers[number]


# --- plugins


def test_any_plugin_is_described_by_class_or_alias(world: World) -> None:
    assert world.ask(GetPlugin("TestSink")) == PluginDescribed(SINK, ("fields of TestSink",))
    assert world.ask(GetPlugin(" org.example.Mask$Value ")) == PluginDescribed(
        MASK, ("fields of org.example.Mask$Value",)
    )
    assert world.workers["w1"].answers.asked[-1] == qu.DescribePlugin("org.example.Mask$Value")


def test_an_unknown_plugin_lists_the_known_ones(world: World) -> None:
    with pytest.raises(PluginNotFound) as refused:
        world.ask(GetPlugin("Nonsense"))
    assert refused.value.message == (
        "no worker has the plugin 'Nonsense'; available: herdmesh.TestSink, org.example.Mask$Value, "
        "org.example.TestSource"
    )


def test_a_plugin_definition_needs_a_connected_worker(world: World) -> None:
    world.kill("w1")
    world.run()
    with pytest.raises(PluginNotFound):
        world.ask(GetPlugin("Mask$Value"))
    world.kill("w2")
    world.run()
    with pytest.raises(NoWorker):
        world.ask(GetPlugin("TestSink"))


# --- lost workers and late replies


def test_a_command_goes_to_another_worker_when_its_own_dies(world: World) -> None:
    world.workers["w1"].answers.mute = True
    number = world.call(GetPlugin("TestSink"))
    world.run()
    assert asked(world, qu.DescribePlugin) == ["w1"]
    world.kill("w1")
    world.run()
    assert outcome(world, number) == PluginDescribed(SINK, ("fields of TestSink",))
    assert asked(world, qu.DescribePlugin) == ["w1", "w2"]


def test_a_reply_after_the_end_of_its_call_changes_nothing(world: World) -> None:
    worker = world.workers["w1"]
    worker.answers.mute = True
    number = world.call(create(), timeout_ms=300)
    world.run()
    session = worker.session
    assert session is not None
    world.advance(500)
    assert isinstance(outcome(world, number), Timeout)
    assert worker.answers.ids
    world.post(ev.CommandReplied(session, worker.answers.ids[-1]))
    world.advance(500)
    assert "a" not in world.config.entries


def test_a_leader_that_steps_down_answers_calls_with_open_commands(world: World) -> None:
    world.workers["w1"].answers.mute = True
    number = world.call(create())
    world.run()
    world.post(ev.LeadershipLost("another one leads"))
    world.run()
    assert isinstance(outcome(world, number), NoLeader)


def test_a_config_is_validated_by_a_worker_with_the_requested_version() -> None:
    world = World()
    world.lead()
    world.worker("w1")
    world.worker("w2", (Plugin("herdmesh.TestSink", ("TestSink",), PluginKind.SINK, "2.0"),))
    world.ask(create("a", sink(1, **{"connector.plugin.version": "2.0"})))
    assert asked(world, qu.AlterOffsets) == ["w2"]
    # A version that no worker has is refused by a worker, with its message.
    assert isinstance(world.ask(ValidateConfig(sink(1, **{"connector.plugin.version": "9"}))), Validated)


# --- initial offsets


def test_offsets_are_written_with_the_connector(world: World) -> None:
    world.workers["w1"].answers.mute = True
    number = world.call(create())
    world.run()
    assert "a" not in world.config.entries
    world.kill("w1")
    world.run()
    assert isinstance(outcome(world, number), Written)
    assert world.offsets == {"a": [AT_7]}
    assert world.config.entries["a"].has_config


def test_refused_offsets_leave_no_connector(world: World) -> None:
    for worker in world.workers.values():
        worker.answers.offset_failure = REFUSED
    with pytest.raises(OffsetsRefused, match="expected to be a Long value"):
        world.ask(create())
    assert "a" not in world.config.entries


def test_a_refused_config_writes_no_offsets(world: World) -> None:
    with pytest.raises(InvalidConfig):
        world.ask(create(config=sink(1, wrong="yes")))
    assert world.offsets == {}


def test_a_config_too_large_for_a_record_writes_no_offsets(world: World) -> None:
    with pytest.raises(InvalidConfig, match="at most 1000000 fit"):
        world.ask(create(config={**sink(1), "note": "x" * 1_000_000}))
    assert world.offsets == {}


def test_a_create_with_offsets_that_failed_midway_can_be_retried(world: World) -> None:
    for worker in world.workers.values():
        worker.answers.offset_failure = AWAY
    with pytest.raises(NoWorker, match="try again"):
        world.ask(create(), retry("r1"))
    assert "a" not in world.config.entries
    for worker in world.workers.values():
        worker.answers.offset_failure = None
    world.store_down = True
    number = world.call(create(), retry("r1"), timeout_ms=500)
    world.advance(700)
    assert isinstance(outcome(world, number), Timeout)
    assert "a" not in world.config.entries
    assert world.offsets == {}
    world.store_down = False
    written = world.ask(create(), retry("r1"))
    assert isinstance(written, Written)
    assert world.config.entries["a"].has_config
    world.advance(1_000)
    before = world.offsets["a"].copy()
    again = world.ask(create(), retry("r1"))
    assert isinstance(again, Written)
    assert again.created
    assert world.offsets["a"] == before, "the offsets of a running connector were touched"


def test_a_create_with_offsets_that_loses_its_race_writes_nothing(world: World) -> None:
    before = [(OffsetEntry('{"filename":"a.txt"}', '{"position":3}'),)]
    world.offsets["a"] = before.copy()
    world.delay_ms = lambda: 1
    number = world.call(create(), retry("r1"))
    while not asked(world, qu.AlterOffsets):
        world.advance(1)
    world.config.write(PutConfig(0, "a", sink(1), WriteOptions()))
    world.advance(50)
    assert isinstance(outcome(world, number), ConnectorExists)
    assert world.offsets["a"] == before
    world.post(ev.ConfigChanged("a", world.config.entries["a"], None))
    number = world.call(create(), retry("r1"))
    world.advance(50)
    assert isinstance(outcome(world, number), ConnectorExists)
    assert world.offsets["a"] == before


def test_a_create_with_offsets_of_a_name_still_taken_for_the_leader_is_refused(world: World) -> None:
    """The name may be free by the time the store gets the write, and no worker has prepared the offsets."""
    world.ask(CreateConnector("a", sink(1)))
    world.advance(500)
    world.delay_ms = lambda: 1
    world.config.write(DeleteConfig(0, "a", WriteOptions()))  # the leader's watch has not brought it yet
    number = world.call(create(), retry("r1"))
    world.advance(50)
    assert isinstance(outcome(world, number), ConnectorExists)
    assert not world.config.entries["a"].has_config
    assert world.offsets == {}


def test_a_create_whose_offsets_kafka_refuses_stores_no_connector(world: World) -> None:
    world.config.offsets_refused = "the config store may not write to topic connect-offsets"
    with pytest.raises(OffsetsRefused, match="may not write to topic connect-offsets"):
        world.ask(create())
    assert "a" not in world.config.entries
    assert world.offsets == {}


def test_a_worker_with_its_own_offset_file_writes_offsets_there(world: World) -> None:
    """Standalone mode, where the config store is in memory."""
    for worker in world.workers.values():
        worker.answers.has_offset_file = True
    assert isinstance(world.ask(create()), Written)
    assert world.offsets == {"a": [AT_7]}


def test_a_create_of_an_existing_name_leaves_its_offsets(world: World) -> None:
    world.ask(CreateConnector("a", sink(1)))
    with pytest.raises(ConnectorExists):
        world.ask(create())
    assert world.offsets == {}


def test_offsets_wait_until_the_tasks_of_an_earlier_connector_have_stopped(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    world.advance(500)
    for worker in world.workers.values():
        worker.stop_silently = True
    world.ask(DeleteConnector("a"))
    number = world.call(create(), timeout_ms=20_000)
    world.advance(1_000)
    assert number not in world.answers
    assert world.offsets == {}
    for worker in world.workers.values():
        worker.stop_silently = False
        for unit in [unit for unit in worker.held if unit.connector == "a"]:
            world.release(worker, unit)
    world.advance(500)
    assert isinstance(outcome(world, number), Written)
    assert world.offsets == {"a": [AT_7]}
    assert asked_fences(world) == []


def test_a_wait_for_earlier_tasks_ends_at_the_deadline_with_its_stage(world: World) -> None:
    world.ask(CreateConnector("a", sink(1)))
    world.advance(500)
    for worker in world.workers.values():
        worker.stop_silently = True
    world.ask(DeleteConnector("a"))
    number = world.call(create(), timeout_ms=500)
    world.advance(700)
    error = outcome(world, number)
    assert isinstance(error, Timeout)
    assert error.metadata["stage"] == "waiting for the tasks of an earlier connector of that name to stop"


def asked_fences(world: World) -> list[tuple[str, int]]:
    return [fence for worker in world.workers.values() for fence in worker.fences]


def test_tasks_that_may_run_on_a_lost_worker_are_fenced_before_offsets_are_written(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    world.advance(500)
    holder = next(worker for worker in world.workers.values() if UnitId("a", 1) in worker.held)
    other = next(worker for worker in world.workers.values() if worker is not holder)
    holder.frozen = True
    world.ask(DeleteConnector("a"))
    world.advance(8_000)
    world.ask(create())
    assert ("a", 2) in asked_fences(world)
    assert world.offsets == {"a": [AT_7]}
    [written] = other.answers.asked
    assert isinstance(written, qu.AlterOffsets)
    assert written.revision is not None, "a worker that is late finds the connector in what was written since"


def test_a_failed_fence_writes_neither_offsets_nor_connector(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    world.advance(500)
    holder = next(worker for worker in world.workers.values() if UnitId("a", 1) in worker.held)
    holder.frozen = True
    world.ask(DeleteConnector("a"))
    world.advance(8_000)
    for worker in world.workers.values():
        worker.fence_failure = AWAY
    with pytest.raises(NoWorker):
        world.ask(create())
    assert world.offsets == {}
    assert not world.config.entries["a"].has_config


def test_only_one_of_two_creates_has_its_offsets_written(world: World) -> None:
    world.workers["w1"].answers.mute = True
    first = world.call(create())
    world.run()
    second = world.call(create())
    third = world.call(UpdateConnector("a", sink(2), allow_missing=True))
    world.run()
    assert not world.answers
    world.kill("w1")
    world.advance(1_000)
    assert isinstance(outcome(world, first), Written)
    assert isinstance(outcome(world, second), ConnectorExists)
    assert isinstance(outcome(world, third), Written)
    assert world.offsets == {"a": [AT_7]}


def test_a_create_with_offsets_waits_for_an_earlier_one_without(world: World) -> None:
    world.store_down = True
    first = world.call(CreateConnector("a", sink(1)), timeout_ms=800)
    world.run()
    second = world.call(create())
    world.run()
    assert world.offsets == {}
    world.store_down = False
    world.config.write(PutConfig(0, "a", sink(1), WriteOptions()))
    world.post(ev.ConfigChanged("a", world.config.entries["a"], None))
    world.advance(1_500)
    assert isinstance(outcome(world, first), Timeout)
    assert isinstance(outcome(world, second), ConnectorExists)
    assert world.offsets == {}


# --- plugin folders

LATE = Plugin("org.example.Late", ("Late",), PluginKind.SINK, "1.0")
BROKEN = RefusedPlugin("/opt/plugins/broken", "broken:Broken", "ImportError: no libfoo", "mend it")


def test_an_unreported_class_goes_to_a_worker_with_plugin_folders(world: World) -> None:
    """Its folder appeared a moment ago: the worker reports it, then replies, and gets the connector."""
    worker = world.workers["w2"]
    worker.refused, worker.installed_late = (), (LATE,)
    worker.dial()
    world.run()
    world.ask(CreateConnector("a", {"connector.class": "Late"}))
    assert set(worker.held) >= {UnitId("a", None)}
    assert not any(unit.connector == "a" for unit in world.workers["w1"].held)
    assert LATE in world.herder.plugins()


def test_refused_plugins_are_listed_with_their_workers(world: World) -> None:
    assert world.herder.refused_plugins() == []
    for worker in world.workers.values():
        worker.refused = (BROKEN,)
        worker.dial()
    world.run()
    assert world.herder.refused_plugins() == [(BROKEN, ["w1", "w2"])]
    worker = world.workers["w1"]
    assert worker.session is not None
    worker.say(ev.PluginsChanged(worker.session, worker.plugins, ()))
    world.run()
    assert world.herder.refused_plugins() == [(BROKEN, ["w2"])]
    world.kill("w2")
    world.advance(20_000)
    assert world.herder.refused_plugins() == []


def test_a_plugin_version_replaced_on_disk_moves_no_running_unit(world: World) -> None:
    worker = world.worker("w3", (LATE,))
    world.ask(CreateConnector("a", {"connector.class": "Late", "connector.plugin.version": "1.0"}))
    before = dict(worker.held)
    assert worker.session is not None
    worker.say(ev.PluginsChanged(worker.session, (replace(LATE, version="2.0"),), ()))
    world.advance(60_000)
    assert {unit: held.assignment for unit, held in worker.held.items()} == {
        unit: held.assignment for unit, held in before.items()
    }
