"""Tests of `HttpSink` from a real broker to a real receiver:
no loss, detectable duplicates, order, bad records.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import RecordError, RetriableError
from herdmesh.engine import RunEnd, RunOutcome, RunSpec, Stop
from herdmesh.engine.runtime import failure
from herdmesh.engine.runtime.contract import Command, ProgressReport
from libs.connectors.tests.http.http_receiver import Answer, Received, Receiver, ReceiverProcess
from libs.core.tests.engine.harness import Kafka, Link, make_spec, processes, run_here

pytestmark = pytest.mark.kafka
TASK = "herdmesh.connectors.http.task:HttpSinkTask"
RECORDS = 300
QUEUE = {
    "errors.deadletterqueue.topic.replication.factor": "1",
    "errors.deadletterqueue.context.headers.enable": "true",
}


@pytest.fixture(scope="module")
def broker(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def sink(broker: Kafka, name: str, topic: str, url: str, **more: str) -> RunSpec:
    config = {"topics": topic, "http.url": url, "batch.max.size": "20", "retry.backoff.ms": "20"}
    return make_spec(broker.bootstrap, name, TASK, {**config, **{k.replace("_", "."): v for k, v in more.items()}})


def once(taken: Iterable[Received]) -> dict[tuple[str, int], list[tuple[int, Any]]]:
    """Return by partition the offsets and values, in order of arrival, that a deduplicating receiver has."""
    seen: dict[tuple[str, int], list[tuple[int, Any]]] = defaultdict(list)
    for request in taken:
        have = {offset for offset, _ in seen[request.partition]}
        for offset, value in zip(request.offsets, request.values(), strict=True):
            if offset not in have:
                seen[request.partition].append((offset, value))
    return seen


def expected(numbers: range, partitions: int = 2) -> list[list[int]]:
    return [[number for number in numbers if number % partitions == one] for one in range(partitions)]


def produce(broker: Kafka, topic: str, numbers: range, partitions: int = 2) -> None:
    for partition, ids in enumerate(expected(numbers, partitions)):
        broker.produce_ids(topic, ids, partition=partition)


def ids_of(taken: Iterable[Received], topic: str, partitions: int = 2) -> list[list[int]]:
    """Return the ids by partition without duplicates; checks that a partition's offsets arrive in order."""
    found = once(taken)
    for records in found.values():
        offsets = [offset for offset, _ in records]
        assert offsets == sorted(offsets)
    return [[value["id"] for _, value in found[topic, one]] for one in range(partitions)]


def test_each_record_arrives_once_and_in_order(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = broker.create_topic(tmp_topic()), tmp_topic("sink")
    produce(broker, topic, range(RECORDS))
    with Receiver() as receiver:
        spec = sink(broker, name, topic, receiver.url)
        assert run_here(spec).reason is RunEnd.QUIET
        assert ids_of(receiver.taken, topic) == expected(range(RECORDS))
        assert sum(len(request.offsets) for request in receiver.taken) == RECORDS
        assert max(len(request.offsets) for request in receiver.taken) == 20
        assert broker.committed(f"connect-{name}", (topic, 0), (topic, 1)) == [RECORDS // 2, RECORDS // 2]
        count = len(receiver.received)
        assert run_here(spec).progress.records_in == 0
        assert len(receiver.received) == count


@pytest.mark.parametrize("harm", ["kill", "wake"])
def test_nothing_is_lost_and_duplicates_are_detectable_after_a_kill_or_freeze(
    broker: Kafka, tmp_topic: Callable[..., str], tmp_path: Path, harm: str
) -> None:
    points = ("before-write", "after-write", "after-offset-commit")
    cases = [(point, broker.create_topic(tmp_topic()), tmp_topic("sink")) for point in points]
    for _, topic, _ in cases:
        produce(broker, topic, range(RECORDS))
    with Receiver() as receiver, processes(tmp_path) as start:
        frozen = [start(sink(broker, name, topic, receiver.url), point) for point, topic, name in cases]
        for process, (point, topic, name) in zip(frozen, cases, strict=True):
            process.until_frozen()
            if harm == "kill":
                process.kill()
            produce(broker, topic, range(RECORDS, RECORDS + 10))
            run_here(sink(broker, name, topic, receiver.url))
            if harm == "wake":
                ended = process.resume()
                # After the commit the resumed owner may have had nothing more to do.
                may_rest = point == "after-offset-commit" and ended.get("reason") == "QUIET"
                assert may_rest or ended.get("error_class") == "FENCED", (point, ended)
            taken = [request for request in receiver.taken if request.partition[0] == topic]
            assert ids_of(taken, topic) == expected(range(RECORDS + 10)), point
            if harm == "kill" and point == "after-write":  # sent, and not committed
                assert sum(len(request.offsets) for request in taken) > RECORDS + 10, point


def test_a_killed_receiver_gets_the_missed_records_after_its_restart(
    broker: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, name = broker.create_topic(tmp_topic()), tmp_topic("sink")
    produce(broker, topic, range(RECORDS))
    receiver = ReceiverProcess(tmp_path / "taken")
    receiver.start(most=RECORDS // 2)
    try:
        spec = sink(broker, name, topic, receiver.url, batch_max_size="1", max_retries="100000")
        ended: list[RunOutcome] = []
        run = threading.Thread(target=lambda: ended.append(run_here(spec)))
        run.start()
        while len(receiver.taken()) < RECORDS // 2:
            assert run.is_alive(), "the run ended before all was sent"
            time.sleep(0.01)
        receiver.kill()
        receiver.start()
        run.join(60)
        assert [one.reason for one in ended] == [RunEnd.QUIET]
        taken = receiver.taken()
    finally:
        receiver.kill()
    assert ids_of(taken, topic) == expected(range(RECORDS))
    keys = [request.headers["idempotency-key"] for request in taken]
    assert len(keys) > RECORDS, "what was taken without a word is sent again"
    assert len(set(keys)) == RECORDS, "what came twice came under the same name"
    assert broker.committed(f"connect-{name}", (topic, 0), (topic, 1)) == [RECORDS // 2, RECORDS // 2]


def test_a_busy_receiver_gets_a_retry_of_the_same_request(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, left = broker.create_topic(tmp_topic(), 1), [429, 503, 500]
    broker.produce_ids(topic, range(30))

    def answer(_request: Received) -> Answer:
        return Answer(left.pop(0), {"Retry-After": "0"}) if left else Answer()

    with Receiver(answer) as receiver:
        run_here(sink(broker, tmp_topic("sink"), topic, receiver.url))
        assert len({(one.headers["idempotency-key"], one.body) for one in receiver.received[:4]}) == 1
        assert ids_of(receiver.taken, topic, 1) == [list(range(30))]


def test_a_receiver_that_stays_unreachable_fails_the_run_retriably(
    broker: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name, statuses = broker.create_topic(tmp_topic(), 1), tmp_topic("sink"), [503]
    broker.produce_ids(topic, range(10))
    with Receiver(lambda _: Answer(statuses[0])) as receiver:
        spec = sink(broker, name, topic, receiver.url, max_retries="1")
        with pytest.raises(RetriableError, match="503") as failed:
            run_here(spec)
        assert failure.error_class(failed.value) is ErrorClass.RETRIABLE
        assert broker.committed(f"connect-{name}", (topic, 0)) == [0]
        assert len(receiver.received) >= 2
        statuses[0] = 200
        run_here(spec)
        assert ids_of(receiver.taken, topic, 1) == [list(range(10))]


def test_a_stop_command_is_obeyed_while_the_receiver_is_unreachable(
    broker: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name, statuses = broker.create_topic(tmp_topic(), 1), tmp_topic("sink"), [200]
    broker.produce_ids(topic, range(10))
    is_over, ended = threading.Event(), list[RunOutcome]()

    def say(_progress: ProgressReport) -> Sequence[Command]:
        return [Stop()] if is_over.is_set() else ()

    with Receiver(lambda _: Answer(statuses[0])) as receiver:
        spec = sink(broker, name, topic, receiver.url, max_retries="0")
        run = threading.Thread(target=lambda: ended.append(run_here(replace(spec, linger_ms=600_000), Link(say))))
        run.start()
        receiver.until(lambda: sum(len(request.offsets) for request in receiver.taken) == 10)
        statuses[0] = 503
        asked = len(receiver.received)
        broker.produce_ids(topic, range(10, 20))
        receiver.until(lambda: len(receiver.received) > asked)
        is_over.set()
        run.join(60)
    assert [one.reason for one in ended] == [RunEnd.STOPPED]
    assert 0 <= broker.committed(f"connect-{name}", (topic, 0))[0] <= 10


def _without_sevens(request: Received) -> Answer:
    """Refuse a request with an id that ends in 7."""
    bad = [value["id"] for value in request.values() if value["id"] % 10 == 7]
    return Answer(422, body=b"no seven, please") if bad else Answer()


def test_refused_records_become_dead_letters_and_all_others_arrive(
    broker: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = broker.create_topic(tmp_topic(), 1), tmp_topic("sink")
    broker.produce_ids(topic, range(RECORDS))
    queue = {"errors.deadletterqueue.topic.name": f"{name}-dlq", "errors.tolerance": "all", **QUEUE}
    with Receiver(_without_sevens) as receiver:
        outcome = run_here(sink(broker, name, topic, receiver.url, **queue))
        good = [number for number in range(RECORDS) if number % 10 != 7]
        assert ids_of(receiver.taken, topic, 1) == [good]
        assert sum(len(request.offsets) for request in receiver.taken) == len(good)
    letters = broker.messages(f"{name}-dlq", 1)
    assert [one.key() for one in letters] == [b"%d" % number for number in range(7, RECORDS, 10)]
    told = dict(cast("list[Any]", letters[0].headers()))
    assert told["__connect.errors.stage"] == b"TASK_PUT"
    assert told["__connect.errors.offset"] == b"7"
    assert b"HTTP 422: no seven, please" in told["__connect.errors.exception.message"]
    assert broker.committed(f"connect-{name}", (topic, 0)) == [RECORDS]
    assert outcome.progress.errors.dead_letters == RECORDS // 10


def test_a_refused_record_without_tolerance_is_never_passed(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = broker.create_topic(tmp_topic(), 1), tmp_topic("sink")
    broker.produce_ids(topic, range(30))
    queue = {"errors.deadletterqueue.topic.name": f"{name}-dlq", **QUEUE}
    with Receiver(_without_sevens) as receiver:
        for _ in range(2):
            with pytest.raises(RecordError, match="HTTP 422") as failed:
                run_here(sink(broker, name, topic, receiver.url, **queue))
            assert failure.error_class(failed.value) is ErrorClass.FATAL
            assert broker.committed(f"connect-{name}", (topic, 0))[0] <= 7


def test_without_a_reporter_the_run_fails_and_names_the_record(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = broker.create_topic(tmp_topic(), 1), tmp_topic("sink")
    broker.produce_ids(topic, range(30))
    with Receiver(_without_sevens) as receiver:
        with pytest.raises(Exception, match=f"record {topic}-0@7: POST .* HTTP 422") as failed:
            run_here(sink(broker, name, topic, receiver.url))
        assert failure.error_class(failed.value) is ErrorClass.FATAL
        assert ids_of(receiver.taken, topic, 1) == [list(range(7))]
    assert 0 <= broker.committed(f"connect-{name}", (topic, 0))[0] <= 7


def test_a_wrong_url_is_a_bad_config(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic = broker.create_topic(tmp_topic(), 1)
    broker.produce_ids(topic, range(3))
    with Receiver(lambda _: Answer(404)) as receiver, pytest.raises(Exception, match="HTTP 404") as failed:
        run_here(sink(broker, tmp_topic("sink"), topic, receiver.url))
    assert failure.error_class(failed.value) is ErrorClass.BAD_CONFIG
