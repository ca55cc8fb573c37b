"""Series of tasks on the worker's page through runs, failures, pauses and restarts: events in, series out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.connect.spi.waits import Wait
from herdmesh.connect.task_counts import ErrorCounts
from herdmesh.engine.runtime.contract import PartitionProgress, ProgressReport, RunEnd
from herdmesh.engine.runtime.measures import LATENCY_BOUNDS_MS, Latency, Measures, MeasureSpread
from herdmesh.rpc.monitoring.telemetry import Buckets
from herdmesh.session.model import Assignment, Failure, TargetState, UnitId
from herdmesh.worker.metrics import collector, names
from herdmesh.worker.metrics.collector import WorkerMetrics
from herdmesh.worker.metrics.names import LATENCY_BOUNDS_S
from herdmesh.worker.state import TaskLimits, WorkerLimits, WorkerState, events, instructions
from herdmesh.worker.state.model import ConnectorSpec, TaskSpec
from services.worker.tests import leader

SINK_CONFIG = {"connector.class": "FileStreamSink", "topics": "t"}
SPEC = TaskSpec(SINK_CONFIG, {"file": "f"}, 1)
TASK, CONNECTOR = UnitId("c", 0), UnitId("c")
ONE = MeasureSpread(1, 2.0, 2.0, 2.0)
SINK = "kafka_connect_sink_task_metrics_"
ANY = "kafka_connect_connector_task_metrics_"
WORKER = "kafka_connect_connect_worker_metrics_"
AGES = Latency(tuple([0, 3] + [0] * (len(LATENCY_BOUNDS_MS) - 1)), 4.5)
FAILED = Failure("it broke", "trace", ErrorClass.FATAL)


class World:
    """A worker's state with its metrics, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        self.state = WorkerState("life", WorkerLimits(TaskLimits(slots=8)))
        self.metrics = WorkerMetrics(_plugin, 8, "1.2.3")
        monkeypatch.setattr(collector.time, "monotonic", lambda: self.now_s)
        self.handle(leader.welcome(1, frozenset()))

    def handle(self, event: events.Event) -> list[instructions.Instruction]:
        out = self.state.handle(event, self.now_s)
        self.metrics.passed(event, out, self.state, self.now_s)
        return out

    def start(self, generation: int = 1, incarnation: str = "i", unit: UnitId = TASK) -> str:
        """Start a task; the id of its run."""
        spec = ConnectorSpec(SINK_CONFIG, 1) if unit.task is None else SPEC
        target = TargetState.STARTED
        out = self.handle(leader.start_unit(1, unit, Assignment(1, generation, incarnation), target, spec))
        return next((one.run_id for one in out if isinstance(one, instructions.SubmitRun)), "")

    def stop(self, generation: int, run_id: str = "") -> None:
        self.handle(leader.stop_unit(1, TASK, Assignment(1, generation, "i"), "moved"))
        if run_id:
            self.handle(events.RunEnded(run_id))

    def moved(self, run_id: str, records: int, **measures: Any) -> None:
        found = Measures(batch_records=ONE, call_ms=ONE, commit_ms=ONE, latency_ms=AGES, **measures)
        parts = (PartitionProgress("t", 0, 7, 8, 10), PartitionProgress("t", 1, -1, 2, 3, 2))
        self.handle(events.RunProgress(run_id, ProgressReport(records, records, partitions=parts, measures=found)))

    def series(self) -> dict[str, Any]:
        """All values by name and labels, without the labels connector and task."""
        found: dict[str, Any] = {}
        for family in self.metrics.families():
            for labels, value in family.points:
                more = "".join(f" {name}={text}" for name, text in labels.items() if name not in ("connector", "task"))
                found[family.name + more] = value
        return found


def _plugin(config: Any) -> Any:
    return PluginRegistry.discover().find(config["connector.class"])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_running_task_has_its_counts_times_and_lag(world: World) -> None:
    run_id = world.start()
    world.moved(run_id, 5, active_records=ONE, active_records_now=2)
    world.now_s += 30.0
    found = world.series()
    assert found[SINK + "sink_record_read_total"] == found[SINK + "sink_record_send_total"] == 5
    assert found[SINK + "sink_record_read_rate"] == pytest.approx(5 / 30)
    assert found[SINK + "active_sink_records"] == found[SINK + "active_sink_records_max"] == 2
    assert found[SINK + "put_batch_max_time_seconds"] == found[SINK + "put_batch_avg_time_seconds"] == 0.002
    assert found[SINK + "offset_commit_seq_no"] == found[SINK + "offset_commit_completion_total"] == 1
    assert found[SINK + "partitions"] == 2
    assert found[SINK + "sink_record_lag_max"] == 2, "what the next run would read again"
    assert (found["herdmesh_task_behind_records"], found["herdmesh_task_lag_age_seconds"]) == (3, 0.0)
    assert found["herdmesh_task_uncommitted_records"] == 3, "one of a commit, two of a run that committed none"
    assert found[ANY + "status status=running"] == found[ANY + "offset_commit_success_ratio"] == 1
    assert found[ANY + "offset_commit_failure_ratio"] == 0
    assert found["herdmesh_task_end_to_end_latency_seconds"] == Buckets(AGES.buckets, LATENCY_BOUNDS_S, 0.0045)
    assert not [name for name in found if "source_task" in name], "it is no source"


def test_a_wait_has_a_series_with_its_reason_while_it_lasts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id, name = world.start(), "herdmesh_task_waiting_seconds waits_for=PostgreSQL db:5432"
    world.handle(events.RunHello(run_id, 1, 300_000))
    world.moved(run_id, 5)
    monkeypatch.setattr(names.time, "time_ns", lambda: 11_500 * 1_000_000)
    world.handle(events.RunLiveness(run_id, 0, 0, Wait("PostgreSQL db:5432", "connection refused", 4_000, 2)))
    world.handle(events.HeartbeatDue(only_if_moved=False, now_ms=11_500))
    assert world.series()[name] == 7.5
    world.handle(events.RunLiveness(run_id, 0, 0))
    world.handle(events.HeartbeatDue(only_if_moved=False, now_ms=12_500))
    assert not [one for one in world.series() if "waiting_seconds" in one]


def test_a_connector_whose_call_does_not_return_has_a_wait_series(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start(unit=CONNECTOR)
    monkeypatch.setattr(names.time, "time_ns", lambda: 11_500 * 1_000_000)
    for now_ms in (4_000, 11_500):
        world.handle(events.HeartbeatDue(only_if_moved=False, now_ms=now_ms))
    assert world.series()["herdmesh_connector_waiting_seconds waits_for=the connector's code"] == 7.5


def test_a_value_not_measured_for_a_minute_is_absent(world: World) -> None:
    world.moved(world.start(), 5)
    world.now_s += 61.0
    found = world.series()
    assert SINK + "put_batch_max_time_seconds" not in found
    assert found[SINK + "sink_record_read_rate"] == 0.0
    assert found[SINK + "sink_record_read_total"] == 5


def test_counts_continue_through_runs_failure_and_restart_in_place(world: World) -> None:
    first = world.start()
    world.moved(first, 5)
    world.moved(first, 9)
    world.handle(events.RunFinished(first, RunEnd.STOPPED, ProgressReport(12, 12), 0))
    second = world.handle(events.RunEnded(first))[-1]
    assert isinstance(second, instructions.SubmitRun)
    world.moved(second.run_id, 3)
    world.handle(events.RunFailed(second.run_id, FAILED))
    world.handle(events.RunEnded(second.run_id))
    found = world.series()
    assert found[SINK + "sink_record_read_total"] == 15
    assert found[ANY + "status status=failed"] == 1
    assert found["herdmesh_task_runs_total"] == 2
    world.now_s += 7.0
    assert world.series()["herdmesh_task_lag_age_seconds"] == 7.0
    world.stop(1)
    assert not [name for name in world.series() if "_task_metrics_" in name], "it left the page"
    third = world.start(generation=2)
    world.moved(third, 1)
    assert world.series()[SINK + "sink_record_read_total"] == 16, "restarted on the same worker"
    world.moved(first, 99)
    assert world.series()[SINK + "sink_record_read_total"] == 16, "a run that is over counts no more"


def test_counts_continue_when_a_newer_assignment_replaces_the_task(world: World) -> None:
    first = world.start()
    world.moved(first, 5)
    world.start(generation=2)
    out = world.handle(events.RunEnded(first))
    second = next(one.run_id for one in out if isinstance(one, instructions.SubmitRun))
    world.moved(second, 2)
    found = world.series()
    assert found[SINK + "sink_record_read_total"] == 7
    assert found[WORKER + "task_startup_attempts_total"] == 2


def test_a_pause_keeps_the_counts_and_counts_in_the_time_ratios(world: World) -> None:
    run_id = world.start()
    world.moved(run_id, 5)
    world.now_s += 10.0
    world.handle(leader.set_target(1, TASK, TargetState.PAUSED))
    world.handle(events.RunFinished(run_id, RunEnd.STOPPED, ProgressReport(5, 5), 0))
    world.handle(events.RunEnded(run_id))
    world.now_s += 30.0
    found = world.series()
    assert found[SINK + "sink_record_read_total"] == 5
    assert found[ANY + "running_ratio"] == pytest.approx(0.25)
    assert found[ANY + "pause_ratio"] == pytest.approx(0.75)


def test_counts_begin_at_0_for_a_recreated_connector_or_a_late_return(world: World) -> None:
    run_id = world.start()
    world.moved(run_id, 5)
    world.stop(1, run_id)
    run_id = world.start(generation=2, incarnation="another")
    assert world.series()[SINK + "sink_record_read_total"] == 0
    world.moved(run_id, 4)
    world.stop(2, run_id)
    world.now_s += collector.KEPT_S
    world.start(generation=3, incarnation="another")
    assert world.series()[SINK + "sink_record_read_total"] == 0


def test_the_number_of_remembered_units_that_left_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "LEFT_MAX", 3)
    for number in range(5):
        unit = UnitId("c", number)
        world.handle(leader.start_unit(1, unit, Assignment(1, 1, "i"), TargetState.PAUSED, SPEC))
        world.handle(leader.stop_unit(1, unit, Assignment(1, 1, "i"), "moved"))
    assert len(world.metrics.left) == 3
    assert world.series()[WORKER + "tasks"] == 0


def test_the_ratio_of_failed_commits_is_over_all_commits(world: World) -> None:
    run_id = world.start()
    world.moved(run_id, 5, commit_failures=3)
    found = world.series()
    assert found[ANY + "offset_commit_failure_ratio"] == 0.75
    assert found["herdmesh_task_offset_commit_failures_total"] == 3


def test_error_counts_are_the_sum_of_all_runs(world: World) -> None:
    first = world.start()
    for failures in (1, 2):
        counts = ErrorCounts(failures=failures, errors=1, skipped=1, last_error_ms=70)
        world.handle(events.RunProgress(first, ProgressReport(5, 5, errors=counts)))
    world.handle(events.RunFailed(first, FAILED))
    world.handle(events.RunEnded(first))
    world.stop(1)
    second = world.start(generation=2)
    world.handle(events.RunProgress(second, ProgressReport(1, 1, errors=ErrorCounts(failures=4, last_error_ms=60))))
    found = world.series()
    name = "kafka_connect_task_error_metrics_"
    assert found[name + "record_failures_total"] == 6
    assert found[name + "record_errors_total"] == found[name + "records_skipped_total"] == 1
    assert found[name + "last_error_timestamp_seconds"] == 0.07
    assert found[name + "deadletterqueue_produce_requests_total"] == 0


def test_the_worker_counts_held_units_and_outcomes_of_starts(world: World) -> None:
    world.start(unit=CONNECTOR)
    out = world.state.connectors.get("c")
    assert out is not None
    world.handle(events.ConnectorStarted("c", out.op_id))
    run_id = world.start()
    world.handle(events.RunFailed(run_id, FAILED))
    world.handle(events.RunEnded(run_id))
    found = world.series()
    assert (found[WORKER + "connectors"], found[WORKER + "tasks"]) == (1, 1)
    assert found[WORKER + "connector_startup_success_total"] == found[WORKER + "connector_startup_attempts_total"] == 1
    assert found[WORKER + "task_startup_failure_total"] == found[WORKER + "task_startup_failure_ratio"] == 1
    assert found[WORKER + "task_startup_success_ratio"] == 0
    assert (found[WORKER + "connector_failed_tasks"], found[WORKER + "connector_total_tasks"]) == (1, 1)
    name = "kafka_connect_connector_metrics_"
    assert found[name + "status status=running"] == found[name + "connector_type type=sink"] == 1
    assert name + "connector_class class=org.apache.kafka.connect.file.FileStreamSinkConnector" in found
    assert found["kafka_connect_app_info_version version=1.2.3"] == 1


def test_a_task_of_an_unknown_class_has_no_sink_metrics(world: World) -> None:
    spec = replace(SPEC, connector_config={"connector.class": "Nobodys"})
    world.handle(leader.start_unit(1, TASK, Assignment(1, 1, "i"), TargetState.STARTED, spec))
    found = world.series()
    assert ANY + "status status=unassigned" in found
    assert not [name for name in found if name.startswith(SINK)]
