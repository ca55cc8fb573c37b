"""Both stores as processes when the broker refuses them something or their topic is deleted: they name the fix for the
operator, over gRPC and in `herd doctor`, and continue by themselves once it is fixed.

One test takes one process of each through all of it, because processes take longer to start than to be tested.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from herdmesh.api.common.v1 import store_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as config_pb
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as status_pb
from herdmesh.cli.doctor import ExaminedServices, examine
from herdmesh.rpc.errors import HerdmeshError, StoreReplaying, StoreUnauthorized, TopicRecreated
from tests.support.configstore_process import ConfigStoreProcess
from tests.support.guarded_broker import GuardedBroker
from tests.support.statusstore_process import StatusStoreProcess
from tests.support.store_process import StoreProcess
from tests.support.waiting import of_stores

_WAIT_S = 45.0
_STATUS_PARTITIONS = 3


class Subject:
    """One of the two stores, with the differences between them."""

    def __init__(self, kind: str, guarded: GuardedBroker, topic: str, log_path: Path) -> None:
        self.kind, self.guarded, self.topic = kind, guarded, topic
        self.user, configs = guarded.new_user()
        pairs = ",".join(f"{name}={value}" for name, value in configs.items())
        more = [f"--kafka-client-configs={pairs}"]
        if kind == "config":
            self.process: StoreProcess = ConfigStoreProcess(guarded.guarded, topic, log_path, more=more)
            self.id, self.election = f"connect-cluster-{topic}", f"herdmesh-config-store-{topic}"
            self.request: Any = config_pb.GetStoreStatusRequest()
        else:
            more.append(f"--status-storage-partitions={_STATUS_PARTITIONS}")
            self.process = StatusStoreProcess(guarded.guarded, topic, log_path, more=more)
            self.id, self.election = f"herdmesh-status-{topic}", f"herdmesh-status-store-{topic}"
            self.request = status_pb.GetStoreStatusRequest()

    @property
    def stub(self) -> Any:
        process: Any = self.process
        return process.read

    async def allow(self) -> None:
        """Grant all rights that it needs for itself."""
        await self.guarded.allow_store(self.user, self.topic, self.id, self.election)

    async def status(self) -> store_pb2.StoreStatus:
        return (await self.stub.GetStoreStatus(self.request)).status

    async def until(self, condition: str) -> store_pb2.StoreStatus:
        wanted = store_pb2.StoreCondition.Value(f"STORE_CONDITION_{condition}")
        async with asyncio.timeout(_WAIT_S):
            while True:
                status = await self.status()
                if status.condition == wanted:
                    return status
                await asyncio.sleep(0.05)


@of_stores
@pytest.mark.slow
async def test_both_stores_report_and_recover_from_everything_an_operator_must_fix(
    guarded: GuardedBroker, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """1. They have no rights, and report it. 2. They get all rights, and continue. 3. The config store loses the right
    to write and keeps reading. 4. Another program writes an unreadable record. 5. Their topics are recreated: they end.
    """
    config = Subject("config", guarded, tmp_topic("configs"), tmp_path / "config.log")
    status = Subject("status", guarded, tmp_topic("status"), tmp_path / "status.log")
    subjects = (config, status)
    await asyncio.gather(*(subject.process.start() for subject in subjects))
    try:
        for subject in subjects:
            await _refused_to_start(subject)
        await _doctor_hears_of_refusals(config, status)
        await asyncio.gather(*(_granted(subject) for subject in subjects))
        await _loses_the_right_to_write(config)
        await _doctor_lists_unreadable_records(config, status)
        await asyncio.gather(*(_topic_is_made_anew(subject) for subject in subjects))
    finally:
        await asyncio.gather(*(subject.process.kill() for subject in subjects))


async def _refused_to_start(subject: Subject) -> None:
    status = await subject.until("NOT_AUTHORIZED")
    assert status.role == store_pb2.STORE_ROLE_REPLAYING
    assert status.topic == subject.topic
    assert f"describe topic {subject.topic}" in status.message
    assert f"kafka-acls.sh --bootstrap-server {subject.guarded.guarded}" in status.message
    assert status.since.seconds > 0
    assert not (await subject.stub.GetStoreStatus(subject.request)).HasField("meta")
    assert not await subject.process.is_writing()
    if subject.kind == "config":
        with pytest.raises(StoreReplaying):
            await subject.stub.GetSnapshot(config_pb.GetSnapshotRequest())


async def _doctor_hears_of_refusals(config: Subject, status: Subject) -> None:
    targets = ExaminedServices([config.process.address, "127.0.0.1:1"], [status.process.address], "127.0.0.1:1")
    found = await examine(targets)
    assert not found["healthy"]
    told = {(one["part"], one["name"], one["code"]) for one in found["findings"]}
    assert told == {
        ("config-store", config.process.address, "NOT_AUTHORIZED"),
        ("config-store", "127.0.0.1:1", "UNREACHABLE"),
        ("status-store", status.process.address, "NOT_AUTHORIZED"),
        ("herder", "127.0.0.1:1", "UNREACHABLE"),
    }
    assert all(one["next_step"] and one["message"] for one in found["findings"])


async def _granted(subject: Subject) -> None:
    await subject.allow()
    if subject.kind == "config":
        # It cannot distinguish a group it may not read from an empty one: it must not take over Java's topics on that.
        async with asyncio.timeout(_WAIT_S):
            while True:
                if f"describe group {subject.topic}" in (await subject.status()).message:
                    break
                await asyncio.sleep(0.05)
        assert not await subject.process.is_writing()
        await subject.guarded.allow(subject.user, f"group:{subject.topic}", "DESCRIBE")
    await subject.process.until_writing()
    status = await subject.status()
    assert (status.role, status.condition, status.message) == (
        store_pb2.STORE_ROLE_WRITER,
        store_pb2.STORE_CONDITION_HEALTHY,
        "",
    )
    assert (await subject.stub.GetStoreStatus(subject.request)).HasField("meta")


async def _loses_the_right_to_write(config: Subject) -> None:
    store: Any = config.process
    await store.put("a", {"name": "a"})
    await config.guarded.deny(config.user, f"topic:{config.topic}", "WRITE")
    await store.until_not_writing()
    with pytest.raises(StoreUnauthorized) as refusal:
        await store.put("b", {"name": "b"})
    assert refusal.value.metadata == {"operation": "write to", "resource": f"topic {config.topic}"}
    assert set(await store.configs()) == {"a"}
    assert "--operation Write" in (await config.status()).message
    await config.guarded.relent(config.user, f"topic:{config.topic}", "WRITE")
    await store.until_writing()
    await store.put("b", {"name": "b"})
    assert set(await store.configs()) == {"a", "b"}


async def _doctor_lists_unreadable_records(config: Subject, status: Subject) -> None:
    producer = Producer({"bootstrap.servers": status.guarded.bootstrap})
    producer.produce(config.topic, b"not json", b"connector-c", partition=0)
    producer.produce(status.topic, b"x", b"no kind of key", partition=2)
    producer.produce(status.topic, b"not json", b"status-connector-c", partition=1)
    assert await asyncio.to_thread(producer.flush, 45) == 0
    for subject, wanted in ((config, 1), (status, 2)):
        async with asyncio.timeout(_WAIT_S):
            while True:
                if (await subject.status()).undecodable_count == wanted:
                    break
                await asyncio.sleep(0.05)
    asked = (f"--config-store={config.process.address}", f"--status-store={status.process.address}")
    herd = (sys.executable, "-m", "herdmesh.cli", "doctor", *asked, "--herder=127.0.0.1:1", "-o", "json")
    process = await asyncio.create_subprocess_exec(*herd, stdout=asyncio.subprocess.PIPE)
    stdout, _ = await process.communicate()
    found = json.loads(stdout)
    assert process.returncode == 1
    assert [one["condition"] for one in found["replicas"]] == ["HEALTHY", "HEALTHY"]
    assert [one["code"] for one in found["findings"]] == ["UNDECODABLE", "UNDECODABLE", "UNREACHABLE"]
    listed = [one for replica in found["replicas"] for one in replica["undecodable"]]
    assert {(one["topic"], one["partition"], one["key"]) for one in listed} == {
        (config.topic, 0, "connector-c"),
        (status.topic, 2, "no kind of key"),
        (status.topic, 1, "status-connector-c"),
    }
    assert all(one["reason"] and one["offset"] >= 0 for one in listed)


async def _topic_is_made_anew(subject: Subject) -> None:
    """Calls in flight end with the reason, the process with code 1; started again it serves the recreated topic."""
    watching = asyncio.Event()
    calls = asyncio.gather(_watch_to_the_end(subject, watching), subject.process.ended())
    await asyncio.wait_for(watching.wait(), _WAIT_S)
    await subject.guarded.delete_topic(subject.topic)
    partitions = 1 if subject.kind == "config" else _STATUS_PARTITIONS
    await subject.guarded.create_topic(subject.topic, partitions, cleanup_policy="compact")
    ending, code = await asyncio.wait_for(calls, _WAIT_S)
    assert isinstance(ending, TopicRecreated), ending
    assert subject.topic in ending.message
    assert code == 1
    log = subject.process.log_path.read_text()
    told = [line["event"] for line in map(json.loads, log.splitlines()) if "NOT_AUTHORIZED: " in line["event"]]
    assert f"describe topic {subject.topic}" in told[0]
    assert all(one != after for one, after in itertools.pairwise(told))  # once per change, however often it tried
    assert "TOPIC_RECREATED: topic " in log
    assert "secret-" not in log
    await subject.process.start()
    await subject.process.until_writing()
    assert (await subject.status()).condition == store_pb2.STORE_CONDITION_HEALTHY


async def _watch_to_the_end(subject: Subject, watching: asyncio.Event) -> HerdmeshError | None:
    """The error that ended the watch; `watching` is set when it has begun."""
    if subject.kind == "config":
        watch = subject.stub.Watch(config_pb.WatchRequest())
    else:
        watch = subject.stub.WatchStatuses(status_pb.WatchStatusesRequest())
    try:
        async for _ in watch:
            watching.set()
    except HerdmeshError as error:
        return error
    return None
