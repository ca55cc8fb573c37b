"""Offset records: a request id changes offsets once, across changes of leaders and deaths of workers, and no answer
claims more than is known.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from herdmesh.herder.state.calls.offset_records import RECORDED_BYTES_MAX
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import (
    ChangeOffsets,
    CreateConnector,
    OffsetsAnswer,
    OffsetsRecorded,
    SetTarget,
    WriteOptions,
)
from herdmesh.rpc.errors import (
    ConnectorNotStopped,
    NoLeader,
    NoWorker,
    OffsetsRefused,
    RequestIdExpired,
    RequestInvalid,
    Timeout,
    WriteOutcomeUnknown,
)
from herdmesh.session import worker_commands as qu
from herdmesh.session.model import OffsetEntry, TargetState
from services.herder.tests.world import World, sink
from services.herder.tests.world_commands import AWAY, REFUSED
from services.herder.tests.world_store import revision

AT_7 = OffsetEntry('{"filename":"a.txt"}', '{"position":7}')
AT_9 = OffsetEntry('{"filename":"a.txt"}', '{"position":9}')
ALTER = ChangeOffsets("a", (AT_9,))
RESET = ChangeOffsets("a", reset=True)
R1 = WriteOptions(request_id="r1")


@pytest.fixture
def world() -> World:
    """A leader, two workers, and a stopped connector that has an offset."""
    world = World()
    world.lead()
    world.worker("w1")
    world.worker("w2")
    world.advance(4_000)
    world.ask(CreateConnector("a", sink(2)))
    world.advance(1_000)
    target(world, TargetState.STOPPED)
    world.offsets["a"] = [(AT_7,)]
    return world


def target(world: World, wanted: TargetState) -> None:
    world.ask(SetTarget("a", wanted))
    world.advance(1_000)


def another_leads(world: World) -> None:
    world.kill_herder()
    world.lead()
    world.advance(4_000)


def changes(world: World) -> list[qu.AlterOffsets]:
    asked = [one for worker in world.workers.values() for one in worker.answers.asked]
    return [one for one in asked if isinstance(one, qu.AlterOffsets)]


def all_die_after_writing(world: World, *, die: bool) -> None:
    for worker in world.workers.values():
        worker.answers.dies_after_writing = die


# --- a reset returns the offsets that it deleted, whichever worker deleted them


@pytest.mark.parametrize("options", [WriteOptions(), R1])
def test_a_reset_whose_worker_died_after_writing_returns_the_offsets_before(
    world: World, options: WriteOptions
) -> None:
    all_die_after_writing(world, die=True)
    number = world.call(RESET, options, timeout_ms=30_000)
    world.run()
    assert world.offsets == {}
    first = next(
        one for one in world.workers.values() if any(isinstance(each, qu.AlterOffsets) for each in one.answers.asked)
    )
    all_die_after_writing(world, die=False)
    world.kill(first.id)
    world.advance(3_000)
    assert world.answers[number] == OffsetsAnswer((AT_7,), "done")
    assert len(changes(world)) == 2


def test_a_reset_of_unreadable_offsets_is_carried_out(world: World) -> None:
    """Too many for one reply, such as 16 MiB of source partitions."""
    for worker in world.workers.values():
        worker.answers.read_failure = REFUSED
    assert world.ask(RESET, R1) == OffsetsAnswer((AT_7,), "done")
    assert world.offsets == {}


# --- after a change of leader


@pytest.mark.parametrize("request_", [RESET, ALTER])
def test_a_retry_after_a_change_of_leader_gets_the_first_outcome(world: World, request_: ChangeOffsets) -> None:
    """Also while the connector runs, and after it ran and was stopped again: repeating the change would undo later
    commits.
    """
    told = world.ask(request_, R1)
    after = dict(world.offsets)
    another_leads(world)
    target(world, TargetState.STARTED)
    assert world.ask(request_, R1) == told
    target(world, TargetState.STOPPED)
    assert world.ask(request_, R1) == told
    assert (world.offsets, len(changes(world))) == (after, 1)
    with pytest.raises(RequestInvalid, match="used for another change of offsets"):
        world.ask(replace(ALTER, offsets=(AT_7,)), R1)


def test_the_next_leader_repeats_an_unfinished_reset_and_returns_the_offsets_before(world: World) -> None:
    all_die_after_writing(world, die=True)
    world.call(RESET, R1)
    world.run()
    assert world.offsets == {}
    all_die_after_writing(world, die=False)
    another_leads(world)
    assert world.ask(RESET, R1) == OffsetsAnswer((AT_7,), "done")
    assert len(changes(world)) == 2


@pytest.mark.parametrize("meanwhile", ["it ran", "another change", "it runs"])
def test_an_unfinished_change_is_not_repeated_after_another_change(world: World, meanwhile: str) -> None:
    all_die_after_writing(world, die=True)
    world.call(RESET, R1)
    world.run()
    all_die_after_writing(world, die=False)
    another_leads(world)
    if meanwhile == "another change":
        world.ask(ALTER, WriteOptions(request_id="r2"))
    else:
        target(world, TargetState.STARTED)
        world.offsets["a"] = [(AT_9,)]  # committed by its tasks
    if meanwhile == "it ran":
        target(world, TargetState.STOPPED)
    for _ in range(2):
        with pytest.raises(
            WriteOutcomeUnknown, match="a request of this id is on record as having begun to change the offsets of a"
        ):
            world.ask(RESET, R1)
    assert world.offsets == {"a": [(AT_9,)]}


def test_a_leader_that_steps_down_while_it_records_the_end_still_answers(world: World) -> None:
    all_die_after_writing(world, die=True)
    number = world.call(ALTER, R1)
    world.run()
    world.config_delay_ms = 500
    command_id = next(worker.answers.ids[-1] for worker in world.workers.values() if worker.answers.asked)
    session = next(worker.session for worker in world.workers.values() if worker.answers.asked)
    assert session is not None
    world.post(ev.CommandReplied(session, command_id, offsets=OffsetsAnswer((AT_9,), "done")))
    world.run()
    world.post(ev.LeadershipLost("another one leads"))
    world.advance(1_000)
    assert world.answers[number] == OffsetsAnswer((AT_9,), "done")


def test_a_leader_that_steps_down_before_the_command_redirects_the_caller(world: World) -> None:
    world.config_delay_ms = 500
    number = world.call(ALTER, R1)
    world.run()
    world.post(ev.LeadershipLost("another one leads"))
    world.advance(1_000)
    assert isinstance(world.answers[number], NoLeader)
    assert changes(world) == []


def test_a_leader_that_steps_down_while_a_worker_writes_answers_outcome_unknown(world: World) -> None:
    all_die_after_writing(world, die=True)
    number = world.call(ALTER)
    world.run()
    assert world.offsets["a"][-1] == (AT_9,)
    world.post(ev.LeadershipLost("another one leads"))
    world.run()
    error = world.answers[number]
    assert isinstance(error, WriteOutcomeUnknown)
    assert "whether the offsets of a were changed is not known" in error.message


def test_a_leader_under_an_outdated_epoch_begins_no_change(world: World) -> None:
    """Its watch hangs: another leader has given the connector tasks, which a worker that knows only the revision of the
    beginning would not find. That holds also for a request that no worker has carried out, as this leader knows.
    """
    for worker in world.workers.values():
        worker.answers.offset_failure = AWAY
    with pytest.raises(NoWorker):
        world.ask(ALTER, R1)
    asked = len(changes(world))
    world.config.epoch += 1
    for options in (R1, WriteOptions(request_id="r2"), WriteOptions()):
        with pytest.raises(NoLeader):
            world.ask(ALTER, options)
    assert len(changes(world)) == asked


@pytest.mark.parametrize("resumed", [False, True])
def test_a_command_waits_until_the_watch_has_brought_earlier_writes(world: World, *, resumed: bool) -> None:
    world.silent.add("watch")
    if resumed:
        world.config.write(ins.PutTarget(0, "a", TargetState.STARTED, WriteOptions()))  # by an earlier leader
    number = world.call(ALTER, timeout_ms=20_000)
    world.advance(2_000)
    assert (number in world.answers, changes(world)) == (False, [])
    world.silent.clear()
    entry = world.config.entries["a"]
    world.post(ev.ConfigChanged("a", entry, revision(world.config.offset)))
    world.run()
    if resumed:
        assert isinstance(world.answers[number], ConnectorNotStopped)
        assert changes(world) == []
    else:
        assert world.answers[number] == OffsetsAnswer((AT_9,), "done")


def test_a_repeated_beginning_without_a_request_id_is_the_calls_own(world: World) -> None:
    """Its record is written again, and the store has it already. A worker's refusal is then a refusal: no other worker
    had the command before.
    """
    for worker in world.workers.values():
        worker.answers.offset_failure = REFUSED
    world.silent.add("config-out")
    number = world.call(ALTER)
    world.run()
    begun = world.config.beginnings[-1]
    known = OffsetsRecorded(ended=False, response=begun.response, repeated=True)
    world.post(ev.WriteDone(begun.op, revision(world.config.offset), offsets=known))
    world.run()
    assert isinstance(world.answers[number], OffsetsRefused)


def test_deleted_offsets_are_recorded_only_under_a_request_id(world: World) -> None:
    for options in (WriteOptions(), R1):
        world.offsets["a"] = [(AT_7,)]
        world.ask(RESET, options)
    assert [one.response.offsets for one in world.config.beginnings] == [(), (AT_7,)]


# --- refusals


def test_a_refused_change_can_be_retried(world: World) -> None:
    """The CLI retries a refusal because Kafka was unreachable; the connector's own refusal may follow."""
    for failure, refusal in ((AWAY, NoWorker), (REFUSED, OffsetsRefused), (REFUSED, OffsetsRefused)):
        for worker in world.workers.values():
            worker.answers.offset_failure = failure
        with pytest.raises(refusal):
            world.ask(ALTER, R1)
    target(world, TargetState.STARTED)
    with pytest.raises(ConnectorNotStopped):
        world.ask(ALTER, R1)
    target(world, TargetState.STOPPED)
    for worker in world.workers.values():
        worker.answers.offset_failure = None
    assert world.ask(ALTER, R1) == OffsetsAnswer((AT_9,), "done")


def test_a_first_request_is_refused_by_its_state_and_a_dry_run_is_not_recorded(world: World) -> None:
    world.ask(replace(RESET, dry_run=True), R1)
    assert world.config.outcomes.get("r1") is None
    assert world.ask(ALTER, R1) == OffsetsAnswer((AT_9,), "done")
    target(world, TargetState.STARTED)
    with pytest.raises(ConnectorNotStopped):
        world.ask(ALTER, WriteOptions(request_id="r2"))
    with pytest.raises(ConnectorNotStopped):
        world.ask(replace(ALTER, dry_run=True), R1)


def test_an_expired_request_id_changes_no_offsets(world: World) -> None:
    world.config.expired.add("r1")
    with pytest.raises(RequestIdExpired):
        world.ask(RESET, R1)
    assert changes(world) == []


def test_an_end_that_cannot_be_recorded_is_an_unknown_outcome_until_the_retry(world: World) -> None:
    all_die_after_writing(world, die=True)
    number = world.call(ALTER, R1, timeout_ms=3_000)
    world.run()
    world.store_down = True
    command_id = next(worker.answers.ids[-1] for worker in world.workers.values() if worker.answers.asked)
    session = next(worker.session for worker in world.workers.values() if worker.answers.asked)
    assert session is not None
    world.post(ev.CommandReplied(session, command_id, offsets=OffsetsAnswer((AT_9,), "done")))
    world.advance(3_500)
    assert isinstance(world.answers[number], WriteOutcomeUnknown)
    world.store_down = False
    all_die_after_writing(world, die=False)
    assert world.ask(ALTER, R1) == OffsetsAnswer((AT_9,), "done")


def test_a_change_with_too_many_offsets_to_record_is_made_once(world: World) -> None:
    many = tuple(OffsetEntry(f'{{"filename":"{number:0100}"}}', "{}") for number in range(RECORDED_BYTES_MAX // 100))
    request = ChangeOffsets("a", many)
    first = world.ask(request, R1)
    assert isinstance(first, OffsetsAnswer)
    assert len(first.offsets) == len(many)
    again = world.ask(request, R1)
    assert again == OffsetsAnswer((), f"done (its {len(many)} offsets are too many to be returned again)")
    assert len(changes(world)) == 1


@pytest.mark.parametrize("options", [WriteOptions(), R1])
def test_a_worker_gets_the_revision_of_the_beginning(world: World, options: WriteOptions) -> None:
    """Records of the connector from that revision on belong to a later request."""
    begun = world.config.offset + 1
    world.ask(ALTER, options)
    [asked] = changes(world)
    assert asked.revision == revision(begun)
    world.ask(CreateConnector("b", sink(1)))
    world.ask(ALTER, WriteOptions(request_id="r2"))
    last = changes(world)[-1].revision
    assert last is not None
    assert last.next_offsets[0] > begun + 1


# --- time limits


def test_a_worker_has_as_long_as_the_caller_waits(world: World) -> None:
    world.call(ALTER, timeout_ms=90_000)
    world.run()
    world.call(replace(ALTER, dry_run=True), timeout_ms=1_000)
    world.run()
    assert [one.timeout_ms for one in changes(world)] == [88_000, 900]


def test_a_timeout_says_whether_a_worker_may_have_written(world: World) -> None:
    for worker in world.workers.values():
        worker.answers.mute = True
    unknown = world.call(ALTER, timeout_ms=20_000)
    world.advance(19_000)
    assert unknown not in world.answers
    world.advance(1_500)
    error = world.answers[unknown]
    assert isinstance(error, WriteOutcomeUnknown)
    assert "whether the offsets of a were changed is not known" in error.message
    dry = world.call(replace(ALTER, dry_run=True), timeout_ms=1_000)
    looking = world.call(RESET, timeout_ms=1_000)
    world.advance(1_500)
    assert isinstance(world.answers[dry], Timeout)
    assert isinstance(world.answers[looking], Timeout)
