"""Tests of `herd get connectors` with more connectors than fit on a page, and of `herd describe connector` as a whole:
requests to the herder, and output.
"""

from __future__ import annotations

import csv
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import yaml
from typer import Exit

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import connector_pb2 as connectors
from herdmesh.api.worker.v1 import task_pb2
from herdmesh.cli.commands import describe, get
from herdmesh.cli.display.output import Format
from herdmesh.cli.errors import from_reason
from herdmesh.cli.runner import run

MANY = 1_200
PAGE = 1_000
FAILING = 40
RUNNING, FAILED = common.RUN_STATE_RUNNING, common.RUN_STATE_FAILED


def connector(number: int) -> connectors.Connector:
    """A connector with one task and a lag equal to its number; every fortieth has failed."""
    name = f"sink-{number:04}"
    made = connectors.Connector(name=name, type=common.CONNECTOR_TYPE_SINK, behind_records=number)
    made.status.state, made.status.worker_id = RUNNING, "w1"
    task = made.tasks.add(id=common.TaskId(connector=name, task=0))
    task.status.state, task.status.worker_id = RUNNING, f"w{number % 3}"
    task.progress.records_out = 10 * number
    if number % FAILING == 0:
        task.status.state = FAILED
        task.status.failure.message = f"disk full\nof {name}"
    return made


class Herder:
    """A herder with a given number of connectors, which it pages as the real one does."""

    ListConnectors = GetConnector = ValidateConfig = ListTopics = ListWorkers = WatchConnectors = None

    def __init__(self, count: int) -> None:
        self.shown = [connector(number) for number in range(count)]
        self.workers = [worker("w1"), worker("w2")]
        self.views: list[int] = []
        self.events: list[messages.WatchConnectorsResponse] = []

    async def call(self, _method: Any, request: Any, timeout_s: float | None = None) -> Any:
        if isinstance(request, messages.ValidateConfigRequest):
            assert timeout_s, "a worker that does not answer is not waited for"
            raise from_reason("NO_WORKER", "no worker has the plugin")
        if isinstance(request, messages.GetConnectorRequest):
            found = [one for one in self.shown if one.name == request.name]
            if not found:
                raise from_reason("CONNECTOR_NOT_FOUND", "there is none")
            return messages.GetConnectorResponse(connector=found[0])
        if isinstance(request, admin.ListTopicsRequest):
            return admin.ListTopicsResponse(topics=["orders"] if request.name == "sink-0001" else [])
        if isinstance(request, admin.ListWorkersRequest):
            return admin.ListWorkersResponse(workers=self.workers)
        self.views.append(request.view)
        left = [one for one in self.shown if one.name > request.page_token]
        page = messages.ListConnectorsResponse(connectors=left[: request.page_size or PAGE])
        if len(left) > PAGE:
            page.next_page_token = left[PAGE - 1].name
        if request.view == messages.CONNECTOR_VIEW_STATUS:
            for one in page.connectors:
                for task in one.tasks:
                    task.ClearField("progress")
        return page

    async def stream(self, _method: Any, _request: Any) -> AsyncIterator[messages.WatchConnectorsResponse]:
        """Yields the events, then ends as on Ctrl-C."""
        for event in self.events:
            yield event
        raise KeyboardInterrupt


def worker(name: str, state: connectors.WorkerState.ValueType = connectors.WORKER_STATE_CONNECTED) -> Any:
    return connectors.Worker(worker_id=name, state=state, slots=8)


Herd = Callable[..., tuple[int, str, str]]


@pytest.fixture
def herd(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Herd:
    """A function that runs a command on a herder and returns exit code, standard output, standard error."""

    def ran(herder: Herder, which: Callable[..., None], *arguments: Any, **options: Any) -> tuple[int, str, str]:
        def with_herder(output: Format, _: str | None, work: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
            run(output, lambda: work(herder))

        monkeypatch.setattr(get, "with_herder", with_herder)
        monkeypatch.setattr(describe, "with_herder", with_herder)
        code = 0
        try:
            which(*arguments, **options)
        except Exit as end:
            code = end.exit_code
        told = capfd.readouterr()
        return code, told.out, told.err

    return ran


def test_many_connectors_are_a_line_each_and_requested_without_hidden_columns(herd: Herd) -> None:
    herder = Herder(MANY)
    code, out, err = herd(herder, get.connectors)
    header, *lines = out.splitlines()
    assert (code, err) == (0, "")
    assert header.split() == ["NAME", "TYPE", "STATE", "TASKS", "LAG", "ATTENTION"]
    assert len(lines) == MANY
    assert lines[-1].split()[0] == "sink-1199"
    assert lines[40].split() == [
        *("sink-0040", "sink", "RUNNING", "0/1", "running,", "1", "failed", "40"),
        *("task", "0", "failed:", "disk", "full"),
    ]  # fmt: skip
    assert herder.views == [messages.CONNECTOR_VIEW_STATUS] * 2, "two pages of states, and nothing besides"


def test_few_connectors_are_listed_with_their_record_counts(herd: Herd) -> None:
    herder = Herder(3)
    _, out, _ = herd(herder, get.connectors)
    header, *lines = out.splitlines()
    assert header.split() == ["NAME", "TYPE", "STATE", "TASKS", "LAG", "RECORDS", "REC/S", "ATTENTION"]
    assert lines[2].split() == ["sink-0002", "sink", "RUNNING", "1/1", "running", "2", "20", "0"]
    assert herder.views == [messages.CONNECTOR_VIEW_STATUS, messages.CONNECTOR_VIEW_FULL]


def test_pages_are_consecutive_and_name_the_start_of_the_next(herd: Herd) -> None:
    herder, seen = Herder(MANY), list[str]()
    for skip in (0, 12, 24):
        _, out, err = herd(herder, get.connectors, state=["failed"], columns="name,failed", limit=12, skip=skip)
        seen += [line.split()[0] for line in out.splitlines()[1:]]
        count = 12 if skip < 24 else 6
        more = f"; --skip {skip + 12} shows the next" if skip < 24 else ""
        assert err.strip() == f"{count} of 30 that match, {MANY} in all{more}"
    assert seen == [f"sink-{number:04}" for number in range(0, MANY, FAILING)]


def test_reverse_sort_lists_the_highest_lag_first(herd: Herd) -> None:
    _, out, _ = herd(Herder(MANY), get.connectors, columns="name,lag", sort="lag", reverse=True, limit=2, match="*0")
    assert [line.split() for line in out.splitlines()[1:]] == [["sink-1190", "1,190"], ["sink-1180", "1,180"]]


def test_progress_is_requested_when_it_is_the_sort_key(herd: Herd) -> None:
    herder = Herder(MANY)
    _, out, _ = herd(herder, get.connectors, columns="name", sort="records", reverse=True, limit=1)
    assert out.split() == ["NAME", "sink-1199"]
    assert set(herder.views) == {messages.CONNECTOR_VIEW_FULL}


def test_json_has_exactly_the_matching_connectors(herd: Herd) -> None:
    code, out, _ = herd(
        Herder(MANY), get.connectors, output=Format.JSON, worker="w2", state=["FAILED"], kind="SINK", limit=3
    )
    assert code == 0
    assert [one["name"] for one in json.loads(out)] == ["sink-0080", "sink-0200", "sink-0320"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"columns": "speed"}, "no column SPEED; there are: NAME"),
        ({"sort": "speed"}, "no column SPEED; there are: NAME"),
        ({"state": ["runing"]}, "no state RUNING; there are: FAILED"),
    ],
)
def test_an_invalid_option_is_refused_before_any_request(herd: Herd, options: dict[str, Any], says: str) -> None:
    herder = Herder(MANY)
    code, out, err = herd(herder, get.connectors, **options)
    assert (code, out, says in err) == (2, "", True)
    assert herder.views == []


def test_an_empty_list_and_an_unknown_name_are_reported(herd: Herd) -> None:
    assert "no connectors yet" in herd(Herder(0), get.connectors)[1]
    code, _, err = herd(Herder(MANY), get.connectors, "sink-004")
    assert code == 3
    assert "no connector sink-004; there are: 1200, such as sink-" in err


def test_one_connector_is_listed_with_the_chosen_columns(herd: Herd) -> None:
    herder = Herder(3)
    _, out, _ = herd(herder, get.connectors, "sink-0002", columns="name,lag")
    assert [line.split() for line in out.splitlines()] == [["NAME", "LAG"], ["sink-0002", "2"]]
    _, out, _ = herd(herder, get.connectors, "sink-0002")
    assert out.splitlines()[0].split()[:3] == ["NAME", "TYPE", "STATE"]
    code, _, err = herd(herder, get.connectors, "sink-0002", columns="speed")
    assert (code, "no column SPEED" in err) == (2, True)


def test_describe_shows_state_restarts_errors_and_partitions(herd: Herd) -> None:
    herder = Herder(1)
    (shown,) = herder.shown
    shown.config.entries["topics"].text = "orders"
    shown.status.generation = 17
    task = shown.tasks[0]
    task.status.generation, task.status.start_count = 23, 4
    task.status.explanation = "failed (RETRIABLE); restart 3 of 10 follows at 2026-11-21T17:00:05Z"
    task.status.failure.error_class = common.ERROR_CLASS_RETRIABLE
    task.status.failure.message = "disk full [/data]"
    task.status.failure.trace = (
        "Traceback (most recent call last):\n  File [sink.py], line 7\nOSError: disk full [/data]"
    )
    restart = task.status.auto_restart
    restart.attempt, restart.attempts_max = 3, 10
    restart.next_time.FromJsonString("2026-11-21T17:00:05Z")
    restart.last_failure.message = "broker away"
    task.progress.partitions.append(
        task_pb2.PartitionProgress(topic="orders", partition=2, committed_offset=100, position=120, end_offset=1_600)
    )
    code, out, _ = herd(herder, describe.describe_connector, "sink-0000")
    lines = [line.rstrip() for line in out.splitlines()]
    assert code == 0
    assert lines[0] == ("sink-0000: task 0 failed: disk full [/data]. Restart 3 of 10 follows at 2026-11-21T17:00:05Z.")
    assert lines[2] == "sink-0000 (sink), wanted STARTED, behind 0, uncommitted -"
    assert lines[3] == "connector RUNNING on w1, generation 17"
    at = lines.index("tasks")
    assert lines[at + 1].split()[-3:] == ["STARTS", "GENERATION", "AGE"]
    assert lines[at + 2].split()[-3:] == ["4", "23", "-"]
    begin = lines.index("task 0 FAILED on w0, generation 23")
    assert lines[begin + 1 : begin + 5] == [
        "  the error before: broker away",
        "Traceback (most recent call last):",
        "  File [sink.py], line 7",
        "OSError: disk full [/data]",
    ]
    for once in ("restart 3 of 10", "retriable"):
        assert out.lower().count(once) <= 1
    assert ["0", "orders", "2", "100", "120", "1600", "1,480", "20"] in [line.split() for line in lines]
    assert ["topics", "orders"] in [line.split() for line in lines]


def test_one_connector_passes_the_filters_as_a_list_does(herd: Herd) -> None:
    for name, kept in (("sink-0000", 1), ("sink-0001", 0)):
        _, out, err = herd(Herder(3), get.connectors, name, state=["failed"], columns="name,state")
        assert [line.split()[0] for line in out.splitlines()] == ["NAME", *[name] * kept]
        assert ("0 of 0 that match, 1 in all" in err) == (not kept)
    assert json.loads(herd(Herder(3), get.connectors, "sink-0001", output=Format.JSON)[1])["name"] == "sink-0001"
    assert json.loads(herd(Herder(3), get.connectors, "sink-0001", output=Format.JSON, kind="source")[1]) == []


def test_every_format_lists_the_connectors_that_match(herd: Herd) -> None:
    failed = {"state": ["failed"], "columns": "name,failed,lag"}
    names = [f"sink-{number:04}" for number in range(0, MANY, FAILING)]
    _, out, _ = herd(Herder(MANY), get.connectors, output=Format.NAME, **failed)
    assert out.split() == [f"connector/{name}" for name in names]
    _, out, _ = herd(Herder(MANY), get.connectors, output=Format.CSV, **failed)
    assert out.splitlines() == ["NAME,FAILED,LAG", *(f"{name},1,{int(name[-4:])}" for name in names)]
    _, out, _ = herd(Herder(MANY), get.connectors, output=Format.parse("jsonpath={[*].name}"), **failed)
    assert out.split() == names
    _, out, _ = herd(Herder(MANY), get.connectors, output=Format.YAML, **failed)
    assert [one["name"] for one in yaml.safe_load(out)] == names


def test_topics_of_a_connector_that_does_not_exist_are_not_found(herd: Herd) -> None:
    assert herd(Herder(3), get.topics, "sink-0001")[:2] == (0, "orders\n")
    assert herd(Herder(3), get.topics, "sink-0002")[:2] == (0, "sink-0002 has used no topic yet\n")
    code, out, err = herd(Herder(3), get.topics, "nope")
    assert (code, out, "no connector nope; there are: sink-0000" in err) == (3, "", True)
    assert herd(Herder(3), get.topics, "sink-0001", output=Format.NAME)[1] == "topic/orders\n"


def test_tasks_are_listed_by_connector_by_state_and_one_by_one(herd: Herd) -> None:
    _, out, _ = herd(Herder(3), get.tasks)
    assert [line.split()[0] for line in out.splitlines()] == ["NAME", "sink-0000/0", "sink-0001/0", "sink-0002/0"]
    assert herd(Herder(3), get.tasks, state=["failed"], output=Format.NAME)[1] == "task/sink-0000/0\n"
    assert json.loads(herd(Herder(3), get.tasks, "sink-0001", output=Format.JSON)[1])[0]["connector"] == "sink-0001"
    assert json.loads(herd(Herder(3), get.tasks, "sink-0001/0", output=Format.JSON)[1])["state"] == "RUNNING"
    code, _, err = herd(Herder(3), get.tasks, "sink-0001/7")
    assert (code, "connector sink-0001 has no task 7; there are: 0" in err) == (3, True)


def test_describe_shows_one_task(herd: Herd) -> None:
    code, out, _ = herd(Herder(1), describe.describe_task, "sink-0000/0")
    assert (code, out.splitlines()[0]) == (0, "sink-0000/0 FAILED on w0, generation 0")
    assert json.loads(herd(Herder(1), describe.describe_task, "sink-0000/0", output=Format.JSON)[1])["id"] == 0


def test_describe_has_a_line_of_csv_for_each_unit_with_plain_numbers(herd: Herd) -> None:
    herder = Herder(1)
    herder.shown[0].counts.records_out = 1_234
    _, out, _ = herd(herder, describe.describe_connector, "sink-0000", output=Format.CSV)
    rows = list(csv.DictReader(out.splitlines()))
    assert [row["NAME"] for row in rows] == ["sink-0000", "sink-0000/0"]
    assert (rows[0]["RECORDS"], rows[1]["RECORDS"]) == ("1234", "0")
    assert [row["STATE"] for row in rows] == ["RUNNING", "FAILED"]
    _, out, _ = herd(herder, describe.describe_task, "sink-0000/0", output=Format.CSV)
    assert [row["NAME"] for row in csv.DictReader(out.splitlines())] == ["sink-0000/0"]


def test_describe_shows_the_frames_of_libraries_of_a_task_with_v(herd: Herd) -> None:
    herder = Herder(1)
    herder.shown[0].tasks[0].status.failure.trace = (
        "Traceback (most recent call last):\n"
        '  File "/venv/lib/python3.12/site-packages/herdmesh/engine/sink.py", line 3, in run\n    put()\n'
        '  File "/srv/my_sink.py", line 7, in put\n    write()\nOSError: disk full'
    )
    _, short, _ = herd(herder, describe.describe_task, "sink-0000/0")
    _, whole, _ = herd(herder, describe.describe_task, "sink-0000/0", verbose=True)
    for text in (short, whole):
        assert text.count("my_sink.py") == 1
    assert ("herdmesh/engine" in short, "herdmesh/engine" in whole) == (False, True)
    assert "-v shows them" in short


def test_get_all_lists_connectors_tasks_and_workers(herd: Herd) -> None:
    _, out, _ = herd(Herder(1), get.everything)
    assert [part.splitlines()[0] for part in out.split("\n\n")] == ["connectors", "tasks", "workers"]
    assert herd(Herder(1), get.everything, output=Format.NAME)[1].split() == [
        *("connector/sink-0000", "worker/w1", "worker/w2", "task/sink-0000/0"),
    ]
    assert set(json.loads(herd(Herder(1), get.everything, output=Format.JSON)[1])) == {"connectors", "workers"}
    assert herd(Herder(1), get.everything, output=Format.CSV)[1].splitlines()[-1] == "worker,w2,CONNECTED,"


def event(**what: Any) -> messages.WatchConnectorsResponse:
    return messages.WatchConnectorsResponse(**what)


def test_watch_prints_a_line_for_each_change_of_a_state(herd: Herd) -> None:
    herder = Herder(2)
    busy, stopped = connector(1), connector(1)
    busy.tasks[0].progress.records_out += 1_000
    stopped.status.state = common.RUN_STATE_STOPPED
    herder.events = [event(connector=busy), event(connector=stopped), event(connector=stopped)]
    herder.events += [event(connector=connector(7)), event(deleted="sink-0001"), event(deleted="other")]
    code, out, _ = herd(herder, get.connectors, watch=True, columns="name,state,records", kind="sink")
    assert code == 130
    assert [line.split() for line in out.splitlines()] == [
        *(["NAME", "STATE", "RECORDS"], ["sink-0000", "RUNNING", "0"], ["sink-0001", "RUNNING", "10"]),
        *(["sink-0001", "STOPPED", "10"], ["sink-0007", "RUNNING", "70"], ["sink-0001", "DELETED"]),
    ]


def test_watch_prints_documents_for_programs(herd: Herd) -> None:
    herder = Herder(1)
    herder.events = [event(deleted="sink-0000")]
    _, out, _ = herd(herder, get.connectors, watch=True, output=Format.JSON)
    assert [json.loads(line).get("deleted", False) for line in out.splitlines()] == [False, True]


def test_get_workers_shows_the_slots_that_are_used_and_waited_for(herd: Herd) -> None:
    """`-` of a worker that did not say."""
    herder = Herder(1)
    busy = worker("w1")
    busy.slots_used, busy.tasks_waiting_for_slot = 8, 3
    herder.workers = [busy, worker("w2")]
    _, out, _ = herd(herder, get.workers)
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["WORKER", "STATE", "SLOTS", "USED", "WAITING", "CONNECTORS", "TASKS", "WHY"]
    assert [row[2:5] for row in rows[1:]] == [["8", "8", "3"], ["8", "-", "-"]]
    shown = json.loads(herd(herder, get.workers, output=Format.JSON)[1])
    assert [one["tasks_waiting_for_slot"] for one in shown] == [3, None]


def test_watch_follows_workers(herd: Herd) -> None:
    herder = Herder(0)
    herder.events = [event(worker=worker("w2")), event(worker=worker("w2", connectors.WORKER_STATE_LOST))]
    _, out, _ = herd(herder, get.workers, watch=True)
    assert [line.split()[:2] for line in out.splitlines()] == [
        *(["WORKER", "STATE"], ["w1", "CONNECTED"], ["w2", "CONNECTED"], ["w2", "LOST"]),
    ]


def test_watch_follows_tasks_that_come_change_and_go(herd: Herd) -> None:
    herder = Herder(2)
    failed, without = connector(1), connector(1)
    failed.tasks[0].status.state = common.RUN_STATE_FAILED
    del without.tasks[:]
    herder.events = [event(connector=connector(1)), event(connector=failed), event(connector=without)]
    herder.events += [event(connector=connector(3)), event(deleted="sink-0003")]
    code, out, _ = herd(herder, get.tasks, watch=True)
    assert code == 130
    assert [line.split()[:2] for line in out.splitlines()][3:] == [
        *(["sink-0001/0", "FAILED"], ["sink-0001/0", "DELETED"], ["sink-0003/0", "RUNNING"]),
        ["sink-0003/0", "DELETED"],
    ]
    _, out, _ = herd(herder, get.tasks, "sink-0001/0", watch=True, output=Format.NAME)
    assert set(out.split()) == {"task/sink-0001/0"}


def test_watch_follows_all_kinds_in_one_table(herd: Herd) -> None:
    herder = Herder(1)
    herder.events = [event(worker=worker("w2", connectors.WORKER_STATE_LOST)), event(deleted="sink-0000")]
    _, out, _ = herd(herder, get.everything, watch=True)
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["KIND", "NAME", "STATE", "ATTENTION"]
    assert [line[0] for line in lines[1:5]] == ["connector", "task", "worker", "worker"]
    assert lines[5][:3] == ["worker", "w2", "LOST"]
