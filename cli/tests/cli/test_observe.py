"""Tests of `herd logs`, `herd events` and `herd top` with a herder and workers of given contents."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from typer.testing import CliRunner

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as herder_pb
from herdmesh.api.herder.v1 import connector_pb2
from herdmesh.api.herder.v1 import connector_service_pb2_grpc as herder_grpc
from herdmesh.api.worker.v1 import worker_service_pb2 as pb
from herdmesh.api.worker.v1 import worker_service_pb2_grpc as worker_grpc
from herdmesh.cli.app import app
from herdmesh.cli.commands.observe import logs
from herdmesh.cli.commands.observe.events import change_event, current_events, new_events
from herdmesh.cli.commands.observe.top import usage_of
from herdmesh.rpc.server import Server, ServiceRegistration

_START = "2026-11-28T10:00:0{}Z"


class _Worker(worker_grpc.WorkerServiceServicer):
    """A worker with lines; `lines` are (connector, task, second, text)."""

    def __init__(self, *lines: tuple[str, int, int, str]) -> None:
        self.incarnation = "one"
        self.cpu_ms = 0
        self.lines = [*lines]

    async def ListLogLines(self, request: pb.ListLogLinesRequest, context: Any) -> pb.ListLogLinesResponse:
        found = pb.ListLogLinesResponse(last_number=len(self.lines), incarnation=self.incarnation)
        for number, (connector, task, second, text) in enumerate(self.lines, 1):
            wanted = request.connector in ("", connector) and (not request.HasField("task") or request.task == task)
            if wanted and number > request.after_number:
                line = found.lines.add(number=number, connector=connector, task=task, text=text)
                line.time.FromJsonString(_START.format(second))
        return found

    async def GetWorkerStatus(self, request: Any, context: Any) -> pb.GetWorkerStatusResponse:
        self.cpu_ms += 50
        task = common.TaskId(connector="orders", task=0)
        run = pb.RunUsage(task=task, pid=7, usage=pb.ProcessUsage(cpu_ms=self.cpu_ms, memory_bytes=64 << 20))
        own = pb.ProcessUsage(cpu_ms=2 * self.cpu_ms, memory_bytes=512 << 20)
        found = pb.GetWorkerStatusResponse(slots=8, own=own, runs=[run])
        found.report_time.GetCurrentTime()
        return found


class _Herder(herder_grpc.ConnectorServiceServicer):
    def __init__(self) -> None:
        self.workers: list[connector_pb2.Worker] = []
        tasks = [connector_pb2.Task(id=common.TaskId(connector="orders", task=number)) for number in range(2)]
        for task in tasks:
            task.status.state = common.RUN_STATE_RUNNING
            task.progress.records_per_second = 100.0
        self.connector = connector_pb2.Connector(name="orders", tasks=tasks)
        self.connector.config.entries["topics"].text = "clicks"
        self.connector.config.entries["value.converter"].text = "org.apache.kafka.connect.json.JsonConverter"
        self.connector.config.entries["value.converter.schemas.enable"].text = "false"

    async def GetConnector(self, request: Any, context: Any) -> herder_pb.GetConnectorResponse:
        return herder_pb.GetConnectorResponse(connector=self.connector)

    async def ListConnectors(self, request: Any, context: Any) -> herder_pb.ListConnectorsResponse:
        return herder_pb.ListConnectorsResponse(connectors=[self.connector])

    async def ListWorkers(self, request: Any, context: Any) -> admin_pb.ListWorkersResponse:
        return admin_pb.ListWorkersResponse(workers=self.workers)


@contextlib.asynccontextmanager
async def serving(*workers: _Worker) -> AsyncGenerator[str]:
    """Start a herder with these workers and one that does not answer; yields the herder's address."""
    herder: Any = _Herder()  # pyright: ignore[reportAbstractUsage]
    add_worker, add = (
        worker_grpc.add_WorkerServiceServicer_to_server,
        herder_grpc.add_ConnectorServiceServicer_to_server,
    )
    served: list[tuple[Any, Any, str]] = [(one, add_worker, "herdmesh.api.worker.v1.WorkerService") for one in workers]
    served.append((herder, add, "herdmesh.api.herder.v1.ConnectorService"))
    servers = [Server("127.0.0.1:0", [ServiceRegistration(*one)], metrics=False) for one in served]
    ports = [await server.start() for server in servers]
    for number, port in enumerate([*ports[:-1], 1], 1):
        herder.workers.append(
            connector_pb2.Worker(
                worker_id=f"w{number}",
                address=f"127.0.0.1:{port}",
                state=connector_pb2.WORKER_STATE_CONNECTED,
                slots=8,
                tasks=[common.TaskId(connector="orders", task=0)],
            )
        )
    try:
        yield f"127.0.0.1:{ports[-1]}"
    finally:
        await asyncio.gather(*(server.stop(0) for server in servers))


def worker(*lines: tuple[str, int, int, str]) -> _Worker:
    return _Worker(*lines)  # pyright: ignore[reportAbstractUsage]


async def herd(*arguments: str) -> Any:
    return await asyncio.to_thread(CliRunner().invoke, app, [*arguments])


async def test_lines_of_a_connector_come_from_all_workers_in_the_order_of_time() -> None:
    fields = {"message": "disk full", "unit": "[orders|task-0]", "connector": "orders", "task": 0, "failure": None}
    fields |= {"service": "herdmesh.worker", "instance": "a8a6231e"}
    event = json.dumps({"event": "run_failed", "level": "error", **fields})
    one = worker(("orders", 0, 1, "begins"), ("orders", 0, 3, event), ("other", 0, 2, "hidden"))
    two = worker(("orders", 1, 2, "printed [by] the author"))
    async with serving(one, two) as herder:
        done = await herd("logs", "connector", "orders", "--herder", herder)
        listed = await herd("logs", "task", "orders/0", "--herder", herder, "-o", "json")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "2026-11-28T10:00:01Z orders/0 begins",
        "2026-11-28T10:00:02Z orders/1 printed [by] the author",
        '2026-11-28T10:00:03Z error   orders/0 run_failed message="disk full"',
    ]
    assert "worker w3 does not answer" in done.stderr
    assert [(line["worker_id"], line["text"]) for line in json.loads(listed.stdout)] == [
        ("w1", "begins"),
        ("w1", event),
    ]


def test_a_readable_line_has_milliseconds_and_the_fields_that_say_something() -> None:
    fields = {"event": "listening", "timestamp": "2026-11-28T10:00:01.304003Z", "task": 1, "service": "s", "port": 7}
    assert logs.readable({"time": None, "text": json.dumps(fields)}) == (
        "[dim]2026-11-28T10:00:01.304Z[/] info    listening [dim]task=[/]1 [dim]port=[/]7"
    )


async def test_a_task_that_does_not_exist_is_refused_with_those_that_do() -> None:
    async with serving() as herder:
        done = await herd("logs", "task", "orders/9", "--herder", herder)
        wrong = await herd("logs", "task", "orders", "--herder", herder)
    assert (done.exit_code, "its tasks: 0, 1" in done.stderr) == (3, True)
    assert (wrong.exit_code, "CONNECTOR/TASK" in wrong.stderr) == (2, True)


async def test_followed_lines_are_shown_once_also_after_a_restart_of_the_worker() -> None:
    one = worker(("orders", 0, 1, "first"))
    async with serving(one) as herder:
        listed = await herd("get", "workers", "w1", "--herder", herder, "-o", "json")
        known = [json.loads(listed.stdout)]
        async with logs.WorkerCalls() as calls:
            followed = logs.FollowedLines(calls, pb.ListLogLinesRequest(connector="orders"))
            seen = [line["text"] for line in await followed.first(known)]
            seen += [line["text"] for line in await followed.more(known)]
            one.lines += [("other", 0, 2, "hidden"), ("orders", 0, 2, "second")]
            seen += [line["text"] for line in await followed.more(known)]
            one.incarnation, one.lines = "two", [("orders", 0, 3, "third")]
            seen += [line["text"] for line in await followed.more(known)]
            seen += [line["text"] for line in await followed.more(known)]
    assert seen == ["first", "second", "third"]


async def test_the_log_of_a_service_is_read_from_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    lines = [json.dumps({"event": f"e{n}", "level": "info", "timestamp": _START.format(n)}) for n in range(5)]
    (folder / "herder.log").write_text("\n".join([*lines, "a line of a library"]) + "\n")
    done = await herd("logs", "service", "herder", "--data", str(tmp_path), "-n", "2")
    assert done.stdout.splitlines() == ["2026-11-28T10:00:04Z info    e4", "a line of a library"]
    done = await herd("logs", "service", "herder", "--data", str(tmp_path), "--since", _START.format(3), "-o", "json")
    assert [one["time"] for one in json.loads(done.stdout)] == [_START.format(3), _START.format(4)]
    done = await herd("logs", "service", "herdr", "--data", str(tmp_path))
    assert (done.exit_code, "there are: herder" in done.stderr) == (2, True)
    done = await herd("logs", "service", "herder", "--data", str(tmp_path / "none"))
    assert (done.exit_code, "journalctl" in done.stderr) == (2, True)


async def test_appended_lines_of_a_file_are_followed_also_after_a_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_POLL_S", 0.01)
    path = tmp_path / "herder.log"
    path.write_text("before\n")
    lines = logs.appended_lines(path)
    reading = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0)  # it has read the size
    with path.open("a") as file:
        file.write("after\nha")
    assert (await reading)["text"] == "after"
    path.write_text("new\n")
    assert (await anext(lines))["text"] == "new"


def unit(state: str, second: int, **more: Any) -> dict[str, Any]:
    return {"state": state, "worker_id": "w1", "since": _START.format(second), **more}


def connector(*tasks: dict[str, Any], target_state: str = "STARTED") -> dict[str, Any]:
    numbered = [{"id": number, **task} for number, task in enumerate(tasks)]
    return {"name": "orders", "target_state": target_state, "connector": unit("RUNNING", 0), "tasks": numbered}


def told(found: Any) -> list[tuple[str, Any, str]]:
    return [(one["kind"], one["task"], one["what"]) for one in found]


def test_events_of_a_view_are_placements_states_failures_and_waits() -> None:
    wait = {"type": "WAITING", "message": "waits for db", "wait": {"since": _START.format(2)}}
    failed = unit("FAILED", 3, error="disk full\nmore", placed_time=_START.format(1), placed_because="it is new")
    found = list(current_events(connector(failed, unit("RUNNING", 4, conditions=[wait]))))
    assert told(found) == [
        ("state", None, "RUNNING on w1"),
        ("placed", 0, "placed on w1, because it is new"),
        ("state", 0, "FAILED on w1: disk full"),
        ("state", 1, "RUNNING on w1"),
        ("waiting", 1, "waits for db"),
    ]


def test_only_what_changed_between_two_views_is_an_event() -> None:
    now = datetime(2026, 11, 28, 10, 0, 9, tzinfo=UTC)
    wait = {"type": "WAITING", "message": "waits for db (1 try)", "wait": {"since": _START.format(2)}}
    before = connector(unit("RUNNING", 1, conditions=[wait]), unit("RUNNING", 1))
    again = {**wait, "message": "waits for db (2 tries)"}
    assert list(new_events(before, connector(unit("RUNNING", 1, conditions=[again]), unit("RUNNING", 1)), now)) == []
    after = connector(unit("FAILED", 5, error="boom"), target_state="PAUSED")
    assert told(new_events(before, after, now)) == [
        ("change", None, "wanted PAUSED"),
        ("state", 0, "FAILED on w1: boom"),
        ("state", 1, "the task is gone"),
    ]


def test_a_change_names_its_author() -> None:
    change: dict[str, Any] = {
        "time": _START.format(1),
        "caller": "ada@pc",
        "by": "caller",
        "operation": "PutConnectorConfig",
        "deleted": False,
        "changed": ["tasks.max"],
        "target_state": None,
        "task_count": None,
        "restart": None,
        "restored_revision": None,
        "config": {},
    }
    shown = change_event("orders", change)
    assert (shown["kind"], shown["by"], shown["what"]) == ("change", "ada@pc", "PutConnectorConfig: tasks.max")
    shown = change_event("orders", {**change, "by": "herder", "caller": "herder 31871c7a"})
    assert (shown["kind"], shown["by"]) == ("herder", "herder 31871c7a")


async def test_events_are_listed_without_a_config_store_too() -> None:
    async with serving() as herder:
        done = await herd("events", "orders", "--herder", herder, "--config-store", "127.0.0.1:1", "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, [])
    assert "changes are missing" in done.stderr


async def test_top_shows_use_by_worker_and_by_connector() -> None:
    async with serving(worker()) as herder:
        done = await herd("top", "--herder", herder, "--interval", "0.2")
        listed = await herd("top", "--herder", herder, "--interval", "0.2", "-o", "json")
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.stdout.splitlines() if line.strip()]
    assert "does not answer" in done.stdout.splitlines()[1], "before the tables, also in a live picture"
    assert ["WORKER", "STATE", "TASKS", "RUNS", "SLOTS", "CPU", "MEMORY"] in rows
    busy = next(row for row in rows if row[0] == "w1")
    assert (busy[1:5], busy[6:]) == (["CONNECTED", "1", "1", "8"], ["512", "MiB"])
    silent = next(row for row in rows if row[0] == "w2")
    assert silent[3:] == ["-", "8", "-", "-"], "unknown is a dash"
    orders = next(row for row in rows if row[0] == "orders")
    assert (orders[1:4], orders[5:]) == (["2/2", "200", "-"], ["64", "MiB"])
    found = json.loads(listed.stdout)
    assert found["connectors"][0]["memory_bytes"] == 64 << 20
    assert 0 < found["connectors"][0]["cpu"] < found["workers"][0]["cpu"] + 1e-9
    assert "w2" in found["silent"]
    assert (found["attention"]["connectors"], found["attention"]["tasks"]) == (1, {"RUNNING": 2})


async def test_top_is_printed_again_and_again_in_a_pipe() -> None:
    async with serving(worker()) as herder:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "herdmesh.cli", "top", "-f", "--interval", "0.2", "--herder", herder),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        seen = 0
        while seen < 3:
            line = await process.stdout.readline()
            assert line, "it ended"
            seen += line.startswith(b"WORKER")
        process.send_signal(signal.SIGINT)
        await process.communicate()
        assert process.returncode == 130


async def test_the_chain_of_a_connector_of_the_mesh_is_tried() -> None:
    async with serving() as herder:
        line = ["transform", "--as-connector", "orders", "--herder", herder, "-o", "jsonpath={.topic} {.value.id}"]
        done = await asyncio.to_thread(CliRunner().invoke, app, line, input='{"id": 7}\n')
    assert (done.exit_code, done.stdout) == (0, "clicks 7\n"), done.output


def _status(cpu_ms: int, *runs: tuple[int, int, int]) -> dict[str, Any]:
    """`runs` are (task, pid, processor time in ms)."""
    return {
        "own": {"cpu_ms": cpu_ms, "memory_bytes": 1},
        "runs": [
            {"connector": "orders", "task": task, "pid": pid, "cpu_ms": used, "memory_bytes": 1}
            for task, pid, used in runs
        ],
    }


def test_processor_shares_are_differences_of_one_process() -> None:
    one = {"worker_id": "w1", "state": "CONNECTED", "slots": 8, "tasks": ["orders-0", "orders-1"]}
    tasks = [{"id": number, "state": "RUNNING"} for number in range(2)]
    orders = {"name": "orders", "tasks": tasks, "behind_records": None}
    before = {"w1": (10.0, _status(1_000, (0, 7, 100), (1, 8, 100)))}
    now = {"w1": (12.0, _status(4_000, (0, 7, 600), (1, 9, 50)))}
    found = usage_of([one], [orders], before, now)
    assert found["workers"][0]["cpu"] == 1.5
    assert found["connectors"][0]["cpu"] == 0.25, "the second run has another process than before"
    assert found["connectors"][0]["records_per_second"] is None
    first = usage_of([one], [orders], {}, now)
    assert (first["workers"][0]["cpu"], first["connectors"][0]["cpu"]) == (None, None)


def test_a_line_of_a_logger_is_readable() -> None:
    text = {
        "event": "stopped",
        "level": "warning",
        "timestamp": "T",
        "logger": "x",
        "count": 3,
        "exception": "Traceback",
    }
    shown = Text.from_markup(logs.readable({"time": None, "text": json.dumps(text)})).plain
    assert shown == "T warning stopped count=3\nTraceback"
    assert logs.readable({"time": "T", "text": "{not json"}) == "[dim]T[/] {not json"
