"""A whole mesh for tests: real broker, real services, real Spark, driven as a user drives it.

Owns the test's view of a `devstack.Stack`: applying connectors, waiting for states in the herder's watch, killing
processes, counting output records. Invariant: every wait is on an event (a change in the watch, a record in a
topic, a line in a log), with a bound that fails the test with the last thing seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import psutil
import pyarrow.dataset
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_messages
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import connector_service_pb2_grpc
from herdmesh.api.herder.v1 import lifecycle_messages_pb2 as lifecycle_messages
from herdmesh.cli.batch.connector_files import to_properties
from herdmesh.cli.display import views
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.mesh.contexts import SERVICES
from herdmesh.devstack.broker import QUICK_JVM, Broker
from herdmesh.devstack.layout import role_of
from herdmesh.devstack.stack import Stack, StackSettings
from herdmesh.kafka.broker_reachability import accepts
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.rpc.request_ids import new_request_id
from tests.support.watching import Watching, brief

WAIT_S = 60.0
#: A test's own client reconnects so often to a killed broker; else it may wait for ten seconds more.
_RECONNECT_MS = 500


class Mesh:
    """One running stack and the watch of its events."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._watching = Watching()
        self.board = self._watching.board
        self.client = HerderClient(SERVICES["herder"][1], patience_s=45.0)  # replaced once the stack has its ports
        self._lag_consumers: dict[str, Consumer] = {}
        self._failpoints = Path(stack.settings.worker_env["HERDMESH_FAILPOINTS"].removeprefix("@"))
        self._failpoint_log = Path(stack.settings.worker_env["HERDMESH_FAILPOINT_LOG"])
        self._following: asyncio.Task[None] | None = None

    @property
    def bootstrap(self) -> str:
        return self.stack.broker.bootstrap

    async def start(self) -> None:
        await self.stack.start(timeout_s=150)
        self.client = await HerderClient(self.stack.state.herder, patience_s=45.0).__aenter__()
        self._following = asyncio.create_task(self._watching.follow(self.stack.state.herder))

    async def stop(self, *, by_force: bool) -> None:
        """Stop in order, as `herd up` does, or all at once."""
        if self._following is not None:
            self._following.cancel()
        for consumer in self._lag_consumers.values():
            consumer.close()
        await self.client.__aexit__(None, None, None)
        if by_force:
            await asyncio.gather(*(process.stop(0.0) for process in self.stack.processes.values()))
        await self.stack.stop()

    # -- actions of a user

    async def apply(self, name: str, config: dict[str, Any]) -> views.Json:
        request = messages.UpdateConnectorRequest(
            request_id=new_request_id(), name=name, config=to_properties(config), allow_missing=True
        )
        return views.connector((await self.client.call(lambda stub: stub.UpdateConnector, request)).connector)

    async def get(self, name: str) -> views.Json:
        request = messages.GetConnectorRequest(name=name)
        return views.connector((await self.client.call(lambda stub: stub.GetConnector, request)).connector)

    async def delete(self, name: str) -> None:
        request = messages.DeleteConnectorRequest(request_id=new_request_id(), name=name)
        await self.client.call(lambda stub: stub.DeleteConnector, request)

    async def cluster(self) -> views.Json:
        reply = await self.client.call(lambda stub: stub.GetCluster, admin_messages.GetClusterRequest())
        return views.cluster(reply)

    async def leader_address(self) -> str:
        """The herder that leads at this moment, empty while none reports that it does."""

        async def leads(address: str) -> bool:
            async with connect(address) as channel:
                stub = connector_service_pb2_grpc.ConnectorServiceStub(channel)
                try:
                    cluster = await stub.GetCluster(admin_messages.GetClusterRequest(), timeout=1.0)
                except HerdmeshError:
                    return False
                return cluster.epoch > 0

        addresses = self.stack.addresses("herder")
        found = await asyncio.gather(*(leads(address) for address in addresses))
        return next((address for address, leading in zip(addresses, found, strict=True) if leading), "")

    async def lifecycle(self, rpc: str, name: str) -> None:
        """PauseConnector, ResumeConnector or StopConnector."""
        request = getattr(lifecycle_messages, f"{rpc}Request")(request_id=new_request_id(), name=name)
        await self.client.call(lambda stub: getattr(stub, rpc), request)

    # -- waiting

    async def until(
        self, name: str, condition: Callable[[views.Json], bool], what: str, timeout_s: float = WAIT_S
    ) -> views.Json:
        """Wait until the watch shows this connector in a state that satisfies the condition."""
        return await self._watching.until(name, condition, what, timeout_s)

    async def until_running(self, name: str, tasks: int, timeout_s: float = WAIT_S) -> views.Json:
        return await self.until(
            name,
            lambda one: (
                one["connector"]["state"] == "RUNNING"
                and len(one["tasks"]) == tasks
                and all(task["state"] == "RUNNING" for task in one["tasks"])
            ),
            f"RUNNING with {tasks} tasks",
            timeout_s,
        )

    async def until_committed(self, name: str, topic: str, timeout_s: float = WAIT_S) -> None:
        """Wait until the sink's group has committed everything the topic holds."""
        deadline_s = time.monotonic() + timeout_s
        while (lag := await asyncio.to_thread(self.lag, name, topic)) > 0:
            if time.monotonic() > deadline_s:
                shown = self.board.connectors.get(name)
                offsets = await asyncio.to_thread(self._offsets, name, topic)
                progress = [task.get("progress") for task in (shown or {"tasks": []})["tasks"]]
                raise AssertionError(
                    f"{name}: lag still {lag} after {timeout_s:g} s; (committed, end) by partition: {offsets}; "
                    f"last seen: {brief(shown)}, {progress}"
                )
            await asyncio.sleep(0.1)

    async def until_committed_at_least(self, name: str, topic: str, records: int, timeout_s: float = 90.0) -> None:
        """Wait until the sink's group has committed at least so many records of the topic."""
        deadline_s = time.monotonic() + timeout_s
        while (done := await asyncio.to_thread(self.committed, name, topic)) < records:
            assert time.monotonic() < deadline_s, f"{name}: {done} of {records} committed after {timeout_s:g} s"
            await asyncio.sleep(0.1)

    async def until_serving(self, names: Iterable[str] = ()) -> None:
        """Wait until these services (default: all) serve again."""
        wanted = list(names) or list(self.stack.processes)
        await asyncio.wait_for(asyncio.gather(*(self.stack.wait_serving(name) for name in wanted)), 90)

    async def until_workers(self) -> None:
        """Wait until every worker has registered with the herder: it serves a moment before, and has no task so far."""
        wanted = len(self.stack.addresses("worker"))
        deadline_s = time.monotonic() + WAIT_S
        while True:
            states = [one["state"] for one in (await self.cluster())["workers"]]
            if len([state for state in states if state != "LOST"]) >= wanted:
                return
            assert time.monotonic() < deadline_s, f"the herder has only these workers after {WAIT_S:g} s: {states}"
            await asyncio.sleep(0.1)

    async def assert_temporary(self, folder: Path) -> None:
        """Once all serve: the workers' temporary folder has one folder for each live worker, and nothing else."""
        await self.until_serving()
        await self.until_workers()
        left = sorted(await asyncio.to_thread(os.listdir, folder))
        assert len(left) == len(self.stack.addresses("worker")), f"left behind: {left}"
        assert all(name.startswith("herd-worker-") for name in left), f"left behind: {left}"

    # -- faults

    def pid(self, service: str) -> int:
        mark = self.stack.processes[service].mark
        assert mark is not None, f"{service} is not alive"
        return mark.pid

    def service_at(self, address: str) -> str:
        return next(one.name for one in self.stack.state.services if one.address == address)

    def kill(self, service: str, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid(service), number)

    async def restart_as(self, service: str, environment: Mapping[str, str]) -> None:
        """Stop a service in order and start it again with this environment, as in a rolling upgrade."""
        process = self.stack.processes[service]
        process.environment = dict(environment)
        before = self.pid(service)
        self.kill(service, signal.SIGTERM)
        deadline_s = time.monotonic() + WAIT_S
        while process.mark is None or process.mark.pid == before:
            assert time.monotonic() < deadline_s, f"{service} did not end in {WAIT_S:g} s after SIGTERM"
            await asyncio.sleep(0.05)
        await self.until_serving([service])

    def jvm_of(self, worker: str) -> psutil.Process:
        """The JVM of a worker's Spark."""
        children = psutil.Process(self.pid(worker)).children(recursive=True)
        for one in children:
            with contextlib.suppress(psutil.NoSuchProcess):  # others come and go
                if one.name() == "java":
                    return one
        raise AssertionError(f"{worker} has no JVM")

    def descendants(self, worker: str) -> list[psutil.Process]:
        return psutil.Process(self.pid(worker)).children(recursive=True)

    def arm(self, points: dict[str, str]) -> None:
        """Arm a failpoint for each connector: its next run stops itself there, once."""
        self._failpoint_log.unlink(missing_ok=True)
        self._failpoints.write_text("".join(f"{connector}/{point}=stop\n" for connector, point in points.items()))

    async def until_frozen(self, connectors: Iterable[str], timeout_s: float = WAIT_S) -> dict[str, int]:
        """Wait until these connectors are stopped at their failpoints; returns their pids."""
        wanted = set(connectors)
        deadline_s = time.monotonic() + timeout_s
        while True:
            lines = self._failpoint_log.read_text().splitlines() if self._failpoint_log.exists() else []
            pids = {connector: int(pid) for _point, pid, connector in (line.split(" ", 2) for line in lines)}
            if wanted <= pids.keys():
                return pids
            assert time.monotonic() < deadline_s, f"never reached their failpoints: {wanted - pids.keys()}"
            await asyncio.sleep(0.05)

    async def until_published(self, folder: Path, rows: int, timeout_s: float = WAIT_S) -> None:
        """Wait until a folder holds at least so many published rows."""
        deadline_s = time.monotonic() + timeout_s
        while (found := await asyncio.to_thread(_parquet_rows, folder)) < rows:
            assert time.monotonic() < deadline_s, f"{found} of {rows} rows published in {folder} after {timeout_s:g} s"
            await asyncio.sleep(0.1)

    # -- Kafka

    def create_topic(self, topic: str, partitions: int = 4) -> str:
        admin: Any = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            future.result()
        return topic

    def producer(self) -> Producer:
        """A client for `produce`."""
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                # a killed broker makes it send again: only an idempotent producer does that without duplicates
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": _RECONNECT_MS,
            }
        )

    def produce(self, topic: str, ids: Iterable[int], pad: str = "x" * 100, *, producer: Producer | None = None) -> int:
        """Write one JSON record per id, by a client of its own unless one is given; returns how many were acknowledged
        (all, or it raises)."""
        producer = producer or self.producer()
        failures: list[Any] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                failures.append(error)

        encode = msgspec.json.encode
        sent = 0
        for number in ids:
            while True:
                try:
                    producer.produce(
                        topic, encode({"id": number, "pad": pad}), key=str(number).encode(), on_delivery=delivered
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            sent += 1
            if sent % 1000 == 0:
                producer.poll(0)
        assert producer.flush(120) == 0
        assert not failures, failures[:3]
        return sent

    def produce_raw(self, topic: str, partition: int, value: bytes) -> None:
        """Write one record as it is."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(topic, value, partition=partition)
        assert producer.flush(30) == 0

    def lag(self, name: str, topic: str) -> int:
        """Records of the topic that the connector's group has not committed."""
        return sum(end - committed for committed, end in self._offsets(name, topic))

    def committed(self, name: str, topic: str) -> int:
        """Records of the topic that the connector's group has committed."""
        return sum(committed for committed, _end in self._offsets(name, topic))

    def _offsets(self, name: str, topic: str) -> list[tuple[int, int]]:
        """(committed, end) of each partition; test topics begin at 0 and hold no markers."""
        deadline_s = time.monotonic() + WAIT_S
        while True:
            try:
                return self._ask_offsets(name, topic)
            except KafkaException as error:
                if accepts(self.bootstrap) and (silent := self._lag_consumers.pop(f"connect-{name}", None)):
                    silent.close()  # it may have lost the broker for good: `herdmesh.kafka.broker_reachability`
                # A broker that was just killed answers again in a moment; its task finishes what was left open.
                if time.monotonic() > deadline_s:
                    raise AssertionError(
                        f"no stable offsets of group connect-{name} for {topic} in {WAIT_S:g} s: {error}; an "
                        "open transaction holds them (docs/adr/0006), or the broker is away"
                    ) from error

    def _ask_offsets(self, name: str, topic: str) -> list[tuple[int, int]]:
        group = f"connect-{name}"
        consumer = self._lag_consumers.get(group)
        if consumer is None:
            # one per group and never an admin client per query: those crash when dropped while a broker is unreachable
            config: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 0}
            consumer = Consumer({**config, "reconnect.backoff.max.ms": _RECONNECT_MS})
            self._lag_consumers[group] = consumer
        partitions = [TopicPartition(topic, n) for n in consumer.list_topics(topic, 10).topics[topic].partitions]
        # The client retries an unstable answer inside, until this timeout: short, so that the deadline is ours.
        found = {one.partition: one.offset for one in consumer.committed(partitions, 5)}
        ends = {one.partition: consumer.get_watermark_offsets(one, 10)[1] for one in partitions}
        return [(max(0, found[partition]), end) for partition, end in ends.items()]

    def consume_values(self, topic: str, expected: int, timeout_s: float = WAIT_S) -> list[bytes]:
        """The values of a topic from its beginning, read_committed, until `expected` were seen."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "herdmesh-tests",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        try:
            partitions = consumer.list_topics(topic, 10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, one, 0) for one in partitions])
            found: list[bytes] = []
            deadline_s = time.monotonic() + timeout_s
            while len(found) < expected and time.monotonic() < deadline_s:
                found += [m.value() or b"" for m in consumer.consume(1000, 0.2) if m.error() is None]
            return found
        finally:
            consumer.close()


class Loader:
    """Keeps writing fresh ids to a topic from a thread, so that faults hit a loaded system: by one client, since one
    per chunk would use more of the processors than the system under test.
    """

    def __init__(self, mesh: Mesh, topic: str, chunk: int = 2_000, pause_s: float = 0.1) -> None:
        self.count = 0
        self._mesh, self._topic, self._chunk, self._pause_s = mesh, topic, chunk, pause_s
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"load {topic}")

    def __enter__(self) -> Loader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> int:
        """Stop loading; returns how many ids were acknowledged. Raises the thread's error."""
        self._stopping.set()
        self._thread.join(150)
        if self._error is not None:
            raise self._error
        return self.count

    def _run(self) -> None:
        try:
            producer = self._mesh.producer()
            while not self._stopping.is_set():
                ids = range(self.count, self.count + self._chunk)
                self.count += self._mesh.produce(self._topic, ids, producer=producer)
                self._stopping.wait(self._pause_s)
        except BaseException as error:  # noqa: BLE001 - handed to the test by finish()
            self._error = error


def parquet_ids(folder: Path) -> Counter[int]:
    """How often each id is in the published files of a folder."""
    published = _published(folder)
    ids: list[int] = [] if published is None else published.to_table(columns=["id"]).column("id").to_pylist()
    return Counter(ids)


def _parquet_rows(folder: Path) -> int:
    """How many rows the published files of a folder hold."""
    published = _published(folder)
    return 0 if published is None else published.count_rows()


def _published(folder: Path) -> Any:
    """The published files of a folder as one table; None when there is none."""
    files = sorted(str(one) for one in folder.glob("*.parquet") if not one.name.startswith((".", "_")))
    return cast("Any", pyarrow.dataset).dataset(files, format="parquet") if files else None


def assert_exact(folder: Path, expected: int) -> None:
    """Every id from 0 on is there exactly once."""
    found = parquet_ids(folder)
    missing = [one for one in range(expected) if one not in found]
    doubled = [one for one, times in found.items() if times > 1]
    foreign = [one for one in found if not 0 <= one < expected]
    assert not missing, f"{len(missing)} of {expected} ids lost, first {missing[:5]}"
    assert not doubled, f"{len(doubled)} ids doubled, first {doubled[:5]}"
    assert not foreign, f"{len(foreign)} ids never written, first {foreign[:5]}"


def parquet_sink(topic: str, folder: Path, tasks: int = 2, **more: str) -> dict[str, Any]:
    """The config the fault tests use: JSON in, Parquet out, exactly once."""
    return {
        "connector.class": "ParquetSink",
        "tasks.max": str(tasks),
        "topics": topic,
        "directory": str(folder),
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        **more,
    }


@contextlib.asynccontextmanager
async def running_mesh(
    data_dir: Path,
    broker: Broker | None,
    workers: int = 2,
    group: str = "",
    *,
    herders: int = 1,
    store_replicas: int = 1,
    slots: int | None = None,
    is_quick: bool = False,
    ends_by_force: bool = False,
    worker_env: Mapping[str, str] | None = None,
) -> AsyncGenerator[Mesh]:
    """A mesh of a group (default: its own) on a shared broker, or on one of its own (None); stopped at the end, in
    order or (`ends_by_force`) at once, where no test checks its leftovers. Its own broker starts as the shared one
    does, and (`is_quick`) elects as quickly. `worker_env`: more of the workers' environment.
    """
    group = group or f"mesh-{data_dir.name}"
    env = {
        "HERDMESH_GROUP_ID": group,
        "HERDMESH_CONFIG_STORAGE_TOPIC": f"{group}-configs",
        "HERDMESH_STATUS_STORAGE_TOPIC": f"{group}-status",
        "HERDMESH_OFFSET_STORAGE_TOPIC": f"{group}-offsets",
        "HERDMESH_OFFSET_STORAGE_PARTITIONS": "5",
        "HERDMESH_OFFSET_FLUSH_INTERVAL_MS": "500",
    }
    if broker is not None or is_quick:
        # the shared broker allows it, and idle behaviour of stores is measured elsewhere
        env["HERDMESH_ELECTION_SESSION_TIMEOUT_MS"] = "1500"
    of_workers = {
        "HERDMESH_FAILPOINTS": f"@{data_dir / 'failpoints'}",
        "HERDMESH_FAILPOINT_LOG": str(data_dir / "failpoints.log"),
        "HERDMESH_WORKER_PROPERTIES": (
            "config.providers=file,config.providers.file.class=File,config.providers.file.param.ttl.ms=1000"
        ),
    }
    settings = StackSettings(
        data_dir,
        workers,
        herders,
        store_replicas,
        usual_ports=False,
        service_env=env,
        worker_env={
            **of_workers,
            **({} if slots is None else {"HERDMESH_SLOTS": str(slots)}),
            **(worker_env or {}),
        },
        broker=broker,
        broker_config={"group.min.session.timeout.ms": "1000"} if is_quick else {},
        broker_jvm=QUICK_JVM,
    )
    mesh = Mesh(Stack(settings))
    await mesh.start()
    try:
        yield mesh
    finally:
        await mesh.stop(by_force=ends_by_force)


__all__ = ["Loader", "Mesh", "assert_exact", "parquet_ids", "parquet_sink", "role_of", "running_mesh"]
