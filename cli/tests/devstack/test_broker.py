"""Tests of the development broker on a real JVM: start, remembered ports, refusals, kills. Its service to clients is
tested in test_broker_serves.py.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import time
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from herdmesh.devstack.broker import QUICK_JVM, Broker
from herdmesh.devstack.errors import BrokerAlreadyRunning, BrokerFailed, JavaMissing
from tests.support.side_by_side import SideBySide

pytestmark = pytest.mark.own_broker
TIMEOUT_S = 40.0


@pytest.fixture(scope="module")
def formatted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that served once and was stopped in order, to be copied."""
    broker = Broker(tmp_path_factory.mktemp("formatted"), port=0, jvm=QUICK_JVM)
    asyncio.run(_serve_once(broker))
    return broker.data_dir


async def _serve_once(broker: Broker) -> None:
    await broker.start()
    await broker.stop()


@asynccontextmanager
async def _broker_in(folder: Path, formatted: Path) -> AsyncGenerator[Broker]:
    """A broker of the test's own on a formatted folder, not started, ended with the test. Java reads properties files
    as ISO-8859-1, so the folder's name has letters of that character set and others.
    """
    data = folder / "dätä 雪"
    shutil.copytree(formatted / "kafka", data / "kafka")
    broker = Broker(data, port=0, jvm=QUICK_JVM)
    try:
        yield broker
    finally:
        broker.kill()


@pytest.fixture
async def broker(tmp_path: Path, formatted: Path) -> AsyncGenerator[Broker]:
    async with _broker_in(tmp_path, formatted) as broker:
        yield broker


#: The controller accepts a killed broker again after seconds. Not for a test that needs a certain port.
together = SideBySide("formatted", broker=lambda test: _broker_in(test.folder(), test.fixture("formatted")))


def write(bootstrap: str, topic: str, values: list[bytes]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = cast("dict[str, Future[None]]", admin.create_topics([NewTopic(topic, 1, 1)]))  # pyright: ignore[reportUnknownMemberType]
    created[topic].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(TIMEOUT_S)


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = consumer.consume(count, timeout=TIMEOUT_S)
    consumer.close()
    return [message.value() for message in found]


@together
async def test_records_and_fences_survive_kill(broker: Broker) -> None:
    await broker.start()
    first_pid, bootstrap = broker.pid, broker.bootstrap
    await asyncio.to_thread(write, bootstrap, "kept", [b"1", b"2"])
    settings = {"bootstrap.servers": bootstrap, "transactional.id": "owner"}
    old, new = Producer(settings), Producer(settings)
    await asyncio.to_thread(old.init_transactions, TIMEOUT_S)
    await asyncio.to_thread(new.init_transactions, TIMEOUT_S)
    broker.kill()
    assert broker.pid is None

    await broker.start()
    assert broker.pid != first_pid
    assert broker.bootstrap == bootstrap
    assert await asyncio.to_thread(read, bootstrap, "kept", 2) == [b"1", b"2"]
    old.begin_transaction()
    old.produce("kept", b"3")
    with pytest.raises(KafkaException) as refusal:
        await asyncio.to_thread(old.commit_transaction, 60.0)
    assert refusal.value.args[0].fatal()


@together
async def test_one_jvm_per_folder_and_adoption_by_another_process(broker: Broker) -> None:
    await broker.start()
    other = Broker(broker.data_dir)
    with pytest.raises(BrokerAlreadyRunning, match=f"in use by process {broker.pid}") as refusal:
        await other.start()
    assert refusal.value.pid == broker.pid
    assert await other.adopt()
    assert (other.pid, other.bootstrap) == (broker.pid, broker.bootstrap)
    await other.stop()
    # the folder is free as soon as the JVM closed its files, a moment before the process is gone
    deadline_s = time.monotonic() + 60
    while broker.pid is not None:
        assert time.monotonic() < deadline_s, "the adopted broker did not end"
        await asyncio.sleep(0.02)
    assert not await other.adopt()


async def test_other_ports_are_chosen_when_its_own_are_taken(broker: Broker) -> None:
    with socket.socket() as usual:
        usual.bind(("127.0.0.1", 0))
        usual.listen()
        taken = usual.getsockname()[1]
        broker = Broker(broker.data_dir, port=taken, jvm=QUICK_JVM)
        await broker.start()
        assert broker.bootstrap != f"127.0.0.1:{taken}"
        remembered = broker.bootstrap
        await broker.stop()
    # The port is free again, but the folder has ports of its own now, and clients may know them.
    again = Broker(broker.data_dir, port=taken, jvm=QUICK_JVM)
    await again.start()
    await again.stop()
    assert again.bootstrap == remembered


@together
async def test_a_half_formatted_folder_is_formatted_again(tmp_path: Path) -> None:
    half = tmp_path / "kafka.formatting"
    half.mkdir()
    (half / "meta.properties").write_text("version=1\ncluster.id=")
    broker = Broker(tmp_path, port=0, jvm=QUICK_JVM)
    try:
        await broker.start()
        assert not half.exists()
    finally:
        broker.kill()


async def test_a_folder_without_its_identity_is_not_formatted_over(tmp_path: Path) -> None:
    records = tmp_path / "kafka" / "00000000000000000000.log"
    records.parent.mkdir()
    records.write_bytes(b"precious")
    with pytest.raises(BrokerFailed, match=r"no meta\.properties.*not formatted again"):
        await Broker(tmp_path).start()
    assert records.read_bytes() == b"precious"


async def test_a_broker_that_dies_at_start_is_reported_with_its_log(tmp_path: Path) -> None:
    broker = Broker(tmp_path, port=0, settings={"node.id": "-7"})
    with pytest.raises(BrokerFailed, match=r"format.*ConfigException: .*node\.id.*[\s\S]*broker\.log:[\s\S]*node\.id"):
        await broker.start()
    assert not broker.is_running()


async def test_a_cancelled_start_leaves_nothing_running(broker: Broker) -> None:
    starting = asyncio.ensure_future(broker.start())
    while not broker.is_running():  # noqa: ASYNC110 - the moment between spawning and serving has no event
        await asyncio.sleep(0)
    pid = broker.pid
    assert pid is not None
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_missing_java_is_reported_before_any_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(JavaMissing, match="JAVA_HOME"):
        await Broker(tmp_path / "data").start()
    assert not (tmp_path / "data" / "kafka").exists()


def test_bootstrap_before_the_start_raises(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match="not started yet"):
        _ = Broker(tmp_path).bootstrap
