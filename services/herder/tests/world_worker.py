"""Worker of the herder's test world: speaks the session protocol, and carries out commands at once.

Owns its units. Invariant: a broken stream and a dead herder change nothing of them; only a stop, a welcome that does
not adopt, and its own death do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from herdmesh.connect.task_counts import NO_COUNTS, ErrorCounts, TaskCounts
from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.herder.state.model import Plugin, PluginKind, RefusedPlugin, RestartNote, TaskProgress, Validation
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.rpc.errors import FieldViolation
from herdmesh.session import messages
from herdmesh.session import worker_commands as qu
from herdmesh.session.model import Assignment, Failure, HeldUnit, Properties, RunState, TargetState, UnitId
from services.herder.tests.world_commands import Answers

if TYPE_CHECKING:
    from services.herder.tests.world import World

SINK = Plugin("herdmesh.TestSink", ("TestSink",), PluginKind.SINK, "1.0")
SOURCE = Plugin("org.example.TestSource", ("TestSource",), PluginKind.SOURCE, "1.0")

_RUN_STATES = {
    TargetState.STARTED: RunState.RUNNING,
    TargetState.PAUSED: RunState.PAUSED,
    TargetState.STOPPED: RunState.STOPPED,
}


@dataclass
class Held:
    """A unit on its worker."""

    assignment: Assignment
    state: RunState
    target: TargetState
    task_count: int
    failure: Failure | None = None
    starts: int = 1
    since_ms: int = 0
    note: RestartNote | None = None
    commit_scope: CommitScope | None = None
    """As it was sent with the start; it is in every status of the unit, until its next commit."""
    counts: TaskCounts = NO_COUNTS

    @property
    def task_set(self) -> str:
        """Its task set: incarnation and task set version."""
        return f"{self.assignment.incarnation}/{self.assignment.task_digest.partition(':')[0]}"


@dataclass
class Worker:
    """A worker that carries out commands at once (the world's delays make it slow)."""

    id: str
    world: World
    plugins: tuple[Plugin, ...] = (SINK, SOURCE)
    life: int = 1
    alive: bool = True
    #: neither receives nor sends, but runs on; messages on its stream wait.
    frozen: bool = False
    session: int | None = None
    #: the session of the last welcome: only after it does the worker follow this leader.
    welcomed: int | None = None
    backlog: list[ins.Send] = field(default_factory=list[ins.Send])
    held: dict[UnitId, Held] = field(default_factory=dict[UnitId, Held])
    epoch_max: int = 0
    stop_silently: bool = False
    #: it never reports the start of a unit.
    start_silently: bool = False
    #: units that it is releasing now, on command or by itself.
    stopping: set[UnitId] = field(default_factory=set[UnitId])
    draining: bool = False
    released: bool = False
    #: its hello says that it leaves.
    leaving: bool = False
    #: plugins in its folders that cannot be used; None = it has no plugin folders.
    refused: tuple[RefusedPlugin, ...] | None = None
    #: plugins it finds when it has to validate.
    installed_late: tuple[Plugin, ...] = ()
    fail_starts: Failure | None = None
    fence_failure: Failure | None = None
    #: the kind of commands to which it does not reply for now, and the waiting ones.
    deaf_to: type | None = None
    unanswered: list[ins.Send] = field(default_factory=list[ins.Send])
    #: it keeps units that a welcome did not adopt: a worker that does not stop in time.
    keeps_all: bool = False
    fences: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    log: list[str] = field(default_factory=list[str])
    answers: Answers = field(default_factory=Answers)

    @property
    def incarnation(self) -> str:
        return f"{self.id}-life-{self.life}"

    def dial(self) -> None:
        """Open a session with the leader."""
        if not self.alive or self.frozen or self.released:
            return
        self.session = self.world.new_session(self)
        held_units = tuple(
            HeldUnit(unit, held.assignment, held.state, held.failure, unit in self.stopping)
            for unit, held in sorted(self.held.items(), key=lambda item: item[0].order)
        )
        self.say(
            ev.WorkerHello(
                self.session,
                self.id,
                self.incarnation,
                f"{self.id}:1",
                8,
                self.plugins,
                held_units,
                self.epoch_max,
                self.draining,
                self.answers.logger_revision,
                self.leaving,
                self.refused or (),
                self.refused is not None,
            )
        )

    @property
    def reachable(self) -> bool:
        """True when its units are those that the current leader gave or adopted."""
        welcomed = self.session is not None and self.welcomed == self.session
        return self.alive and not self.frozen and welcomed and self.session not in self.world.closed

    def leave(self) -> None:
        """Tell the leader that this worker stops."""
        assert self.session is not None
        self.say(ev.WorkerLeft(self.session))

    def thaw(self) -> None:
        """Continue: handle the waiting messages, or find the stream gone."""
        self.frozen = False
        backlog, self.backlog = self.backlog, []
        for sent in backlog:
            if sent.session == self.session:
                self.hear(sent)

    def say(self, event: ev.Event) -> None:
        if self.session is not None and self.alive and not self.frozen:
            self.world.from_worker(self, event)

    def beat(self) -> None:
        if self.session is not None:
            self.say(ev.WorkerHeartbeat(self.session))

    def move(self, unit: UnitId, records: int, *, told: bool = True) -> None:
        """Move records in a held task; `told`: the leader gets the task's counts with a heartbeat."""
        held = self.held[unit]
        held.counts += TaskCounts(records, records, 0, ErrorCounts(failures=1))
        if told:
            self.tell_counts()

    def tell_counts(self) -> None:
        """Send the counts of all held tasks, as a worker does in a new session."""
        assert self.session is not None
        tasks = (TaskProgress(unit, counts=held.counts) for unit, held in self.held.items() if unit.task is not None)
        self.say(ev.WorkerHeartbeat(self.session, tuple(tasks)))

    def hear(self, sent: ins.Send) -> None:
        """Carry out one message."""
        if sent.epoch < self.epoch_max:
            return
        self.epoch_max = sent.epoch
        session = sent.session
        match sent.message:
            case messages.Welcome(adopted=adopted):
                self.welcomed = session
                for unit in [unit for unit in self.held if unit not in adopted and not self.keeps_all]:
                    gone = self.held.pop(unit)
                    self.say(ev.UnitReported(session, unit, gone.assignment, RunState.UNASSIGNED, counts=gone.counts))
            case messages.StartUnit():
                self._start(session, sent.message, sent.note)
            case messages.StopUnit(unit=unit, assignment=assignment):
                if self.stop_silently:
                    return
                counts: TaskCounts | None = None
                if unit in self.held and self.held[unit].assignment == assignment:
                    self.log.append(f"stop {unit}")
                    counts = self.held.pop(unit).counts
                self.say(ev.UnitReported(session, unit, assignment, RunState.UNASSIGNED, counts=counts))
            case messages.SetUnitTarget(unit=unit, target=target):
                held = self.held.get(unit)
                stops = unit.task is None and target is TargetState.STOPPED
                if held is not None and (stops or held.state is not RunState.FAILED):
                    held.target, held.state = target, _RUN_STATES[target]
                    self.world.took_over(unit, held.state)
                    self.say(ev.UnitReported(session, unit, held.assignment, held.state))
            case messages.RequestTaskConfigs(connector=connector, assignment=assignment):
                tasks, failure = self.world.make_tasks(connector)
                self.say(ev.TaskConfigsMade(session, connector, assignment, tasks, failure))
            case messages.SendCommand(command=body) if self.deaf_to is not None and isinstance(body, self.deaf_to):
                self.unanswered.append(sent)
            case messages.SendCommand(command_id=command_id, command=body):
                reply = self._answer(ev.CommandReplied(session, command_id), body)
                if reply is not None and command_id:
                    self.say(reply)
            case messages.Heartbeat() | messages.SetRate():
                pass  # no records move here, so no rate is limited
            case messages.Released():
                self.released = True

    def _answer(self, reply: ev.CommandReplied, body: qu.WorkerCommand) -> ev.CommandReplied | None:
        match body:
            case qu.FenceTasks(connector=connector, task_count=task_count):
                self.fences.append((connector, task_count))
                if self.fence_failure is not None:
                    return replace(reply, failure=self.fence_failure)
                self.world.fenced_ms.update({(connector, task): self.world.now for task in range(task_count)})
                return reply
            case qu.SetDraining(draining=draining):
                self.draining = draining
                return reply
            case qu.ValidateOnWorker(config=config):
                if self.installed_late:
                    self.plugins, self.installed_late = (*self.plugins, *self.installed_late), ()
                    assert self.session is not None
                    self.say(ev.PluginsChanged(self.session, self.plugins, self.refused or ()))
                return replace(reply, validation=validation_of(config))
            case _:
                return self.answers.reply(self.world, reply, body)

    def _start(self, session: int, start: messages.StartUnit, note: RestartNote | None) -> None:
        self.log.append(f"start {start.unit}")
        state = RunState.FAILED if self.fail_starts is not None else _RUN_STATES[start.target]
        starts = self.held[start.unit].starts + 1 if start.unit in self.held else 1
        held = Held(start.assignment, state, start.target, start.task_count, self.fail_starts, starts)
        self.held[start.unit] = held
        held.since_ms = self.world.now
        held.note = note
        held.commit_scope = start.commit_scope
        held.counts = start.counts
        self.world.started(self, start)
        if not self.start_silently:
            self.say(ev.UnitReported(session, start.unit, start.assignment, state, self.fail_starts))


def validation_of(config: Properties) -> Validation:
    """A worker's verdict: a config with `wrong` is refused."""
    if "wrong" in config:
        return Validation((FieldViolation("wrong", "must not be set"),), wire=config)
    return Validation(wire=config)
