"""Sources with at-least-once delivery (`herdmesh.delivery.guarantee`, ADR 0012), against a real broker: records visible
at once and in no transaction, offsets that only their owner moves, nothing lost, and duplicates only after a kill.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import RecordError
from herdmesh.engine import ProgressReport, RunEnd, RunSpec, Stop, TaskFailed, TaskKind
from herdmesh.engine.delivery import source_delivery
from herdmesh.engine.delivery.delivery_reports import DeliveryFailures
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime.contract import Command
from herdmesh.engine.runtime.settings import source_settings
from libs.core.tests.engine.bad_records.test_dead_letters import letters_of
from libs.core.tests.engine.bad_records.test_source_dead_letters import given, source_spec
from libs.core.tests.engine.delivery.test_delivery_reports import FILTER, HearingSource, hearing
from libs.core.tests.engine.harness import WAIT_S, Kafka, Link, make_spec, processes, run_here
from libs.core.tests.engine.sinks import GivenSource
from libs.core.tests.engine.source import test_source_loop

pytestmark = pytest.mark.kafka
PARTITIONS = test_source_loop.PARTITIONS
AT_LEAST_ONCE = {"herdmesh.delivery.guarantee": "at_least_once"}
TOLERANT = {**AT_LEAST_ONCE, "errors.tolerance": "all"}
#: All batches of a run belong to one commit.
LATE = {**AT_LEAST_ONCE, "transaction.boundary": "interval", "transaction.boundary.interval.ms": "60000"}
SMALL = {"producer.override.max.request.size": "2000", "producer.override.batch.size": "1000"}


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def counting(kafka: Kafka, name: str, topic: str, until: int, **more: Any) -> RunSpec:
    return test_source_loop.counting(kafka, name, topic, until, LATE, **more)


def numbers(kafka: Kafka, topic: str) -> Counter[int]:
    return Counter(json.loads(value or b"")["n"] for _, value in kafka.records(topic, PARTITIONS))


def ids(kafka: Kafka, topic: str) -> list[int]:
    return [json.loads(value or b"")["id"] for _, value in kafka.records(topic, 1)]


def offsets(kafka: Kafka, name: str) -> list[bytes | None]:
    return [value for _, value in kafka.records(f"{name}-offsets", 2)]


def once(count: int) -> Counter[int]:
    return Counter(range(count))


def test_records_have_no_transaction_markers_and_a_run_continues_at_the_last_offset(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    outcome = run_here(counting(kafka_topics, name, topic, 25))
    assert (outcome.reason, outcome.progress.records_in, outcome.progress.produced) == (
        RunEnd.QUIET,
        25,
        ((topic, 25),),
    )
    assert run_here(counting(kafka_topics, name, topic, 40)).progress.records_in == 15
    assert numbers(kafka_topics, topic) == once(40)
    places = Counter((one.partition(), one.offset()) for one in kafka_topics.messages(topic, PARTITIONS))
    for partition in range(PARTITIONS):
        found = sorted(offset for number, offset in places if number == partition and offset is not None)
        assert found == list(range(len(found))), "a transaction would leave a gap"
    assert offsets(kafka_topics, name)[-1] == b'{"next":40}'


def test_a_stopped_source_commits_the_records_it_sent(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = tmp_topic(), tmp_topic("source")

    def say(progress: ProgressReport) -> list[Command]:
        return [Stop()] if progress.records_in else []

    spec = counting(kafka_topics, name, topic, 10, linger_ms=int(WAIT_S * 1_000))
    assert run_here(spec, Link(say)).reason is RunEnd.STOPPED
    assert offsets(kafka_topics, name) == [b'{"next":10}']
    assert numbers(kafka_topics, topic) == once(10)


def test_killed_and_stale_owners_lose_no_record_and_move_no_offset(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """For each failpoint: freeze an owner there, let a second one do the work, then kill or wake the first."""
    points = ["before-write", "after-write", "before-offset-commit", "after-offset-commit"]
    cases = [(point, harm, tmp_topic(), tmp_topic("source")) for point in points for harm in ("kill", "wake")]
    with processes(tmp_path) as start:
        frozen = [start(counting(kafka_topics, name, topic, 30), point) for point, _, topic, name in cases]
        for process, (point, harm, topic, name) in zip(frozen, cases, strict=True):
            process.until_frozen()
            if point == "before-offset-commit":
                assert numbers(kafka_topics, topic) == once(30), "all there for readers of committed records"
            if harm == "kill":
                process.kill()
            run_here(counting(kafka_topics, name, topic, 50))
        for process, (point, harm, _, _) in zip(frozen, cases, strict=True):
            if harm == "wake":
                ended = process.resume()
                assert ended.get("error_class", point) in ("FENCED", "after-offset-commit"), ended
                assert "transaction.timeout.ms" not in ended.get("message", "")
        for point, harm, topic, name in cases:
            found, last = numbers(kafka_topics, topic), offsets(kafka_topics, name)[-1]
            assert (set(found), last) == (set(range(50)), b'{"next":50}')
            if point == "before-offset-commit" or (point, harm) == ("after-write", "wake"):
                assert found - once(50), f"{point}, {harm}: this is the mode in which records are sent again"
            if point == "after-offset-commit":
                assert found == once(50)


def test_a_record_the_topic_refuses_fails_the_task_for_good_and_moves_no_offset(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    kafka_topics.create_topic(topic, 1, **{"max.message.bytes": "50"})
    with pytest.raises(TaskFailed, match=f"refused a record for topic {topic}") as failed:
        run_here(counting(kafka_topics, name, topic, 10))
    assert failed.value.error_class is ErrorClass.FATAL
    assert kafka_topics.records(topic, 1) == offsets(kafka_topics, name) == []


def test_a_task_is_notified_of_the_position_of_each_record(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    run_here(hearing(kafka_topics, name, topic, 45, empty="7", **FILTER, **LATE))
    heard, last = HearingSource.heard[:-1], HearingSource.heard[-1]
    assert last == "commit"
    assert [None if value is None else value["n"] for value, _ in heard] == [
        None if number % 7 == 0 else number for number in range(45)
    ]
    assert all((value is None) == (place is None) for value, place in heard)
    there = {
        (message.partition(), message.offset()): json.loads(message.value() or b"")
        for message in kafka_topics.messages(topic, PARTITIONS)
    }
    assert {(place.partition, place.offset): value for value, place in heard if place is not None} == there


def test_a_tolerated_poison_record_becomes_a_dead_letter(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = tmp_topic(), tmp_topic("source")
    batches = given(topic, 10, values="text"), given(topic, 10, 10)
    outcome = run_here(source_spec(kafka_topics, name, TOLERANT, *batches))
    assert ids(kafka_topics, topic) == list(range(20))
    assert (outcome.progress.errors.skipped, outcome.progress.errors.dead_letters_failed) == (1, 0)
    (letter,) = letters_of(kafka_topics, f"{name}-dlq")
    assert letter.value() == b'{"schema":null,"payload":"text"}'


@pytest.mark.parametrize(
    ("poison", "before", "twice"),
    [({"values": "text"}, range(10), ()), ({"values": {"id": "x" * 3_000}}, range(15), range(10, 15))],
    ids=["TRANSFORMATION", "KAFKA_PRODUCE"],
)
def test_a_poison_record_without_tolerance_ends_the_task_and_earlier_batches_are_not_sent_again(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], poison: dict[str, Any], before: range, twice: range
) -> None:
    """Of its own batch, the records that the client took before it are sent."""
    topic, name = tmp_topic(), tmp_topic("source")
    spec = source_spec(kafka_topics, name, LATE | SMALL, given(topic, 10), given(topic, 10, 10, **poison))
    with pytest.raises(RecordError):
        run_here(spec)
    assert GivenSource.commits == [], "what was polled last is not committed"
    assert ids(kafka_topics, topic)[: len(before)] == list(before)
    GivenSource.batches[1] = given(topic, 10, 10)
    run_here(spec)
    found = Counter(ids(kafka_topics, topic))
    assert set(found) == set(range(20))
    assert max(found[number] for number in range(10)) == 1
    if not twice:
        assert found == once(20)


def test_offsets_are_stored_in_the_workers_file_once_the_records_are_acknowledged(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name, link = tmp_topic(), tmp_topic("source"), Link()
    run_here(counting(kafka_topics, name, topic, 25, source_offsets={}), link)
    key = json.dumps([name, {"counter": "a"}], separators=(",", ":")).encode()
    assert link.stored == {key: b'{"next":25}'}
    run_here(counting(kafka_topics, name, topic, 40, source_offsets={key: b'{"next":25}'}), link)
    assert numbers(kafka_topics, topic) == once(40)
    assert f"{name}-offsets" not in kafka_topics.admin.list_topics(timeout=WAIT_S).topics


def test_unacknowledged_records_end_the_run_without_an_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source_delivery, "RETRY_TIMEOUT_S", 0.0)
    monkeypatch.setattr(source_delivery, "_TURN_S", 0.1)
    spec = make_spec("127.0.0.1:1", "c", "x:Y", AT_LEAST_ONCE, kind=TaskKind.SOURCE)
    way_out = source_delivery.outlet(spec, source_settings(spec), DeliveryFailures(), reports=False)
    way_out.begin()
    way_out.producer.produce("t", b"x")
    with pytest.raises(TaskFailed, match="records are not acknowledged") as failed:
        way_out.commit({b"k": b"v"}, ["offsets"])
    assert (failed.value.error_class, way_out.is_open) == (ErrorClass.RETRIABLE, True)
    assert not way_out.fence.in_transaction
    way_out.close()


def test_the_at_least_once_producer_has_the_connectors_client_id_and_no_transaction() -> None:
    """The producer of the offsets has another client id, unless the user sets both."""
    more = {"producer.override.transaction.timeout.ms": "70000"}
    spec = make_spec("127.0.0.1:1", "a b", "x:Y", {**AT_LEAST_ONCE, **more}, kind=TaskKind.SOURCE)
    asked: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        opened = clients.opened

        def noted(client: Any, kind: str, config: Any, on_error: Any) -> Any:
            asked.append(dict(config))
            return opened(client, kind, config, on_error)

        patch.setattr(clients, "opened", noted)
        source_delivery.outlet(spec, source_settings(spec), DeliveryFailures(), reports=False).close()
    (fence, records) = asked
    assert (fence["client.id"], records["client.id"]) == (
        "connector-offsets-producer-a b-0", "connector-producer-a b-0",
    )  # fmt: skip
    assert (fence["transactional.id"], str(fence["transaction.timeout.ms"])) == (spec.transactional_id, "70000")
    assert not {"transactional.id", "transaction.timeout.ms"} & set(records)
    assert records["enable.idempotence"] is True
