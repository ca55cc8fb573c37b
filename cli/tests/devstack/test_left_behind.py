"""Tests that `herd down` ends the processes of a killed supervisor, and leaves those of a living one alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from herdmesh.devstack.errors import StackAlreadyRunning
from herdmesh.devstack.layout import ProcessMark, ServiceState, StackLayout, StackState
from herdmesh.devstack.left_behind import end_services, stop_left_behind
from herdmesh.devstack.supervisor import stop_detached

#: A service with a child of its own, as a worker has a JVM. The child outlives SIGTERM to the service.
SERVICE = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
sys.stdin.read()
"""
GONE = ProcessMark(os.getpid(), 1.0)
"""The creation time of a process whose pid now belongs to another."""


@pytest.fixture
def services() -> Iterator[list[psutil.Process]]:
    """Two services and their children."""
    started = [
        subprocess.Popen([sys.executable, "-c", SERVICE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        yield [
            psutil.Process(pid)
            for one in started
            if one.stdout is not None
            for pid in (one.pid, int(one.stdout.readline()))
        ]
    finally:
        for one in started:
            one.kill()
            one.communicate()


def _state(layout: StackLayout, services: list[psutil.Process], supervisor: ProcessMark | None) -> StackState:
    layout.create()
    names = ("worker-1", "herder")
    marks = [ProcessMark.of(one.pid) for one in services[::2]]
    parts = [ServiceState(name, "h:1", "serving", mark=mark) for name, mark in zip(names, marks, strict=True)]
    state = StackState(supervisor, ready=True, services=[*parts, ServiceState("config-store", "h:2", mark=GONE)])
    layout.write_state(state)
    return state


async def test_down_ends_the_processes_of_a_killed_supervisor(tmp_path: Path, services: list[psutil.Process]) -> None:
    layout = StackLayout(tmp_path)
    _state(layout, services, supervisor=GONE)
    assert await stop_detached(tmp_path)
    _, alive = psutil.wait_procs(services, timeout=30)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]
    state = layout.read_state()
    assert state is not None
    assert (state.supervisor, state.ready) == (None, False)
    assert not await stop_detached(tmp_path), "nothing runs there any more"


async def test_down_leaves_the_services_of_a_living_supervisor_alone(
    tmp_path: Path, services: list[psutil.Process]
) -> None:
    layout = StackLayout(tmp_path)
    _state(layout, services, supervisor=ProcessMark.of(os.getpid()))
    with pytest.raises(StackAlreadyRunning, match=str(os.getpid())):
        await stop_left_behind(layout, own_pid=0)
    assert all(one.is_running() for one in services)


async def test_the_next_start_kills_left_behind_services_at_once(
    tmp_path: Path, services: list[psutil.Process]
) -> None:
    state = _state(StackLayout(tmp_path), services, supervisor=GONE)
    assert await end_services(state, orderly=False) == 2
    _, alive = psutil.wait_procs(services, timeout=30)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]


async def test_down_without_a_stack_does_nothing(tmp_path: Path) -> None:
    assert not await stop_left_behind(StackLayout(tmp_path), os.getpid())
