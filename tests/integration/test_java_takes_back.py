"""Connectors written by our stores, taken over by Java Connect 4.3.1 on the same topics, and then opened by us again.

Java must show our stored connectors and run them as they are: it recreates no task set that we committed. Records
unknown to it (manifests, epochs) it discards with one line each and nothing else in its log is an error. Its changes
read as foreign in our store, which adopts them with its next write of that connector.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from google.protobuf.timestamp_pb2 import Timestamp

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.common.v1 import identity_pb2
from herdmesh.api.configstore.v1 import config_pb2
from herdmesh.api.configstore.v1 import config_write_service_pb2 as config_write
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as status_write
from herdmesh.rpc import properties
from tests.support.beside_java import OurStores, RawTopics, beside_java, java_view
from tests.support.configstore_process import leading
from tests.support.java_connect import DISCARDED, EXACTLY_ONCE, QUICK_CLIENTS, JavaConnect
from tests.support.sizes import SOAKING

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

STRING = "org.apache.kafka.connect.storage.StringConverter"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
ODD = "odd é ☃ name-1-2"
#: in make test the more demanding one: Java's leader writes with our transactional id
MODES = ["plain", "exactly-once"] if SOAKING else ["exactly-once"]
#: keys of records that only we write
OURS = re.compile(r"herdmesh-(connector-.+|leader|writer)")
_WORKER = identity_pb2.WorkerIdentity(worker_id="127.0.0.1:7204", incarnation="life-1")
_GENERATION = 7


@dataclass
class Writer:
    """Short calls for the writes of our herder and workers to the stores."""

    ours: OurStores
    token: identity_pb2.LeaderToken

    async def create(
        self,
        name: str,
        config: dict[str, str],
        tasks: int | None = None,
        state: common.TargetState.ValueType = common.TARGET_STATE_UNSPECIFIED,
    ) -> None:
        request = config_write.PutConnectorConfigRequest(
            connector=name, config=properties.to_proto({**config, "name": name}), initial_target_state=state
        )
        created = await self.ours.config.write.PutConnectorConfig(request)
        if tasks is not None:
            await self.commit(name, config, tasks, created.connector.task_config_generation)

    async def commit(self, name: str, config: dict[str, str], tasks: int, fenced: int | None = None) -> None:
        """The task set that Java's own file connectors would make of this config. If all sets up to generation
        `fenced` are fenced, the count is written in the same transaction.
        """
        kind = "Sink" if config["connector.class"] == SINK else "Source"
        task = {**config, "name": name, "task.class": f"org.apache.kafka.connect.file.FileStream{kind}Task"}
        options = config_write.WriteOptions(leader=self.token)
        await self.ours.config.write.CommitTaskConfigs(
            config_write.CommitTaskConfigsRequest(
                options=options,
                connector=name,
                tasks=[properties.to_proto(task)] * tasks,
                fenced_generation=fenced,
            )
        )
        if fenced is not None:
            return
        await self.ours.config.write.PutTaskCount(
            config_write.PutTaskCountRequest(options=options, connector=name, task_count=tasks)
        )

    async def set_state(self, name: str, state: common.TargetState.ValueType) -> None:
        await self.ours.config.write.SetTargetState(
            config_write.SetTargetStateRequest(connector=name, target_state=state)
        )

    async def delete(self, name: str) -> None:
        await self.ours.config.write.DeleteConnector(config_write.DeleteConnectorRequest(connector=name))

    async def put_statuses(self, name: str, tasks: int, state: common.RunState.ValueType) -> None:
        """Put statuses with everything that only we have: conditions, commit_scope, the worker's incarnation."""
        statuses = [
            status_pb2.Status(
                connector=name,
                task=task,
                state=state,
                generation=_GENERATION,
                version="4.3.1",
                commit_scope=common.CommitScope(group="g", topics=["t"]),
                conditions=[common.Condition(type="STALLED", message="nothing moved for a while")],
            )
            for task in (None, *range(tasks))
        ]
        puts = [status_write.StatusPut(status=status, mode=status_write.PUT_MODE_PUT) for status in statuses]
        answer = await self.ours.status.write.PutStatuses(status_write.PutStatusesRequest(writer=_WORKER, puts=puts))
        assert {outcome.result for outcome in answer.outcomes} == {status_write.PUT_RESULT_APPLIED}


class Files:
    """The files and configs of this test's connectors."""

    def __init__(self, folder: Path, topic: str) -> None:
        self.source = folder / "in.txt"
        self.out = folder / "out.txt"
        self.topic = topic
        self._folder = folder

    def source_config(self, **more: str) -> dict[str, str]:
        return {
            "connector.class": "FileStreamSource",
            "tasks.max": "1",
            "file": str(self.source),
            "topic": self.topic,
            "value.converter": STRING,
            **more,
        }

    def sink_config(self, file: str = "", tasks: int = 1) -> dict[str, str]:
        return {
            "connector.class": SINK,
            "tasks.max": str(tasks),
            "file": file or str(self._folder / "other.txt"),
            "topics": self.topic,
            "value.converter": STRING,
        }


async def _write_everything(writer: Writer, files: Files) -> None:
    stopped, paused = common.TARGET_STATE_STOPPED, common.TARGET_STATE_PAUSED
    await writer.create("src", files.source_config(), tasks=1)
    await writer.put_statuses("src", 1, common.RUN_STATE_RUNNING)
    topic_status = status_pb2.TopicStatus(
        topic="seen-before", connector="src", task=0, discover_time=Timestamp(seconds=1)
    )
    await writer.ours.status.write.PutTopics(status_write.PutTopicsRequest(topics=[topic_status]))

    await writer.create("snk", files.sink_config(), tasks=1)
    await writer.create("snk", files.sink_config(str(files.out), 3), tasks=3)
    await writer.create("snk", files.sink_config(str(files.out), 2), tasks=2)
    await writer.put_statuses("snk", 2, common.RUN_STATE_UNASSIGNED)

    await writer.create("paused", files.sink_config(), tasks=1)
    await writer.set_state("paused", paused)
    await writer.put_statuses("paused", 1, common.RUN_STATE_PAUSED)
    await writer.create("stopped", files.sink_config(), tasks=1)
    await writer.set_state("stopped", stopped)
    await writer.commit("stopped", files.sink_config(), 0)
    await writer.create("born-stopped", files.sink_config(), tasks=0, state=stopped)
    await writer.create("unmade", files.sink_config())
    await writer.create(ODD, files.sink_config(tasks=2), tasks=2)
    await writer.create("bad", files.sink_config("/nonexistent/dir/out.txt"), tasks=1)
    await writer.put_statuses("bad", 1, common.RUN_STATE_RUNNING)

    await writer.create("deleted", files.sink_config(), tasks=1)
    await writer.put_statuses("deleted", 1, common.RUN_STATE_RUNNING)
    await writer.delete("deleted")
    await writer.create("again", files.sink_config(tasks=3), tasks=3)
    await writer.delete("again")
    await writer.create("again", files.sink_config(), tasks=1)

    options = config_write.WriteOptions(leader=writer.token)
    restart = config_pb2.RestartRequest(connector="src", include_tasks=True)
    await writer.ours.config.write.RequestRestart(config_write.RequestRestartRequest(options=options, restart=restart))
    level = config_pb2.LoggerLevel(logger="org.apache.kafka.connect.file", level="INFO")
    await writer.ours.config.write.PutLoggerLevel(config_write.PutLoggerLevelRequest(logger_level=level))


SHOWN: dict[str, tuple[str, list[str]]] = {
    "src": ("RUNNING", ["RUNNING"]),
    "snk": ("RUNNING", ["RUNNING", "RUNNING"]),
    "paused": ("PAUSED", ["PAUSED"]),
    "stopped": ("STOPPED", []),
    "born-stopped": ("STOPPED", []),
    "unmade": ("RUNNING", ["RUNNING"]),
    ODD: ("RUNNING", ["RUNNING", "RUNNING"]),
    "bad": ("RUNNING", ["RUNNING"]),
    "again": ("RUNNING", ["RUNNING"]),
}
"""Java's view of them once it runs them. `bad` has the text of our worker: Connect itself drops the FAILED of a
task that never ran when another worker wrote a status of a higher generation (KafkaStatusBackingStore.putSafe), and the
generations of its group begin at 1.
"""


@beside_java
@pytest.mark.parametrize("mode", MODES)
async def test_java_runs_connectors_we_stored_and_we_take_them_back(
    mode: str, kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """1. We write, and stop. 2. Java starts: shows and runs all of it. 3. Java changes some, and stops. 4. We open the
    topics again: connectors that Java touched are foreign, and the next write of ours adopts them.
    """
    group = tmp_topic("back")
    admin: Any = AdminClient({"bootstrap.servers": kafka_bootstrap})
    await asyncio.to_thread(admin.create_topics([NewTopic(group, 2, 1)])[group].result, 45)
    settings = {
        **QUICK_CLIENTS,
        "offset.flush.interval.ms": "500",
        "isolation.level": "read_committed",
        # the shortest the broker allows: should the leave be lost in the stop, nobody waits long
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1500",
        **(EXACTLY_ONCE if mode == "exactly-once" else {}),
    }
    java = JavaConnect(kafka_bootstrap, tmp_path / "java", group=group, settings=settings)
    ours = OurStores(kafka_bootstrap, java, tmp_path)
    files = Files(tmp_path, group)
    files.source.write_text("one\ntwo\nthree\n")

    async with ours.running():
        await asyncio.gather(ours.config.until_writing(), ours.status.until_writing())
        async with leading(ours.config) as token:
            await _write_everything(Writer(ours, token), files)
        before = await ours.view()
    raw = await asyncio.to_thread(RawTopics, kafka_bootstrap, java.topics.config, java.topics.status)
    try:
        await asyncio.to_thread(raw.read)
        await asyncio.to_thread(java.start)
        await _until_shown(java, SHOWN)
        await _runs_as_stored(java, before, raw)
        await _until_lines(files.out, ["one", "two", "three"])
        with files.source.open("a") as more:
            more.write("four\n")
        await _until_lines(files.out, ["one", "two", "three", "four"])
        _assert_only_our_keys_are_errors(java.errors(), raw)
        await _change(java, files)
        last = await asyncio.to_thread(java_view, java)
        async with ours.running():
            assert not await ours.config.is_writing()
            await asyncio.to_thread(java.stop)
            await ours.config.until_writing()
            await _taken_back(ours, last, files)
    finally:
        raw.close()
        await asyncio.to_thread(java.stop)


async def _runs_as_stored(java: JavaConnect, before: dict[str, Any], raw: RawTopics) -> None:
    """Check that configs and task configs are ours, and that Java wrote only its session key and the one missing task
    set.
    """
    view = await asyncio.to_thread(java_view, java)
    assert {name: one["config"] for name, one in view.items()} == {name: one["config"] for name, one in before.items()}
    made = before["unmade"]["config"] | {"task.class": "org.apache.kafka.connect.file.FileStreamSinkTask"}
    expected = {name: one["tasks"] for name, one in before.items()} | {"unmade": [made]}
    assert {name: one["tasks"] for name, one in view.items()} == expected
    assert view["bad"]["task_statuses"][0]["worker_id"] == _WORKER.worker_id
    ours = len(raw.events)
    await asyncio.to_thread(raw.read)
    assert raw.events[ours:] == [("SESSION_KEY", ""), ("TASKS_COMMITTED", "unmade")]


def _assert_only_our_keys_are_errors(errors: list[str], raw: RawTopics) -> None:
    """Check that the log has one error for each record of ours, with Connect's text for an unknown key, and one for the
    task that cannot start.
    """
    found = [DISCARDED.fullmatch(line) for line in errors]
    assert Counter(line[1] for line in found if line) == {key: n for key, n in raw.keys.items() if OURS.fullmatch(key)}
    others = [error for error, line in zip(errors, found, strict=True) if line is None]
    assert all("bad-0" in error for error in others), others


async def _change(java: JavaConnect, files: Files) -> None:
    await asyncio.to_thread(java.patch_config, "src", {"batch.size": "50"})
    await asyncio.to_thread(java.pause, "snk")
    await asyncio.to_thread(java.delete, "again")
    await asyncio.to_thread(java.create, "javas", files.sink_config())
    # RESTARTING is written whatever is stored; from then on the status is Java's own, and can become FAILED
    await asyncio.to_thread(java.restart, "bad", include_tasks=True)
    await _until_worker(java, "bad")
    await asyncio.to_thread(java.restart_task, "bad", 0)
    shown: dict[str, tuple[str, list[str]] | None] = {
        "src": ("RUNNING", ["RUNNING"]),
        "snk": ("PAUSED", ["PAUSED", "PAUSED"]),
        "again": None,
        "javas": ("RUNNING", ["RUNNING"]),
        "bad": ("RUNNING", ["FAILED"]),
    }
    await _until_shown(java, shown)
    # It is RUNNING before it has read its topic, which Java then writes down: the later comparison includes that.
    async with asyncio.timeout(45):
        found = await asyncio.to_thread(java.active_topics, "javas")
        while not found:
            await asyncio.sleep(0.05)
            found = await asyncio.to_thread(java.active_topics, "javas")


async def _taken_back(ours: OurStores, last: dict[str, Any], files: Files) -> None:
    view, entries = await ours.view(), await ours.entries()
    for part in ("config", "tasks", "topics"):
        assert {name: one[part] for name, one in view.items()} == {name: one[part] for name, one in last.items()}
    touched = {"src", "snk", "again", "javas", "unmade"}
    assert {name for name, entry in entries.items() if entry.foreign} == touched
    assert not entries["again"].has_config
    assert entries["snk"].target_state == common.TARGET_STATE_PAUSED

    async with leading(ours.config) as token:
        writer = Writer(ours, token)
        await writer.set_state("snk", common.TARGET_STATE_STARTED)
        await writer.commit("src", files.source_config(**{"batch.size": "50"}), 1)
        await writer.create("again", files.sink_config(), tasks=1)
        await writer.delete("javas")
        adopted = await ours.entries()
    assert {name for name, entry in adopted.items() if entry.foreign} == {"unmade"}
    assert properties.from_proto(adopted["src"].config) == last["src"]["config"]
    assert [properties.from_proto(task) for task in adopted["snk"].tasks] == last["snk"]["tasks"]
    assert all(entry.incarnation for entry in adopted.values() if entry.has_config)


async def _until_shown(java: JavaConnect, shown: Any) -> None:
    def states() -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in shown:
            status = java.status(name)
            found[name] = status and (status["connector"]["state"], [task["state"] for task in status["tasks"]])
        return found

    found = await asyncio.to_thread(states)
    try:
        async with asyncio.timeout(45):
            while found != shown:
                await asyncio.sleep(0.1)
                found = await asyncio.to_thread(states)
    except TimeoutError:
        different = {name: (found[name], expected) for name, expected in shown.items() if found[name] != expected}
        raise AssertionError(f"Java shows (first), and should (second): {different}") from None


async def _until_worker(java: JavaConnect, name: str) -> None:
    """Wait until the status of the connector's first task is one of Java's."""

    def worker() -> str:
        status = java.status(name)
        return status["tasks"][0]["worker_id"] if status and status["tasks"] else ""

    async with asyncio.timeout(45):
        found = await asyncio.to_thread(worker)
        while found != java.worker_id:
            await asyncio.sleep(0.05)
            found = await asyncio.to_thread(worker)


async def _until_lines(file: Path, lines: Sequence[str]) -> None:
    def read() -> list[str]:
        return sorted(file.read_text().splitlines()) if file.exists() else []

    async with asyncio.timeout(45):
        found = await asyncio.to_thread(read)
        while found != sorted(lines):
            await asyncio.sleep(0.05)
            found = await asyncio.to_thread(read)
