"""Plugin eligibility: units go only to workers that have every plugin of their connector's config."""

from __future__ import annotations

import pytest

from herdmesh.herder.state.model import Plugin, PluginKind
from herdmesh.herder.state.model.requests import CreateConnector, DrainWorker, UpdateConnector, WriteOptions
from herdmesh.session.model import OffsetEntry
from services.herder.tests.world import World, sink
from services.herder.tests.world_worker import SINK, SOURCE

MASKS = [Plugin("org.example.Mask", ("Mask",), PluginKind.TRANSFORMATION, number) for number in ("1.0", "2.0")]
OTHERS = (
    Plugin("org.example.Odd", ("Odd",), PluginKind.PREDICATE, "1.0"),
    Plugin("org.example.TextConverter", ("Text",), PluginKind.CONVERTER, "1.0"),
)
MASKED = {"transforms": "m", "transforms.m.type": "Mask"}
_ODD = {
    "transforms": "m",
    "transforms.m.type": "Nowhere",
    "predicates": " p ,q",
    "predicates.p.type": "org.example.Odd",
}


@pytest.mark.parametrize(
    ("config", "workers"),
    [
        (MASKED, {"w2", "w3"}),
        ({**MASKED, "transforms.m.plugin.version": "1.0"}, {"w2"}),
        ({**MASKED, "transforms.m.plugin.version": "[2.0,)"}, {"w3"}),
        (_ODD, {"w3"}),
        ({"value.converter": "Text"}, {"w3"}),
        ({"header.converter": "Text", **MASKED}, {"w3"}),
        # A class that no worker reported excludes no worker, and neither does a malformed one: the task's failure names
        # it.
        ({**MASKED, "transforms.m.plugin.version": "9.9"}, {"w1", "w2", "w3"}),
        ({"key.converter": "${env:CONVERTER}", "transforms": "m"}, {"w1", "w2", "w3"}),
    ],
)
def test_units_run_only_where_all_plugins_of_their_config_are(config: dict[str, str], workers: set[str]) -> None:
    world = World()
    world.lead()
    for name, more in (("w1", ()), ("w2", MASKS[:1]), ("w3", (MASKS[1], *OTHERS))):
        world.worker(name, (SINK, SOURCE, *more))
    world.ask(CreateConnector("plain", sink(3)))
    world.ask(CreateConnector("a", sink(6, **config)))
    held = {name for name, worker in world.workers.items() if any(unit.connector == "a" for unit in worker.held)}
    assert held == workers
    # A changed config moves running units.
    world.ask(UpdateConnector("plain", sink(3, **config)))
    world.share()
    assert {where for unit, (where, *_) in world.running().items() if unit.connector == "plain"} <= workers


def test_units_wait_for_a_worker_that_had_the_plugin() -> None:
    world = World()
    world.lead()
    world.worker("w1")
    world.worker("w2", (SINK, SOURCE, *MASKS))
    world.ask(CreateConnector("a", sink(2, **MASKED)))
    world.kill("w2")
    world.advance(3_000)
    assert not world.running()
    assert explanation(world) == ("waits for a worker: no connected worker has the plugin TestSink and the plugin Mask")
    world.revive("w2")
    world.share()
    assert {tuple(where) for where in world.running().values()} == {("w2",)}


def test_units_move_when_another_worker_reports_their_missing_plugin() -> None:
    """No worker had reported the class; units that failed for it move to a worker that has it."""
    world = World()
    world.lead()
    world.worker("w1")
    world.ask(CreateConnector("a", sink(2, **MASKED)))
    assert {tuple(where) for where in world.running().values()} == {("w1",)}
    world.worker("w2", (SINK, SOURCE, *MASKS))
    world.share()
    assert {tuple(where) for where in world.running().values()} == {("w2",)}
    world.ask(DrainWorker("w2"), WriteOptions("drain-2"))
    assert explanation(world) == (
        "stays on w2, which drains, until another worker has the plugin TestSink and the plugin Mask"
    )


def test_commands_about_a_config_go_to_a_worker_with_all_its_plugins() -> None:
    world = World()
    world.lead()
    world.worker("w1")
    world.worker("w2", (SINK, SOURCE, *MASKS))
    at_7 = (OffsetEntry('{"filename":"a.txt"}', '{"position":7}'),)
    world.ask(CreateConnector("a", sink(1, **MASKED), initial_offsets=at_7))
    assert [name for name, worker in world.workers.items() if worker.answers.asked] == ["w2"]


def explanation(world: World) -> str:
    view = world.herder.connector("a")
    assert view is not None
    return view.tasks[0].status.explanation
