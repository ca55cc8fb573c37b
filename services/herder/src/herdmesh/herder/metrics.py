"""Metrics of a herder, on /metrics: requests, moves, epochs, times per phase, Connect's rebalance metrics.

Owns the instruments and the times at which each command, write, start and stop was sent. Reads events and instructions
as they pass through the loop; the state does not know of it, and nothing here decides anything.

Connect's names are used where they have a meaning here (docs/reference/connect/data-model.md, section 6.8, as the JMX
exporter spells them): a rebalance lasts from the first unacknowledged start or stop until none is unacknowledged;
`epoch` is the leadership's, and 0 where another herder leads; `leader_name` is the leader as far as this herder knows.

Invariant: the times kept are bounded by the work that the state itself has under way, and deleted when this herder
stops leading.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import assert_never

from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.rpc import telemetry
from herdmesh.rpc.errors import HerdmeshError, NotLeader
from herdmesh.session import messages
from herdmesh.session.model import RunState, UnitId

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
#: more things under way than this is a bug elsewhere; the oldest are not timed then.
_UNDER_WAY_MAX = 20_000
REBALANCE = "kafka_connect_connect_worker_rebalance_metrics_"
GAUGES = {
    "epoch": "Epoch under which this herder leads.",
    "completed_rebalances_total": "Periods from the first start or stop command until all were answered.",
    "rebalancing": "1 while units move.",
    "rebalance_max_time_ms": "Longest of these periods.",
    "rebalance_avg_time_ms": "Their mean.",
    "time_since_last_rebalance_ms": "Time since the last of them ended; absent before the first (infinite in Connect).",
}


class _Clock:
    """Start times of the things under way, by kind."""

    def __init__(self) -> None:
        self._begun: dict[object, tuple[str, float]] = {}

    def begin(self, key: object, phase: str) -> None:
        while len(self._begun) >= _UNDER_WAY_MAX:
            del self._begun[next(iter(self._begun))]
        self._begun[key] = (phase, time.monotonic())

    def end(self, key: object) -> tuple[str, float] | None:
        """The phase and its duration in ms; None when its start was not seen here."""
        found = self._begun.pop(key, None)
        return None if found is None else (found[0], (time.monotonic() - found[1]) * 1000)

    def clear(self) -> None:
        self._begun.clear()


class HerderMetrics:
    """Metrics of one herder. `passed` is called after every step of the state, `record_request` for requests without
    one.
    """

    def __init__(self) -> None:
        meter = telemetry.meter("herdmesh.herder")
        self._steps_ms = meter.create_histogram(
            "herdmesh_herder_step_duration", unit="ms", description="One step of the state machine, by event."
        )
        self._requests = meter.create_counter(
            "herdmesh_herder_requests", description="Requests answered, by request and outcome (OK or the reason)."
        )
        self._requests_ms = meter.create_histogram(
            "herdmesh_herder_request_duration", unit="ms", description="From a request's arrival to its answer."
        )
        self._phases_ms = meter.create_histogram(
            "herdmesh_herder_phase_duration",
            unit="ms",
            description="From a command or write of the leader to its reply: starts, stops, task configs, queries, ...",
        )
        self._starts = meter.create_counter(
            "herdmesh_herder_starts", description="Start commands, by kind of unit, and whether to another worker."
        )
        self._stops = meter.create_counter("herdmesh_herder_stops", description="Stop commands, by kind of unit.")
        self._epochs = meter.create_counter("herdmesh_herder_epochs", description="Epochs this herder led.")
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
        for name, description in GAUGES.items():
            telemetry.gauge(meter, REBALANCE + name, self._reader(name), description)

    def passed(self, event: ev.Event, instructions: Sequence[ins.Instruction], took_ms: float) -> None:
        """Record one step: its event, its instructions and its duration."""
        self._steps_ms.record(took_ms, {"event": type(event).__name__})
        self._time_event(event)
        for instruction in instructions:
            self._time_instruction(instruction)
        self._note_rebalance()

    def record_request(self, request: str, outcome: str, took_ms: float) -> None:
        """Record one request that needed no step of the state."""
        self._requests.add(1, {"request": request, "outcome": outcome})
        self._requests_ms.record(took_ms, {"request": request})

    def _time_event(self, event: ev.Event) -> None:
        if isinstance(event, _NotMeasured):
            return
        match event:
            case ev.LeadershipGranted(epoch=epoch, leader_address=address):
                self._epoch, self._leader = epoch, address
                self._epochs.add(1)
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
                self._starts.add(1, {"kind": _kind(unit), "moved": moved})
                self._last_worker.pop(unit, None)
                self._last_worker[unit] = worker
                if len(self._last_worker) > _UNDER_WAY_MAX:
                    del self._last_worker[next(iter(self._last_worker))]
                self._moving.add(unit)
                self._clock.begin(("start", unit), f"start {_kind(unit)}")
            case messages.StopUnit(unit=unit):
                self._stops.add(1, {"kind": _kind(unit)})
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
            self._phases_ms.record(ended[1], {"phase": ended[0]})

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

    def _value(self, name: str) -> float | None:
        match name:
            case "epoch":
                return self._epoch
            case "completed_rebalances_total":
                return self._rebalances
            case "rebalancing":
                return float(self._rebalance_begun_s is not None)
            case "rebalance_max_time_ms":
                return self._rebalance_max_s * 1000
            case "rebalance_avg_time_ms":
                return self._rebalances_s * 1000 / self._rebalances if self._rebalances else 0.0
            case _:
                ended_s = self._rebalance_ended_s
                return None if ended_s is None else (time.monotonic() - ended_s) * 1000

    def _reader(self, name: str) -> Callable[[], tuple[float | None, dict[str, str]]]:
        return lambda: (self._value(name), {"leader_name": self._leader})


def _kind(unit: UnitId) -> str:
    return "connector" if unit.task is None else "task"
