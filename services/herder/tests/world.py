"""World for the herder's state: stores, workers and time in memory, for stories in events with assertions about state.

Owns memory implementations of the surroundings (config store, status store, workers that speak the session protocol),
each with the rules of its contract and no more. Everything happens in `World.run` and `World.advance`; delays come from
one function, so a seeded simulation and a plain test use the same world. Messages of one channel keep their order.

Invariant checked all the time (`World.check`): two workers hold a unit only if one of them is unreachable, and tasks
of two sizes of one set never run side by side on reachable workers.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.herder.state import Herder, Rules
from herdmesh.herder.state.model import Lease, Plugin, RestartNote, StatusEntry
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import Answer, Request, WriteOptions
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.session import messages
from herdmesh.session.model import Failure, Properties, RunState, UnitId
from services.herder.tests.world_commands import made_tasks
from services.herder.tests.world_store import ConfigStore, Outcome, revision
from services.herder.tests.world_worker import SINK, SOURCE, Worker

TICK_MS = 100


class World:
    """Everything around one herder at a time. `delay_ms()` is the travel time of a message."""

    def __init__(self, delay_ms: Callable[[], int] = lambda: 0, rules: Rules | None = None) -> None:
        self.rules = rules or Rules(herder_id="h1", balance_delay_ms=500)
        self.delay_ms = delay_ms
        self.now = 1_000
        self.config = ConfigStore()
        self.statuses: dict[UnitId, StatusEntry] = {}
        self.workers: dict[str, Worker] = {}
        self.starts: list[tuple[str, messages.StartUnit]] = []
        self.task_counts: dict[str, int] = {}
        self.task_failures: dict[str, Failure] = {}
        self.answers: dict[int, Answer | HerdmeshError] = {}
        self.role: HerdmeshError | str | None = "never led"
        self.herder: Herder = Herder(self.rules)
        self.store_down = False
        #: channels whose messages are lost.
        self.silent: set[object] = set()
        #: a herder's messages to the config store arrive although it died meanwhile.
        self.writes_outlive = False
        #: times of the task-config requests to each connector.
        self.asked_ms: dict[str, list[int]] = {}
        #: the error for a herder's writes to the status store.
        self.status_store_error: HerdmeshError | None = None
        #: workers' writes to the status store are lost.
        self.statuses_lost = False
        self.puts_count = 0
        #: extra travel time of a herder's writes to the status store.
        self.status_delay_ms = 0
        #: extra travel time of the herder's writes to the config store.
        self.config_delay_ms = 0
        #: extra travel time of workers' reports over their sessions, compared with their status writes.
        self.report_delay_ms = 0
        #: statuses that a herder wrote, in order.
        self.told: list[tuple[UnitId, RunState, RestartNote | None]] = []
        #: sessions that the herder closed, whether their workers know it or not.
        self.closed: set[int] = set()
        #: units with a stop command, by session, and no start after it.
        self.stopping: set[tuple[int | None, UnitId]] = set()
        self.fenced_ms: dict[tuple[str, int | None], int] = {}
        self.generations_per_block = 1_000
        #: the config store reserves more generations on request.
        self.reserves = True
        #: generations below this belong to some leader.
        self.spent = 1
        #: the limits that leaders asked the store to raise, in order.
        self.reserved: list[int] = []
        #: offsets written, by connector, in order: by workers, and by the store with a connector.
        self.offsets = self.config.offsets
        self._sessions: dict[int, Worker] = {}
        self._numbers = itertools.count(1)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._last: dict[object, int] = {}
        self._next_tick = self.now
        self._next_beat = self.now
        self._leases: dict[str, int] = {}
        self.status_store_away = False
        self._said: dict[tuple[str, UnitId], RunState] = {}
        self._status_offset = 0
        self._reign = 0

    # --- actions of tests

    def lead(self) -> None:
        """Elect a new herder process: it reads both stores and begins. Workers dial in on their own."""
        self._reign += 1
        self._end_sessions()
        self.herder = Herder(self.rules)
        self.config.epoch += 1
        self.config.next()
        self.post(ev.StatusSnapshot(list(self.statuses.values())))
        self.post(ev.LeasesChanged(self.leases()))
        self._grant()

    def lead_blind(self) -> None:
        """Like `lead`, but the status store cannot be read."""
        self._reign += 1
        self._end_sessions()
        self.herder = Herder(self.rules)
        self.config.epoch += 1
        self.config.next()
        self._grant()

    def _grant(self) -> None:
        entries, at = list(self.config.entries.values()), revision(self.config.offset)
        key, loggers = self.config.session_key(self.now), list(self.config.loggers.values())
        self.post(ev.ConfigSnapshot(entries, at, self.config.epoch, key, loggers))
        first = self.spent
        self.spent += self.generations_per_block
        self.post(ev.LeadershipGranted(self.config.epoch, first, self.spent, 10**12, self.rules.herder_id, "here:1"))

    def regain(self) -> None:
        """Grant the same herder its lost epoch again, as after a fail-over of the config store."""
        first = self.spent - self.generations_per_block
        self.post(ev.LeadershipGranted(self.config.epoch, first, self.spent, 10**12, self.rules.herder_id, "here:1"))
        self.run()

    def tell_late(self, worker: Worker, unit: UnitId) -> None:
        """Deliver a worker's last status write to the status store now."""
        held = worker.held[unit]
        self._status(worker, ev.UnitReported(0, unit, held.assignment, held.state, held.failure))
        self.run()

    def reserve(self, count: int) -> None:
        """Give the leader's epoch more generations."""
        self.spent += count
        reserved = ev.GenerationsReserved(self.config.epoch, self.spent)
        self._later("campaign", lambda: self._handle(reserved), self._reign)

    def kill_herder(self) -> None:
        """Kill the herder's process; workers notice and run on."""
        self._reign += 1
        self._end_sessions()
        self.herder = Herder(self.rules)
        self.role = "dead"

    def worker(self, name: str, plugins: tuple[Plugin, ...] = (SINK, SOURCE)) -> Worker:
        """Let a new worker dial in."""
        worker = self.workers[name] = Worker(name, self, plugins)
        self._leases[name] = self.now + 6_000
        worker.dial()
        self.run()
        return worker

    def share(self) -> None:
        """Advance the time until balance has given joined workers their share."""
        self.advance(self.rules.balance_delay_ms + 1_500)
        for _ in range(100):
            if not any("than its share" in worker.reason for worker in self.herder.workers()):
                return
            self.advance(500)
        raise AssertionError(f"no balance: {self.herder.workers()}")

    def kill(self, name: str) -> None:
        """Kill a worker's process; its stream breaks."""
        worker = self.workers[name]
        worker.alive = False
        worker.held.clear()
        self.hang_up(worker)

    def revive(self, name: str) -> Worker:
        """Start the worker's process again, without units."""
        worker = self.workers[name]
        worker.alive, worker.life, worker.session, worker.released = True, worker.life + 1, None, False
        worker.draining = False
        worker.answers.restarted()
        worker.dial()
        return worker

    def hang_up(self, worker: Worker) -> None:
        """Break the stream; a living worker dials again at its next heartbeat."""
        session, worker.session = worker.session, None
        if session is not None:
            self._sessions.pop(session, None)
            self._later(("in", session), lambda: self._handle(ev.StreamBroken(session)), self._reign)

    def fail(self, worker: Worker, unit: UnitId, failure: Failure) -> None:
        """Fail a unit on its worker."""
        held = worker.held[unit]
        held.state, held.failure = RunState.FAILED, failure
        assert worker.session is not None
        worker.say(ev.UnitReported(worker.session, unit, held.assignment, RunState.FAILED, failure))
        self.run()

    def fail_unheard(self, worker: Worker, unit: UnitId, failure: Failure) -> None:
        """Fail a unit while nobody leads: its worker can only write its status."""
        held = worker.held[unit]
        held.state, held.failure = RunState.FAILED, failure
        self._status(worker, ev.UnitReported(0, unit, held.assignment, RunState.FAILED, failure))

    def release(self, worker: Worker, unit: UnitId) -> None:
        """Have a worker release a unit unasked."""
        held = worker.held.pop(unit)
        assert worker.session is not None
        worker.say(ev.UnitReported(worker.session, unit, held.assignment, RunState.UNASSIGNED))
        self.run()

    def call(self, request: Request, options: WriteOptions | None = None, timeout_ms: int = 5_000) -> int:
        """Call, and return the number of the answer."""
        number = next(self._numbers)
        self.post(ev.RequestReceived(number, request, options or WriteOptions(), self.now + timeout_ms))
        return number

    def ask(self, request: Request, options: WriteOptions | None = None) -> Answer:
        """Call, run, and return the answer. Raises an error that is the answer."""
        number = self.call(request, options)
        self.run()
        answer = self.answers[number]
        if isinstance(answer, HerdmeshError):
            raise answer
        return answer

    def post(self, event: ev.Event) -> None:
        self._later("post", lambda: self._handle(event), self._reign)

    def run(self) -> None:
        """Deliver every message that is due now."""
        while self._queue and self._queue[0][0] <= self.now:
            _, _, deliver = heapq.heappop(self._queue)
            deliver()
            self.check()

    def advance(self, ms: int) -> None:
        """Let time pass: ticks, heartbeats, leases, deliveries."""
        end = self.now + ms
        while True:
            due = min(self._next_tick, self._next_beat, self._queue[0][0] if self._queue else end, end)
            self.now = max(self.now, due)
            self.run()
            if self.now >= self._next_tick:
                self._next_tick += TICK_MS
                self._handle(ev.Tick())
            if self.now >= self._next_beat:
                self._next_beat += 500
                self._beat()
            if self.now >= end and not (self._queue and self._queue[0][0] <= end):
                return

    # --- workers and stores

    def new_session(self, worker: Worker) -> int:
        number = next(self._numbers)
        self._sessions[number] = worker
        return number

    def from_worker(self, worker: Worker, event: ev.Event) -> None:
        self._later(("in", worker.session), lambda: self._handle(event), self._reign, self.report_delay_ms)
        if isinstance(event, ev.UnitReported):
            self._status(worker, event)

    def started(self, worker: Worker, start: messages.StartUnit) -> None:
        self.starts.append((worker.id, start))
        if start.unit.task is None:
            return
        mine = worker.held[start.unit]
        for other in self.workers.values():
            for unit, held in other.held.items():
                if unit.connector != start.unit.connector or unit in (UnitId(unit.connector), start.unit):
                    continue
                fenced_ms = self.fenced_ms.get((unit.connector, unit.task), -1)
                fenced = held.task_set == mine.task_set or fenced_ms >= held.since_ms
                assert fenced, f"{start.unit} started while {unit} of an older set may run on {other.id}"
        self.took_over(start.unit, mine.state)

    def took_over(self, unit: UnitId, state: RunState) -> None:
        """Note that a running task has initialised its id, which fences every earlier owner; a paused one has not."""
        if unit.task is not None and state is RunState.RUNNING:
            self.fenced_ms[unit.connector, unit.task] = self.now

    def make_tasks(self, connector: str) -> tuple[tuple[Properties, ...], Failure | None]:
        self.asked_ms.setdefault(connector, []).append(self.now)
        return self.tasks_of(connector, self.config.entries[connector].config)

    def tasks_of(self, connector: str, config: Properties) -> tuple[tuple[Properties, ...], Failure | None]:
        """The task configs that the connector creates from a config, or its failure."""
        failure = self.task_failures.get(connector)
        if failure is not None:
            return (), failure
        count = self.task_counts.get(connector, int(str(config.get("makes", config.get("tasks.max", "1")))))
        return made_tasks(config, count), None

    def leases(self) -> list[Lease]:
        return [Lease(name, self.workers[name].incarnation, until > self.now) for name, until in self._leases.items()]

    def running(self) -> dict[UnitId, list[str]]:
        """The workers that hold each unit, by the workers' own records."""
        found: dict[UnitId, list[str]] = {}
        for worker in self.workers.values():
            for unit in worker.held:
                found.setdefault(unit, []).append(worker.id)
        return found

    def placed(self, kind: str = "tasks") -> dict[str, int]:
        """The number of connectors or tasks of each living worker."""
        return {
            worker.id: sum(1 for unit in worker.held if (unit.task is None) == (kind == "connectors"))
            for worker in self.workers.values()
            if worker.alive and not worker.released
        }

    def check(self) -> None:
        """Check that no two reachable workers hold one unit, and that tasks of one connector belong to one set."""
        reachable = [worker for worker in self.workers.values() if worker.reachable and not worker.stop_silently]
        hands: dict[UnitId, str] = {}
        sets: dict[str, str] = {}
        for worker in reachable:
            for unit, held in worker.held.items():
                if (worker.session, unit) in self.stopping:
                    continue  # two claimed it; this one lost, and its stop is on the way
                assert hands.setdefault(unit, worker.id) == worker.id, f"{unit} is on {worker.id} and {hands[unit]}"
                if unit.task is not None:
                    assert sets.setdefault(unit.connector, held.task_set) == held.task_set, f"mixed: {unit.connector}"

    # --- inside

    def _handle(self, event: ev.Event) -> None:
        for instruction in self.herder.handle(event, self.now):
            self._carry_out(instruction)
        if self.herder.has_more_to_do:
            self._handle(ev.Continue())

    def _carry_out(self, instruction: ins.Instruction) -> None:
        match instruction:
            case ins.Send(session=session):
                if isinstance(instruction.message, messages.StopUnit):
                    self.stopping.add((session, instruction.message.unit))
                elif isinstance(instruction.message, messages.StartUnit):
                    self.stopping.discard((session, instruction.message.unit))
                worker = self._sessions.get(session)
                if worker is not None:
                    self._later(("out", session), lambda: self._deliver(worker, instruction))
            case ins.CloseSession(session=session):
                self.closed.add(session)
                self._later(("out", session), lambda: self._closed(session))
            case ins.Reply(call=call, answer=answer):
                assert call not in self.answers, "answered twice"
                self.answers[call] = answer
            case ins.RoleChanged(error=error):
                self.role = error
            case ins.ViewsChanged():
                pass
            case ins.RenewEpoch(abandon=False):
                pass  # the lease ended: a test grants leadership again itself
            case ins.RenewEpoch():
                self._later("renew", self.lead)
            case ins.ReserveGenerations(above=above):
                self.reserved.append(above)
                if self.reserves:
                    self.reserve(self.generations_per_block)
            case ins.PutStatus():
                self._later("status", lambda: self._put_status(instruction), self._reign, self.status_delay_ms)
            case ins.DeleteStatuses():
                self._later("status", lambda: self._delete_statuses(instruction), self._reign)
            case _:
                reign, until = self._reign, None if self.writes_outlive else self._reign
                self._later("config", lambda: self._write(instruction, reign), until, self.config_delay_ms)

    def _deliver(self, worker: Worker, sent: ins.Send) -> None:
        if not worker.alive or worker.session != sent.session:
            return
        if worker.frozen:
            worker.backlog.append(sent)
        else:
            worker.hear(sent)

    def _closed(self, session: int) -> None:
        worker = self._sessions.pop(session, None)
        if worker is not None and worker.session == session:
            worker.session = None

    def _end_sessions(self) -> None:
        for worker in self._sessions.values():
            worker.session = None
        self._sessions.clear()

    def _write(self, wanted: ins.Write, reign: int) -> None:
        if self.store_down:
            return
        outcome, key, level = Outcome(), None, None
        try:
            if isinstance(wanted, ins.RotateSessionKey):
                self.config.put_session_key(wanted, self.now)
                key = self.config.session_key(self.now)
            elif isinstance(wanted, ins.PutLogger):
                level = self.config.put_logger(wanted.logger, wanted.level, wanted.options.request_id)
            else:
                outcome = self.config.write(wanted)
        except HerdmeshError as error:
            failed = ev.WriteFailed(wanted.op, error)
            self._later("config-out", lambda: self._handle(failed), reign)
            return
        at = revision(self.config.offset)
        done = ev.WriteDone(wanted.op, at, outcome.created, outcome.restarted, outcome.offsets, outcome.unchanged)
        self._later("config-out", lambda: self._handle(done), reign)
        if key is not None:
            recorded = ev.SessionKeyRecorded(key, at)
            self._later("watch", lambda: self._handle(recorded), self._reign)
        if isinstance(wanted, ins.RequestRestart) and outcome.record is not None:
            record = ev.RestartRecorded(wanted.connector, *outcome.record, None)
            self._later("watch", lambda: self._handle(record), self._reign)
        if level is not None:
            set_level = ev.LoggerRecorded(level, at)
            self._later("watch", lambda: self._handle(set_level), self._reign)
        for name in outcome.names:
            changed = ev.ConfigChanged(name, self.config.entries[name], at)
            self._later("watch", lambda changed=changed: self._handle(changed), self._reign)

    def _status(self, worker: Worker, event: ev.UnitReported) -> None:
        stored = self.statuses.get(event.unit)
        said = self._said.get((worker.incarnation, event.unit))
        self._said[worker.incarnation, event.unit] = event.state
        if event.state is RunState.UNASSIGNED and said is RunState.FAILED:
            return  # a failure stays readable after its unit is released
        held = worker.held.get(event.unit)
        status = StatusEntry(
            event.unit,
            event.state,
            worker.id,
            worker.incarnation,
            event.assignment.generation,
            trace=event.failure.trace or event.failure.message if event.failure is not None else None,
            commit_scope=self._scope(worker, event.unit),
            note=held.note if held is not None and held.assignment == event.assignment else None,
        )
        if not self.statuses_lost and (stored is None or stored.generation <= status.generation):
            self._store_status(status)

    def _scope(self, worker: Worker, unit: UnitId) -> CommitScope | None:
        held, stored = worker.held.get(unit), self.statuses.get(unit)
        if held is not None:
            return held.commit_scope
        return None if stored is None else stored.commit_scope

    def _store_status(self, status: StatusEntry) -> None:
        self._status_offset += 1
        stored = self.statuses[status.unit] = replace(status, revision=revision(self._status_offset))
        self._later("statuses", lambda: self._handle(ev.StatusPut(stored)), self._reign)

    def _put_status(self, wanted: ins.PutStatus) -> None:
        """Write each change over exactly the record that it names, as the status store does."""
        self.puts_count += 1
        if self.status_store_error is not None:
            failed = ev.WriteFailed(wanted.op, self.status_store_error)
            self._later("statuses", lambda: self._handle(failed), self._reign)
            return
        for change in wanted.changes:
            unit = change.over.unit
            if self.statuses.get(unit) == change.over:
                self._store_status(replace(change.over, state=change.state, trace=change.trace, note=change.note))
                self.told.append((unit, change.state, change.note))
        self._later("statuses", lambda: self._handle(ev.WriteDone(wanted.op)), self._reign)

    def _delete_statuses(self, wanted: ins.DeleteStatuses) -> None:
        if self.status_store_error is not None:
            failed = ev.WriteFailed(wanted.op, self.status_store_error)
            self._later("statuses", lambda: self._handle(failed), self._reign)
            return
        gone = [
            unit
            for unit in self.statuses
            if unit.connector == wanted.connector
            and (wanted.tasks_from is None or (unit.task is not None and unit.task >= wanted.tasks_from))
        ]
        for unit in gone:
            del self.statuses[unit]
            self._later("statuses", lambda unit=unit: self._handle(ev.StatusDeleted(unit)), self._reign)
        self._later("statuses", lambda: self._handle(ev.WriteDone(wanted.op)), self._reign)

    def _beat(self) -> None:
        """Have every worker send a heartbeat, or dial in again; renew leases."""
        before = self.leases()
        for worker in self.workers.values():
            if worker.alive and not worker.frozen and not worker.released:
                if not self.status_store_away:
                    self._leases[worker.id] = self.now + 6_000
                if worker.session is None:
                    worker.dial()
                else:
                    worker.beat()
        if self.leases() != before:
            self.post(ev.LeasesChanged(self.leases()))

    def _later(self, channel: object, deliver: Callable[[], None], reign: int | None = None, more_ms: int = 0) -> None:
        """Deliver after a delay, in the order of the channel; dropped when its herder leads no more by then."""

        def if_still() -> None:
            if channel not in self.silent and (reign is None or reign == self._reign):
                deliver()

        due = max(self.now + self.delay_ms() + more_ms, self._last.get(channel, 0))
        self._last[channel] = due
        heapq.heappush(self._queue, (due, next(self._numbers), if_still))


def sink(tasks: int = 2, **more: str) -> Mapping[str, str]:
    """A config of the test sink."""
    return {"connector.class": "TestSink", "tasks.max": str(tasks), **more}


FENCED = Failure("another owner took over", error_class=ErrorClass.FENCED)
BROKEN = Failure("it broke", "Traceback", ErrorClass.FATAL)
"""A failure without automatic restarts: the same input would fail again."""
FLAKY = Failure("it broke this time", "Traceback", ErrorClass.UNKNOWN)
