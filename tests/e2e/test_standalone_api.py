"""The API of one `herd run` process with Connect's own sample files, over gRPC and with the commands of `herd`: state
and changes of its connectors, each answer with its effect. Further requests: test_standalone_questions.py.

The tests of both files share the process and run side by side, except those that concern the whole of it.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.rpc import properties
from tests.support.standalone import SAMPLE_SINK, SAMPLE_SOURCE, WAIT_S, HerdRun
from tests.support.standalone_api import JSON_OUT, METHODS, Api, Names, api_of, is_in, sink, source, together

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]
_FILES = {"test_standalone_api.py", "test_standalone_questions.py"}


def items(reply: Any) -> list[tuple[int | None, str, bool]]:
    """Of the answer to a restart: task, state, whether it is restarted."""
    found = [(one.task if one.HasField("task") else None, one) for one in reply.items]
    return [(task, common.RunState.Name(one.state).removeprefix("RUN_STATE_"), one.restarted) for task, one in found]


@together
async def test_connectors_from_the_files_are_listed(api: Api) -> None:
    address, sample = api.run.address, await api.get(SAMPLE_SOURCE)
    written = {"name": SAMPLE_SOURCE, "connector.class": "FileStreamSource", "tasks.max": "1", "file": "test.txt"}
    config = {**written, "topic": sample["config"]["topic"]}
    assert (sample["config"], sample["type"], sample["target_state"]) == (config, "source", "STARTED")
    (task,) = sample["tasks"]
    assert (task["state"], task["worker_id"], task["start_count"]) == ("RUNNING", address, 1)
    java = "org.apache.kafka.connect.file.FileStreamSourceTask"
    assert task["config"] == {**config, "task.class": java}
    await api.until_lines(api.run.folder / "test.sink.txt", "one", "two")

    first = await api.ask("ListConnectors", page_size=1)
    assert [one.name for one in first.connectors] == [first.next_page_token]
    rest = await api.ask("ListConnectors", page_token=first.next_page_token, view=messages.CONNECTOR_VIEW_STATUS)
    names = [one.name for one in (*first.connectors, *rest.connectors)]
    assert names == sorted(names)
    assert {SAMPLE_SOURCE, SAMPLE_SINK} <= {*names}
    assert not any(one.config.entries for one in rest.connectors), "a status has no configs"
    code, listed, _ = await api.herd("get", "connectors", "--match", "local-file-*", *JSON_OUT)
    assert (code, [one["name"] for one in listed]) == (0, [SAMPLE_SINK, SAMPLE_SOURCE])
    code, text, _ = await api.herd("describe", "connector", SAMPLE_SINK)
    assert (code, f"RUNNING on {address}, generation " in text) == (0, True)

    cluster = await api.ask("GetCluster")
    assert (cluster.leader_address, cluster.epoch > 0, cluster.start_count >= 4) == (address, True, True)
    (member,) = cluster.workers
    worker = await api.worker()
    assert (worker["worker_id"], worker["state"], worker["slots"]) == (address, "CONNECTED", member.slots)
    assert {SAMPLE_SOURCE, SAMPLE_SINK} <= {*worker["connectors"]}
    assert {f"{SAMPLE_SOURCE}-0", f"{SAMPLE_SINK}-0"} <= {*worker["tasks"]}
    code, described, _ = await api.herd("describe", "worker", address, *JSON_OUT)
    assert (code, described["address"]) == (0, worker["address"])
    code, listed, _ = await api.herd("get", "workers", *JSON_OUT)
    assert (code, [one["worker_id"] for one in listed]) == (0, [address])


@together
@pytest.mark.parametrize("state", ["STARTED", "PAUSED", "STOPPED"])
async def test_a_connector_begins_in_its_initial_state(api: Api, tmp_path: Path, tmp_topic: Names, state: str) -> None:
    name, file = tmp_topic("src"), tmp_path / "in.txt"
    file.write_text("first\nsecond\n")
    wanted = {"initial_state": f"TARGET_STATE_{state}", "request_id": f"create-{name}"}
    config = source(file, tmp_topic())
    made = await api.create(name, config, **wanted)
    assert (made["target_state"], made["config"]) == (state, {**config, "name": name})
    if state != "STARTED":
        await api.until(name, lambda one: is_in(one, state), f"{state} without tasks")
        assert await api.offsets(name) == []
        code, resumed, _ = await api.herd("resume", name, *JSON_OUT)
        assert (code, resumed["target_state"]) == (0, "STARTED")
    await api.until_running(name)
    read = [({"filename": str(file)}, {"position": 13})]
    await api.until_told("offsets", lambda: api.offsets(name), read)
    again = await api.create(name, config, **wanted)
    assert again["target_state"] == "STARTED", "a retry is told of the first, and takes nothing back"
    assert again["tasks"][0]["start_count"] == 1
    refusal = await api.refused("CreateConnector", name=name, config=properties.to_proto(config), request_id="new")
    assert refusal.reason == "CONNECTOR_EXISTS"


@together
async def test_a_changed_config_is_in_force(api: Api, tmp_path: Path, tmp_topic: Names) -> None:
    """Updated, and patched with a removed key: the tasks restart with it, and earlier records stay processed."""
    name, files = tmp_topic("snk"), [tmp_path / f"{number}.txt" for number in range(3)]
    topic = await api.produce(tmp_topic(), "zero")
    configs = [sink(file, topic, note="kept as it is") for file in files]
    made = await api.ask("CreateConnector", name=name, config=properties.to_proto(configs[0]))
    await api.until_lines(files[0], "zero")

    stale: dict[str, Any] = {"name": name, "expected_revision": made.connector.config_revision}
    update = {**stale, "config": properties.to_proto(configs[1]), "request_id": f"update-{name}"}
    updated = await api.ask("UpdateConnector", **update)
    assert (updated.created, properties.from_proto(updated.connector.config)) == (False, {**configs[1], "name": name})
    await api.until_running(name, connector=2, task=2)
    await api.produce(topic, "one")
    await api.until_lines(files[1], "one")
    assert (await api.refused("UpdateConnector", **stale, config=update["config"])).reason == "REVISION_MISMATCH"
    for method in ("PatchConnector", "DeleteConnector"):
        assert (await api.refused(method, **stale)).reason == "REVISION_MISMATCH", method

    change = properties.to_proto({"file": str(files[2]), "note": None})
    patch = {"name": name, "patch": change, "request_id": f"patch-{name}"}
    patched = await api.ask("PatchConnector", **patch)
    expected = {key: value for key, value in configs[2].items() if key != "note"} | {"name": name}
    assert properties.from_proto(patched.connector.config) == expected
    await api.until_running(name, connector=3, task=3)
    await api.produce(topic, "two")
    await api.until_lines(files[2], "two")
    for method, request in (("UpdateConnector", update), ("PatchConnector", patch)):
        retried = await api.ask(method, **request)
        assert retried.connector.config_revision == patched.connector.config_revision, "a retry changes nothing"
    code, done, _ = await api.herd("patch", name, "note=new", "herdmesh.linger.ms=1000", *JSON_OUT)
    assert (code, done["config"]["note"]) == (0, "new")
    first = json.dumps({"name": name, "config": configs[0]})
    code, done, _ = await api.herd("apply", "-f", "-", *JSON_OUT, stdin=first)
    assert (code, done["result"], done["config"]) == (0, "updated", {**configs[0], "name": name})
    assert [file.read_text() for file in files] == ["zero\n", "one\n", "two\n"], "nothing is lost, nothing doubled"


@together
async def test_pause_keeps_the_task_and_stop_releases_it(api: Api, tmp_path: Path, tmp_topic: Names) -> None:
    """No record moves in either; another sink of the topic shows that there was one to move."""
    name, other = tmp_topic("snk"), tmp_topic("other")
    file, others = tmp_path / "out.txt", tmp_path / "other.txt"
    topic = await api.produce(tmp_topic(), "one")
    await asyncio.gather(api.create(name, sink(file, topic)), api.create(other, sink(others, topic)))
    await asyncio.gather(api.until_lines(file, "one"), api.until_lines(others, "one"))
    before = await api.until_running(name)

    paused = await api.ask("PauseConnector", name=name, request_id=f"pause-{name}")
    assert paused.connector.target_state == common.TARGET_STATE_PAUSED
    shown = await api.until(name, lambda one: is_in(one, "PAUSED", "PAUSED"), "PAUSED with its task")
    assert [shown["tasks"][0][key] for key in ("worker_id", "start_count")] == [before["connector"]["worker_id"], 1]
    assert f"{name}-0" in (await api.worker())["tasks"]
    await api.produce(topic, "two")
    await api.until_lines(others, "one", "two")
    assert file.read_text() == "one\n"
    resumed = await api.ask("ResumeConnector", name=name, request_id=f"resume-{name}")
    assert (await api.until_running(name))["tasks"][0]["start_count"] == 1, "it was there all the time"
    await api.until_lines(file, "one", "two")
    await api.ask("PauseConnector", name=name, request_id=f"pause-{name}")
    assert (await api.get(name))["target_state"] == "STARTED", "a retry takes nothing back"
    stale = {"name": name, "expected_revision": paused.connector.target_state_revision}
    assert (await api.refused("StopConnector", **stale)).reason == "REVISION_MISMATCH"

    current = resumed.connector.target_state_revision
    stopped = await api.ask("StopConnector", name=name, request_id=f"stop-{name}", expected_revision=current)
    assert stopped.connector.target_state == common.TARGET_STATE_STOPPED
    await api.until_stopped(name)

    async def held() -> tuple[bool, bool]:
        worker = await api.worker()
        return name in worker["connectors"], f"{name}-0" in worker["tasks"]

    await api.until_told("the slot is free", held, (True, False))
    assert (await api.refused("RestartTask", name=name, task=0)).reason == "TASK_NOT_FOUND"
    await api.produce(topic, "three")
    await api.until_lines(others, "one", "two", "three")
    assert file.read_text() == "one\ntwo\n"
    code, done, _ = await api.herd("resume", name, *JSON_OUT)
    assert (code, done["target_state"]) == (0, "STARTED")
    await api.until_lines(file, "one", "two", "three")
    await api.ask("StopConnector", name=name, request_id=f"stop-{name}", expected_revision=current)
    assert (await api.get(name))["target_state"] == "STARTED"
    code, done, _ = await api.herd("pause", name, *JSON_OUT)
    assert (code, done["target_state"]) == (0, "PAUSED")


@together
async def test_a_restart_covers_exactly_the_requested_units(api: Api, tmp_path: Path, tmp_topic: Names) -> None:
    """The connector alone, its task alone, both, and failed units only; each answer lists the restarted ones, a retry
    the same.
    """
    name, folder = tmp_topic("snk"), tmp_path / "folder"
    folder.mkdir()
    topic = await api.produce(tmp_topic(), "one")
    await api.create(name, sink(folder / "out.txt", topic))
    await api.until_running(name)

    alone = {"name": name, "request_id": f"alone-{name}"}
    expected = [(None, "RESTARTING", True), (0, "RUNNING", False)]
    assert items(await api.ask("RestartConnector", **alone)) == expected
    assert (await api.until_running(name, connector=2))["tasks"][0]["start_count"] == 1
    assert items(await api.ask("RestartConnector", **alone)) == expected
    code, done, _ = await api.herd("restart", name, "--include-tasks", *JSON_OUT)
    assert (code, [(one["task"], one["restarted"]) for one in done["items"]]) == (0, [(None, True), (0, True)])
    await api.until_running(name, connector=3, task=2)
    task = {"name": name, "task": 0, "request_id": f"task-{name}"}
    await api.ask("RestartTask", **task)
    await api.until_running(name, task=3)
    await api.ask("RestartTask", **task)
    code, done, _ = await api.herd("restart", name, "--task", "0", *JSON_OUT)
    assert (code, done) == (0, {"result": "restarted", "name": name, "task": 0})
    await api.until_running(name, task=4)
    failed = {"name": name, "include_tasks": True, "only_failed": True}
    assert items(await api.ask("RestartConnector", **failed)) == [(None, "RUNNING", False), (0, "RUNNING", False)]

    await api.until_lines(folder / "out.txt", "one")
    await api.ask("PauseConnector", name=name)
    await api.until(name, lambda one: is_in(one, "PAUSED", "PAUSED"), "PAUSED")
    shutil.rmtree(folder)
    assert items(await api.ask("RestartConnector", name=name, include_tasks=True))[1] == (0, "RESTARTING", True)
    await api.ask("ResumeConnector", name=name)
    shown = await api.until(name, lambda one: is_in(one, "RUNNING", "FAILED"), "FAILED, for want of its folder")
    assert (shown["connector"]["start_count"], shown["tasks"][0]["error_class"]) == (4, "BAD_CONFIG")
    assert "out.txt cannot be written" in shown["tasks"][0]["error"]
    folder.mkdir()
    assert items(await api.ask("RestartConnector", **failed)) == [(None, "RUNNING", False), (0, "RESTARTING", True)]
    mended = await api.until_running(name)
    assert (mended["connector"]["start_count"], mended["tasks"][0]["start_count"]) == (4, 6), "none but what was asked"
    await api.produce(topic, "two")
    await api.until_lines(folder / "out.txt", "two")


@together
async def test_a_deleted_connector_is_gone_and_its_offsets_stay(api: Api, tmp_path: Path, tmp_topic: Names) -> None:
    name, file = tmp_topic("snk"), tmp_path / "out.txt"
    topic = await api.produce(tmp_topic(), "one")
    await api.create(name, sink(file, topic))
    await api.until_lines(file, "one")
    await api.ask("DeleteConnector", name=name, request_id=f"delete-{name}")
    assert (await api.refused("GetConnector", name=name)).reason == "CONNECTOR_NOT_FOUND"
    await api.ask("DeleteConnector", name=name, request_id=f"delete-{name}")
    assert (await api.refused("DeleteConnector", name=name, request_id="new")).reason == "CONNECTOR_NOT_FOUND"
    code, done, _ = await api.herd("delete", name, "--yes", "--allow-missing", *JSON_OUT)
    assert (code, done["result"]) == (0, "missing")

    async def is_held() -> bool:
        worker = await api.worker()
        return name in worker["connectors"] or f"{name}-0" in worker["tasks"]

    await api.until_told("held by the worker", is_held, False)
    told = {"event": "deleted", "name": name}
    await asyncio.to_thread(api.run.until, "said to be deleted", lambda said: told in said)
    document = json.dumps({"name": name, "config": sink(file, topic)})
    code, done, _ = await api.herd("apply", "-f", "-", *JSON_OUT, stdin=document)
    assert (code, done["result"]) == (0, "created")
    await api.produce(topic, "two")
    await api.until_lines(file, "one", "two")
    code, done, _ = await api.herd("delete", name, "--yes", *JSON_OUT)
    assert (code, done["result"]) == (0, "deleted")


@together
async def test_several_connectors_are_changed_in_one_call(api: Api, tmp_path: Path, tmp_topic: Names) -> None:
    topic = await api.produce(tmp_topic(), "one")
    files = {tmp_topic(f"snk-{number}"): tmp_path / f"{number}.txt" for number in range(2)}
    documents = json.dumps([{"name": name, "config": sink(file, topic)} for name, file in files.items()])
    code, done, _ = await api.herd("apply", "-f", "-", *JSON_OUT, stdin=documents)
    assert (code, [one["result"] for one in done]) == (0, ["created", "created"])
    for file in files.values():
        await api.until_lines(file, "one")
    code, done, _ = await api.herd("delete", *files, "--yes", *JSON_OUT)
    assert (code, [one["result"] for one in done]) == (0, ["deleted", "deleted"])
    api.called.add("ChangeConnectors")


@together
async def test_a_watch_reports_every_change(api: Api, tmp_path: Path, tmp_topic: Names) -> None:
    herd = (
        "env",
        "--default-signal=INT",
        sys.executable,
        "-m",
        "herdmesh.cli",
    )  # the parent of the tests may ignore it
    command = (*herd, "watch", SAMPLE_SINK, *JSON_OUT, "--herder", api.run.address)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        name, told = tmp_topic("snk"), list[str]()
        Api.called.add("WatchConnectors")
        events: Any = api.client.stream(
            lambda stub: stub.WatchConnectors, messages.WatchConnectorsRequest(names=[name])
        )
        async with asyncio.timeout(WAIT_S), aclosing(events):
            async for event in events:
                kind = event.WhichOneof("event")
                if kind in ("worker", "snapshot_part"):
                    assert not event.snapshot_part.connectors
                    workers = [event.worker] if kind == "worker" else event.snapshot_part.workers
                    assert [worker.worker_id for worker in workers] == [api.run.address]
                    continue
                told += [kind] if kind not in told else []
                if kind == "snapshot_complete":
                    config = sink(tmp_path / "out", tmp_topic())
                    await api.create(name, config, initial_state=common.TARGET_STATE_PAUSED)
                elif kind == "connector" and event.connector.status.state == common.RUN_STATE_PAUSED:
                    assert event.connector.name == name
                    await api.ask("DeleteConnector", name=name, request_id=f"delete-{name}")
                elif kind == "deleted":
                    assert event.deleted == name
                    break
        assert told == ["snapshot_complete", "connector", "deleted"], "and nothing of others"
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), WAIT_S)
        assert json.loads(line)["name"] == SAMPLE_SINK
    finally:
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), WAIT_S) == 130


async def test_draining_the_only_worker_keeps_its_work_running(
    standalone: HerdRun, kafka_bootstrap: str, tmp_path: Path, tmp_topic: Names
) -> None:
    """Running units continue, and new ones wait until the worker accepts units again."""
    address, name, file = standalone.address, tmp_topic("snk"), tmp_path / "out.txt"
    async with api_of(standalone, kafka_bootstrap) as api:
        topic = await api.produce(tmp_topic(), "one")
        drained = (await api.ask("DrainWorker", worker_id=address, request_id="drain-1")).worker
        assert re.fullmatch(r"it drains: (\d+) units to move, of which \1 can run on no other worker", drained.reason)
        code, told, _ = await api.herd("drain", "worker", address, "--timeout", "0.1", *JSON_OUT)
        assert (code, told["error"]["reason"]) == (7, "TIMEOUT")
        await api.create(name, sink(file, topic))
        shown = await api.until(name, lambda one: "drains" in one["connector"].get("explanation", ""), "explained")
        assert (is_in(shown, "UNASSIGNED"), (await api.worker())["state"]) == (True, "DRAINING")
        with (standalone.folder / "test.txt").open("a") as more:
            more.write("three\n")
        await api.until_lines(standalone.folder / "test.sink.txt", "one", "two", "three")
        assert (await api.get(SAMPLE_SINK))["tasks"][0]["start_count"] == 1

        taken = (await api.ask("UndrainWorker", worker_id=address, request_id="undrain-1")).worker
        assert (taken.worker_id, taken.reason) == (address, "")
        await api.until_lines(file, "one")
        await api.ask("DrainWorker", worker_id=address, request_id="drain-1")
        assert (await api.worker())["state"] == "CONNECTED", "a retry takes nothing back"
        code, told, _ = await api.herd("drain", "worker", address, "--no-wait", *JSON_OUT)
        assert (code, told["state"]) == (0, "DRAINING")
        await api.ask("UndrainWorker", worker_id=address, request_id="undrain-1")
        assert (await api.worker())["state"] == "DRAINING"
        code, told, _ = await api.herd("undrain", "worker", address, *JSON_OUT)
        assert (code, told["state"]) == (0, "CONNECTED")


def test_every_operation_of_the_service_was_called(request: pytest.FixtureRequest) -> None:
    """The tests of these files called each one of `ConnectorService`."""
    if request.config.option.keyword or not {item.path.name for item in request.session.items} >= _FILES:
        pytest.skip("only some of the tests were chosen")
    assert {*METHODS} == Api.called


def test_a_signal_to_the_process_group_ends_it_without_a_trace(standalone: HerdRun) -> None:
    """As service managers send it: it prints only its own messages. The last of these tests, as it ends their
    process.
    """
    log = standalone.folder / "run.log"
    said_before = log.stat().st_size
    standalone.interrupt(signal.SIGTERM)
    said = log.read_bytes()[said_before:].decode()
    assert "Traceback" not in said, said[-3000:]
    assert "Py4J" not in said, said[-3000:]
