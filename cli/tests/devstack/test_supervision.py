"""Tests of what is reported about a stack: lines of changes, notices, findings for `herd doctor`."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from herdmesh.cli.display.stack_view import StartProgress
from herdmesh.devstack.layout import ProcessMark, ServiceState, StackLayout, StackState
from herdmesh.devstack.ports import HOST, free_port, refusal_to_listen
from herdmesh.devstack.supervision.findings import stack_findings
from herdmesh.devstack.supervision.notices import replicas, unusual_port
from herdmesh.devstack.supervision.state_lines import StateLines

ME = ProcessMark.of(os.getpid())
GONE = ProcessMark(os.getpid(), 1.0)
"""A process whose pid now belongs to another."""


def test_each_change_of_a_service_is_one_line() -> None:
    worker = ServiceState("worker-1", "h:1")
    state, lines = StackState(services=[worker]), StateLines()
    assert lines.changes(state) == ["worker-1 starting at h:1"]
    assert lines.changes(state) == []
    worker.state, worker.mark = "serving", ProcessMark(7, 1.0)
    state.notices.append("worker-1 listens on port 1")
    assert lines.changes(state) == ["worker-1 serving at h:1, process 7", "note: worker-1 listens on port 1"]
    worker.state, worker.restarts, worker.detail = "restarting", 1, "exit code -9"
    assert lines.changes(state) == ["worker-1 restarting at h:1, restart 1: exit code -9"]
    worker.state = "stopped"
    assert lines.changes(state) == ["worker-1 stopped, restart 1"]


def test_fetched_jars_are_reported_before_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    broker = ServiceState("broker", "", "fetching", detail="46 jars of Kafka")
    state, lines = StackState(services=[broker]), StateLines()
    assert lines.changes(state) == ["broker fetching: 46 jars of Kafka"]
    with StartProgress() as progress:
        progress.show(state)
        progress.show(state)
        broker.state = "starting"
        progress.show(state)
    assert capsys.readouterr().err == "fetching 46 jars of Kafka\n"


def test_a_taken_port_is_noted_with_its_owner(tmp_path: Path) -> None:
    usual = free_port()
    assert unusual_port("herder", usual, usual, tmp_path) == ""
    with socket.socket() as other:
        other.bind((HOST, usual))
        other.listen()
        notice = unusual_port("herder", 5, usual, tmp_path)
        assert f"herder listens on port 5 in place of {usual}, its usual port: process {os.getpid()} (" in notice
        assert f"process {os.getpid()} (" in refusal_to_listen(HOST, usual)
    assert refusal_to_listen(HOST, usual) == ""
    notice = unusual_port("herder", 5, usual, tmp_path / "ports.json")
    assert f"is free now: to use it, stop, remove {tmp_path / 'ports.json'} and start again" in notice


def test_port_zero_and_an_unknown_host_are_not_refused() -> None:
    assert refusal_to_listen(HOST, 0) == ""
    assert refusal_to_listen("", 0) == ""
    assert refusal_to_listen("[::]", 0) == ""
    assert refusal_to_listen("no such host", 1) == ""


@pytest.mark.parametrize(("brokers", "says"), [(1, "1 broker, "), (2, "2 brokers, "), (3, ""), (30, "")])
def test_a_small_cluster_is_noted(brokers: int, says: str) -> None:
    notice = replicas(brokers, min(3, brokers))
    assert notice.startswith(f"the cluster has {says}") if says else not notice


def _write(folder: Path, supervisor: ProcessMark | None, *services: ServiceState) -> None:
    layout = StackLayout(folder)
    layout.create()
    layout.write_state(StackState(supervisor, ready=True, services=list(services)))


def test_a_stack_without_its_supervisor_is_found(tmp_path: Path) -> None:
    _write(
        tmp_path, GONE, ServiceState("herder", "h:1", "serving", mark=ME), ServiceState("worker-1", "h:2", mark=GONE)
    )
    (found,) = stack_findings(tmp_path)
    assert found.reason == "SUPERVISOR_GONE"
    assert f"process {GONE.pid}, the supervisor of {tmp_path}, is gone, and herder still run" in found.message
    assert f"`herd down --data {tmp_path}`" in found.next_step


def test_a_service_that_does_not_serve_is_found(tmp_path: Path) -> None:
    down = ServiceState("worker-1", "h:2", "restarting", restarts=5, detail="exit code 1")
    often = ServiceState("broker", "h:3", "serving", restarts=3, mark=ME)
    _write(tmp_path, ME, ServiceState("herder", "h:1", "serving", restarts=2, mark=ME), down, often)
    found = stack_findings(tmp_path)
    assert [(one.reason, one.part) for one in found] == [("SERVICE_DOWN", "worker-1"), ("SERVICE_RESTARTS", "broker")]
    assert "exit code 1; it was restarted 5 times" in found[0].message
    assert str(tmp_path / "logs" / "worker-1.log") in found[0].next_step
    assert str(tmp_path / "broker" / "broker.log") in found[1].next_step


def test_a_healthy_or_stopped_or_absent_stack_has_no_finding(tmp_path: Path) -> None:
    assert stack_findings(tmp_path / "never") == []
    _write(tmp_path, ME, ServiceState("herder", "h:1", "serving", mark=ME))
    assert stack_findings(tmp_path) == []
    _write(tmp_path, None, ServiceState("herder", "h:1", "stopped", mark=GONE))
    assert stack_findings(tmp_path) == []
