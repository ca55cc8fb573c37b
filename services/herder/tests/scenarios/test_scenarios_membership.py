"""Scenarios of Connect's `DistributedHerderTest` about membership, restated for sessions and moves.

docs/internals/connect-scenarios.md says which test stands for which.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state.model import ConnectorEntry
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import CreateConnector, RestartConnector, UpdateConnector
from herdmesh.rpc.errors import NoLeader
from herdmesh.session import messages
from herdmesh.session.messages import RequestTaskConfigs, StopUnit
from herdmesh.session.model import Failure, RunState, UnitId
from services.herder.tests.world import World, sink
from services.herder.tests.world_store import revision

CONFIG_ERROR = Failure("no such host", "Traceback", ErrorClass.BAD_CONFIG)


class Watched(World):
    """A world that records the messages to workers."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[ins.Send] = []

    def _carry_out(self, instruction: ins.Instruction) -> None:
        if isinstance(instruction, ins.Send):
            self.sent.append(instruction)
        super()._carry_out(instruction)

    def asked_for_task_configs(self) -> list[str]:
        messages = [sent.message for sent in self.sent]
        return [message.connector for message in messages if isinstance(message, RequestTaskConfigs)]


@pytest.fixture
def world() -> Watched:
    """A leader and one worker."""
    world = Watched()
    world.lead()
    world.worker("w1")
    return world


def stored(world: World, name: str, tasks_max: int = 2) -> ConnectorEntry:
    """A connector as another client of the config store writes it."""
    config = {**sink(tasks_max), "name": name}
    entry = ConnectorEntry(name, config=config, config_revision=world.config.next(), incarnation=f"{name}-life")
    world.config.entries[name] = entry
    return entry


def units(world: World, since: int = 0) -> list[str]:
    return [str(start.unit) for _, start in world.starts[since:]]


def test_units_start_after_the_config_was_read_and_task_configs_were_created(world: Watched) -> None:
    world.kill_herder()
    entry = stored(world, "a")
    world.lead()
    world.advance(7_000)
    assert units(world) == ["a", "a-0", "a-1"]
    assert world.starts[0][1].connector_config == entry.config
    assert world.asked_for_task_configs() == ["a"]


def test_a_new_member_without_units_gets_later_units_once(world: Watched) -> None:
    assert world.workers["w1"].held == {}
    world.ask(CreateConnector("a", sink(2)))
    world.advance(10_000)
    assert units(world) == ["a", "a-0", "a-1"]


def test_a_member_that_releases_units_needs_no_second_round(world: Watched) -> None:
    world.ask(CreateConnector("a", sink(4)))
    since, told = len(world.starts), len(world.sent)
    world.worker("w2")
    world.share()
    stops = [sent.message for sent in world.sent[told:] if isinstance(sent.message, StopUnit)]
    assert len(stops) == len(units(world, since)) == 2
    told = len(world.sent)
    world.advance(30_000)
    assert {type(sent.message) for sent in world.sent[told:]} == {messages.Heartbeat}


def test_units_that_stop_late_move_once_and_no_others_move_instead(world: Watched) -> None:
    """1. w2 joins; 2. the units that are to move to it do not stop for 10 s; 3. their worker kills them, and reports
    it.
    """
    world.ask(CreateConnector("a", sink(4)))
    since, told = len(world.starts), len(world.sent)
    owner = world.workers["w1"]
    owner.stop_silently = True
    world.worker("w2")
    world.advance(10_000)
    assert units(world, since) == []
    stops = [sent.message.unit for sent in world.sent[told:] if isinstance(sent.message, StopUnit)]
    assert len(set(stops)) == len(stops) == 2
    owner.stop_silently = False
    for unit in stops:
        world.release(owner, unit)
    world.advance(10_000)
    assert sorted(world.workers["w2"].held, key=str) == sorted(stops, key=str)
    assert len(units(world, since)) == 2


def test_a_connector_that_failed_to_start_gets_no_task_config_request(world: Watched) -> None:
    world.ask(CreateConnector("a", sink(2)))
    world.workers["w1"].fail_starts = CONFIG_ERROR
    asked = len(world.asked_for_task_configs())
    world.ask(RestartConnector("a"))
    world.advance(1_000)
    view = world.herder.connector("a")
    assert view is not None
    assert view.status.state is RunState.FAILED
    assert len(world.asked_for_task_configs()) == asked
    assert [task.status.state for task in view.tasks] == [RunState.RUNNING] * 2, "its tasks go on"


def test_a_moved_connector_is_stopped_once_and_started_twice(world: Watched) -> None:
    world.ask(CreateConnector("a", sink(1)))
    world.ask(CreateConnector("b", sink(1)))
    world.worker("w2")
    world.share()
    moved = units(world)[-2:]
    log = [line for worker in world.workers.values() for line in worker.log]
    for unit in moved:
        assert log.count(f"start {unit}") == 2
        assert log.count(f"stop {unit}") == 1


def test_a_move_is_carried_out_although_an_earlier_one_never_ended(world: Watched) -> None:
    """1. A unit is to move to w2, and w1 does not acknowledge its stop; 2. w3 joins, and gets its share."""
    world.ask(CreateConnector("a", sink(6)))
    world.workers["w1"].stop_silently = True
    world.worker("w2")
    world.advance(2_000)
    assert world.placed()["w2"] == 0
    world.workers["w1"].stop_silently = False
    since = len(world.starts)
    world.worker("w3")
    world.advance(
        40_000
    )  # unacknowledged stops on w1 count as lost after the stop timeout; until then nothing else moves
    world.share()
    assert {name for name, _ in world.starts[since:]} == {"w2", "w3"}
    assert sorted(world.placed()[name] for name in ("w2", "w3")) == [2, 2]


def test_a_stopping_worker_releases_its_units_and_leaves_no_trace(world: Watched) -> None:
    world.ask(CreateConnector("a", sink(3)))
    leaver = world.workers["w1"]
    assert leaver.session is not None
    leaver.say(ev.WorkerLeft(leaver.session))
    world.run()
    assert leaver.released
    assert leaver.held == {}
    assert {status.state for status in world.statuses.values()} == {RunState.UNASSIGNED}
    assert world.herder.workers() == ()


def test_a_config_of_another_client_is_started(world: Watched) -> None:
    entry = stored(world, "a")
    world.post(ev.ConfigChanged("a", entry, entry.config_revision))
    world.run()
    assert units(world) == ["a", "a-0", "a-1"]


def test_a_config_that_arrives_twice_starts_once(world: Watched) -> None:
    entry = stored(world, "a")
    world.post(ev.ConfigChanged("a", entry, entry.config_revision))
    world.post(ev.ConfigChanged("a", entry, entry.config_revision))
    world.run()
    world.post(ev.ConfigSnapshot([*world.config.entries.values()], revision(world.config.offset), world.config.epoch))
    world.run()
    assert units(world) == ["a", "a-0", "a-1"]


def test_a_larger_task_set_starts_its_new_tasks(world: Watched) -> None:
    world.ask(CreateConnector("a", sink(2)))
    world.ask(UpdateConnector("a", sink(3)))
    assert set(world.workers["w1"].held) == {UnitId("a"), *(UnitId("a", task) for task in range(3))}


def test_a_leader_that_cannot_read_the_configs_stops_nothing(world: Watched) -> None:
    world.ask(CreateConnector("a", sink(2)))
    held = dict(world.workers["w1"].held)
    world.kill_herder()
    since = len(world.starts)
    world.post(ev.StatusSnapshot(list(world.statuses.values())))
    world.post(ev.LeasesChanged(world.leases()))
    world.post(ev.LeadershipGranted(9, 9_000, 10_000, world.now + 20_000, "h1", "here:1"))
    world.advance(19_000)
    assert isinstance(world.herder.refusal, NoLeader), "the record of its epoch has not come through the watch"
    world.advance(2_000)  # its lease ends; another may lead
    world.lead()
    world.advance(10_000)
    assert world.workers["w1"].held == held
    assert len(world.starts) == since


def test_a_leader_that_reads_the_configs_late_leads_from_then_on(world: Watched) -> None:
    world.ask(CreateConnector("a", sink(2)))
    world.kill_herder()
    since = len(world.starts)
    world.post(ev.StatusSnapshot(list(world.statuses.values())))
    world.post(ev.LeasesChanged(world.leases()))
    world.config.epoch = 9
    world.post(ev.LeadershipGranted(9, 9_000, 10_000, 10**12, "h1", "here:1"))
    world.advance(5_000)
    entries = [*world.config.entries.values()]
    world.post(ev.ConfigSnapshot(entries, revision(world.config.offset), epoch=9))
    world.advance(2_000)
    assert world.herder.refusal is None
    assert len(world.starts) == since
    view = world.herder.connector("a")
    assert view is not None
    assert [task.status.state for task in view.tasks] == [RunState.RUNNING] * 2


def test_a_worker_that_is_slow_to_start_delays_no_other(world: Watched) -> None:
    """Connect's slow connector shortens the poll of its worker; here nothing waits for it."""
    world.worker("w2")
    world.workers["w1"].frozen = True
    for name in ("a", "b"):
        entry = stored(world, name, tasks_max=2)
        world.post(ev.ConfigChanged(name, entry, entry.config_revision))
    world.run()
    assert {str(unit) for unit in world.workers["w2"].held} == {"b", "b-1"}, "the other's share waits for w1 alone"
    told = len(world.sent)
    world.advance(3_000)
    beats = [sent.session for sent in world.sent[told:] if isinstance(sent.message, messages.Heartbeat)]
    assert beats.count(world.workers["w2"].session or 0) == 3, "the herder says that it lives every second all along"


def test_an_incomplete_task_set_is_created_anew(world: Watched) -> None:
    """Compaction can leave such a set of Connect (KAFKA-17719)."""
    world.ask(CreateConnector("a", sink(2)))
    entry = world.config.entries["a"]
    world.config.entries["a"] = replace(entry, tasks=(), task_digests=(), inconsistent=True)
    world.kill_herder()
    world.lead()
    world.advance(10_000)
    view = world.herder.connector("a")
    assert view is not None
    assert [task.status.state for task in view.tasks] == [RunState.RUNNING] * 2
    assert world.config.commits == ["a", "a"]
