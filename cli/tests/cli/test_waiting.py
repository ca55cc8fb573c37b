"""Tests of `--wait[=STATE] --timeout`: which state ends a wait, and the errors of one that does not end well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import connector_pb2 as connectors
from herdmesh.cli.batch import waiting
from herdmesh.cli.batch.waiting import Floors, StateWait, WaitOption, WaitState, is_in, wait_of
from herdmesh.cli.display import views
from herdmesh.cli.errors import CommandError, from_reason
from herdmesh.cli.grammar import HerdCommand
from herdmesh.cli.times import seconds

UNASSIGNED, RUNNING, PAUSED, STOPPED, FAILED = (
    common.RunState.Value(f"RUN_STATE_{name}") for name in ("UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED")
)


def connector(*states: Any, target: str = "STARTED", generation: int = 5, name: str = "a") -> connectors.Connector:
    """A connector with the states of itself and its tasks, all of one generation."""
    made = connectors.Connector(name=name, target_state=common.TargetState.Value(f"TARGET_STATE_{target}"))
    for number, state in enumerate(states):
        status = (
            made.status if number == 0 else made.tasks.add(id=common.TaskId(connector=name, task=number - 1)).status
        )
        status.state, status.generation = state, generation
        if state == FAILED:
            status.failure.message = "disk full\n  at line 1"
    return made


@pytest.mark.parametrize(
    ("state", "shown", "floors", "done"),
    [
        ("ready", connector(RUNNING, RUNNING), Floors(), True),
        ("ready", connector(RUNNING, UNASSIGNED), Floors(), False),
        ("ready", connector(RUNNING, RUNNING), Floors(4, 4), True),
        ("ready", connector(RUNNING, RUNNING), Floors(5, -1), False),
        ("ready", connector(RUNNING, RUNNING), Floors(-1, 5), False),
        ("ready", connector(RUNNING, RUNNING), Floors(-1, 5, frozenset({1})), True),
        ("ready", connector(PAUSED, PAUSED, target="PAUSED"), Floors(4, 5), True),
        ("ready", connector(PAUSED, RUNNING, target="PAUSED"), Floors(), False),
        ("ready", connector(STOPPED, target="STOPPED"), Floors(), True),
        ("ready", connector(STOPPED, RUNNING, target="STOPPED"), Floors(), False),
        ("ready", connector(STOPPED, UNASSIGNED, target="STOPPED"), Floors(), True),
        ("running", connector(PAUSED, PAUSED, target="PAUSED"), Floors(), False),
        ("paused", connector(RUNNING, RUNNING), Floors(), False),
        ("paused", connector(PAUSED, PAUSED), Floors(), False),
        ("failed", connector(RUNNING, FAILED), Floors(), True),
        ("failed", connector(RUNNING, RUNNING), Floors(), False),
        ("deleted", connector(RUNNING, RUNNING), Floors(), False),
    ],
)
def test_a_wait_ends_in_its_state_and_not_with_the_units_of_before(
    state: str, shown: connectors.Connector, floors: Floors, done: bool
) -> None:
    assert is_in(WaitState(state), views.connector(shown), floors) is done


class Herder:
    """A herder whose watches send these events, each watch the next list; the last one stays open."""

    def __init__(self, *watches: list[connectors.Connector | str | CommandError]) -> None:
        self._watches = list(watches)
        self.names: list[list[str]] = []

    async def stream(self, _method: Any, request: messages.WatchConnectorsRequest) -> AsyncIterator[Any]:
        self.names.append(list(request.names))
        events = self._watches.pop(0)
        for event in events:
            if isinstance(event, CommandError):
                raise event
            if event == "complete":
                complete = messages.WatchConnectorsSnapshotComplete()
                yield messages.WatchConnectorsResponse(snapshot_complete=complete)
            elif isinstance(event, str):
                yield messages.WatchConnectorsResponse(deleted=event)
            else:
                yield messages.WatchConnectorsResponse(connector=event)
        if not self._watches:
            await asyncio.Event().wait()


async def outcome(herder: Herder, wait: StateWait, *names: str) -> dict[str, CommandError]:
    client: Any = herder
    return await wait.until(client, dict.fromkeys(names or ("a",), Floors()))


async def test_several_connectors_are_waited_for_with_one_watch() -> None:
    herder = Herder(
        [connector(RUNNING, UNASSIGNED), connector(RUNNING, RUNNING, name="b"), "complete", connector(RUNNING, RUNNING)]
    )
    assert await outcome(herder, StateWait(WaitState.READY, 5), "a", "b") == {}
    assert herder.names == [["a", "b"]]


async def test_a_wait_goes_on_with_another_leader() -> None:
    herder = Herder(
        [connector(RUNNING, UNASSIGNED), "complete", from_reason("UNREACHABLE", "gone")], [connector(RUNNING, RUNNING)]
    )
    assert await outcome(herder, StateWait(WaitState.RUNNING, 5)) == {}


async def test_a_unit_that_failed_for_good_ends_the_wait_with_its_error() -> None:
    retried = connector(RUNNING, FAILED)
    retried.tasks[0].status.auto_restart.next_time.seconds = 1
    herder = Herder([retried, "complete", connector(RUNNING, FAILED)])
    error = (await outcome(herder, StateWait(WaitState.READY, 5)))["a"]
    assert (error.reason, error.exit_code) == ("FAILED", 11)
    assert error.message == "connector a failed: task 0: disk full"


async def test_a_late_wait_names_what_is_missing() -> None:
    shown = connector(RUNNING, UNASSIGNED, RUNNING)
    shown.tasks[0].status.explanation = "waits for a worker: no worker is connected"
    error = (await outcome(Herder([shown, "complete"]), StateWait(WaitState.READY, 0.05)))["a"]
    assert (error.reason, error.exit_code) == ("TIMEOUT", 7)
    assert error.message == (
        "connector a is not ready after 0.05 s: task 0 is UNASSIGNED (waits for a worker: no worker is connected)"
    )


async def test_a_deleted_connector_ends_every_wait() -> None:
    assert await outcome(Herder([connector(RUNNING), "complete", "a"]), StateWait(WaitState.DELETED, 5)) == {}
    assert await outcome(Herder(["complete"]), StateWait(WaitState.DELETED, 5)) == {}
    error = (await outcome(Herder([connector(RUNNING), "complete", "a"]), StateWait(WaitState.READY, 5)))["a"]
    assert error.message == "connector a was deleted during the wait"


async def test_a_connector_without_tasks_is_ready_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first task set may still be under way."""
    monkeypatch.setattr(waiting, "_NO_TASKS_S", 0.0)
    assert await outcome(Herder([connector(RUNNING), "complete"]), StateWait(WaitState.READY, 5)) == {}
    monkeypatch.setattr(waiting, "_NO_TASKS_S", 60.0)
    assert (
        await outcome(
            Herder([connector(RUNNING), "complete", connector(RUNNING, RUNNING)]), StateWait(WaitState.READY, 5)
        )
        == {}
    )
    assert "a" in await outcome(Herder([connector(RUNNING), "complete"]), StateWait(WaitState.READY, 0.05))


@pytest.mark.parametrize(("text", "found"), [("90", 90), ("30s", 30), ("5m", 300), ("1h", 3600), ("0.5s", 0.5)])
def test_times_are_read(text: str, found: float) -> None:
    assert seconds(text) == found


@pytest.mark.parametrize("text", ["", "0", "soon", "-1s", "5 d"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is no time: write 30s, 5m or 1h"):
        seconds(text)


def test_a_timeout_needs_a_wait() -> None:
    with pytest.raises(CommandError, match="give --wait too"):
        wait_of(None, "5s")
    assert wait_of(WaitState.READY, "").timeout_s == waiting.TIMEOUT_S


def test_a_state_needs_the_equals_sign_and_may_be_left_out() -> None:
    app = typer.Typer()

    @app.command(cls=HerdCommand)
    def change(names: list[str], wait: WaitOption = None) -> None:  # pyright: ignore[reportUnusedFunction]
        typer.echo(f"{names} {wait}")

    for arguments, shown in (
        (("a",), "['a'] None"),
        (("--wait", "paused"), "['paused'] ready"),
        (("a", "--wait=paused"), "['a'] paused"),
        (("a", "--", "--wait"), "['a', '--wait'] None"),
    ):
        done = CliRunner().invoke(app, arguments)
        assert (done.exit_code, done.stdout.strip()) == (0, shown)
    assert CliRunner().invoke(app, ("a", "--wait=soon")).exit_code == 2
