"""Further requests to one `herd run` process, beside test_standalone_api.py, and its refusals: offsets,
topics, validation, plans, dead letters, plugins, loggers, history, and the other services it serves.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.worker.v1 import worker_service_pb2 as worker_messages
from herdmesh.api.worker.v1.worker_service_pb2_grpc import WorkerServiceStub
from herdmesh.connect.topics import offsets_file
from herdmesh.rpc import properties
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import RequestInvalid
from tests.support.standalone import SAMPLE_SINK, SAMPLE_SOURCE
from tests.support.standalone_api import JSON_OUT, METHODS, Api, Names, documents, sink, source, together

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

DONE = "The offsets for this connector have been {} successfully"
YEAR_2026_S = 1_767_225_600
_GOOD = properties.to_proto({"connector.class": "FileStreamSink", "file": "out.txt", "topics": "none"})
_NO_CLASS = properties.to_proto({"connector.class": "NoSuchSink", "topics": "none"})
_NO_TASKS = properties.to_proto({"tasks.max": "0"})
_OFFSET = {"partition_json": '{"kafka_topic":"none","kafka_partition":0}', "offset_json": '{"kafka_offset":0}'}
_NOBODY, _SAMPLE = {"name": "nobody"}, {"name": SAMPLE_SINK}
_NAMELESS = ({"name": ""}, "REQUEST_INVALID")
_UNKNOWN = (_NOBODY, "CONNECTOR_NOT_FOUND")
#: Refused requests of each operation, with the reason. The other operations refuse nothing.
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "CreateConnector": [
        ({"config": _GOOD}, "CONFIG_INVALID"),
        ({"name": "a\x07b", "config": _GOOD}, "CONFIG_INVALID"),
        ({"name": "one", "config": properties.to_proto({"name": "other"})}, "CONFIG_INVALID"),
        ({**_NOBODY, "config": _NO_CLASS}, "CONFIG_INVALID"),
        ({**_SAMPLE, "config": _GOOD}, "CONNECTOR_EXISTS"),
        ({"name": f" {SAMPLE_SINK}\t", "config": _GOOD}, "CONNECTOR_EXISTS"),
    ],
    "GetConnector": [_UNKNOWN, _NAMELESS],
    "ListConnectors": [({"page_size": 1001}, "REQUEST_INVALID"), ({"page_size": -1}, "REQUEST_INVALID")],
    "UpdateConnector": [
        ({**_NOBODY, "config": _GOOD}, "CONNECTOR_NOT_FOUND"),
        ({**_SAMPLE, "config": _NO_CLASS}, "CONFIG_INVALID"),
        ({"name": "", "config": _GOOD}, "REQUEST_INVALID"),
    ],
    "PatchConnector": [_UNKNOWN, _NAMELESS, ({**_SAMPLE, "patch": _NO_TASKS}, "CONFIG_INVALID")],
    "DeleteConnector": [_UNKNOWN, _NAMELESS],
    "PauseConnector": [_UNKNOWN, _NAMELESS],
    "ResumeConnector": [_UNKNOWN, _NAMELESS],
    "StopConnector": [_UNKNOWN, _NAMELESS],
    "RestartConnector": [_UNKNOWN, _NAMELESS, ({**_NOBODY, "include_tasks": True}, "CONNECTOR_NOT_FOUND")],
    "RestartTask": [
        _UNKNOWN,
        _NAMELESS,
        ({**_SAMPLE, "task": 1}, "TASK_NOT_FOUND"),
        ({**_SAMPLE, "task": -1}, "TASK_NOT_FOUND"),
    ],
    "ValidateConfig": [({}, "CONFIG_INVALID"), ({"config": _NO_CLASS}, "CONFIG_INVALID")],
    "PlanConfig": [({**_NOBODY, "config": _NO_CLASS}, "CONFIG_INVALID"), ({"config": _GOOD}, "CONFIG_INVALID")],
    "GetPlugin": [({"class_name": "NoSuchSink"}, "PLUGIN_NOT_FOUND"), ({}, "REQUEST_INVALID")],
    "GetOffsets": [_UNKNOWN, _NAMELESS],
    "AlterOffsets": [
        ({**_NOBODY, "offsets": [_OFFSET]}, "CONNECTOR_NOT_FOUND"),
        ({**_SAMPLE, "offsets": [_OFFSET]}, "CONNECTOR_NOT_STOPPED"),
        (_SAMPLE, "REQUEST_INVALID"),
    ],
    "ResetOffsets": [_UNKNOWN, _NAMELESS, (_SAMPLE, "CONNECTOR_NOT_STOPPED")],
    "RewindOffsets": [
        ({**_NOBODY, "time": {"seconds": 1}}, "CONNECTOR_NOT_FOUND"),
        ({**_SAMPLE, "time": {"seconds": 1}}, "CONNECTOR_NOT_STOPPED"),
        ({**_SAMPLE, "time": {"seconds": -1}}, "REQUEST_INVALID"),
        (_SAMPLE, "REQUEST_INVALID"),
    ],
    "ListTopics": [_NAMELESS],
    "ResetTopics": [_NAMELESS],
    "DrainWorker": [({"worker_id": "nobody"}, "WORKER_NOT_FOUND"), ({}, "REQUEST_INVALID")],
    "UndrainWorker": [({"worker_id": "nobody"}, "WORKER_NOT_FOUND"), ({}, "REQUEST_INVALID")],
    "ListDeadLetters": [
        _UNKNOWN,
        _NAMELESS,
        (_SAMPLE, "DEAD_LETTERS_REFUSED"),
        ({**_SAMPLE, "page_size": 1001}, "REQUEST_INVALID"),
    ],
    "ReplayDeadLetters": [_UNKNOWN, _NAMELESS, (_SAMPLE, "DEAD_LETTERS_REFUSED")],
    "GetLoggers": [({"logger": "no.such.logger"}, "LOGGER_NOT_FOUND")],
    "SetLoggers": [
        ({"logger": "herdmesh.test", "level": "LOUD"}, "REQUEST_INVALID"),
        ({"level": "INFO"}, "REQUEST_INVALID"),
        ({"logger": "herdmesh.test", "level": "INFO", "worker_id": "nobody"}, "WORKER_NOT_FOUND"),
    ],
}
#: The first answers for each change of a batch; malformed batches: tests/integration/test_herder_batches.py.
_NEVER = {"ChangeConnectors", "WatchConnectors", "ListPlugins", "ListWorkers", "GetCluster"}


def at(topic: str, offset: int) -> list[tuple[Any, Any]]:
    return [({"kafka_topic": topic, "kafka_partition": 0}, {"kafka_offset": offset})]


@together
async def test_impossible_requests_are_refused_with_their_reason(api: Api) -> None:
    """Also a request with an id, which could be the repetition of an executed one."""
    assert REFUSED.keys() | _NEVER == {*METHODS}
    before = await api.get(SAMPLE_SINK)
    for method, cases in REFUSED.items():
        with_id = "request_id" in METHODS[method].input_type.fields_by_name
        for number, (fields, reason) in enumerate(cases):
            more = {"request_id": f"refused-{method}-{number}"} if with_id else {}
            refusal = await api.refused(method, **fields, **more)
            assert (refusal.reason, bool(refusal.message)) == (reason, True), f"{method} of {fields}: {refusal}"
    after = await api.get(SAMPLE_SINK)
    assert [after[key] for key in ("config", "target_state")] == [before[key] for key in ("config", "target_state")]
    assert [one["start_count"] for one in (after["connector"], *after["tasks"])] == [1, 1]


@together
async def test_a_sources_offsets_are_read_altered_and_reset(api: Api, tmp_path: Path, tmp_topic: Names) -> None:
    """Initial ones, read, altered and reset: in Connect's file, and by the records read afterwards."""
    name, topic, file = tmp_topic("src"), await api.produce(tmp_topic()), tmp_path / "in.txt"
    file.write_text("first\nsecond\nthird\n")
    config, partition = source(file, topic), {"filename": str(file)}
    key = json.dumps([name, partition], separators=(",", ":")).encode()

    def entry(position: int) -> dict[str, str]:
        return {"partition_json": json.dumps(partition), "offset_json": json.dumps({"position": position})}

    def stored() -> bytes | None:
        return offsets_file.decode((api.run.folder / "connect.offsets").read_bytes()).get(key)

    given: dict[str, Any] = {"name": name, "config": properties.to_proto(config), "initial_offsets": [entry(-1)]}
    assert (await api.refused("CreateConnector", **given)).reason == "OFFSETS_REFUSED"
    assert (await api.refused("GetConnector", name=name)).reason == "CONNECTOR_NOT_FOUND"
    again = [{"partition": partition, "offset": {"position": 6}}]
    (tmp_path / "offsets.json").write_text(json.dumps({"offsets": again}))
    begin = ("--initial-state", "stopped", "--offsets", str(tmp_path / "offsets.json"))
    document = json.dumps({"name": name, "config": config})
    code, made, _ = await api.herd("create", "-f", "-", *begin, *JSON_OUT, stdin=document)
    assert (code, made["result"], made["target_state"]) == (0, "created", "STOPPED")
    assert (await api.offsets(name), stored()) == ([(partition, {"position": 6})], b'{"position":6}')
    await api.ask("ResumeConnector", name=name)
    assert await api.consume(topic, 2) == ["second", "third"]
    end = [(partition, {"position": 19})]
    await api.until_told("offsets", lambda: api.offsets(name), end)
    assert (await api.refused("AlterOffsets", name=name, offsets=[entry(0)])).reason == "CONNECTOR_NOT_STOPPED"

    code, stopped, _ = await api.herd("stop", name, *JSON_OUT)
    assert (code, stopped["target_state"]) == (0, "STOPPED")
    refusal = await api.refused("RewindOffsets", name=name, time={"seconds": YEAR_2026_S})
    assert (refusal.reason, "cannot be rewound to a time" in refusal.message) == ("OFFSETS_REFUSED", True)
    tried = await api.ask("AlterOffsets", name=name, offsets=[entry(13)], dry_run=True)
    assert (documents(tried), await api.offsets(name)) == ([(partition, {"position": 13})], end)
    alter: dict[str, Any] = {"name": name, "offsets": [entry(13)], "request_id": f"alter-{name}"}
    altered = await api.ask("AlterOffsets", **alter)
    assert (documents(altered), altered.message) == ([(partition, {"position": 13})], DONE.format("altered"))
    assert stored() == b'{"position":13}'
    document = json.dumps({"offsets": again})
    code, done, _ = await api.herd("offsets", "set", name, "-f", "-", "--yes", *JSON_OUT, stdin=document)
    assert (code, done["offsets"], stored()) == (0, again, b'{"position":6}')
    reset = {"name": name, "request_id": f"reset-{name}"}
    assert documents(await api.ask("ResetOffsets", **reset)) == [(partition, {"position": 6})], "as they were"
    assert (await api.offsets(name), stored()) == ([], None)
    assert documents(await api.ask("AlterOffsets", name=name, offsets=[entry(6)])) == [(partition, {"position": 6})]
    assert documents(await api.ask("ResetOffsets", **reset)) == [(partition, {"position": 6})], "a retry: as the first"
    assert documents(await api.ask("AlterOffsets", **alter)) == [(partition, {"position": 13})]
    assert await api.offsets(name) == [(partition, {"position": 6})], "and nothing is done again"
    await api.ask("ResumeConnector", name=name)
    assert await api.consume(topic, 4) == ["second", "third", "second", "third"]


@together
async def test_a_sinks_offsets_are_read_altered_reset_and_rewound(api: Api, tmp_path: Path, tmp_topic: Names) -> None:
    """While it is stopped; checked also by the records read afterwards."""
    name, file = tmp_topic("snk"), tmp_path / "out.txt"
    topic = await api.produce(tmp_topic(), "zero", "one", "two", first_s=YEAR_2026_S)
    await api.create(name, sink(file, topic))
    await api.until_lines(file, "zero", "one", "two")
    back: dict[str, Any] = {"name": name, "time": {"seconds": YEAR_2026_S + 1}}
    assert (await api.refused("RewindOffsets", **back)).reason == "CONNECTOR_NOT_STOPPED"
    assert (await api.refused("ResetOffsets", name=name)).reason == "CONNECTOR_NOT_STOPPED"
    await api.ask("StopConnector", name=name)
    await api.until_stopped(name)
    code, told, _ = await api.herd("offsets", "get", name, *JSON_OUT)
    assert (code, told) == (0, {"offsets": [{"partition": at(topic, 3)[0][0], "offset": {"kafka_offset": 3}}]})
    nowhere = {
        "partition_json": json.dumps({"kafka_topic": topic, "kafka_partition": 9}),
        "offset_json": '{"kafka_offset":0}',
    }
    refusal = await api.refused("AlterOffsets", name=name, offsets=[nowhere], request_id=f"nowhere-{name}")
    assert (refusal.reason, "create their topics first" in refusal.message) == ("OFFSETS_REFUSED", True)

    one = ("--topic", topic, "--partition", "0", "--offset", "2")
    code, done, _ = await api.herd("offsets", "set", name, *one, "--yes", *JSON_OUT)
    assert (code, done["message"], await api.offsets(name)) == (0, DONE.format("altered"), at(topic, 2))
    code, done, _ = await api.herd("offsets", "reset", name, "--dry-run", *JSON_OUT)
    assert (code, done["dry_run"], await api.offsets(name)) == (0, True, at(topic, 2))
    reset = {"name": name, "request_id": f"reset-{name}"}
    assert documents(await api.ask("ResetOffsets", **reset)) == at(topic, 2)
    assert await api.offsets(name) == []
    assert documents(await api.ask("RewindOffsets", **back, request_id=f"back-{name}")) == at(topic, 1)
    assert documents(await api.ask("ResetOffsets", **reset)) == at(topic, 2), "a retry is told the first outcome"
    assert await api.offsets(name) == at(topic, 1), "and does nothing"
    code, done, _ = await api.herd("offsets", "rewind", name, "--to", "2026-01-01T00:00:02Z", "--yes", *JSON_OUT)
    assert (code, done["error"]["reason"]) == (11, "OFFSETS_REFUSED"), "that would pass over a record"
    code, done, _ = await api.herd("offsets", "rewind", name, "--to", "2026-01-01T00:00:01Z", "--yes", *JSON_OUT)
    assert (code, done["offsets"][0]["offset"]) == (0, {"kafka_offset": 1})
    await api.ask("ResumeConnector", name=name)
    await api.until_lines(file, "zero", "one", "two", "one", "two")


@together
async def test_topics_in_use_are_listed_and_reset(api: Api, tmp_path: Path, tmp_topic: Names) -> None:
    name, topic, file = tmp_topic("src"), tmp_topic(), tmp_path / "in.txt"
    file.write_text("first\n")
    await api.create(name, source(file, topic))

    async def topics() -> list[str]:
        return [*(await api.ask("ListTopics", name=name)).topics]

    await api.until_told("topics", topics, [topic])
    await api.ask("ResetTopics", name=name, request_id=f"topics-{name}")
    assert await topics() == []
    with file.open("a") as more:
        more.write("second\n")
    await api.until_told("topics", topics, [topic])
    await api.ask("ResetTopics", name=name, request_id=f"topics-{name}")
    code, told, _ = await api.herd("get", "topics", name, *JSON_OUT)
    assert (code, told) == (0, {"name": name, "topics": [topic]}), "a retry takes nothing back"
    assert not (await api.ask("ListTopics", name="nobody")).topics, "as in Connect"


@together
async def test_configs_are_validated_and_planned_without_being_stored(
    api: Api, tmp_path: Path, tmp_topic: Names
) -> None:
    sample = (await api.get(SAMPLE_SINK))["config"]
    good = (await api.ask("ValidateConfig", config=properties.to_proto(sample))).validation
    assert (good.error_count, "topics" in {one.name for one in good.fields}) == (0, True)
    bad = {**sample, "tasks.max": "0", "value.converter": "NoSuchConverter"}
    found = (await api.ask("ValidateConfig", config=properties.to_proto(bad))).validation
    assert {one.name for one in found.fields if one.errors} == {"tasks.max", "value.converter"}
    document = json.dumps({"name": SAMPLE_SINK, "config": bad})
    code, told, _ = await api.herd("validate", "-f", "-", *JSON_OUT, stdin=document)
    assert (code, told["error_count"]) == (5, found.error_count)

    async def planned(name: str, config: dict[str, str]) -> list[tuple[int | None, str]]:
        reply = await api.ask("PlanConfig", name=name, config=properties.to_proto(config))
        steps = [(one.task if one.HasField("task") else None, one.action) for one in reply.steps]
        return [(task, messages.PlanAction.Name(action).removeprefix("PLAN_ACTION_")) for task, action in steps]

    name = tmp_topic("snk")
    assert await planned(name, sink(tmp_path / "out", tmp_topic())) == [(None, "START"), (0, "START")]
    assert (await api.refused("GetConnector", name=name)).reason == "CONNECTOR_NOT_FOUND"
    assert await planned(SAMPLE_SINK, sample) == [(None, "KEEP"), (0, "KEEP")]
    assert await planned(SAMPLE_SINK, bad) == []
    other = json.dumps({"name": SAMPLE_SINK, "config": {**sample, "file": "other.txt"}})
    code, told, _ = await api.herd("plan", "-f", "-", *JSON_OUT, stdin=other)
    assert (code, [one["action"] for one in told["steps"]]) == (0, ["RESTART", "RESTART"])
    after = await api.get(SAMPLE_SINK)
    assert (after["config"], after["tasks"][0]["start_count"]) == (sample, 1)
    assert not (api.run.folder / "other.txt").exists()


@together
async def test_dead_letters_are_listed_and_replayed(api: Api, tmp_path: Path, tmp_topic: Names) -> None:
    name, queue, file = tmp_topic("snk"), tmp_topic("dlq"), tmp_path / "out.txt"
    topic = await api.produce(tmp_topic(), '{"id":1}', "{bad", "{worse")
    tolerant = {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false",
        "errors.tolerance": "all", "errors.deadletterqueue.topic.name": queue, "herdmesh.linger.ms": "100",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }  # fmt: skip
    await api.create(name, sink(file, topic, **tolerant))

    async def left() -> list[int]:
        return [one.offset for one in (await api.ask("ListDeadLetters", name=name)).letters]

    await api.until_lines(file, '{"id":1}')  # by then there is a queue
    await api.until_told("dead letters", left, [1, 0])
    found = await api.ask("ListDeadLetters", name=name, places=[{"partition": 0, "offset": 0}])
    (letter,) = found.letters
    stage = letter.error_headers["__connect.errors.stage"]
    assert (found.topic, letter.value, stage) == (queue, b"{bad", "VALUE_CONVERTER")
    letter.mended, letter.value = True, b'{"id":2}'
    put_back: dict[str, Any] = {"name": name, "letters": [letter], "request_id": f"replay-{name}"}
    assert (await api.ask("ReplayDeadLetters", **put_back)).replayed_count == 1
    assert (await api.ask("ReplayDeadLetters", **put_back)).replayed_count == 1, "a retry is told the first outcome"
    await api.until_told("dead letters", left, [1])
    code, shown, _ = await api.herd("dlq", "show", name, "0:1", *JSON_OUT)
    assert (code, shown["value"], shown["original"]["offset"]) == (0, "{worse", 2)
    mended = json.dumps({**shown, "value": {"id": 3}})
    code, done, _ = await api.herd("dlq", "replay", name, "-f", "-", *JSON_OUT, stdin=mended)
    assert (code, done["replayed_count"]) == (0, 1)
    await api.until_told("dead letters", left, [])
    await api.produce(topic, '{"id":4}')
    await api.until_lines(file, *(json.dumps({"id": number}, separators=(",", ":")) for number in (1, 2, 3, 4)))


@together
async def test_plugins_are_listed_and_described(api: Api) -> None:
    listed = {one.class_name: one for one in (await api.ask("ListPlugins")).plugins}
    java = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    assert (listed[java].kind, "FileStreamSink" in listed[java].aliases) == (common.PLUGIN_KIND_SINK, True)
    described = await api.ask("GetPlugin", class_name="FileStreamSink")
    assert (described.plugin, "file" in {one.name for one in described.fields}) == (listed[java], True)
    step = await api.ask("GetPlugin", class_name="org.apache.kafka.connect.transforms.HoistField$Value")
    assert (step.plugin.kind, [one.name for one in step.fields]) == (common.PLUGIN_KIND_TRANSFORMATION, ["field"])
    code, told, _ = await api.herd("get", "plugins", "FileStreamSink", *JSON_OUT)
    assert (code, told["class"]) == (0, java)
    code, told, _ = await api.herd("describe", "plugin", "FileStreamSink", *JSON_OUT)
    assert (code, [one["name"] for one in told["config"]]) == (0, [one.name for one in described.fields])


@together
async def test_loggers_of_the_one_worker_are_those_of_the_cluster(api: Api, tmp_topic: Names) -> None:
    address, logger = api.run.address, f"herdmesh.test.{tmp_topic()}"

    async def levels() -> list[tuple[str, str, str]]:
        listed = (await api.ask("GetLoggers", logger=logger)).loggers
        return [(one.worker_id, one.logger, one.level) for one in listed]

    for_all = {"logger": logger, "level": "debug", "request_id": f"all-{logger}"}
    assert (await api.ask("SetLoggers", **for_all)).affected == [logger]
    assert await levels() == [(address, logger, "DEBUG")]
    for_one = {"logger": logger, "level": "ERROR", "worker_id": address, "request_id": f"one-{logger}"}
    assert (await api.ask("SetLoggers", **for_one)).affected == [logger]
    assert await levels() == [(address, logger, "ERROR")]
    assert (await api.ask("SetLoggers", **for_all)).affected == [logger], "a retry is told the first outcome"
    assert await levels() == [(address, logger, "ERROR")], "and takes nothing back"
    code, told, _ = await api.herd("set-logger", logger, "warn", "--worker", address, *JSON_OUT)
    assert (code, told["affected"], await levels()) == (0, [logger], [(address, logger, "WARN")])
    code, told, _ = await api.herd("set-logger", logger, "trace", *JSON_OUT)
    assert (code, told["affected"], await levels()) == (0, [logger], [(address, logger, "TRACE")])
    code, told, _ = await api.herd("get", "loggers", logger, *JSON_OUT)
    assert (code, [(one["logger"], one["level"]) for one in told]) == (0, [(logger, "TRACE")])


@together
async def test_history_is_listed_and_an_earlier_config_restored(api: Api, tmp_path: Path, tmp_topic: Names) -> None:
    """For as long as the process lives, by the addresses of its stores that it printed."""
    name, config = tmp_topic("snk"), sink(tmp_path / "out.txt", tmp_topic())
    await api.create(name, config, initial_state=common.TARGET_STATE_STOPPED)
    await api.ask("PatchConnector", name=name, patch=properties.to_proto({"note": "new"}))
    code, changes, _ = await api.herd("history", name, *JSON_OUT)
    assert (code, [one["changed"] for one in changes][:1]) == (0, [["note"]])
    assert (changes[-1]["config"], changes[-1]["target_state"]) == ({**config, "name": name}, "STOPPED")
    revision = changes[-1]["revision"].rpartition("@")[2]
    code, restored, _ = await api.herd("restore", name, "--revision", revision, *JSON_OUT)
    assert (code, restored["config"], restored["target_state"]) == (0, {**config, "name": name}, "STOPPED")
    code, told, _ = await api.herd("restore", name, "--revision", "999999999", *JSON_OUT)
    assert (code, told["error"]["reason"]) == (3, "HISTORY_NOT_FOUND")
    await api.ask("DeleteConnector", name=name)
    code, changes, _ = await api.herd("history", name, "-n", "1", *JSON_OUT)
    assert (code, changes[0]["deleted"]) == (0, True)
    code, found, _ = await api.herd("doctor", *JSON_OUT)
    serious = [one for one in found["findings"] if one["severity"] == "error" and one["part"] != "connector"]
    assert (serious, [one["condition"] for one in found["replicas"]]) == ([], ["HEALTHY", "HEALTHY"])
    assert code == (1 if any(one["severity"] == "error" for one in found["findings"]) else 0)


@together
async def test_health_reflection_and_the_workers_own_service(api: Api) -> None:
    async with connect(api.run.address) as channel:
        service = "herdmesh.api.herder.v1.ConnectorService"
        health: Any = health_pb2_grpc.HealthStub(channel)  # generated stubs declare no methods
        checked = await health.Check(health_pb2.HealthCheckRequest(service=service))
        assert checked.status == health_pb2.HealthCheckResponse.SERVING
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub
        call = reflection(channel).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        assert service in {one.name for one in (await call.read()).list_services_response.service}
        call.cancel()
    async with connect((await api.worker())["address"]) as channel:
        worker: Any = WorkerServiceStub(channel)
        held = await worker.ListTasks(worker_messages.ListTasksRequest())
        task = next(one for one in held.tasks if one.task.connector == SAMPLE_SOURCE)
        assert (task.state, task.start_count, SAMPLE_SOURCE in held.connectors) == (common.RUN_STATE_RUNNING, 1, True)
        asked = worker_messages.GetTaskProgressRequest(tasks=[task.task])
        (progress,) = (await worker.GetTaskProgress(asked)).tasks
        assert (progress.task, progress.records_out) == (task.task, 2)
        plugins = (await worker.ListPlugins(worker_messages.ListPluginsRequest())).plugins
        assert {one.class_name for one in plugins} == {one.class_name for one in (await api.ask("ListPlugins")).plugins}
        asked = worker_messages.ValidateConfigRequest(config=_NO_TASKS)
        found = {one.name: one.errors for one in (await worker.ValidateConfig(asked)).validation.fields if one.errors}
        assert {"connector.class", "tasks.max"} <= found.keys()
        await worker.FenceTasks(worker_messages.FenceTasksRequest(connector="nobody", task_count=1))
        with pytest.raises(RequestInvalid):
            await worker.FenceTasks(worker_messages.FenceTasksRequest(task_count=1))
