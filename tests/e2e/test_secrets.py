"""Secrets behind a config's references, known to the run alone: no topic, log, answer or metrics page ever shows
them.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from google.protobuf.message import Message

from herdmesh.api.configstore.v1 import config_read_service_pb2 as config_read
from herdmesh.api.configstore.v1.config_read_service_pb2_grpc import ConfigReadServiceStub
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import lifecycle_messages_pb2 as lifecycle
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as status_read
from herdmesh.api.statusstore.v1.status_read_service_pb2_grpc import StatusReadServiceStub
from herdmesh.api.worker.v1 import worker_service_pb2 as worker
from herdmesh.api.worker.v1.worker_service_pb2_grpc import WorkerServiceStub
from herdmesh.cli.batch.connector_files import to_properties
from herdmesh.devstack.layout import StackLayout, role_of
from herdmesh.rpc.client import connect
from tests.support.mesh import Mesh

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]

FOLDER, PASSWORD, NUMBER = "Kq7-hushed-folder", "Kq7-hushed-password", "987654321987"
SECRETS = (FOLDER, PASSWORD, NUMBER)
WRITTEN = "http://ann:Kq7-written-password@127.0.0.1:1"
"""A URL with its password, without a reference."""


def _config(tmp_path: Path, topic: str) -> dict[str, str]:
    """A sink that needs all three to work: its folder, the field it adds to records, and a limit that is moved within
    librdkafka's bounds, which is a warning that contains the value.
    """
    file = tmp_path / "secrets.properties"
    file.write_text(f"folder={FOLDER}\npassword={PASSWORD}\nnumber={NUMBER}\n")
    return {
        "connector.class": "FileStreamSink",
        "topics": topic,
        "file": f"{tmp_path}/${{file:{file}:folder}}/out.txt",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "transforms": "add",
        "transforms.add.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.add.static.field": "password",
        "transforms.add.static.value": f"${{file:{file}:password}}",
        "consumer.override.connections.max.idle.ms": f"${{file:{file}:number}}",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{topic}-dlq",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
        "note.url": WRITTEN,
    }


async def test_a_secret_appears_only_where_the_connector_puts_it(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    """It runs, fails with the secret in its error, is described, planned and validated; then everything is searched."""
    topic = mesh.create_topic(tmp_topic(), partitions=1)
    name, config = f"sink-{topic}", _config(tmp_path, topic)
    (tmp_path / FOLDER).mkdir()
    texts: dict[str, str] = {}
    request = messages.UpdateConnectorRequest(name=name, config=to_properties(config), allow_missing=True)
    made = await mesh.client.call(lambda stub: stub.UpdateConnector, request)
    texts["update"] = str(made)
    assert "instead of ***" in made.warnings[0].message
    await mesh.until_running(name, 1)
    mesh.produce(topic, range(5))
    mesh.produce_raw(topic, 0, b'"no map"')
    await mesh.until_committed(name, topic)
    written = [json.loads(line) for line in (tmp_path / FOLDER / "out.txt").read_text().splitlines()]
    assert [one["password"] for one in written] == [PASSWORD] * 5, "the run has the value"

    await mesh.lifecycle("PauseConnector", name)
    await mesh.until(name, lambda one: {task["state"] for task in one["tasks"]} == {"PAUSED"}, "PAUSED")
    shutil.rmtree(tmp_path / FOLDER)
    mesh.produce(topic, range(5, 10))
    await mesh.lifecycle("ResumeConnector", name)
    failed = await mesh.until(name, lambda one: one["tasks"][0]["state"] == "FAILED", "FAILED")
    assert "the file *** cannot be written" in failed["tasks"][0]["error"]
    assert "***" in failed["tasks"][0]["trace"]
    texts["watch"] = json.dumps(failed)

    async for where, answer in _answers(mesh, name, config):
        texts[where] = str(answer)
    texts |= await asyncio.to_thread(_pages, mesh)
    texts |= {one.name: one.read_text() for one in _logs(mesh)}
    texts |= await asyncio.to_thread(_topics, mesh, f"{topic}-dlq")
    for where in ("herder validates", "worker validates", "plan"):
        assert "Invalid value *** for configuration errors.retry.timeout" in texts[where], where
    for where in ("get", "snapshot", "history", f"topic {_env(mesh, 'CONFIG')}"):
        assert "secrets.properties:password}" in texts[where], f"{where} is of this connector"
    assert "__connect.errors.exception.stacktrace" in texts[f"topic {topic}-dlq"]
    assert name in texts[f"topic {_env(mesh, 'STATUS')}"]
    assert any("cannot be written" in text and "***" in text for where, text in texts.items() if ".log" in where)
    assert any("herdmesh_" in text for where, text in texts.items() if where.startswith("metrics of"))
    shown = [(secret, where) for where, text in texts.items() for secret in SECRETS if secret in text]
    assert shown == []
    assert "Invalid value http://ann:***@127.0.0.1:1 for configuration errors.retry" in texts["plan"]
    # The config itself is kept and returned as it was written, in the connector's and in its tasks'.
    # The view of `herd` hides it (here: of the watch).
    as_written = {"update", "get", "list", "snapshot", f"topic {_env(mesh, 'CONFIG')}"}
    assert {where for where, text in texts.items() if "Kq7-written" in text} == as_written


async def test_a_changed_secret_reaches_the_task_that_used_the_old_value_and_no_other(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    """The workers resolve files again each second. The task continues in another run: RUNNING all the time, without a
    restart, no record lost or duplicated.
    """
    topic = mesh.create_topic(tmp_topic(), partitions=1)
    (tmp_path / FOLDER).mkdir()
    config = {**_config(tmp_path, topic), "herdmesh.trigger": "continuous"}
    concerned, other = f"sink-{topic}", f"other-{topic}"
    await mesh.apply(concerned, config)
    await mesh.apply(other, {**config, "file": f"{tmp_path}/other.txt", "transforms.add.static.value": "the same"})
    for name in (concerned, other):
        await mesh.until_running(name, 1)
    mesh.produce(topic, range(3))
    await mesh.until_committed(concerned, topic)
    secrets = tmp_path / "secrets.properties"
    replaced = tmp_path / "replaced"
    replaced.write_text(secrets.read_text().replace(PASSWORD, f"{PASSWORD}-new"))
    replaced.rename(secrets)
    shown = await mesh.until(concerned, lambda one: one["tasks"][0]["progress"]["run_count"] == 2, "in its second run")
    assert (shown["tasks"][0]["state"], shown["tasks"][0]["start_count"]) == ("RUNNING", 1)
    mesh.produce(topic, range(3, 6))
    await mesh.until_committed(concerned, topic)
    await mesh.until_committed(other, topic)
    written = [json.loads(line) for line in (tmp_path / FOLDER / "out.txt").read_text().splitlines()]
    expected = [*[PASSWORD] * 3, *[f"{PASSWORD}-new"] * 3]
    assert [(one["id"], one["password"]) for one in written] == list(enumerate(expected))
    assert len((tmp_path / "other.txt").read_text().splitlines()) == 6
    assert mesh.board.connectors[other]["tasks"][0]["progress"]["run_count"] == 1
    await _heals_once_the_file_is_back(mesh, concerned, secrets)
    logs = "".join(one.read_text() for one in _logs(mesh))
    # The workers are shared, and so are their logs: other tests change secrets too.
    told = [json.loads(line) for line in logs.splitlines() if "values_changed" in line and topic in line]
    assert {one["unit"] for one in told} == {f"[{concerned}|worker]", f"[{concerned}|task-0]"}
    assert PASSWORD not in logs


async def _heals_once_the_file_is_back(mesh: Mesh, name: str, secrets: Path) -> None:
    """A start without the file FAILED for a reason that no restart policy retries; no user requests a restart."""
    away = await asyncio.to_thread(secrets.rename, secrets.with_name("away"))
    request = lifecycle.RestartTaskRequest(name=name, task=0)
    await mesh.client.call(lambda stub: stub.RestartTask, request)
    shown = await mesh.until(name, lambda one: one["tasks"][0]["state"] == "FAILED", "FAILED for want of the file")
    assert "cannot be resolved" in shown["tasks"][0]["error"]
    await asyncio.to_thread(away.rename, secrets)
    await mesh.until_running(name, 1)


async def _answers(mesh: Mesh, name: str, config: dict[str, str]) -> AsyncIterator[tuple[str, Message]]:
    """The answers of every service about the connector, and about an invalid config of it."""
    bad = {"name": name, **config, "errors.retry.timeout": config["transforms.add.static.value"]}
    bad["errors.retry.delay.max.ms"] = WRITTEN
    of_herder: dict[str, tuple[str, Message]] = {
        "get": ("GetConnector", messages.GetConnectorRequest(name=name)),
        "list": ("ListConnectors", messages.ListConnectorsRequest()),
        "herder validates": ("ValidateConfig", messages.ValidateConfigRequest(config=to_properties(bad))),
        "plan": ("PlanConfig", messages.PlanConfigRequest(name=name, config=to_properties(bad))),
        "plan of what is there": ("PlanConfig", messages.PlanConfigRequest(name=name, config=to_properties(config))),
        "workers": ("ListWorkers", admin.ListWorkersRequest()),
        "topics": ("ListTopics", admin.ListTopicsRequest(name=name)),
        "restart": ("RestartTask", lifecycle.RestartTaskRequest(name=name, task=0)),
    }
    for where, (rpc, request) in of_herder.items():
        yield where, await mesh.client.call(lambda stub, rpc=rpc: getattr(stub, rpc), request)
    for service in mesh.stack.state.services:
        async with connect(service.address) as channel:
            stub: Any
            match role_of(service.name):
                case "worker":
                    stub = WorkerServiceStub(channel)
                    question = worker.ValidateConfigRequest(config=to_properties(bad))
                    yield f"tasks of {service.name}", await stub.ListTasks(worker.ListTasksRequest())
                    yield "worker validates", await stub.ValidateConfig(question)
                case "config-store":
                    stub = ConfigReadServiceStub(channel)
                    yield "history", await stub.GetHistory(config_read.GetHistoryRequest(connector=name))
                    yield "snapshot", await stub.GetSnapshot(config_read.GetSnapshotRequest(connectors=[name]))
                case "status-store":
                    stub = StatusReadServiceStub(channel)
                    yield "status", await stub.ListStatuses(status_read.ListStatusesRequest(connectors=[name]))
                case _:
                    continue


def _pages(mesh: Mesh) -> dict[str, str]:
    """Each service's metrics."""
    found: dict[str, str] = {}
    for service in mesh.stack.state.services:
        host, _, port = service.address.rpartition(":")
        if role_of(service.name) != "broker":
            with urllib.request.urlopen(f"http://{host}:{int(port) + 1000}/metrics", timeout=30) as page:
                found[f"metrics of {service.name}"] = page.read().decode()
    return found


def _logs(mesh: Mesh) -> list[Path]:
    return [one for one in StackLayout(mesh.stack.settings.data_dir).logs_dir.iterdir() if one.is_file()]


def _env(mesh: Mesh, kind: str) -> str:
    return mesh.stack.settings.service_env[f"HERDMESH_{kind}_STORAGE_TOPIC"]


def _topics(mesh: Mesh, dead_letters: str) -> dict[str, str]:
    """Every byte of the mesh's topics, of a dead letter queue and of Kafka's offsets, aborted records included."""
    configs = _env(mesh, "CONFIG")
    names = [configs, f"{configs}-audit", _env(mesh, "STATUS"), _env(mesh, "OFFSET"), dead_letters]
    names.append("__consumer_offsets")
    client = {"group.id": "herdmesh-tests", "enable.auto.commit": False, "isolation.level": "read_uncommitted"}
    ends = {"enable.partition.eof": True, "fetch.wait.max.ms": 20}
    consumer = Consumer({**client, **ends, "bootstrap.servers": mesh.bootstrap})
    try:
        return {f"topic {name}": b"\n".join(_bytes(consumer, name)).decode("latin-1") for name in names}
    finally:
        consumer.close()


def _bytes(consumer: Consumer, topic: str) -> Iterator[bytes]:
    known = consumer.list_topics(topic, 60).topics[topic].partitions
    partitions = [TopicPartition(topic, number, 0) for number in known]
    consumer.assign(partitions)
    unread = {one.partition for one in partitions}
    deadline_s = time.monotonic() + 60.0
    while unread:
        assert time.monotonic() < deadline_s, f"{topic}: partitions {unread} were not read to their ends in 60 s"
        for message in consumer.consume(1_000, 0.1):
            if message.error() is not None:
                unread.discard(message.partition())
                continue
            yield message.key() or b""
            yield message.value() or b""
            for header, value in message.headers() or ():
                yield header.encode() + b"=" + (value if isinstance(value, bytes) else str(value).encode())
