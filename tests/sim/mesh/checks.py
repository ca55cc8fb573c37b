"""Promises that hold at every moment of a story, with or without faults.

Owns the promises and their names. `verdict` owns those that hold once the faults are over.

Each check looks from outside: at records in the topics, messages on streams, take-overs in the data plane and answers
to callers; never at the beliefs of a state machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from herdmesh.connect.topics import audit_topic, config_topic
from herdmesh.connect.topics.config_records import EpochRecord, RestartRecord
from herdmesh.connect.topics.decoding import Undecodable
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import ChangeOffsets, CreateConnector, Draining, Restarting, Written
from herdmesh.session import messages
from herdmesh.session.messages import SendCommand, StopUnit
from herdmesh.session.model import Assignment, UnitId
from herdmesh.session.worker_commands import SetDraining
from herdmesh.worker.state import events
from tests.sim.mesh.budgets import Budgets
from tests.sim.mesh.clients import Operation, Outcome
from tests.sim.mesh.config_store import AUDIT
from tests.sim.mesh.disturbed import Disturbed
from tests.sim.mesh.truth import Truth

if TYPE_CHECKING:
    from tests.sim.mesh.dataplane import Run
    from tests.sim.mesh.herder import HerderProcess
    from tests.sim.mesh.log import Log
    from tests.sim.mesh.network import Stream
    from tests.sim.mesh.worker import WorkerProcess
    from tests.sim.mesh.world import World

_EPOCH_KEY = config_topic.key_bytes(config_topic.LEADER_KEY)
_RESTART_KEY = b"restart-connector-"
_LATE_TWIN = "refused requests whose late twin was applied"
_UNHEARD = "starts on a worker drained since, which nobody hears"


@dataclass(frozen=True)
class Violation:
    """A broken promise."""

    check: str
    at_ms: int
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text} (at {self.at_ms / 1000:.3f} s)"


@dataclass(frozen=True)
class Start:
    """One StartUnit that a herder sent."""

    at_ms: int
    herder_id: str
    worker: str
    order: tuple[int, int]


class Checker:
    """Checks of the promises during the whole story."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.violations: list[Violation] = []
        #: number of violations that ends the story.
        self.violations_max = 20
        self.counts: Counter[str] = Counter()
        #: operation id -> how often the config store applied it.
        self.applied: Counter[str] = Counter()
        self._applied_ms: dict[str, int] = {}
        #: requests that the config store refused, and those that it applied after that.
        self.refused: set[str] = set()
        self._twins: set[str] = set()
        self.answers: dict[str, Operation] = {}
        self.starts: dict[UnitId, list[Start]] = {}
        self.stops: dict[tuple[UnitId, str], int] = {}
        self.moves = 0
        #: units that were stopped in order to move and have not started since.
        self.moving: set[UnitId] = set()
        self._budgets = Budgets(world)
        self._disturbed = Disturbed(world)
        self._truth = Truth(world)
        #: lives of workers whose drain was confirmed to a caller.
        self.drained: set[str] = set()
        #: worker -> its lives that received a caller's drain, and when last.
        self._noted: dict[str, dict[str, int]] = {}
        #: life of a worker -> the epoch of the leader that first sent it a drain.
        self._noted_epoch: dict[str, int] = {}
        self._looked: dict[str, int] = {}
        self._generations: set[int] = set()
        self._reigns: dict[int, str] = {}
        self._epochs: dict[int, str] = {}
        #: epoch -> the limits of its generations, by the records in the topic.
        self._blocks: dict[int, tuple[int, int]] = {}
        self._orders: dict[tuple[str, int], tuple[int, int]] = {}

    def find(self, check: str, text: str) -> None:
        if len(self.violations) < self.violations_max:
            self.violations.append(Violation(check, self._world.now, text))
            self._world.trace("VIOLATION", "%s: %s", check, text)
        self._world.scheduler.stopped = len(self.violations) >= self.violations_max

    # --- stores

    def stored(self, log: Log) -> None:
        """Handle a transaction in a topic."""
        begin = self._looked.get(log.topic, 0)
        self._looked[log.topic] = len(log.entries)
        for entry in log.entries[begin:]:
            record = entry.record
            if record.topic == AUDIT:
                told = audit_topic.decode(record.key, record.value)
                if not isinstance(told, Undecodable):
                    if told.operation != "RecordOffsets" or told.outcome["ended"]:
                        self._applied(told.caller, told.operation)
                    self._leader_wrote(told.caller, told.operation)
                    self._budgets.written(told.connector)
            elif record.key == _EPOCH_KEY or (record.key or b"").startswith(_RESTART_KEY):
                match config_topic.decode(record.key, record.value):
                    case EpochRecord() as decoded:
                        self._epoch(decoded)
                    case RestartRecord(connector=connector):
                        self._budgets.restart_recorded(connector)
                    case _:
                        pass

    def _applied(self, caller: str, operation: str) -> None:
        if not caller.startswith("client"):
            return
        self.applied[caller] += 1
        self._applied_ms.setdefault(caller, self._world.now)
        if caller in self.refused:
            self._twins.add(caller)
        self.counts["writes applied"] += 1
        if self.applied[caller] > 1:
            self.find("request applied twice", f"{operation} {caller} was applied {self.applied[caller]} times")
        known = self.answers.get(caller)
        if known is not None and known.outcome is Outcome.REFUSED:
            # A duplicate of the request, made by the network or a retry, met another state than the refused one.
            self.counts[_LATE_TWIN] += 1

    def _leader_wrote(self, caller: str, operation: str) -> None:
        """Check that only the herder of the newest epoch writes task sets, counts and keys."""
        newest = self._epochs.get(max(self._epochs, default=0), "")
        if caller.startswith("herder ") and caller != f"herder {newest}":
            self.find("one effective leader", f"{operation} of {caller} was applied, and {newest} leads")

    def _epoch(self, record: EpochRecord) -> None:
        before = self._epochs.setdefault(record.epoch, record.leader_id)
        if before != record.leader_id:
            self.find("one leader per epoch", f"epoch {record.epoch} was given to {before} and to {record.leader_id}")
        spent = max((limit for _, limit in self._blocks.values()), default=1)
        if record.next_generation <= spent:
            self.find("generations never go back", f"{record} after {spent - 1} was reserved")
        if record.epoch in self._blocks and record.epoch < max(self._epochs):
            self.find("one effective leader", f"{record} reserves generations for an epoch that is over")
        self.counts["blocks reserved" if record.epoch in self._blocks else "epochs"] += 1
        first, _ = self._blocks.get(record.epoch, (spent, 0))
        self._blocks[record.epoch] = (first, record.next_generation)

    # --- callers

    def answered(self, operation: Operation) -> None:
        """Handle the answer to a client."""
        self.answers[operation.id] = operation
        self.counts[f"requests {operation.outcome.value}"] += 1
        applied = self.applied[operation.id]
        if (
            operation.outcome is Outcome.ACKNOWLEDGED
            and isinstance(operation.answer, Written | Draining)
            and not applied
        ):
            self.find("acknowledged, not in effect", f"{operation.id} {operation.request}")
        before = operation.id in self._twins or operation.decided_ms < self._applied_ms.get(operation.id, 0)
        if operation.outcome is Outcome.REFUSED and applied and before:
            # A duplicate was applied while the refusal was in flight: see `_applied`.
            self.counts[_LATE_TWIN] += 1
        elif operation.outcome is Outcome.REFUSED and applied:
            self.find("wrong answer", f"{operation.id} was applied and is refused: {operation.answer!r}")
        if isinstance(operation.answer, Restarting):
            self.counts["restarts acknowledged"] += 1
        if isinstance(operation.request, ChangeOffsets):
            acknowledged, refused = (operation.outcome is one for one in (Outcome.ACKNOWLEDGED, Outcome.REFUSED))
            self._world.dataplane.offsets.answered(operation, acknowledged=acknowledged, refused=refused)
        if isinstance(operation.request, CreateConnector) and operation.request.initial_offsets:
            self._world.dataplane.offsets.create_answered(operation, applied=bool(applied))
        if isinstance(operation.answer, Draining):
            self._told_drained(operation, operation.answer)

    def _told_drained(self, operation: Operation, answer: Draining) -> None:
        """A drain applies to the life of the worker that received it during the request. It is recorded afterwards,
        possibly when that life is over and the next one, which received no drain, has begun.
        """
        noted = self._noted.get(answer.worker_id, {})
        lives = {life for life, noted_ms in noted.items() if noted_ms >= operation.begun_ms}
        if not lives:
            self.find("acknowledged, not in effect", f"{operation.id}: {answer.worker_id} took no note of its drain")
        self.drained |= lives

    # --- sessions

    def sent(self, herder: HerderProcess, sent: ins.Send, stream: Stream) -> None:
        """Handle a herder's message to a worker."""
        reigns = self._reigns.setdefault(sent.epoch, herder.herder_id)
        granted = self._epochs.get(sent.epoch)
        if reigns != herder.herder_id or granted != herder.herder_id:
            text = f"{herder.herder_id} speaks under epoch {sent.epoch} of {granted}, and {reigns} did"
            self.find("one leader per epoch", text)
        worker = stream.near.process
        match sent.message:
            case messages.StartUnit():
                start = sent.message
                self._world.trace(herder.name, "start %s on %s %s", start.unit, worker.name, start.assignment)
                self._started(herder, sent.epoch, start, stream)
            case messages.StopUnit(unit=unit, assignment=assignment, reason=reason):
                self._world.trace(herder.name, "stop %s on %s: %s", unit, worker.name, reason)
                self.stops.setdefault((unit, worker.name), self._world.now)
                if reason == "a restart was requested":
                    self._budgets.restart_asked(unit, assignment)
                if reason.startswith("it failed"):
                    self._restarted(herder, unit, assignment)
                if reason.startswith("moves to "):
                    self.moving.add(unit)
                    self._disturbed.moved(herder, sent.epoch, cast("WorkerProcess", worker), unit, reason)
                self.moves += 1
            case messages.Heartbeat():
                pass
            case messages.SendCommand(command=SetDraining(draining=draining)):
                self._disturbed.told_draining(herder, cast("WorkerProcess", worker), draining=draining)
            case messages.Welcome(adopted=adopted):
                self._world.trace(herder.name, "to %s: %s", worker.name, sent.message)
                self._disturbed.welcomed(herder, cast("WorkerProcess", worker), sent.session)
                if sent.epoch == max(self._epochs, default=0):
                    self._adopted(cast("WorkerProcess", worker), adopted)
            case _:
                self._world.trace(herder.name, "to %s: %s", worker.name, sent.message)

    def _adopted(self, worker: WorkerProcess, adopted: tuple[UnitId, ...]) -> None:
        """A later start that was lost is superseded by the adopted assignment: that counts as the newest from here
        on.
        """
        for one in worker.state.held_units():
            if one.unit.task is not None and UnitId(one.unit.connector, one.unit.task) in adopted:
                self._orders[one.unit.connector, one.unit.task] = one.assignment.order

    def _started(self, herder: HerderProcess, epoch: int, start: messages.StartUnit, stream: Stream) -> None:
        self.counts["starts"] += 1
        self.moves += 1
        self._disturbed.started(herder, cast("WorkerProcess", stream.near.process), start.unit)
        unit, order, worker_name = start.unit, start.assignment.order, stream.near.process.name
        self.moving.discard(unit)
        earlier = self.starts.setdefault(unit, [])
        first, limit = self._blocks.get(epoch, (0, 0))
        if order[0] != epoch or not first <= order[1] < limit:
            self.find("generations never go back", f"{unit} starts with {order} under epoch {epoch}")
        if order[1] in self._generations:
            self.find("generations never go back", f"{unit}: generation {order[1]} was given out before")
        same_reign = [one for one in earlier if one.order[0] == epoch]
        if same_reign and max(one.order for one in same_reign) >= order:
            self.find("generations never go back", f"{unit} starts with {order} after {same_reign[-1].order}")
        self._generations.add(order[1])
        earlier.append(Start(self._world.now, herder.herder_id, worker_name, order))
        for other in self._world.workers:
            if self.hears(other, herder) and self._holds(other, unit) and not self._timed_out(unit, other):
                same = "again" if other.name == worker_name else f"while {other.name} has it"
                self.find("one owner", f"{herder.name} starts {unit} on {worker_name} {same}, and hears from it")
            if other.name == worker_name and other.alive and other.incarnation in self.drained:
                if self._cannot_know(epoch, other, stream):
                    self.counts[_UNHEARD] += 1
                else:
                    self.find("drained worker gets no work", f"{unit} starts on {other.name}, drained before")

    def _cannot_know(self, epoch: int, worker: WorkerProcess, stream: Stream) -> bool:
        """A leader whose machine slept continues with an old stream: the worker left it, and was drained by a later
        leader. The start reaches no worker. Over a stream that the worker has not left, the start is a violation,
        whichever herder sends it.
        """
        return epoch < self._noted_epoch.get(worker.incarnation, 0) and not stream.whole

    def handed(self, herder: HerderProcess, event: ev.Event) -> None:
        """Handle an event that a herder is about to process."""
        self._disturbed.handed(herder, event)
        self._budgets.handed(herder, event)

    def _restarted(self, herder: HerderProcess, unit: UnitId, assignment: Assignment) -> None:
        self.counts["restarts by policy"] += 1
        wrong = self._budgets.restarted(herder, unit, assignment)
        if wrong:
            self.find("restart budget kept", wrong)

    def hears(self, worker: WorkerProcess, herder: HerderProcess) -> bool:
        """Both ends of their session are open, and the worker has been welcomed."""
        if not worker.alive or not worker.session.welcomed:
            return False
        stream = worker.session.stream
        return stream is not None and stream.whole and herder.session_of(stream)

    def _holds(self, worker: WorkerProcess, unit: UnitId) -> bool:
        # With its state: a unit being released has reported so, and must not be overtaken either.
        return any(one.unit == unit for one in worker.state.held_units())

    def _timed_out(self, unit: UnitId, worker: WorkerProcess) -> bool:
        """Stopped so long ago that the herder counts it as lost."""
        stopped_ms = self.stops.pop((unit, worker.name), None)
        if stopped_ms is None:
            return False
        rules = self._world.rules("")
        if self._world.now - stopped_ms >= rules.stop_timeout_ms - 1_000:
            return True
        self.stops[unit, worker.name] = stopped_ms
        return False

    def commanded(self, worker: WorkerProcess, event: events.Command) -> None:
        """Deliver a command to a worker: one of an older leader must change nothing."""
        before, held = worker.state.epoch_max, None
        if event.epoch < before:
            self.counts["stale commands"] += 1
            held = worker.state.held_units()
        worker.handle(event)
        if held is not None and (worker.state.held_units() != held or worker.state.epoch_max < before):
            self.find("stale epoch refused", f"{worker.name} obeys epoch {event.epoch} after {before}: {event}")
        message = event.message
        drains = (
            isinstance(message, SendCommand) and bool(message.command_id) and isinstance(message.command, SetDraining)
        )
        if drains and worker.state.draining:
            self._noted.setdefault(worker.name, {})[worker.incarnation] = self._world.now
            self._noted_epoch.setdefault(worker.incarnation, event.epoch)
        if isinstance(message, StopUnit) and not self._holds(worker, message.unit):
            self.stops.pop((message.unit, worker.name), None)

    # --- the data plane

    def took_over(self, run: Run) -> None:
        """Handle a run's initialisation of its id."""
        self.counts["take-overs"] += 1
        world = self._world
        world.trace("data", "%s takes over on %s", run, run.worker.name)
        owners = world.dataplane.owners[run.task_id]
        if len(owners) > 1:
            self.find("one owner past the fence", " and ".join(map(str, owners)))
        order, newest = run.assignment.order, self._orders.get(run.task_id, (0, 0))
        if order[0] == max(self._epochs, default=0):
            # No other process could know of a start by a leader whose time is over.
            self._orders[run.task_id] = max(order, newest)
        if order < newest and not run.stopping and self._knows_better(run, newest):
            self.find("newest owner wins", f"{run} on {run.worker.name} takes over after {newest}")

    def moves_records(self, run: Run) -> None:
        """Handle a run that has verified its claim. Runs of two task sets never move records side by side, for a task
        of each may own the same partition.
        """
        for other in self._world.dataplane.all_owners():
            if other.moves and other.unit.connector == run.unit.connector and other.task_set != run.task_set:
                older, newer = sorted((run, other), key=lambda one: one.assignment.order)
                self.find("one task set past the fence", f"{newer} beside {older} of {older.worker.name}")

    def _knows_better(self, run: Run, newest: tuple[int, int]) -> bool:
        """Its worker is in a session with a leader of that epoch or a later one."""
        worker = run.worker
        if worker.life != run.worker_life or worker.state.epoch_max < newest[0]:
            return False
        return any(self.hears(worker, herder) for herder in self._world.herders if herder.leads)

    def fenced(self, connector: str, task_count: int) -> None:
        """Handle a worker's initialisation of ids for the leader."""
        self.counts["fences"] += 1
        self._world.trace("data", "ids 0 to %s of %s are fenced", task_count - 1, connector)

    def altered(self, connector: str) -> None:
        """Handle a worker's write of offsets that came with a create: no run of an earlier life may write them too."""
        self.counts["offsets altered"] += 1
        for run in self._world.dataplane.all_owners():
            if run.moves and run.unit.connector == connector:
                self.find("offsets altered under a run", f"{run} on {run.worker.name}")

    # --- checked every half second

    def look(self) -> None:
        """Compare displayed states with real ones."""
        self._truth.look()
