"""Records that Kafka's client reports as acknowledged although no broker has them (`kafka.checked_producer`): no offset
for them is committed, and they are sent again.

The broker is a real one, to which the producer is unknown; the proxy before it refuses the first batch, as a broker
does whose partition is not there yet, and lets those behind it pass.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.engine import RunEnd, TaskFailed, TaskKind
from herdmesh.engine.bad_records.dead_letters import SinkDeadLetters
from herdmesh.engine.bad_records.tolerance import Counts, Failure, error_settings
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.librdkafka import clients
from herdmesh.kafka.checked_producer import CheckedProducer
from libs.core.tests.engine.delivery.test_delivery_reports import HearingSource
from libs.core.tests.engine.harness import WAIT_S, Kafka, make_spec, run_here
from libs.core.tests.engine.sinks import PATH
from tests.support.forgetful_proxy import forgetful_proxy

pytestmark = pytest.mark.kafka
RECORDS = 50
#: A batch is a few records, so that the second is in flight before the first is answered.
SMALL = {"producer.override.linger.ms": "0", "producer.override.batch.size": "100"}
ONE_COMMIT = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "60000"}
AT_LEAST_ONCE = {"herdmesh.delivery.guarantee": "at_least_once"}


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def _port(kafka: Kafka) -> int:
    return int(kafka.bootstrap.rpartition(":")[2])


@pytest.mark.parametrize("guarantee", [{}, AT_LEAST_ONCE], ids=["exactly_once", "at_least_once"])
@pytest.mark.parametrize("source", [f"{PATH}:CountingSource", f"{HearingSource.__module__}:HearingSource"])
async def test_a_source_commits_nothing_and_sends_all_records_again(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], guarantee: Mapping[str, str], source: str
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("source")
    spec = make_spec(
        kafka_topics.bootstrap, name, source,
        {"topic": topic, "until": str(RECORDS), "last": str(RECORDS - 1), **SMALL, **ONE_COMMIT, **guarantee},
        kind=TaskKind.SOURCE, offset_storage_topic=f"{name}-offsets",
    )  # fmt: skip
    async with forgetful_proxy(_port(kafka_topics)) as proxy:
        proxy.refuse_batch(topic)
        with pytest.raises(TaskFailed, match=f"sent again: {topic} .0. .* implicitly acked") as failed:
            await asyncio.to_thread(run_here, replace(spec, bootstrap_servers=proxy.bootstrap))
        assert proxy.has_refused
    assert failed.value.error_class is ErrorClass.RETRIABLE
    ended = await asyncio.to_thread(run_here, spec)
    assert (ended.reason, ended.progress.records_in) == (RunEnd.QUIET, RECORDS)
    records = await asyncio.to_thread(kafka_topics.records, topic)
    found = Counter(json.loads(value or b"")["n"] for _, value in records)
    assert set(found) == set(range(RECORDS))
    assert guarantee or found == Counter(range(RECORDS))


async def test_inferred_acknowledgements_of_dead_letters_are_not_accepted(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    """So that no offset of their records is committed."""
    topic = kafka_topics.create_topic(tmp_topic(), 1)
    kafka_topics.produce(topic, [b"x" * 600])
    (message,) = kafka_topics.messages(topic, 1)
    settings = error_settings({"errors.tolerance": "all", "errors.deadletterqueue.topic.name": topic})
    async with forgetful_proxy(_port(kafka_topics)) as proxy:
        spec = make_spec(proxy.bootstrap, topic, "x:Y", {})
        contact = clients.contact(spec, {}, topic)
        producer = clients.dead_letter_producer(spec, {"linger.ms": 0, "batch.size": 100}, contact.note)
        letters = SinkDeadLetters(spec, settings, Counts(), producer, contact)
        proxy.refuse_batch(topic)
        for _ in range(20):
            letters.report(Failure("VALUE_CONVERTER", "x.Y", ValueError("no"), message))
        with pytest.raises(TaskFailed, match="records were not acknowledged") as failed:
            await asyncio.to_thread(letters.flush)
        assert failed.value.error_class is ErrorClass.RETRIABLE
        letters.close()


async def test_an_aborted_transaction_clears_the_suspicion(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    """A task may abort its transaction, and send other records by the same client."""
    topic = kafka_topics.create_topic(tmp_topic(), 1)

    def story() -> None:
        fence = Fence(clients.producer(spec, {"linger.ms": 0, "batch.size": 100}), spec.transactional_id)
        fence.take_over()
        for values, ends in (([b"given up"] * 20, fence.abort), ([b"kept"], fence.commit)):
            fence.begin()
            for value in values:
                fence.producer.produce(topic, value)
            fence.producer.flush()
            guesses.append(fence.producer.guess)
            ends()

    guesses: list[str | None] = []
    async with forgetful_proxy(_port(kafka_topics)) as proxy:
        spec = make_spec(proxy.bootstrap, topic, "x:Y", {})
        proxy.refuse_batch(topic)
        await asyncio.to_thread(story)
    first, second = guesses
    assert "implicitly acked" in (first or "")
    assert second is None
    assert [value for _, value in kafka_topics.records(topic)] == [b"kept"]


@pytest.mark.parametrize("asked", [{}, {"debug": "broker"}])
async def test_log_lines_of_the_client_still_reach_their_logger(
    caplog: pytest.LogCaptureFixture, asked: dict[str, str]
) -> None:
    """Lines that the client logs only for this check are left out, whatever debug settings the user has."""
    caplog.set_level(logging.DEBUG)
    config = {"bootstrap.servers": "127.0.0.1:1", "enable.idempotence": True, **asked}
    producer = CheckedProducer(config, logger=logging.getLogger("a client"))
    async with asyncio.timeout(WAIT_S):
        while not any(one.levelno == logging.ERROR for one in caplog.records):
            producer.poll(0)
            await asyncio.sleep(0.01)
    said = {one.levelno for one in caplog.records if one.name == "a client"}
    assert (logging.DEBUG in said) == bool(asked)
    assert producer.guess is None
