"""A worker's process: the real state and loop's dispatch, session and status client over the simulated network.

Re-implements the parts that need an event loop, Spark or Kafka: dialling and heartbeats (`effects.session`), the order
of status writes (`effects.statuses`), the calls of authors' connectors, fencing and validation, and the watch of idle
tasks. The messages and the instructions' dispatch are the product's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from herdmesh.api.common.v1 import connector_pb2, identity_pb2
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import offset_messages_pb2 as offset_pb
from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb
from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state.model.requests import OffsetsAnswer
from herdmesh.rpc import properties, revisions
from herdmesh.rpc.errors import HerdmeshError, NotLeader, RequestInvalid
from herdmesh.rpc.properties import texts
from herdmesh.session import wire as session_wire
from herdmesh.session import worker_commands
from herdmesh.session.messages import Heartbeat, Released
from herdmesh.session.model import Failure, UnitId
from herdmesh.worker.effects.stores.statuses import StatusClient
from herdmesh.worker.loop import WorkerLoop
from herdmesh.worker.state import TaskLimits, WorkerLimits, WorkerState, events, instructions
from herdmesh.worker.state.levels import Levels
from tests.sim.mesh.dataplane import Run
from tests.sim.mesh.network import Stream
from tests.sim.mesh.node import Node
from tests.sim.mesh.offsets import prepared, told
from tests.sim.mesh.scheduler import Pump

if TYPE_CHECKING:
    from tests.sim.mesh.world import World

PLUGIN = connector_pb2.Plugin(class_name="Sink", kind=connector_pb2.PLUGIN_KIND_SINK, version="1")
OTHER_PLUGIN = connector_pb2.Plugin(class_name="Source", kind=connector_pb2.PLUGIN_KIND_SOURCE, version="1")
_WELCOME_MS = 5_000
_HEARTBEAT_MS = 250
_ANY_BEAT, _BEAT_IF_MOVED = events.HeartbeatDue(only_if_moved=False), events.HeartbeatDue(only_if_moved=True)
_LEASE_MS = 1_500
#: commands that need a broker.
_NEED_KAFKA = (worker_commands.FenceTasks, worker_commands.AlterOffsets)


class WorkerProcess(Node):
    """One worker. `plugins` are those of its image."""

    def __init__(self, name: str, world: World, plugins: tuple[connector_pb2.Plugin, ...]) -> None:
        super().__init__(name, world)
        self.plugins = plugins
        self.exited = False
        self.runs: dict[str, Run] = {}

    def begin(self) -> None:
        """Start the process."""
        self.start()
        self.exited = False
        self.take(self.life, self._wire)

    def kill(self) -> None:
        runs, self.runs = list(self.runs.values()), {}
        super().kill()
        for run in runs:
            run.orphan()

    def _wire(self) -> None:
        self.incarnation = f"{self.name}-{self.life}"
        self.identity = identity_pb2.WorkerIdentity(worker_id=self.name, incarnation=self.incarnation)
        self.state = WorkerState(self.incarnation, WorkerLimits(TaskLimits(slots=64, warm_runs_max=1)))
        self.loop = WorkerLoop(self.state)
        self.session: Session = Session(self)
        self.statuses = Statuses(self)
        connectors = Connectors(self)
        self._effects = cast(
            "Any",
            SimpleNamespace(
                runs=self,
                connectors=connectors,
                watch=SimpleNamespace(watch=self._watch, unwatch=_nothing),
                statuses=self.statuses,
                session=self.session,
                commands=SimpleNamespace(execute=self._answer),
            ),
        )
        self._tick_at: float | None = None
        #: logger levels that this process was commanded to set, and its memory of them.
        self.levels: dict[str, str] = {}
        self.told = Levels()
        #: levels of this worker alone that no later level of the cluster replaced.
        self.own_levels: dict[str, str] = {}
        self.session.dial()
        self._beat(0)
        self._keep_lease()

    def handle(self, event: events.Event) -> None:
        """Handle one event; its instructions are executed at once, by the loop's own dispatch."""
        for instruction in self.state.handle(event, self.now_ms / 1000):
            if isinstance(instruction, instructions.Exit):
                self._exit()
                return
            self.loop._carry_out(instruction, self._effects)  # pyright: ignore[reportPrivateUsage]
        self._wait()

    def _wait(self) -> None:
        deadline = self.state.next_deadline()
        if deadline is None or deadline == self._tick_at:
            return
        self._tick_at = deadline

        def due() -> None:
            if self._tick_at == deadline:
                self._tick_at = None
                self.handle(events.Tick())

        # A timer never fires early: a millisecond more than the rest of this one.
        self.after(max(0.0, deadline * 1000 - self.now_ms) + 1, due)

    def _exit(self) -> None:
        """Everything is released: flush statuses, end the lease, leave. Then the process is over."""
        self.exited = True
        self.statuses.leave()
        self.after(300, self.kill)

    def _beat(self, count: int) -> None:
        if self.session.stream is not None:
            self.handle(_ANY_BEAT if count % 4 == 0 else _BEAT_IF_MOVED)
        self.after(_HEARTBEAT_MS, partial(self._beat, count + 1))

    def _keep_lease(self) -> None:
        def ended(_: object, error: HerdmeshError | None) -> None:
            self.after(500 if error is not None else _LEASE_MS, self._keep_lease)

        if not self.exited:
            Pump(self.statuses.heartbeat(), ended)

    # --- effects.runs

    def submit(self, instruction: instructions.SubmitRun) -> None:
        self.runs[instruction.run_id] = Run(self.world, self, instruction)

    def stop(self, run_id: str, reason: str) -> None:
        self.runs[run_id].stop()

    def share(self, run_id: str, run_ms: int) -> None:
        """Do nothing: slots are never short here; `tests/.../test_state_tasks.py` tests sharing."""

    def end_warm(self, run_id: str) -> None:
        self.runs[run_id].rest()

    def cancel(self, run_id: str, reason: str) -> None:
        self.runs[run_id].kill()

    def unit_of(self, run_id: str) -> None:
        """No unit for log lines, which nobody reads here."""

    # --- effects.idle_watch

    def _watch(self, instruction: instructions.WatchTask) -> None:
        woken = events.TaskHasWork(instruction.unit, instruction.idle_id, "its end moved")
        life = self.life

        def look() -> None:
            if self.world.broker.when_there(lambda: self.take(life, look)):
                self.handle(woken)

        self.after(self.world.rng.randint(500, 10_000), look)

    # --- effects.commands

    def _answer(
        self,
        command_id: str,
        question: worker_commands.WorkerCommand,
        send: Callable[[session_pb.SessionRequest], None],
    ) -> None:
        def say(answer: session_pb.CommandReply) -> None:
            if command_id:
                answer.command_id = command_id
                send(session_pb.SessionRequest(reply=answer))

        def reply() -> None:
            answer = self._reply(question)
            if isinstance(question, worker_commands.AlterOffsets) and not answer.HasField("failure"):
                self._alter(question, say)
            else:
                say(answer)

        self.after(self.world.rng.randint(2, 40), reply)

    def _alter(self, question: worker_commands.AlterOffsets, say: Callable[[session_pb.CommandReply], None]) -> None:
        """Change offsets, and reply unless this process is over by then."""
        life = self.life

        def written(found: OffsetsAnswer | None) -> None:
            if found is None:
                failure = Failure("the connector was not left alone", error_class=ErrorClass.FENCED)
                answer = session_pb.CommandReply(failure=session_wire.failure_to(failure))
            else:
                answer = _offsets_reply(found)
                if question.prepare:
                    answer.offsets.prepared.CopyFrom(prepared(question))
                else:
                    self.world.checker.altered(question.connector)
            self.take(life, lambda: say(answer))

        self.world.dataplane.offsets.change(question, written)

    def _reply(self, question: worker_commands.WorkerCommand) -> session_pb.CommandReply:
        # A level is set without Kafka, and cannot fail.
        fails = self.world.chance(0.02) and not isinstance(question, worker_commands.SetLogger)
        if fails or (self.world.broker.away and isinstance(question, _NEED_KAFKA)):
            failure = Failure("Kafka did not answer", error_class=ErrorClass.RETRIABLE)
            return session_pb.CommandReply(failure=session_wire.failure_to(failure))
        match question:
            case worker_commands.FenceTasks(connector=connector, task_count=task_count):
                for task in range(task_count):
                    self.world.dataplane.fence((connector, task))
                self.world.checker.fenced(connector, task_count)
                return session_pb.CommandReply()
            case worker_commands.ValidateOnWorker(config=config):
                wrong = worker_service_pb2.ConfigField(name="wrong", errors=["must not be set"])
                fields = [wrong] if "wrong" in config else []
                found = worker_service_pb2.ConfigValidation(fields=fields, error_count=len(fields))
                return session_pb.CommandReply(validation=found)
            case worker_commands.PlanTaskConfigs(config=config, tasks_max=tasks_max):
                made = task_configs(texts(config), tasks_max)
                return session_pb.CommandReply(tasks=[properties.to_proto(one) for one in made])
            case worker_commands.SetLogger(logger=logger, level=level):
                changed = self.told.changed_before(question)
                if changed is None:
                    changed = [logger] if self.levels.get(logger) != level else []
                    self.levels[logger] = level
                    self.told.carried_out(question, changed)
                    self.own_levels.pop(logger, None)
                    if question.revision is None:
                        self.own_levels[logger] = level
                return session_pb.CommandReply(loggers=[admin_pb.LoggerEntry(logger=one) for one in changed])
            case worker_commands.ReadOffsets(connector=connector):
                return _offsets_reply(OffsetsAnswer(told(self.world.dataplane.offsets.values.get(connector))))
            case _:
                return session_pb.CommandReply()


def _offsets_reply(found: OffsetsAnswer) -> session_pb.CommandReply:
    entries = [
        offset_pb.OffsetEntry(partition_json=one.partition_json, offset_json=one.offset_json) for one in found.offsets
    ]
    return session_pb.CommandReply(offsets=session_pb.OffsetsReply(offsets=entries, message=found.message))


def task_configs(config: Mapping[str, str | None], tasks_max: int) -> list[dict[str, str | None]]:
    """Task configs that a connector makes of its config."""
    note = config.get("note") or ""
    return [{"task.class": "Task", "share": str(number), "note": note} for number in range(tasks_max)]


class Session:
    """The stream to the leading herder, as `effects.session.HerderSession` keeps it."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self.stream: Stream | None = None
        self.welcomed = False
        self.closing = False
        self._released = False
        self._hint: str | None = None
        self._turn = worker.world.rng.randint(0, 1)
        self._backoff_ms = 0
        self._silence_ms = _WELCOME_MS
        self._heard_ms = 0
        self._dials = 0

    def send(self, request: session_pb.SessionRequest) -> None:
        if self.stream is not None:
            self.stream.send(self.stream.near, request)

    def drop(self, reason: str) -> None:
        stream = self.stream
        if stream is not None:
            stream.close(stream.near)
            self._ended(stream, None)

    def dial(self) -> None:
        worker = self._worker
        herders = worker.world.herders
        name = self._hint or herders[self._turn % len(herders)].name
        target = next(herder for herder in herders if herder.name == name)
        stream = Stream(worker.world.network, worker, target)
        self.stream, self.welcomed = stream, False
        stream.near.heard = lambda response: self._heard(stream, response)
        stream.near.over = lambda error: self._ended(stream, error)
        if not target.alive:
            stream.snap()
            return
        opened = False

        def first(request: Any) -> None:
            nonlocal opened
            if not opened:
                opened = True
                target.session_opened(stream)
            stream.far.heard(request) if stream.far.open and stream.far.heard is not first else None

        stream.far.heard = first
        hello = session_pb.WorkerHello(
            worker=worker.identity,
            address=worker.name,
            slots=64,
            plugins=worker.plugins,
            holdings=[session_wire.held_unit_to(one) for one in worker.loop.held_units()],
            epoch_max=worker.loop.epoch_max(),
            draining=worker.loop.draining(),
            leaving=worker.loop.leaving(),
            logger_revision=revisions.to_proto(worker.told.revision),
        )
        stream.send(stream.near, session_pb.SessionRequest(hello=hello))
        self._silence_ms, self._heard_ms = _WELCOME_MS, worker.now_ms
        self._watch_silence(stream)

    def _watch_silence(self, stream: Stream) -> None:
        if self.stream is not stream:
            return
        silent_ms = self._worker.now_ms - self._heard_ms
        if silent_ms >= self._silence_ms:
            stream.close(stream.near)
            self._ended(stream, None)
            return
        self._worker.after(self._silence_ms - silent_ms + 1, lambda: self._watch_silence(stream))

    def _heard(self, stream: Stream, response: session_pb.SessionResponse) -> None:
        if self.stream is not stream:
            return
        self._heard_ms = self._worker.now_ms
        if response.WhichOneof("message") == "welcome":
            self._silence_ms = response.welcome.session_timeout.ToMilliseconds() or self._silence_ms
            self.welcomed = True
        message = session_wire.message_from(response)
        self._released = self._released or (isinstance(message, Released) and self._worker.state.leaving)
        if message is not None and not isinstance(message, Heartbeat):
            self._worker.world.checker.commanded(self._worker, events.Command(response.epoch, message))

    def _ended(self, stream: Stream, error: HerdmeshError | None) -> None:
        if self.stream is not stream:
            return
        welcomed, self.stream, self.welcomed = self.welcomed, None, False
        address = error.metadata.get("leader_address", "") if isinstance(error, NotLeader) else ""
        dialled = stream.far.process.name
        self._hint = address if address and address != dialled else None
        if welcomed:
            self._worker.handle(events.SessionClosed())
        if self.closing or self._released:
            return
        if self._hint is None:
            self._turn += 1
        self._backoff_ms = 0 if error is None else self._backoff_ms
        self._backoff_ms = min(max(50, self._backoff_ms * 2), 500)
        self._dials += 1
        dials = self._dials
        wait_ms = self._worker.world.rng.randint(self._backoff_ms // 2, self._backoff_ms)
        self._worker.after(wait_ms, lambda: self.dial() if self._dials == dials and not self.closing else None)


class Statuses:
    """Status writes in order, one call at a time, as `effects.statuses.StatusClient` sends them."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker
        specs = cast("Any", SimpleNamespace(version=_version))
        self._client = StatusClient("status", worker.identity, specs, self._stale)
        self._waiting: dict[UnitId, instructions.WriteStatus] = {}
        self._busy = False
        self._batch_max = 500
        self._backoff_ms = 0

    async def heartbeat(self, leaving: bool = False) -> None:
        await self._client._heartbeat(leaving=leaving, timeout_s=1.5)  # pyright: ignore[reportPrivateUsage]

    def write(self, instruction: instructions.WriteStatus) -> None:
        self._waiting.pop(instruction.unit, None)
        self._waiting[instruction.unit] = instruction
        self._next()

    def leave(self) -> None:
        """End the lease after waiting writes are written, or after a moment."""
        self._worker.after(150, lambda: Pump(self.heartbeat(leaving=True), lambda result, error: None))

    @property
    def unwritten(self) -> int:
        return len(self._waiting) + self._busy

    async def _stale(self, event: events.StatusStale) -> None:
        self._worker.after(0, lambda: self._worker.handle(event))

    def _next(self) -> None:
        if self._busy or not self._waiting:
            return
        batch = [self._waiting.pop(unit) for unit in list(self._waiting)[: self._batch_max]]
        self._busy = True
        Pump(
            self._client._put(batch),  # pyright: ignore[reportPrivateUsage]
            lambda _, error: self._written(batch, error),
        )

    def _written(self, batch: list[instructions.WriteStatus], error: HerdmeshError | None) -> None:
        if error is None or isinstance(error, RequestInvalid):
            assert error is None, f"the status store finds a status invalid: {error}"
            self._busy, self._backoff_ms = False, 0
            self._next()
            return
        self._waiting = {one.unit: one for one in batch} | self._waiting
        self._backoff_ms = min(max(50, self._backoff_ms * 2), 500)

        def again() -> None:
            self._busy = False
            self._next()

        self._worker.after(self._worker.world.rng.randint(self._backoff_ms // 2, self._backoff_ms), again)


class Connectors:
    """Authors' connectors: they start, fail, hang, and make `tasks.max` task configs, as their config says."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker

    def start(self, wanted: instructions.StartConnector) -> None:
        failure = None
        if self._worker.world.chance(0.02):
            failure = Failure("the connector did not start", error_class=ErrorClass.UNKNOWN)
        self._say(events.ConnectorStarted(wanted.connector, wanted.op_id, failure))

    def stop(self, wanted: instructions.StopConnector) -> None:
        self._say(events.ConnectorStopped(wanted.connector, wanted.op_id))

    def make_task_configs(self, wanted: instructions.MakeTaskConfigs) -> None:
        if self._worker.world.chance(0.03):
            failure = Failure("the source system did not answer", error_class=ErrorClass.RETRIABLE)
            self._say(events.TaskConfigsMade(wanted.connector, wanted.op_id, (), failure))
            return
        made = task_configs(wanted.config, wanted.tasks_max)
        self._say(events.TaskConfigsMade(wanted.connector, wanted.op_id, made))

    def abandon(self, connector: str) -> None:
        """Abandon the calls: later results are ignored, as the state knows calls by number."""

    def _say(self, event: events.Event) -> None:
        world = self._worker.world
        wait_ms = world.rng.randint(8_000, 40_000) if world.chance(0.01) else world.rng.randint(1, 30)
        self._worker.after(wait_ms, lambda: self._worker.handle(event))


def _nothing(*_: object, **__: object) -> None:
    """Instruction without effect here."""


def _version(_: object) -> str:
    return "1"
