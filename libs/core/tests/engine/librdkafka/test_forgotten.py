"""Runs whose Kafka client has lost all broker addresses (librdkafka 5301): it never recovers, and the run must end.

`topicstore/test_kafka_forgotten.py` tests that such a client is distinguished from one whose broker is unreachable.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import RetriableError
from herdmesh.connect.spi.connector import Config, SourceBatch, SourceTask, SourceTaskContext
from herdmesh.engine import ProgressReport, RunEnd, RunOutcome, Stop, TaskKind
from herdmesh.engine.bad_records.dead_letters import SinkDeadLetters
from herdmesh.engine.bad_records.tolerance import Counts, Failure, error_settings
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime import failure
from herdmesh.engine.runtime.contract import Command
from herdmesh.engine.runtime.settings import ClientConfig
from herdmesh.engine.source.source_cluster import BEGINNING, SourceCluster, SourceClusterReader
from herdmesh.kafka.broker_reachability import Contact
from libs.core.tests.engine.harness import WAIT_S, Kafka, Link, make_spec, run_here
from libs.core.tests.engine.sinks import PATH
from tests.support.forgetful_proxy import ForgetfulProxy, forgetful_proxy
from tests.support.side_by_side import SideBySide

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]
NOTICED_S = 30.0
"""Half of the time for which a call to Kafka is repeated, and for which Kafka leaves a transaction open."""
#: Tests that wait until a client is found broken.
together = SideBySide()
OFTEN = {"topic.metadata.refresh.interval.ms": "100"}


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def _port(kafka: Kafka) -> int:
    return int(kafka.bootstrap.rpartition(":")[2])


@pytest.mark.parametrize("lost", [Consumer, Producer])
def test_a_sink_run_with_a_lost_consumer_or_producer_ends_as_unreachable(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, lost: type
) -> None:
    topic, name, link = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink"), Link()
    kafka_topics.produce_ids(topic, range(5))

    def is_lost(_contact: Contact, client: object) -> bool:
        return isinstance(client, lost) and bool(link.reports) and link.reports[-1].records_in == 5

    monkeypatch.setattr(Contact, "is_lost", is_lost)
    spec = make_spec(kafka_topics.bootstrap, name, f"{PATH}:ListSink", {"topics": topic}, continuous=True)
    with pytest.raises(KafkaException) as raised:
        run_here(spec, link)
    assert failure.error_class(raised.value) is ErrorClass.UNREACHABLE


def test_a_warm_run_with_a_lost_client_ends_as_idle(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is committed, and the worker notices new records."""
    topic, name, link = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink"), Link()
    kafka_topics.produce_ids(topic, range(5))

    def is_lost(_contact: Contact, _consumer: object) -> bool:
        return bool(link.reports) and link.reports[-1].warm

    monkeypatch.setattr(Contact, "is_lost", is_lost)
    spec = make_spec(
        kafka_topics.bootstrap, name, f"{PATH}:ListSink", {"topics": topic}, linger_ms=100, stays_warm=True
    )
    assert run_here(spec, link).reason is RunEnd.QUIET
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [5]


@together
async def test_a_reader_of_another_cluster_continues_with_a_new_client(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    async with forgetful_proxy(_port(kafka_topics)) as proxy:
        cluster = SourceCluster("a", proxy.bootstrap, {**OFTEN}, {**OFTEN}, tmp_topic("reader"))
        reader = await asyncio.to_thread(cluster.reader, {(topic, 0): BEGINNING}, 100)
        try:
            for number in range(3):
                async with asyncio.timeout(WAIT_S):
                    await proxy.forget()
                value = b"%d" % number
                kafka_topics.produce(topic, [value])
                assert await asyncio.to_thread(_next, reader) == [value]
                assert (topic, 1) in await asyncio.to_thread(_counts, cluster)
        finally:
            await asyncio.to_thread(reader.close)


def _next(reader: SourceClusterReader) -> list[bytes | None]:
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        if found := [value for values in _read(reader) for value in values]:
            return found
    return []


def _read(reader: SourceClusterReader) -> list[Sequence[bytes | None]]:
    try:
        return [taken.values for taken in reader.read(10, 0.1)]
    except RetriableError:  # as a task is polled again
        return []


def _counts(cluster: SourceCluster) -> set[tuple[str, int]]:
    end_s = time.monotonic() + WAIT_S
    while True:
        try:
            return set(cluster.partition_counts().items())
        except RetriableError:
            assert time.monotonic() < end_s


class FedSource(SourceTask):
    """Counts from the committed number to `until` of its topic, in one batch."""

    until: ClassVar[dict[str, int]] = {}

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self._topic = str(config["topic"])
        committed = context.committed_offset({"fed": "a"})
        self._next = 0 if committed is None else int(committed["next"])

    def poll(self) -> SourceBatch | None:
        begin, self._next = self._next, max(self._next, FedSource.until[self._topic])
        values = [{"n": number} for number in range(begin, self._next)]
        return SourceBatch(self._topic, values, {"fed": "a"}, {"next": self._next}) if values else None

    def wake_after_ms(self) -> int:
        return 0  # a source that names its next poll does not stay warm for nothing


@dataclass(frozen=True)
class Story:
    """The state of the source when its producer loses the brokers, and the expected end."""

    then: int
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    in_commit: bool = False
    """The producer loses them while it waits for the answer to a commit that succeeded."""
    in_file: bool = False
    """The worker keeps the offsets."""
    ends_transactions: bool = True
    """Else the task ends transactions, which it never does."""


AT_LEAST_ONCE = {"herdmesh.delivery.guarantee": "at_least_once"}
STORIES = {
    "commits": Story(20),
    "does not know whether it committed": Story(20, in_commit=True),
    "does not know it, and is at least once": Story(20, in_commit=True, in_file=True),
    "has no room for more": Story(400, {"producer.override.buffer.memory": "1024"}),
    "has a transaction open": Story(10, ends_transactions=False),
    "is at least once": Story(20, AT_LEAST_ONCE),
    "is at least once and has no room for more": Story(
        400, {**AT_LEAST_ONCE, "producer.override.buffer.memory": "1024"}
    ),
}


@together
async def test_a_source_with_a_lost_producer_ends_in_seconds_and_the_next_run_continues(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """All at once, for they wait most of the time."""
    async with asyncio.TaskGroup() as group:
        for name, story in STORIES.items():
            topic = kafka_topics.create_topic(tmp_topic(), 1)
            group.create_task(_told(story, kafka_topics, topic), name=name)


async def _told(story: Story, kafka: Kafka, topic: str) -> None:
    link = Link()
    spec = make_spec(
        kafka.bootstrap, topic, f"{__name__}:FedSource",
        {"topic": topic, "producer.override.topic.metadata.refresh.interval.ms": "100", **story.config},
        kind=TaskKind.SOURCE, offset_storage_topic=f"{topic}-offsets",
        source_offsets=link.stored if story.in_file else None,
    )  # fmt: skip
    FedSource.until[topic] = 10
    async with forgetful_proxy(_port(kafka)) as proxy:
        boundary = {} if story.ends_transactions else {"transaction.boundary": "connector"}
        through = replace(
            spec,
            bootstrap_servers=proxy.bootstrap,
            continuous=True,
            connector_config={**spec.connector_config, **boundary},
        )
        running = asyncio.create_task(asyncio.to_thread(run_here, through, link))
        try:
            await _sent(link, running, 10, is_committed=story.ends_transactions)
            async with asyncio.timeout(NOTICED_S):
                await _forget(proxy, story, topic)
                with pytest.raises(KafkaException) as raised:
                    await asyncio.shield(running)
        finally:
            link.say = lambda _: [Stop()]
    assert failure.error_class(raised.value) is ErrorClass.UNREACHABLE
    FedSource.until[topic] = total = story.then + 10
    await asyncio.to_thread(run_here, spec)
    records = await asyncio.to_thread(kafka.records, topic)
    found = [json.loads(value or b"")["n"] for _, value in records]
    twice = range(10, 20) if story.in_commit and story.in_file else ()
    if (
        AT_LEAST_ONCE.items() <= story.config.items()
    ):  # a record that is acknowledged without a committed offset is sent again
        found = list(set(found))
    assert sorted(found) == sorted([*range(total), *twice])


async def _sent(link: Link, running: asyncio.Task[RunOutcome], count: int, *, is_committed: bool) -> None:
    """Wait until the run has produced `count` records, and committed them unless it leaves its transaction open. One
    may be reported before the other. Raises the run's error.
    """
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    running.add_done_callback(lambda _: done.set())

    def say(progress: ProgressReport) -> list[Command]:
        if progress.records_out == count and is_committed == (progress.commit_time_ms is not None):
            loop.call_soon_threadsafe(done.set)
        return []

    link.say = say
    try:
        async with asyncio.timeout(WAIT_S):
            await done.wait()
    except TimeoutError:
        faulthandler.dump_traceback(2)  # shows where it waits
        pytest.fail(f"the run has not sent {count} records within {WAIT_S:g} s; its last reports: {link.reports[-2:]}")
    if running.done():
        pytest.fail(f"the run has ended: {running.result()}")


async def _forget(proxy: ForgetfulProxy, story: Story, topic: str) -> None:
    async with asyncio.TaskGroup() as group:
        if story.in_commit:
            group.create_task(proxy.forget_commit())
        else:
            await proxy.forget()
        FedSource.until[topic] = story.then


@pytest.mark.parametrize(("config", "nth"), [({}, 0), (AT_LEAST_ONCE, 0), (AT_LEAST_ONCE, 1)])
def test_a_warm_source_with_a_lost_producer_ends_as_idle(
    kafka_topics: Kafka,
    tmp_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, str],
    nth: int,
) -> None:
    """Whichever of its producers it is."""
    topic, link = kafka_topics.create_topic(tmp_topic(), 1), Link()
    FedSource.until[topic] = 10
    asked: list[object] = []

    def is_lost(_contact: Contact, producer: object) -> bool:
        if producer not in asked:
            asked.append(producer)
        return bool(link.reports) and link.reports[-1].warm and asked.index(producer) == nth

    monkeypatch.setattr(Contact, "is_lost", is_lost)
    spec = make_spec(
        kafka_topics.bootstrap, topic, f"{__name__}:FedSource", {"topic": topic, **config},
        kind=TaskKind.SOURCE, offset_storage_topic=f"{topic}-offsets", linger_ms=100, stays_warm=True,
    )  # fmt: skip
    assert run_here(spec, link).reason is RunEnd.QUIET
    assert len(kafka_topics.records(topic)) == 10


@together
async def test_a_lost_producer_of_dead_letters_ends_the_run_in_seconds(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """With room in the queue, and without."""
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    kafka_topics.produce(topic, [b"x" * 600])
    (message,) = kafka_topics.messages(topic, 1)
    settings = error_settings({"errors.tolerance": "all", "errors.deadletterqueue.topic.name": topic})
    deaf: ClientConfig = {
        "metadata.recovery.strategy": "none",
        "queue.buffering.max.kbytes": 1,
        **OFTEN,
    }  # otherwise only now and then
    async with forgetful_proxy(_port(kafka_topics)) as proxy:
        spec = make_spec(proxy.bootstrap, topic, "x:Y", {})
        contact = clients.contact(spec, {}, topic)
        letters = SinkDeadLetters(
            spec, settings, Counts(), clients.dead_letter_producer(spec, deaf, contact.note), contact
        )
        report = partial(letters.report, Failure("VALUE_CONVERTER", "x.Y", ValueError("no"), message))
        report()
        await asyncio.to_thread(letters.flush)
        async with asyncio.timeout(NOTICED_S):
            await proxy.forget()
            report()
            for waits in (letters.flush, report):
                with pytest.raises(KafkaException) as raised:
                    await asyncio.to_thread(waits)
                assert failure.error_class(raised.value) is ErrorClass.UNREACHABLE
        letters.close()
        assert len(letters.producer) == 0, "given up"
