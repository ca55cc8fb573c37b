"""Services and a broker whose supervisor was killed: found by the state file of their data folder, and ended.

Owns ending them in the order of a stop, and ending a whole stack at once, supervisor included (the second Ctrl-C).
Otherwise a stack that has a living supervisor is not touched: that one stops its own services. Invariant: a process
counts only when its pid and creation time are those of the state file, so that a process that merely got the pid of one
of the stack's is never ended.
"""

from __future__ import annotations

import contextlib

import psutil

from herdmesh import scratch
from herdmesh.devstack.broker import Broker
from herdmesh.devstack.errors import DataFolderUnusable, StackAlreadyRunning
from herdmesh.devstack.layout import ProcessMark, StackLayout, StackState, role_of
from herdmesh.devstack.process import end_tree
from herdmesh.devstack.supervision.folder_lock import FolderLock

STOP_GRACE_S = {"worker": 20.0, "herder": 5.0, "config-store": 5.0, "status-store": 5.0}
"""Time that each role has to end by itself, in the order in which the roles are stopped."""


def refuse_if_supervised(layout: StackLayout, own_pid: int) -> StackState | None:
    """The state of a folder without a living supervisor, None when there is no state. Raises `StackAlreadyRunning`."""
    state = layout.read_state()
    supervisor = state.supervisor if state is not None else None
    if supervisor is not None and supervisor.pid != own_pid and supervisor.alive() is not None:
        raise StackAlreadyRunning(layout.data_dir, supervisor.pid)
    return state


async def end_services(state: StackState, *, orderly: bool) -> int:
    """End the services that are still alive, and everything they started; returns the number of services.

    `orderly`: SIGTERM first, role by role, and SIGKILL for processes that outlive their grace period. Else SIGKILL at
    once.
    """
    count = 0
    for role, grace_s in STOP_GRACE_S.items():
        marks = [one.mark for one in state.services if role_of(one.name) == role and one.mark is not None]
        alive = [process for mark in marks if (process := mark.alive()) is not None]
        trees = [child for process in alive for child in process.children(recursive=True)]
        for process in alive:
            (process.terminate if orderly else process.kill)()
        if orderly:
            await end_tree(alive, grace_s)
        await end_tree(trees, grace_s=0.0)
        count += len(alive)
    scratch.remove_abandoned(scratch.WORKER)
    return count


async def stop_left_behind(layout: StackLayout, own_pid: int) -> bool:
    """Stop everything that a killed supervisor left running in this folder, the broker last. False when nothing ran.

    Raises `StackAlreadyRunning` when the supervisor lives, or another process takes or stops the folder.
    """
    if refuse_if_supervised(layout, own_pid) is None:
        return False
    with FolderLock(layout):  # no `herd up` starts meanwhile
        state = refuse_if_supervised(layout, own_pid)
        if state is None:
            return False
        ended = await end_services(state, orderly=True)
        broker = Broker(layout.broker_dir)
        had_broker = await broker.find()
        await broker.stop()
        if not ended and not had_broker:
            return False
        _write_stopped(layout, state)
    return True


async def kill_stack(layout: StackLayout, supervisor: ProcessMark | None = None) -> None:
    """End a stack at once: its supervisor, everything that it started, and its broker.

    `supervisor`: a supervisor that may not have written its state yet.
    """
    state = layout.read_state()
    mark = supervisor or (state.supervisor if state is not None else None)
    process = mark.alive() if mark is not None else None
    if process is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()  # it starts nothing more
            for one in [*process.children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        await end_tree([process])
        state = layout.read_state()
    if state is not None:
        await end_services(state, orderly=False)
    broker = Broker(layout.broker_dir)
    if await broker.find():
        broker.kill()
    if state is not None:
        _write_stopped(layout, state)


def _write_stopped(layout: StackLayout, state: StackState) -> None:
    state.supervisor, state.ready = None, False
    for service in state.services:
        service.state = "stopped"
    with contextlib.suppress(DataFolderUnusable):  # a full disk: its processes are stopped all the same
        layout.write_state(state)
