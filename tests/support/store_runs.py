"""Two replicas of a store as processes on a broker, under load and faults: one run and its verdict.

Owns the processes, the faults and the reading back of the topics. `tests.support.store_clients` owns the clients,
`tests.support.store_checks` the violations: the same as in the simulator. The parts of one store alone are
`tests.support.config_run` and `tests.support.status_run`.

Invariant: faults happen while clients write; each step ends with a writer that acknowledges, before the next begins.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, TopicPartition

from herdmesh.devstack.broker import Broker
from herdmesh.rpc.errors import HerdmeshError, Timeout, Unreachable
from herdmesh.topicstore import StoredRecord, WriteStage
from tests.support import segments
from tests.support.config_register import Archived
from tests.support.history import History, Outcome
from tests.support.sizes import soak_or
from tests.support.store_checks import Granted, StoreLog, Violation, Visible, check
from tests.support.store_clients import Client, Watcher
from tests.support.store_process import StoreProcess

AnswerT = TypeVar("AnswerT")

#: The broker of these runs allows it: a killed writer is replaced within two seconds.
SESSION_TIMEOUT_MS = 1_500
BROKER_SETTINGS = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}
_CLIENTS = 4
_STEP_S = 60.0
_END_S = 60.0
_ACKNOWLEDGED_BETWEEN = 4
_FAR_BEHIND = soak_or(12, 40)
#: Clients pause a sixth of the time they do in the simulator, where waiting costs nothing.
_THINKING = 6


class Stubs:
    """Stubs that accept a servicer's context and drop it."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def __getattr__(self, name: str) -> Callable[[Any, Any], Any]:
        call = getattr(self._stub, name)
        return lambda request, _context: call(request)


@dataclass
class Report:
    """The result of a run."""

    seed: int
    violations: list[Violation]
    operations: int
    acknowledged: int
    faults: Counter[str]
    refused: Counter[str]
    seconds: float

    def __str__(self) -> str:
        found = "\n".join(map(str, self.violations))
        return f"run {self.seed}: {len(self.violations)} violations\n{found}"


class Run:
    """One run, and the world of its clients. Subclasses name the store, and further checks."""

    #: The register, which a subclass makes; see `tests.support.config_register`.
    side: Any
    topics: Sequence[str]
    replicas: Sequence[str] = ("s1", "s2")
    timeouts_s: Sequence[float] = (0.5, 1.0, 2.0)

    def __init__(self, broker: Broker, topic: str, folder: Path, seed: int) -> None:
        self.topic = topic
        self.rng = random.Random(seed)
        self.history = History(time.monotonic)
        self.faults: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.over = False
        self._seed = seed
        self._broker = broker
        self._armed, self._hits = folder / "failpoints", folder / "failpoints.log"
        self._trace = folder / "trace.log"
        environment = {"HERDMESH_FAILPOINTS": f"@{self._armed}", "HERDMESH_FAILPOINT_LOG": str(self._hits)}
        more = [f"--election-session-timeout-ms={SESSION_TIMEOUT_MS}"]
        self._stores = {
            name: self._process(broker.bootstrap, folder / f"{name}.log", more, environment) for name in self.replicas
        }
        self._servers: dict[str, Any] = {}
        self._lives: Counter[str] = Counter()
        self._channels: list[Any] = []
        self._background: list[asyncio.Task[None]] = []

    # Parts of one store.

    def _process(
        self, bootstrap: str, log_path: Path, more: Sequence[str], environment: Mapping[str, str]
    ) -> StoreProcess:
        """One replica."""
        raise AssertionError(f"{type(self).__name__} names no process")

    def _server(self, store: Any) -> Any:
        """The services of a replica that clients call."""
        raise AssertionError(f"{type(self).__name__} names no services")

    async def _store_id(self, store: Any) -> str:
        """The store id in its revisions."""
        raise AssertionError(f"{type(self).__name__} asks nobody")

    def _writers_besides(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        """Further writers, which end when the run is over."""
        return ()

    def _besides(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        """Further activities beside the load, until they are cancelled."""
        return ()

    def _granted(self) -> Sequence[Granted]:
        """Epochs that herders got."""
        return ()

    def _judge_besides(self, log: StoreLog) -> Sequence[Violation]:
        """Further violations."""
        return ()

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
        asking = [self._spawn(client.run()) for client in clients]
        asking += [self._spawn(work()) for work in self._writers_besides()]
        for watcher in watchers:
            self._spawn(watcher.run())
        for work in self._besides():
            self._spawn(work())
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
            # One change more takes watchers past the end; otherwise they learn of it only from the next progress event.
            while (last := await clients[0].write()).outcome is not Outcome.OK or last.value is None:
                pass
            await _until(lambda: all(_reached(watcher.last, end) for watcher in watchers))
        archive, visible = await asyncio.to_thread(self._read_back)
        log = self.side.log(archive)
        log.visible = visible
        return Report(
            self._seed,
            [*check(self.history, log, self._granted()), *self._judge_besides(log)],
            len(self.history.operations),
            self._acknowledged(),
            self.faults,
            self.refused,
            time.monotonic() - begun_s,
        )

    # Services for the clients.

    def now_s(self) -> float:
        return time.monotonic()

    def note(self, text: str) -> None:
        with self._trace.open("a", encoding="utf-8") as trace:
            trace.write(f"{time.monotonic():.4f} {text}\n")

    async def pause(self, seconds: float) -> None:
        """A client's pause: until the run is over, at most its time, at least one check."""
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

    # Faults. Each is one step.

    async def at_stage(self, stage: WriteStage, deed: str) -> None:
        """The writer reaches `stage` and is killed, or is stopped until the other has taken over and written."""
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
        """The replica is stopped while much is written, and then gets a read of the newest revision."""
        name = self._other(await self._until_somebody_writes())
        self.fault("reader far behind")
        self._stores[name].signal(signal.SIGSTOP)
        await self._acknowledge(_FAR_BEHIND)
        self._stores[name].signal(signal.SIGCONT)

    async def start_late(self) -> None:
        """The replica is killed and comes back to a topic that grew without it."""
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
        self._servers[name] = self._server(store)
        self.note(f"start {name}/{self._lives[name]} as {store.pid}")

    def _other(self, name: str) -> str:
        return next(other for other in self.replicas if other != name)

    def _arm(self, entries: str) -> None:
        fresh = self._armed.with_suffix(".new")
        fresh.write_text(entries)
        os.replace(fresh, self._armed)

    async def _hit(self) -> str:
        """The name of the store that reached the failpoint."""
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
        self.side.store_id = await self._store_id(writer)

    def _acknowledged(self) -> int:
        return sum(operation.outcome is Outcome.OK for operation in self.history.operations if operation.writes)

    async def _acknowledge(self, more: int) -> None:
        """Wait for `more` further acknowledged writes."""
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
        partitions = range(self.side.partitions)
        places = [(topic, partition) for topic in self.topics for partition in partitions]
        records = [record for place in places for record in _committed(self._broker.bootstrap, *place)]
        visible: list[Visible] = []
        for partition in partitions:
            highest: dict[int, int] = {}
            for ended in segments.transactions(self._broker.data_dir, self.topic, partition):
                highest[ended.producer_id] = max(highest.get(ended.producer_id, 0), ended.producer_epoch)
                if ended.committed and ended.wrote:
                    owner = f"epoch {highest[ended.producer_id]}"
                    visible.append(Visible(f"epoch {ended.producer_epoch}", owner))
        assert visible, "the broker's files tell of no transaction"
        return [Archived("", "", tuple(records))], visible


async def _until(condition: Callable[[], bool]) -> None:
    """Poll a condition until it holds; the caller bounds the time."""
    while True:
        if condition():
            return
        await asyncio.sleep(0.02)


def _reached(revision: tuple[int, ...] | None, end: tuple[int, ...]) -> bool:
    return revision is not None and all(mine >= theirs for mine, theirs in zip(revision, end, strict=True))


def _committed(bootstrap: str, topic: str, partition: int) -> list[StoredRecord]:
    """Every committed record of a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-read-back",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,  # how long the client waits for more before it reports the end: 500 by default
        }
    )
    records: list[StoredRecord] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
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
            records.append(StoredRecord(topic, partition, offset, message.key(), message.value(), timestamp_ms))
    finally:
        consumer.close()
