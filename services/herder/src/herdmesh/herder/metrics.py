"""Metrics of a herder, on /metrics: leadership, units and workers by state, requests, moves, phases, rebalances.

Owns the names, the instruments, and the times at which each command, write, start and stop was sent. Reads events and
instructions as they pass through the loop, and at each request of the page the counts of the state, on the loop. The
state does not know of it, and nothing here decides anything.

Connect's names are used where they have a meaning here (docs/reference/connect/data-model.md, section 6.8): a rebalance
lasts from the first unacknowledged start or stop until none is unacknowledged; `epoch` is the leadership's, and 0 where
another herder leads; `leader_name` is the leader as far as this herder knows.

Invariant: the times kept are bounded by the work that the state itself has under way, and deleted when this herder
stops leading.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, assert_never

from herdmesh.herder.state import Herder
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.views.counts import MeshCounts
from herdmesh.herder.state.views.views import WorkerState
from herdmesh.rpc.errors import HerdmeshError, NotLeader
from herdmesh.rpc.monitoring import telemetry
from herdmesh.rpc.monitoring.connect_names import connect_name
from herdmesh.rpc.monitoring.telemetry import DURATION_BOUNDS_S, Family, Kind, Labels
from herdmesh.session import messages
from herdmesh.session.model import RunState, TargetState, UnitId

#: Events without a metric of their own.
_NotMeasured = (
    ev.GenerationsReserved
    | ev.LeaseExtended
    | ev.LeaseShortened
    | ev.ConfigSnapshot
    | ev.ConfigChanged
    | ev.ConfigProgress
    | ev.EpochRecorded
    | ev.RestartRecorded
    | ev.SessionKeyRecorded
    | ev.LoggerRecorded
    | ev.StatusSnapshot
    | ev.StatusPut
    | ev.StatusDeleted
    | ev.LeasesChanged
    | ev.WorkerHeartbeat
    | ev.WorkerLeft
    | ev.PluginsChanged
    | ev.Tick
    | ev.Continue
)
#: Above this many commands under way, which would be a bug elsewhere, the oldest are not timed.
_UNDER_WAY_MAX = 20_000
#: A step is a few hundred microseconds; one above 50 ms delays heartbeats.
_STEP_BOUNDS_S: Final = (0.001, 0.01, 0.05, 0.25)
REBALANCE_GROUP: Final = "connect-worker-rebalance-metrics"
REBALANCES: Final[Mapping[str, tuple[Kind, str]]] = {
    "epoch": (Kind.GAUGE, "Epoch under which this herder leads; 0 where another herder leads."),
    "completed-rebalances-total": (
        Kind.COUNTER,
        "Rebalances that this herder completed: periods from a first start or stop command until all had a reply.",
    ),
    "rebalancing": (Kind.GAUGE, "1 while a start or stop command of this herder has no reply, else 0."),
    "rebalance-max-time-ms": (Kind.GAUGE, "Longest rebalance that this herder completed."),
    "rebalance-avg-time-ms": (Kind.GAUGE, "Mean time of the rebalances that this herder completed."),
    "time-since-last-rebalance-ms": (
        Kind.GAUGE,
        "Time since the last rebalance of this herder ended; absent before the first (infinite in Connect).",
    ),
}
"""Connect's rebalance metrics, by attribute; the label leader_name has the leader's address."""
_LEADER: Final = "herdmesh_herder_leader"
_CONNECTORS: Final = "herdmesh_herder_connectors"
_TASKS: Final = "herdmesh_herder_tasks"
_NOT_RUNNING: Final = "herdmesh_herder_units_not_running"
_FOR_SLOT: Final = "herdmesh_herder_tasks_waiting_for_slot"
_WORKERS: Final = "herdmesh_herder_workers"
_SLOTS: Final = "herdmesh_herder_slots"
_SLOTS_USED: Final = "herdmesh_herder_slots_used"
MESH_METRICS: Final[Mapping[str, tuple[str, str]]] = {
    _LEADER: ("", "1 when this herder leads the mesh, else 0; the sum over all herders of a mesh is 1."),
    _CONNECTORS: (
        "state, target_state",
        "Connectors of the mesh by state and target state (what the user wants); the leading herder's page alone.",
    ),
    _TASKS: (
        "state, target_state",
        "Tasks of the mesh by state and target state, those on no worker included (unassigned); the leading herder's "
        "page alone.",
    ),
    _NOT_RUNNING: (
        "connector, kind, state",
        "Units (kind: connector or task) whose target state is STARTED and that are not RUNNING, by connector and "
        "state; absent when all run; the leading herder's page alone.",
    ),
    _FOR_SLOT: (
        "",
        "Tasks of the mesh that have waited for a free slot of their worker for more than 5 s; the leading herder's "
        "page alone.",
    ),
    _WORKERS: ("state", "Workers of the mesh by state of their session; the leading herder's page alone."),
    _SLOTS: (
        "",
        "Slots of all connected workers: the runs that the mesh can have at once; the leading herder's page alone.",
    ),
    _SLOTS_USED: ("", "Slots of all connected workers that a run has; the leading herder's page alone."),
}
"""Gauges of the mesh with their labels and descriptions."""
_REQUESTS: Final = "herdmesh_herder_requests_total"
_REQUEST_S: Final = "herdmesh_herder_request_duration_seconds"
_PHASE_S: Final = "herdmesh_herder_phase_duration_seconds"
_STEP_S: Final = "herdmesh_herder_step_duration_seconds"
_STARTS: Final = "herdmesh_herder_starts_total"
_STOPS: Final = "herdmesh_herder_stops_total"
_EPOCHS: Final = "herdmesh_herder_epochs_total"
WORK_METRICS: Final[Mapping[str, tuple[Kind, str, str]]] = {
    _REQUESTS: (
        Kind.COUNTER,
        "request, outcome",
        "Requests of callers that this herder answered, reads included, by request and outcome (OK or the error's "
        "reason).",
    ),
    _REQUEST_S: (Kind.HISTOGRAM, "request", "Time from the arrival of a caller's request to this herder's answer."),
    _PHASE_S: (
        Kind.HISTOGRAM,
        "phase",
        "Time from a command or write of this herder to its reply: starts, stops, task configs, commands to workers, "
        "writes to the stores.",
    ),
    _STEP_S: (Kind.HISTOGRAM, "event", "Time of one step of the herder's state machine, by event."),
    _STARTS: (
        Kind.COUNTER,
        "kind, moved",
        "Start commands that this herder sent to workers, by kind of unit; moved is true when another worker had it.",
    ),
    _STOPS: (Kind.COUNTER, "kind", "Stop commands that this herder sent to workers, by kind of unit."),
    _EPOCHS: (Kind.COUNTER, "", "Times that this herder became the leader."),
}
"""Counters and histograms of this herder's own work with their labels and descriptions."""


class _Clock:
    """Start times of the things under way, by kind."""

    def __init__(self) -> None:
        self._begun: dict[object, tuple[str, float]] = {}

    def begin(self, key: object, phase: str) -> None:
        while len(self._begun) >= _UNDER_WAY_MAX:
            del self._begun[next(iter(self._begun))]
        self._begun[key] = (phase, time.monotonic())

    def end(self, key: object) -> tuple[str, float] | None:
        """The phase and its duration in seconds; None when its start was not seen here."""
        found = self._begun.pop(key, None)
        return None if found is None else (found[0], time.monotonic() - found[1])

    def clear(self) -> None:
        self._begun.clear()


class HerderMetrics:
    """One per herder. `passed` is called after every step of the state, `record_request` for requests that need none;
    the gauges are on the page between `show` and `hide`.
    """

    def __init__(self) -> None:
        meter = telemetry.meter("herdmesh.herder")

        def seconds(name: str, bounds: Sequence[float] = DURATION_BOUNDS_S) -> Callable[[float, Labels], None]:
            return telemetry.histogram(meter, name, bounds, WORK_METRICS[name][2]).record

        def count(name: str) -> Callable[[int, Labels], None]:
            return meter.create_counter(name, description=WORK_METRICS[name][2]).add

        self._steps_s = seconds(_STEP_S, _STEP_BOUNDS_S)
        self._requests_s, self._phases_s = seconds(_REQUEST_S), seconds(_PHASE_S)
        self._requests, self._starts, self._stops = count(_REQUESTS), count(_STARTS), count(_STOPS)
        self._epochs = count(_EPOCHS)
        self._counts: Callable[[], MeshCounts | None] = lambda: None
        self._remove: Callable[[], None] | None = None
        self._clock = _Clock()
        self._last_worker: dict[UnitId, str] = {}
        self._worker_of: dict[int, str] = {}
        self._moving: set[UnitId] = set()
        self._epoch = 0
        self._leader = ""
        self._rebalance_begun_s: float | None = None
        self._rebalance_ended_s: float | None = None
        self._rebalances = 0
        self._rebalances_s = 0.0
        self._rebalance_max_s = 0.0

    def show(self, herder: Herder) -> None:
        """Add the gauges to the page; called on the event loop that owns the herder."""
        loop = asyncio.get_running_loop()
        self._counts = lambda: telemetry.read_on_loop(loop, herder.counts)
        self._remove = telemetry.add_producer("herdmesh.herder", self.families)

    def hide(self) -> None:
        """Remove the gauges from the page."""
        if self._remove is not None:
            self._remove()
            self._remove = None

    def families(self) -> Iterator[Family]:
        """The gauges at this moment; called by the page's thread."""
        for attribute, (kind, description) in REBALANCES.items():
            value = self._rebalance(attribute)
            points = [] if value is None else [({"leader_name": self._leader}, value)]
            yield Family(connect_name(REBALANCE_GROUP, attribute, kind), kind, description, points)
        counts = self._counts()
        yield Family(_LEADER, Kind.GAUGE, MESH_METRICS[_LEADER][1], [({}, float(counts is not None))])
        if counts is not None:
            for name, points in _of_mesh(counts).items():
                yield Family(name, Kind.GAUGE, MESH_METRICS[name][1], points)

    def passed(self, event: ev.Event, instructions: Sequence[ins.Instruction], took_ms: float) -> None:
        """Record one step: its event, its instructions and its duration."""
        self._steps_s(took_ms / 1000, {"event": type(event).__name__})
        self._time_event(event)
        for instruction in instructions:
            self._time_instruction(instruction)
        self._note_rebalance()

    def record_request(self, request: str, outcome: str, took_s: float) -> None:
        """Record one answered request."""
        self._requests(1, {"request": request, "outcome": outcome})
        self._requests_s(took_s, {"request": request})

    def _time_event(self, event: ev.Event) -> None:
        if isinstance(event, _NotMeasured):
            return
        match event:
            case ev.LeadershipGranted(epoch=epoch, leader_address=address):
                self._epoch, self._leader = epoch, address
                self._epochs(1, {})
            case ev.LeadershipFollowing() | ev.LeadershipLost():
                self._forget()
            case ev.WorkerHello(session=session, worker_id=worker_id):
                self._worker_of[session] = worker_id
            case ev.StreamBroken(session=session):
                gone = self._worker_of.pop(session, None)
                self._moving = {unit for unit in self._moving if self._last_worker.get(unit) != gone}
            case ev.UnitReported(unit=unit, state=state):
                self._end(("stop" if state is RunState.UNASSIGNED else "start", unit))
                self._moving.discard(unit)
            case ev.TaskConfigsMade(connector=connector):
                self._end(("generate", connector))
            case ev.CommandReplied(command_id=command):
                self._end(("ask", command))
            case ev.WriteDone(op=op) | ev.WriteFailed(op=op):
                self._end(("write", op))
            case ev.RequestReceived(call=call, request=request):
                self._clock.begin(("call", call), type(request).__name__)
            case ev.RequestCancelled(call=call):
                self._answered(call, "CANCELLED")
            case _:
                assert_never(event)

    def _time_instruction(self, instruction: ins.Instruction) -> None:
        if isinstance(instruction, ins.Write):
            self._clock.begin(("write", instruction.op), type(instruction).__name__)
            return
        match instruction:
            case ins.Send(session=session, message=message):
                self._time_message(self._worker_of.get(session, ""), message)
            case ins.Reply(call=call, answer=answer):
                self._answered(call, answer.reason if isinstance(answer, HerdmeshError) else "OK")
            case ins.RoleChanged(error=error):
                if error is not None:
                    self._forget()
                    self._leader = error.leader_address if isinstance(error, NotLeader) else ""
            case ins.CloseSession() | ins.RenewEpoch() | ins.ReserveGenerations() | ins.ViewsChanged():
                pass
            case _:
                assert_never(instruction)

    def _time_message(self, worker: str, message: messages.Message) -> None:
        match message:
            case messages.StartUnit(unit=unit):
                before = self._last_worker.get(unit)
                moved = before is not None and before != worker
                self._starts(1, {"kind": _kind(unit), "moved": str(moved).lower()})
                self._last_worker.pop(unit, None)
                self._last_worker[unit] = worker
                if len(self._last_worker) > _UNDER_WAY_MAX:
                    del self._last_worker[next(iter(self._last_worker))]
                self._moving.add(unit)
                self._clock.begin(("start", unit), f"start {_kind(unit)}")
            case messages.StopUnit(unit=unit):
                self._stops(1, {"kind": _kind(unit)})
                self._moving.add(unit)
                self._clock.begin(("stop", unit), f"stop {_kind(unit)}")
            case messages.RequestTaskConfigs(connector=connector):
                self._clock.begin(("generate", connector), "generate task configs")
            case messages.SendCommand(command_id=command, command=body):
                self._clock.begin(("ask", command), type(body).__name__)
            case (
                messages.Welcome()
                | messages.SetUnitTarget()
                | messages.SetRate()
                | messages.Heartbeat()
                | messages.Released()
            ):
                pass
            case _:
                assert_never(message)

    def _end(self, key: object) -> None:
        ended = self._clock.end(key)
        if ended is not None:
            self._phases_s(ended[1], {"phase": ended[0]})

    def _answered(self, call: int, outcome: str) -> None:
        ended = self._clock.end(("call", call))
        if ended is not None:
            self.record_request(ended[0], outcome, ended[1])

    def _note_rebalance(self) -> None:
        now_s = time.monotonic()
        if self._moving and self._rebalance_begun_s is None:
            self._rebalance_begun_s = now_s
        elif not self._moving and self._rebalance_begun_s is not None:
            took_s = now_s - self._rebalance_begun_s
            self._rebalances += 1
            self._rebalances_s += took_s
            self._rebalance_max_s = max(self._rebalance_max_s, took_s)
            self._rebalance_begun_s, self._rebalance_ended_s = None, now_s

    def _forget(self) -> None:
        self._epoch, self._leader = 0, ""
        self._clock.clear()
        self._last_worker.clear()
        self._moving.clear()
        self._rebalance_begun_s = None

    def _rebalance(self, attribute: str) -> float | None:
        match attribute:
            case "epoch":
                return self._epoch
            case "completed-rebalances-total":
                return self._rebalances
            case "rebalancing":
                return float(self._rebalance_begun_s is not None)
            case "rebalance-max-time-ms":
                return self._rebalance_max_s
            case "rebalance-avg-time-ms":
                return self._rebalances_s / self._rebalances if self._rebalances else 0.0
            case _:
                ended_s = self._rebalance_ended_s
                return None if ended_s is None else time.monotonic() - ended_s


def _of_mesh(counts: MeshCounts) -> dict[str, list[tuple[Labels, float | telemetry.Buckets]]]:
    return {
        _CONNECTORS: _by_state(counts.connectors),
        _TASKS: _by_state(counts.tasks),
        _NOT_RUNNING: [
            (
                {"connector": name, "kind": "task" if is_task else "connector", "state": state.value.lower()},
                float(number),
            )
            for (name, is_task, state), number in counts.not_running.items()
        ],
        _FOR_SLOT: [({}, float(counts.waiting_for_slot))],
        _WORKERS: [({"state": one.value.lower()}, float(counts.workers.get(one, 0))) for one in WorkerState],
        _SLOTS: [({}, float(counts.slots))],
        _SLOTS_USED: [({}, float(counts.slots_used))],
    }


def _by_state(
    found: Mapping[tuple[RunState, TargetState], int],
) -> list[tuple[Labels, float | telemetry.Buckets]]:
    """A series for each combination, so that a graph falls to 0 and does not end."""
    return [
        ({"state": state.value.lower(), "target_state": target.value.lower()}, float(found.get((state, target), 0)))
        for state in RunState
        if state is not RunState.DESTROYED
        for target in TargetState
    ]


def _kind(unit: UnitId) -> str:
    return "connector" if unit.task is None else "task"
