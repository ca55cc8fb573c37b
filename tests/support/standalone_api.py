"""A user of the API of one `herd run`, for tests of standalone mode that share it and run side by side.

Owns calls, commands and the waits after them, the configs that these tests use, and their topics. The process
is `standalone`'s. Invariant: every wait is on the API's watch, or on a poll with a bound.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from google.protobuf.message_factory import GetMessageClass
from typer.testing import CliRunner

from herdmesh.api.herder.v1 import connector_service_pb2
from herdmesh.cli.app import app
from herdmesh.cli.display import views
from herdmesh.cli.errors import CommandError
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.rpc import properties
from tests.support.side_by_side import SideBySide
from tests.support.standalone import WAIT_S, HerdRun
from tests.support.watching import Watching

METHODS: Final = connector_service_pb2.DESCRIPTOR.services_by_name["ConnectorService"].methods_by_name
STRING: Final = "org.apache.kafka.connect.storage.StringConverter"
JSON_OUT: Final = ("-o", "json")
Names = Callable[..., str]


class Api:
    """A user of one `herd run`: requests over gRPC and with `herd`, and a watch."""

    #: Called methods of `ConnectorService`, by every user of this session.
    called: Final[set[str]] = set()
    #: A command uses the standard streams of this process exclusively.
    _streams: Final = threading.Lock()

    def __init__(self, run: HerdRun, bootstrap: str, client: HerderClient) -> None:
        self.run = run
        self.bootstrap = bootstrap
        self.client = client
        self.watching = Watching()

    # -- requests

    async def ask(self, method: str, **fields: Any) -> Any:
        """Call a method of `ConnectorService` with a request of these fields. Raises CommandError."""
        self.called.add(method)
        request = GetMessageClass(METHODS[method].input_type)(**fields)
        return await self.client.call(lambda stub: getattr(stub, method), request)

    async def refused(self, method: str, **fields: Any) -> CommandError:
        """As `ask`, for a call that must be refused: the refusal."""
        try:
            reply = await self.ask(method, **fields)
        except CommandError as error:
            return error
        pytest.fail(f"{method} of {fields} was not refused: {reply}")

    async def herd(self, *arguments: str, stdin: str = "") -> tuple[int, Any, str]:
        """(exit code, parsed standard output or its text, standard error) of a command in this process."""

        def invoke() -> Any:  # in a thread: the command runs an event loop of its own
            with self._streams:
                return CliRunner().invoke(app, where, input=stdin, catch_exceptions=False)

        where = [*arguments, *self._where(arguments[0])]
        done = await asyncio.to_thread(invoke)
        return done.exit_code, json.loads(done.stdout) if "json" in arguments else done.stdout, done.stderr

    def _where(self, command: str) -> list[str]:
        told = self.run.listening
        herder = [] if command == "history" else ["--herder", told["address"]]
        stores = ["--config-store", told["config_store"]] if command in ("history", "restore", "doctor") else []
        return [*herder, *stores, *(["--status-store", told["status_store"]] if command == "doctor" else [])]

    async def create(self, name: str, config: Mapping[str, str | None], **fields: Any) -> views.Json:
        """Create the connector, and return the answer."""
        reply = await self.ask("CreateConnector", name=name, config=properties.to_proto(config), **fields)
        return views.connector(reply.connector)

    async def get(self, name: str) -> views.Json:
        return views.connector((await self.ask("GetConnector", name=name)).connector)

    async def worker(self) -> views.Json:
        """The one worker."""
        (one,) = (await self.ask("ListWorkers")).workers
        return views.worker(one)

    async def offsets(self, name: str) -> list[tuple[Any, Any]]:
        """Offsets of the connector, as `documents` gives them."""
        return documents(await self.ask("GetOffsets", name=name))

    async def produce(self, topic: str, *values: str, first_s: int | None = None) -> str:
        """As `_produce`."""
        return await asyncio.to_thread(_produce, self.bootstrap, topic, values, first_s)

    async def consume(self, topic: str, count: int) -> list[str]:
        """As `_consume`."""
        return await asyncio.to_thread(_consume, self.bootstrap, topic, count)

    # -- waiting

    async def until(self, name: str, condition: Callable[[views.Json], bool], what: str) -> views.Json:
        """The connector, once the watch shows it in that state."""
        return await self.watching.until(name, condition, what, WAIT_S)

    async def until_running(self, name: str, *, connector: int = 0, task: int = 0) -> views.Json:
        """The connector once it runs with its one task, each started at least so often."""
        return await self.until(
            name,
            lambda one: (
                is_in(one, "RUNNING", "RUNNING")
                and one["connector"]["start_count"] >= connector
                and one["tasks"][0]["start_count"] >= task
            ),
            f"RUNNING, started {connector} and {task} times",
        )

    async def until_stopped(self, name: str) -> None:
        await self.until(name, lambda one: is_in(one, "STOPPED"), "STOPPED without tasks")

    async def until_told(self, what: str, ask: Callable[[], Awaitable[Any]], wanted: object) -> None:
        """Repeat the call until it returns the wanted answer."""
        deadline_s = time.monotonic() + WAIT_S
        while (told := await ask()) != wanted:
            assert time.monotonic() < deadline_s, f"{what}: still {told}, not {wanted}"
            await asyncio.sleep(0.1)

    async def until_lines(self, path: Path, *lines: str) -> None:
        """Wait until a file has as many lines; they must be these."""
        deadline_s = time.monotonic() + WAIT_S
        while len(found := _lines(path)) < len(lines):
            assert time.monotonic() < deadline_s, f"{path.name} has only {found} after {WAIT_S:g} s"
            await asyncio.sleep(0.1)
        assert found == [*lines]


@asynccontextmanager
async def api_of(run: HerdRun, bootstrap: str) -> AsyncGenerator[Api]:
    """A user with a watch of its own."""
    async with HerderClient(run.address) as client:
        api = Api(run, bootstrap, client)
        following = asyncio.create_task(api.watching.follow(run.address))
        try:
            yield api
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


#: Tests of all files that share one process.
together = SideBySide(api=lambda test: api_of(test.fixture("standalone"), test.fixture("kafka_bootstrap")))


def source(file: Path, topic: str, **more: str) -> dict[str, str]:
    """A config: the file's lines as text."""
    return {"connector.class": "FileStreamSource", "file": str(file), "topic": topic, "value.converter": STRING, **more}


def sink(file: Path, topic: str, **more: str) -> dict[str, str]:
    """A config: a topic of text."""
    strings = dict.fromkeys(("key.converter", "value.converter"), STRING)
    return {"connector.class": "FileStreamSink", "file": str(file), "topics": topic, **strings, **more}


def is_in(connector: views.Json, state: str, *tasks: str) -> bool:
    """True when the connector is in this state and its tasks are in these."""
    return connector["connector"]["state"] == state and [one["state"] for one in connector["tasks"]] == [*tasks]


def documents(reply: Any) -> list[tuple[Any, Any]]:
    """Offsets of an answer: pairs of partition and offset."""
    return [(json.loads(one.partition_json), json.loads(one.offset_json)) for one in reply.offsets]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _produce(bootstrap: str, topic: str, values: tuple[str, ...], first_s: int | None) -> str:
    """Write values to the topic's one partition, creating it if needed; returns the topic. `first_s`: the records are
    of this second and of those after it.
    """
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    if topic not in admin.list_topics(timeout=10).topics:
        for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
            future.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        when_ms = 0 if first_s is None else (first_s + number) * 1_000  # 0 = now
        producer.produce(topic, value, partition=0, timestamp=when_ms)
    assert producer.flush(30) == 0
    return topic


def _consume(bootstrap: str, topic: str, count: int) -> list[str]:
    """The committed values of the topic's one partition from its beginning, once there are so many."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "herdmesh-tests",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    deadline_s = time.monotonic() + WAIT_S
    found: list[str] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(found) < count:
            assert time.monotonic() < deadline_s, f"{topic} has only {found} after {WAIT_S:g} s"
            found += [(one.value() or b"").decode() for one in consumer.consume(1000, 0.2) if one.error() is None]
        return found
    finally:
        consumer.close()
