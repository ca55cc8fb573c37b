"""Builds of the product with one safety switched off, for the tests that show that the simulator finds each.

Owns the switches. They are patches of a test, never flags of the product: each replaces one function by a
plausible mistake. `docs/internals/bugs.md` lists which check finds each.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import PropertyMock, patch

from herdmesh.configstore.state import writes
from herdmesh.configstore.state.election import Election, HeartbeatReceived, SendReserved
from herdmesh.configstore.state.requests import RequestLog
from herdmesh.engine.fencing import task_set_check
from herdmesh.herder.state.calls import initial_offsets, loggers
from herdmesh.herder.state.calls.offset_changes import ChangeOffsetsHandler
from herdmesh.herder.state.handlers import leadership_changes, worker_sessions
from herdmesh.herder.state.leadership import leadership_queries
from herdmesh.herder.state.memory import (
    Agenda,
    Call,
    CallStage,
    Connector,
    Fleet,
    HerderMemory,
    Inventory,
    Leadership,
    Member,
    Step,
    Unit,
)
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import restart_policy
from herdmesh.herder.state.model.requests import OffsetsAnswer
from herdmesh.herder.state.units import balance, handover, lifecycle, task_sets
from herdmesh.herder.state.workers import drains
from herdmesh.session.messages import Message, StartUnit
from herdmesh.session.model import HeldUnit, RunState
from herdmesh.statusstore.state.leases import LeaseTable
from herdmesh.worker.state import events as worker_events
from herdmesh.worker.state.instructions import WriteStatus
from herdmesh.worker.state.machine import WorkerState


def _nothing(*_: object, **__: object) -> None:
    """Replacement for a removed call."""


def _no_fence() -> Generator[None]:
    """A changed task set starts without initialising the ids of tasks that may run on an unreachable worker."""

    def forget(memory: HerderMemory, connector: Connector, entry: Any) -> None:
        connector.unfenced.clear()
        memory.agenda.touch(connector.name)

    with patch.object(task_sets, "_fence", forget):
        yield


def _unverified_claim() -> Generator[None]:
    """A run does not check in the config topic whether its task set is still in force."""

    def never(*_: object) -> bool:
        return False

    with patch.object(task_set_check, "contradicts", never):
        yield


def _stale_epoch() -> Generator[None]:
    """A worker obeys any herder, and a leader accepts workers that have seen a newer one."""
    command = WorkerState._command  # pyright: ignore[reportPrivateUsage]
    hello = worker_sessions.hello

    def obey(self: WorkerState, event: worker_events.Command, now: float) -> Any:
        self.epoch_max = 0
        return command(self, event, now)

    def welcome(memory: HerderMemory, event: ev.WorkerHello) -> None:
        hello(memory, replace(event, epoch_max=0))

    with patch.object(WorkerState, "_command", obey), patch.object(worker_sessions, "hello", welcome):
        yield


def _adoption_by_generation() -> Generator[None]:
    """A claim is adopted, and a placement kept, whatever config and task set it was started with."""

    def matches(entry: Any, unit: Any, assignment: Any) -> bool:
        return handover.is_wanted(entry, unit)

    with ExitStack() as stack:
        for module in (handover, task_sets):
            stack.enter_context(patch.object(module, "matches", matches))
        yield


def _equal_generations() -> Generator[None]:
    """Units are started with the generation of the assignment before."""
    take = Leadership.take_generation

    def repeated(self: Leadership) -> int:
        taken = take(self)
        self._next_generation -= 1  # pyright: ignore[reportPrivateUsage]
        return taken

    with patch.object(Leadership, "take_generation", repeated):
        yield


def _lost_timer() -> Generator[None]:
    """No timer ever wakes anything."""
    with patch.object(Agenda, "wake", _nothing), patch.object(Agenda, "wake_unit", _nothing):
        yield


def _double_start() -> Generator[None]:
    """A unit is started on another worker beside its own."""
    tell = Fleet.send_to

    def twice(self: Fleet, worker_id: str, message: Message) -> bool:
        reached = tell(self, worker_id, message)
        other = next(iter(self.connected()), None)
        if isinstance(message, StartUnit) and other is not None and other.worker_id != worker_id:
            assert other.session is not None
            generation = self._leadership.take_generation()  # pyright: ignore[reportPrivateUsage]
            self.send(other.session, replace(message, assignment=replace(message.assignment, generation=generation)))
        return reached

    with patch.object(Fleet, "send_to", twice):
        yield


def _no_wait_for_acknowledgement() -> Generator[None]:
    """A unit counts as stopped as soon as the stop was sent."""
    stop = handover.stop

    def hasty(fleet: Fleet, inventory: Inventory, connector: Connector, unit: Unit, *args: Any, **named: Any) -> None:
        before = list(unit.superseded)
        stop(fleet, inventory, connector, unit, *args, **named)
        for stray in [stray for stray in unit.superseded if stray not in before]:
            inventory.drop(unit, stray)

    with patch.object(handover, "stop", hasty):
        yield


def _request_id_ignored() -> Generator[None]:
    """The config store does not look up the first outcome of a request."""
    with patch.object(RequestLog, "find", _nothing):
        yield


def _no_budget() -> Generator[None]:
    """A unit that fails is restarted for ever."""
    of = restart_policy.policy_of

    def endless(defaults: Any, config: Any) -> Any:
        return replace(of(defaults, config), attempts_max=1_000_000)

    with patch.object(restart_policy, "policy_of", endless):
        yield


def _double_budget() -> Generator[None]:
    """A unit that fails is restarted twice as often as allowed."""
    of = restart_policy.policy_of

    def generous(defaults: Any, config: Any) -> Any:
        found = of(defaults, config)
        return replace(found, attempts_max=2 * found.attempts_max)

    with patch.object(restart_policy, "policy_of", generous):
        yield


def _unassigned_unwritten() -> Generator[None]:
    """A worker that releases a unit notifies its leader, and does not write the status store."""
    handle = WorkerState.handle

    def silent(self: WorkerState, event: Any, now: float) -> Any:
        return [one for one in handle(self, event, now) if not _says_unassigned(one)]

    with patch.object(WorkerState, "handle", silent):
        yield


def _says_unassigned(instruction: Any) -> bool:
    return isinstance(instruction, WriteStatus) and instruction.state is RunState.UNASSIGNED


def _forgotten_placement() -> Generator[None]:
    """The leader forgets a unit that a worker holds after a broken session and may not keep, before the worker has
    stopped it.
    """
    adopt = worker_sessions._adopt  # pyright: ignore[reportPrivateUsage]

    def forget(memory: HerderMemory, member: Member, holding: HeldUnit, *args: Any, **named: Any) -> bool:
        unit = memory.inventory.connector(holding.unit.connector).unit(holding.unit.task)
        before = list(unit.superseded)
        adopted = adopt(memory, member, holding, *args, **named)
        for stray in [stray for stray in unit.superseded if stray not in before]:
            if stray.assignment == holding.assignment:
                memory.inventory.drop(unit, stray)
        return adopted

    with patch.object(worker_sessions, "_adopt", forget):
        yield


def _drained_gets_work() -> Generator[None]:
    """A draining worker gets units like any other."""
    with patch.object(Member, "takes_work", PropertyMock(return_value=True)):
        yield


def _no_adoption_time() -> Generator[None]:
    """A new leader places all units at once, without waiting for workers that connect with their held units."""

    def nobody(*_: Any) -> bool:
        return False

    with ExitStack() as stack:
        stack.enter_context(patch.object(leadership_queries, "kept_for", nobody))
        stack.enter_context(patch.object(leadership_queries, "adopting", nobody))
        yield


def _leader_for_ever() -> Generator[None]:
    """The config store lets any herder that ever led write task sets."""
    with patch.object(writes, "_require_leader", _nothing):
        yield


def _endless_lease() -> Generator[None]:
    """A worker's lease never ends."""

    def extend(self: LeaseTable, now_ms: int, stalled: bool) -> bool:
        for entry in self._entries.values():  # pyright: ignore[reportPrivateUsage]
            entry.lease = replace(entry.lease, expires_ms=now_ms + 3_600_000)
        return False

    with patch.object(LeaseTable, "_expire", extend):
        yield


def _claims_without_bound() -> Generator[None]:
    """A leader assigns generations outside of its epoch's block, from the start of the previous block."""
    granted = leadership_changes.granted

    def backwards(memory: HerderMemory, event: ev.LeadershipGranted) -> None:
        granted(memory, replace(event, generation_first=1))

    with patch.object(leadership_changes, "granted", backwards):
        yield


def _block_unwritten() -> Generator[None]:
    """A leader that requests more generations gets some that no record reserves."""

    def reserve(_: Election, incumbent: Any, event: HeartbeatReceived) -> list[SendReserved]:
        more = replace(incumbent.leadership, generation_limit=event.reserve_above + 12)
        return [SendReserved(event.session, more)]

    with patch.object(Election, "_reserve", reserve):
        yield


def _statuses_left() -> Generator[None]:
    """Statuses of deleted connectors stay."""
    with patch.object(lifecycle, "_clean_statuses", _nothing):
        yield


def _acknowledged_before_made() -> Generator[None]:
    """A change of offsets is acknowledged once its command was sent to a worker: it is in the leader's memory alone,
    and is lost with the leader.
    """
    written = ChangeOffsetsHandler.on_write_completed

    def hasty(self: ChangeOffsetsHandler, memory: HerderMemory, call: Call, event: ev.WriteDone) -> Any:
        told, request = written(self, memory, call, event), self.request
        if told is None and call.stage is CallStage.CHANGING_OFFSETS:
            return OffsetsAnswer(
                (call.offsets_before or OffsetsAnswer(())).offsets if request.reset else request.offsets
            )
        return told

    with patch.object(ChangeOffsetsHandler, "on_write_completed", hasty):
        yield


def _made_again_by_the_next() -> Generator[None]:
    """A retry of a change of offsets is executed like a new one: only the leader that executed it would know."""
    find = RequestLog.find

    def forgetful(self: RequestLog, request_id: str, asked: tuple[str, str, str], now_ms: int) -> Any:
        return None if asked[0] == "RecordOffsets" else find(self, request_id, asked, now_ms)

    with patch.object(RequestLog, "find", forgetful):
        yield


def _offsets_dropped() -> Generator[None]:
    """A connector is created without the offsets of its create request."""
    answered = initial_offsets.on_reply

    def dropping(memory: HerderMemory, call: Call, *args: Any) -> bool:
        ready = answered(memory, call, *args)
        call.prepared_offsets = None
        return ready

    with patch.object(initial_offsets, "on_reply", dropping):
        yield


def _levels_missed() -> Generator[None]:
    """A worker that connects gets no logger levels."""
    with patch.object(loggers, "catch_up", _nothing):
        yield


def _balance_at_once() -> Generator[None]:
    """Units move for balance as soon as a worker joins, although others may join or leave in a moment."""

    def always(*_: object) -> bool:
        return True

    def nothing_under_way(*_: object) -> int:
        return 0

    with ExitStack() as stack:
        stack.enter_context(patch.object(balance, "_was_calm", always))
        stack.enter_context(patch.object(balance, "in_flight", nothing_under_way))
        yield


def _leaver_accepted() -> Generator[None]:
    """A worker that left connects again before its process has ended, and counts as one that accepts units."""
    on_hello = drains.on_hello

    def forgetful(step: Step, fleet: Fleet, member: Member, before: Member | None, hello: ev.WorkerHello) -> None:
        on_hello(step, fleet, member, before, replace(hello, leaving=False))

    def never(*_: object) -> bool:
        return False

    with ExitStack() as stack:
        stack.enter_context(patch.object(drains, "on_hello", forgetful))
        stack.enter_context(patch.object(Fleet, "has_left", never))
        stack.enter_context(patch.object(WorkerState, "leaving", PropertyMock(return_value=False)))
        yield


def _leavers_not_gathered() -> Generator[None]:
    """Units of a leaving worker move at once to another that leaves a moment later."""

    def never(_: Fleet) -> bool:
        return False

    with patch.object(drains, "gathers_leavers", never):
        yield


def _balance_without_bound() -> Generator[None]:
    """All units that have to move for balance move at once."""
    begin = balance.tick

    def tick(memory: HerderMemory) -> None:
        step = memory.step
        rules, step.rules = step.rules, replace(step.rules, balance_moves_max=1_000)
        begin(memory)
        step.rules = rules

    with patch.object(balance, "tick", tick):
        yield


#: Name -> the build.
MUTANTS: dict[str, Callable[[], Any]] = {
    name: contextmanager(mutant)
    for name, mutant in {
        "no fence before a new task set": _no_fence,
        "task set not verified": _unverified_claim,
        "stale epoch accepted": _stale_epoch,
        "adoption by generation alone": _adoption_by_generation,
        "equal generations": _equal_generations,
        "lost timer": _lost_timer,
        "double start": _double_start,
        "start before the stop is acknowledged": _no_wait_for_acknowledgement,
        "request id ignored": _request_id_ignored,
        "restart budget ignored": _no_budget,
        "restart budget doubled": _double_budget,
        "superseded placement forgotten after a broken session": _forgotten_placement,
        "drained worker gets work": _drained_gets_work,
        "new leader does not wait for workers": _no_adoption_time,
        "leader writes after its epoch": _leader_for_ever,
        "lease never ends": _endless_lease,
        "generations begin anew with an epoch": _claims_without_bound,
        "generations granted before they are reserved": _block_unwritten,
        "statuses of deleted connectors stay": _statuses_left,
        "UNASSIGNED never written": _unassigned_unwritten,
        "logger levels not sent to a worker that connects": _levels_missed,
        "create without its initial offsets": _offsets_dropped,
        "units move for balance at once": _balance_at_once,
        "all units move for balance together": _balance_without_bound,
        "worker that leaves is accepted again": _leaver_accepted,
        "units move to workers that leave next": _leavers_not_gathered,
        "change of offsets acknowledged before it is made": _acknowledged_before_made,
        "change of offsets made again by the next leader": _made_again_by_the_next,
    }.items()
}

#: Found only where somebody changes offsets: in stories from `story.OPERATED` on.
OF_OFFSETS = frozenset(
    {"change of offsets acknowledged before it is made", "change of offsets made again by the next leader"}
)
#: Found once in some hundred stories: searched for by `make soak` alone.
RARE = frozenset({"task set not verified"})
