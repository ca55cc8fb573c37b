"""Two config stores as processes on a broker of their own, under load while they are harmed: one run and its verdict.

Owns the processes, the harm and the reading back of the topics. What clients do is `tests.support.store_clients`, what
counts as a violation `tests.support.store_checks`: the same as in the simulator.

Invariant: harm happens while clients write; each step ends with a writer that acknowledges, before the next begins.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, TopicPartition

from herdmesh.api.configstore.v1 import config_read_service_pb2 as read_pb
from herdmesh.devstack.broker import Broker
from herdmesh.rpc.errors import HerdmeshError, Timeout, Unreachable
from herdmesh.topicstore import Stage, StoredRecord
from tests.support import segments
from tests.support.config_register import Archived, ConfigRegister
from tests.support.configstore_process import ConfigStoreProcess
from tests.support.history import History, Outcome
from tests.support.sizes import soak_or
from tests.support.store_checks import Violation, Visible, check
from tests.support.store_clients import Client, Herder, Watcher

AnswerT = TypeVar("AnswerT")

#: The broker of these runs allows it: a killed writer is replaced within two seconds.
SESSION_TIMEOUT_MS = 1_500
BROKER_SETTINGS = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}
_CLIENTS = 4
_STEP_S = 60.0
_END_S = 30.0
_ACKNOWLEDGED_BETWEEN = 4
_FAR_BEHIND = soak_or(12, 40)
#: Clients think a sixth of the time they do in the simulator, where waiting costs nothing.
_THINKING = 6


class _Stubs:
    """Stubs that take a servicer's context and drop it."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def __getattr__(self, name: str) -> Callable[[Any, Any], Any]:
        call = getattr(self._stub, name)
        return lambda request, _context: call(request)


@dataclass
class _Server:
    write: _Stubs
    read: _Stubs
    leadership: _Stubs


@dataclass
class Report:
    """What came of a run."""

    seed: int
    violations: list[Violation]
    operations: int
    acknowledged: int
    faults: Counter[str]
    seconds: float

    def __str__(self) -> str:
        found = "\n".join(map(str, self.violations))
        return f"run {self.seed}: {len(self.violations)} violations\n{found}"


class Run:
    """One run, and the world of its clients."""

    replicas: Sequence[str] = ("s1", "s2")
    timeouts_s: Sequence[float] = (0.5, 1.0, 2.0)

    def __init__(self, broker: Broker, topic: str, folder: Path, seed: int) -> None:
        self.side = ConfigRegister(topic, "")
        self.rng = random.Random(seed)
        self.history = History(time.monotonic)
        self.faults: Counter[str] = Counter()
        self.over = False
        self._seed = seed
        self._broker = broker
        self._armed, self._hits = folder / "failpoints", folder / "failpoints.log"
        self._trace = folder / "trace.log"
        environment = {"HERDMESH_FAILPOINTS": f"@{self._armed}", "HERDMESH_FAILPOINT_LOG": str(self._hits)}
        more = [f"--election-session-timeout-ms={SESSION_TIMEOUT_MS}"]
        self._stores = {
            name: ConfigStoreProcess(
                broker.bootstrap, topic, folder / f"{name}.log", more=more, environment=environment
            )
            for name in self.replicas
        }
        self._servers: dict[str, _Server] = {}
        self._lives: Counter[str] = Counter()
        self._channels: list[Any] = []
        self._background: list[asyncio.Task[None]] = []

    async def play(self, steps: Sequence[Callable[[Run], Coroutine[Any, Any, None]]]) -> Report:
        """Start everything, take the steps under load, end the load, judge."""
        begun_s = time.monotonic()
        try:
            await asyncio.gather(*(self._start(name) for name in self.replicas))
            await asyncio.gather(*(store.until_reading() for store in self._stores.values()))
            await self._writer_acknowledges()
            return await self._under_load(steps, begun_s)
        finally:
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)
            for store in self._stores.values():
                await store.kill()
            for channel in self._channels:
                await channel.close()

    async def _under_load(self, steps: Sequence[Callable[[Run], Coroutine[Any, Any, None]]], begun_s: float) -> Report:
        clients = [Client(self, f"client-{number}", 1_000_000) for number in range(_CLIENTS)]
        watchers = [Watcher(self, f"watcher-{number}", slow=False) for number in range(2)]
        herders = [Herder(self, f"herder-{number}") for number in range(2)]
        asking = [self._spawn(client.run()) for client in clients]
        for watcher in watchers:
            self._spawn(watcher.run())
        for herder in herders:
            self._spawn(herder.run())
            self._spawn(herder.lead())
        for step in steps:
            async with asyncio.timeout(_STEP_S):
                await step(self)
                await self._acknowledge(_ACKNOWLEDGED_BETWEEN)
        self.over = True
        async with asyncio.timeout(_END_S):
            await asyncio.gather(*asking)
            for name in self.replicas:
                await self._read_the_truth(clients[0], name)
            end = self.history.reads[-1].revision
            # One change more takes watchers past the end; else they learn of it by the next notice of progress.
            while (await clients[0].write()).outcome is not Outcome.OK:
                pass
            await _until(lambda: all(watcher.last is not None and watcher.last >= end for watcher in watchers))
        granted = [grant for herder in herders for grant in herder.granted]
        archive, visible = await asyncio.to_thread(self._read_back)
        log = self.side.log(archive)
        log.visible = visible
        return Report(
            self._seed,
            check(self.history, log, granted),
            len(self.history.operations),
            self._acknowledged(),
            self.faults,
            time.monotonic() - begun_s,
        )

    # What clients ask of their world.

    def now_s(self) -> float:
        return time.monotonic()

    def note(self, text: str) -> None:
        with self._trace.open("a", encoding="utf-8") as trace:
            trace.write(f"{time.monotonic():.4f} {text}\n")

    async def pause(self, seconds: float) -> None:
        """A client's thinking: until the run is over, at most its time, at least one look."""
        end_s = time.monotonic() + seconds / _THINKING
        while True:
            await asyncio.sleep(0.02)
            if self.over or time.monotonic() >= end_s:
                return

    async def call(
        self, name: str, call: Callable[[Any], Coroutine[Any, Any, AnswerT]], timeout_s: float
    ) -> tuple[AnswerT, str]:
        label = f"{name}/{self._lives[name]}"
        try:
            async with asyncio.timeout(timeout_s):
                return await call(self._servers[name]), label
        except TimeoutError:
            raise Timeout("the store worked on it") from None

    async def stream(self, name: str, call: Callable[[Any], AsyncGenerator[AnswerT, None]]) -> AsyncIterator[AnswerT]:
        async for event in call(self._servers[name]):
            yield event
        raise Unreachable("the stream ended")

    # Harm. Each is one step.

    async def at_stage(self, stage: Stage, deed: str) -> None:
        """The writer meets `stage` and is killed, or stands still until the other has taken over and written."""
        self.fault(f"{deed} at {stage.value}")
        self._hits.write_text("")
        self._arm(f"{stage.value}={deed}")
        victim = await self._hit()
        self._arm("")
        other = self._other(victim)
        if deed == "kill":
            await self._stores[victim].end()
            await self._stores[other].until_writing()
            await self._start(victim)
            await self._stores[victim].until_reading()
            return
        await self._stores[other].until_writing()
        await self._acknowledge(_ACKNOWLEDGED_BETWEEN)
        self.fault("two writers at once")
        self._stores[victim].signal(signal.SIGCONT)
        await self._stores[victim].until_not_writing()

    async def restart_broker(self) -> None:
        """kill -9 of the broker under load, and its return."""
        self.fault("broker killed and started again")
        self._broker.kill()
        await self._broker.start()
        await self._until_somebody_writes()

    async def reader_far_behind(self) -> None:
        """The replica stands still while much is written, and is then asked for the newest revision."""
        name = self._other(await self._until_somebody_writes())
        self.fault("reader far behind")
        self._stores[name].signal(signal.SIGSTOP)
        await self._acknowledge(_FAR_BEHIND)
        self._stores[name].signal(signal.SIGCONT)

    async def start_late(self) -> None:
        """The replica is killed and comes back to a topic that went on without it."""
        name = self._other(await self._until_somebody_writes())
        self.fault("kill of the replica")
        await self._stores[name].end()
        await self._acknowledge(_FAR_BEHIND)
        await self._start(name)
        await self._stores[name].until_reading()

    async def stop_cleanly(self) -> None:
        """SIGTERM to the writer, and its return as a replica."""
        name = await self._until_somebody_writes()
        self.fault("clean stop of the writer")
        self._channels.append(self._stores[name].channel)
        self._stores[name].signal(signal.SIGTERM)
        await self._stores[self._other(name)].until_writing()
        await self._stores[name].end()
        await self._start(name)
        await self._stores[name].until_reading()

    def fault(self, kind: str) -> None:
        self.faults[kind] += 1
        self.note(f"fault: {kind}")

    # Processes.

    async def _start(self, name: str) -> None:
        store = self._stores[name]
        if self._lives[name]:
            self._channels.append(store.channel)
        await store.start()
        self._lives[name] += 1
        self._servers[name] = _Server(_Stubs(store.write), _Stubs(store.read), _Stubs(store.lead))
        self.note(f"start {name}/{self._lives[name]} as {store.pid}")

    def _other(self, name: str) -> str:
        return next(other for other in self.replicas if other != name)

    def _arm(self, entries: str) -> None:
        fresh = self._armed.with_suffix(".new")
        fresh.write_text(entries)
        os.replace(fresh, self._armed)

    async def _hit(self) -> str:
        """The name of the store that met the failpoint."""
        await _until(lambda: self._hits.read_text().endswith("\n"))
        pid = int(self._hits.read_text().split()[1])
        return next(name for name, store in self._stores.items() if store.pid == pid)

    async def _until_somebody_writes(self) -> str:
        while True:
            for name, store in self._stores.items():
                try:
                    if await store.is_writing():
                        return name
                except HerdmeshError:
                    pass  # it is starting
            await asyncio.sleep(0.05)

    async def _writer_acknowledges(self) -> None:
        writer = self._stores[await self._until_somebody_writes()]
        answer = await writer.read.GetSnapshot(read_pb.GetSnapshotRequest())
        self.side.store_id = answer.meta.revision.store_id

    def _acknowledged(self) -> int:
        return sum(operation.outcome is Outcome.OK for operation in self.history.operations if operation.writes)

    async def _acknowledge(self, more: int) -> None:
        """Until so many writes more were acknowledged."""
        wanted = self._acknowledged() + more
        await _until(lambda: self._acknowledged() >= wanted)

    async def _read_the_truth(self, client: Client, replica: str) -> None:
        while True:
            if await client.read(linearizable=True, replica=replica):
                return
            await asyncio.sleep(0.05)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._background.append(task)
        return task

    # The topics.

    def _read_back(self) -> tuple[list[Archived], list[Visible]]:
        topics = (self.side.topic, f"{self.side.topic}-audit")
        records = [record for topic in topics for record in _committed(self._broker.bootstrap, topic)]
        visible: list[Visible] = []
        highest: dict[int, int] = {}
        for ended in segments.transactions(self._broker.data_dir, self.side.topic):
            highest[ended.producer_id] = max(highest.get(ended.producer_id, 0), ended.producer_epoch)
            if ended.committed and ended.wrote:
                owner = f"epoch {highest[ended.producer_id]}"
                visible.append(Visible(f"epoch {ended.producer_epoch}", owner))
        assert visible, "the broker's files tell of no transaction"
        return [Archived("", "", tuple(records))], visible


async def _until(condition: Callable[[], bool]) -> None:
    """Look at a condition until it holds; the caller bounds the time."""
    while True:
        if condition():
            return
        await asyncio.sleep(0.02)


def _committed(bootstrap: str, topic: str) -> list[StoredRecord]:
    """Every committed record of a topic's only partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-read-back",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,  # how long the client waits for more before it tells the end: 500 by default
        }
    )
    records: list[StoredRecord] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error  # pyright: ignore[reportPrivateUsage]
                return records
            offset, (_, timestamp_ms) = message.offset(), message.timestamp()
            assert offset is not None
            records.append(StoredRecord(topic, 0, offset, message.key(), message.value(), timestamp_ms))
    finally:
        consumer.close()
