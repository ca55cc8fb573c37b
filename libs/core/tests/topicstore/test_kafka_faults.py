"""The Kafka engine under faults: a broker killed under load, and a writer process that is stopped.

A broker of this module's own (it is killed), which allows short sessions so that a silent writer is replaced in three
seconds, and forgets a transactional id that was not used for five.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from herdmesh.devstack.broker import QUICK_JVM, Broker
from herdmesh.topicstore import (
    BrokerUnreachable,
    NotApplied,
    StartError,
    StoreRole,
    StoreTuning,
    WriteOutcomeUnknown,
    WriteStage,
)
from tests.contract.topicstore_harness import (
    WAIT_S,
    KafkaCluster,
    Store,
    Watcher,
    create,
    put,
    replace_at,
    suite_settings,
    until_role,
)
from tests.support.side_by_side import SideBySide

pytestmark = pytest.mark.own_broker

#: Long enough that a short stall of the machine makes no writer lose the election.
_SESSION_TIMEOUT_MS = 3000
_ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        "group.min.session.timeout.ms": "500",
        "transactional.id.expiration.ms": "5000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    }
    broker = Broker(tmp_path_factory.mktemp("fragile-kafka"), port=0, settings=settings, jvm=QUICK_JVM)
    asyncio.run(broker.start())
    yield broker
    broker.kill()


@contextlib.asynccontextmanager
async def _cluster_on(bootstrap: str, topic: str) -> AsyncGenerator[KafkaCluster]:
    settings = replace(suite_settings(topic, bootstrap), session_timeout_ms=_SESSION_TIMEOUT_MS)
    made = KafkaCluster(settings)
    try:
        yield made
    finally:
        await made.close()


#: All but the test that kills the broker.
together = SideBySide(cluster=lambda test: _cluster_on(test.fixture("fragile").bootstrap, test.topic()))


# The broker dies.


@dataclass
class Load:
    """Writers that create one key after the other, and the outcome for each key."""

    store: Store
    acknowledged: set[bytes] = field(default_factory=lambda: set[bytes]())
    refused: set[bytes] = field(default_factory=lambda: set[bytes]())
    unknown: set[bytes] = field(default_factory=lambda: set[bytes]())
    progress: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run(self, name: int) -> None:
        number = 0
        while True:
            key = b"%d-%d" % (name, number)
            number += 1
            try:
                await self.store.write(create(key, b"v"))
            except NotApplied:
                self.refused.add(key)
                await until_role(self.store, StoreRole.WRITER)
            except WriteOutcomeUnknown:
                self.unknown.add(key)
            else:
                self.acknowledged.add(key)
                async with self.progress:
                    self.progress.notify_all()

    async def until_acknowledged(self, more: int) -> None:
        goal = len(self.acknowledged) + more
        async with asyncio.timeout(60), self.progress:
            await self.progress.wait_for(lambda: len(self.acknowledged) >= goal)


@pytest.mark.slow
async def test_killed_broker_loses_no_acknowledged_write(fragile: Broker, tmp_topic: Callable[..., str]) -> None:
    async with _cluster_on(fragile.bootstrap, tmp_topic()) as cluster:
        store = await cluster.open()
        await until_role(store, StoreRole.WRITER)
        load = Load(store)
        clients = [asyncio.create_task(load.run(i)) for i in range(20)]
        await load.until_acknowledged(500)
        fragile.kill()
        await fragile.start()
        await load.until_acknowledged(500)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await store.barrier()
        replica = await cluster.open()
        assert replica.state == store.state
        found = set(store.state.entries)
        assert load.acknowledged <= found
        assert not load.refused & found
        assert load.unknown == set()  # the log came back in time to look them up


@together
async def test_start_without_a_broker_fails_with_a_named_error(cluster: KafkaCluster) -> None:
    nowhere = replace(cluster.settings, bootstrap_servers="127.0.0.1:1", start_timeout_ms=300)
    with pytest.raises(BrokerUnreachable) as unreachable:
        await cluster.open(nowhere)
    assert unreachable.value.bootstrap_servers == "127.0.0.1:1"


@together
async def test_start_with_a_topic_the_broker_refuses_to_create_fails_with_a_named_error(cluster: KafkaCluster) -> None:
    with pytest.raises(StartError, match="topic"):
        await cluster.open(replace(cluster.settings, topic_configs={"no.such.setting": "1"}))


# The broker forgets the writer.


@together
async def test_a_forgotten_transactional_id_is_initialised_again_and_keep_alives_prevent_that(
    fragile: Broker, tmp_topic: Callable[..., str]
) -> None:
    clusters = [KafkaCluster(suite_settings(tmp_topic(purpose), fragile.bootstrap)) for purpose in ("idle", "kept")]
    try:
        idle = await clusters[0].open()
        kept = await clusters[1].open(tuning=StoreTuning(keep_alive_ms=250))
        for store in (idle, kept):
            await until_role(store, StoreRole.WRITER)
            await store.write(put(b"a", b"1"))
        watcher = Watcher(kept)
        await watcher.until(
            lambda me: len(me.changes) >= 40
        )  # keep-alives for 10 s: twice as long as the broker remembers
        await watcher.stop()
        await kept.write(put(b"a", b"2"))
        with pytest.raises(NotApplied):  # INVALID_PRODUCER_ID_MAPPING
            await idle.write(put(b"a", b"2"))
        await until_role(idle, StoreRole.WRITER)
        await idle.write(put(b"b", b"1"))
        assert idle.state.values() == {b"a": b"1", b"b": b"1"}
        assert (await clusters[0].open()).state == idle.state
    finally:
        for cluster in clusters:
            await cluster.close()


# The writer is stopped.


class ReplicaProcess:
    """`replica_process` as a child, and its output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._said = asyncio.Condition()
        self._lines: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, bootstrap: str, topic: str, **environment: str) -> ReplicaProcess:
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "libs.core.tests.topicstore.replica_process"),
                *(bootstrap, topic, str(_SESSION_TIMEOUT_MS)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd=_ROOT,
                env={**os.environ, "PYTHONPATH": str(_ROOT), **environment},
            )
        )

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            async with self._said:
                self._lines.append(json.loads(line))
                self._said.notify_all()

    async def until_said(self, **expected: object) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            return [line for line in self._lines if expected.items() <= line.items()]

        async with asyncio.timeout(WAIT_S), self._said:
            await self._said.wait_for(lambda: bool(found()))
        return found()[-1]

    def ask(self, *commands: dict[str, str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(commands).encode() + b"\n")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def until_dead(self) -> None:
        async with asyncio.timeout(WAIT_S):
            await self._process.wait()

    async def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading


@together
@pytest.mark.parametrize(
    "stage", [WriteStage.BEFORE_SEND, WriteStage.AFTER_SEND, WriteStage.BEFORE_COMMIT, WriteStage.AFTER_COMMIT]
)
async def test_a_killed_writer_leaves_extra_records_exactly_when_it_leaves_the_write(
    fragile: Broker, cluster: KafkaCluster, tmp_path: Path, stage: WriteStage
) -> None:
    other = f"{cluster.settings.topic}-other"
    await cluster.make_topic(other, 1)
    armed = tmp_path / "armed"
    armed.touch()
    first = await ReplicaProcess.start(
        fragile.bootstrap,
        cluster.settings.topic,
        HERDMESH_FAILPOINTS=f"@{armed}",
        HERDMESH_FAILPOINT_LOG=str(tmp_path / "hit"),
    )
    try:
        await first.until_said(role="writer")
        first.ask({"id": "well", "write": "create", "key": "well", "value": "1"})
        await first.until_said(id="well")
        (tmp_path / "next").write_text(f"{stage.value}=kill")
        (tmp_path / "next").replace(armed)
        first.ask({"id": "last", "write": "beside", "key": "a", "value": "1", "other": other})
        await first.until_dead()
        second = await cluster.open()
        await until_role(second, StoreRole.WRITER)
        is_there = b"a" in second.state.entries
        assert is_there == (stage is WriteStage.AFTER_COMMIT)
        assert await cluster.lying_in(other) == ([(0, b"a", b"1")] if is_there else [])
        assert await cluster.group_offsets(other) == ({(other, 0): (7, "")} if is_there else {})
    finally:
        await first.stop()


@together
async def test_a_stopped_and_continued_writer_answers_nothing_stale(fragile: Broker, cluster: KafkaCluster) -> None:
    first = await ReplicaProcess.start(fragile.bootstrap, cluster.settings.topic)
    try:
        await first.until_said(role="writer")
        second = await cluster.open()
        first.ask(
            {"id": "0", "write": "create", "key": "a", "value": "1"},
            {"id": "1", "write": "create", "key": "same", "value": "1"},
        )
        await first.until_said(id="1")
        first.signal(signal.SIGSTOP)
        # Waiting in the pipe when the process wakes up, before anything shows it what it missed.
        first.ask(
            {"id": "refused", "write": "create", "key": "a", "value": "3"},
            {"id": "no-op", "write": "put_once", "key": "same", "value": "1"},
            {"id": "write", "write": "create", "key": "b", "value": "2"},
        )
        await until_role(second, StoreRole.WRITER)
        await second.write(replace_at(b"a", b"2", second.state.entries[b"a"].offset))
        await second.write(put(b"same", b"2"))
        await second.write(create(b"b", b"1"))
        first.signal(signal.SIGCONT)
        answers = {name: await first.until_said(id=name) for name in ("refused", "no-op", "write")}
        not_writer = {"NotWriter", "WriterFenced"}
        assert answers["refused"]["error"] in {"Conflict", *not_writer}
        if answers["refused"]["error"] == "Conflict":
            assert "value=b'2'" in answers["refused"]["text"]
        assert answers["no-op"].get("error") in not_writer
        assert answers["write"].get("error") in {"Conflict", *not_writer}
        await first.until_said(role="replica")
        await second.write(put(b"c", b"1"))
        assert second.state.values() == {b"a": b"2", b"same": b"2", b"b": b"1", b"c": b"1"}
    finally:
        await first.stop()


@together
async def test_a_killed_writer_is_replaced_after_its_session_timeout(fragile: Broker, cluster: KafkaCluster) -> None:
    first = await ReplicaProcess.start(fragile.bootstrap, cluster.settings.topic)
    try:
        await first.until_said(role="writer")
        second = await cluster.open()
        first.ask({"id": "0", "write": "create", "key": "a", "value": "1"})
        await first.until_said(id="0")
        begun_s = asyncio.get_running_loop().time()
        first.signal(signal.SIGKILL)
        await until_role(second, StoreRole.WRITER)
        # Session timeout, and at most a heartbeat and a take-over on top; three times that on a busy machine.
        assert asyncio.get_running_loop().time() - begun_s < 3 * (_SESSION_TIMEOUT_MS / 1000 + 1)
        await second.write(put(b"b", b"1"))
        assert second.state.values() == {b"a": b"1", b"b": b"1"}
    finally:
        await first.stop()
