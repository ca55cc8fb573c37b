"""A sink whose topic is deleted and recreated: topic ids tell, and only then does it read from the start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.engine import ProgressReport, RunEnd, RunSpec, Stop
from herdmesh.engine.runtime.contract import Command
from herdmesh.engine.runtime.errors import OffsetsLost
from herdmesh.engine.sink import manifest
from herdmesh.engine.sink.positions import of_topics_as_they_are
from libs.core.tests.engine.harness import WAIT_S, Kafka, Link, make_spec, run_here
from libs.core.tests.engine.sinks import PATH, ListSink

LIST_SINK = f"{PATH}:ListSink"
JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false"}


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def spec_of(kafka: Kafka, name: str, topic: str, **config: str) -> RunSpec:
    return make_spec(
        kafka.bootstrap, name, LIST_SINK, {"topics": topic, "value.converter.schemas.enable": "false", **config},
        worker_config={"offset.flush.interval.ms": "50"},
    )  # fmt: skip


def made_again(kafka: Kafka, topic: str, ids: Sequence[int]) -> None:
    kafka.admin.delete_topics([topic])[topic].result()
    kafka.create_topic(topic, 1)
    kafka.produce_ids(topic, ids, partition=0)


def seen() -> list[int]:
    return [value["id"] for value in ListSink.values]


@pytest.mark.kafka
@pytest.mark.parametrize("count", [2, 9], ids=["fewer", "more"])
def test_a_topic_recreated_during_a_run_is_read_from_its_start(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], count: int
) -> None:
    """Also where it has more records by then than were read: these offsets belonged to the deleted topic before."""
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(5), partition=0)
    steps: list[str] = []

    def say(progress: ProgressReport) -> list[Command]:
        if not steps and progress.partitions and progress.partitions[0].committed_offset == 5:
            steps.append("made again")
            made_again(kafka_topics, topic, range(5, 5 + count))
        return [Stop()] if set(seen()) >= set(range(5 + count)) else []

    config = {"consumer.override.metadata.max.age.ms": "200"}
    spec = replace(spec_of(kafka_topics, name, topic, **config), linger_ms=int(WAIT_S * 1_000))
    link = Link(say)
    assert run_here(spec, link).reason is RunEnd.STOPPED
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [count]
    scope = link.reports[-1].commit_scope
    assert scope is not None
    assert list(scope.ids()) == [topic]


@pytest.mark.kafka
@pytest.mark.parametrize("count", [2, 9], ids=["fewer", "more"])
def test_a_topic_recreated_between_two_runs_is_read_from_its_start(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], count: int
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(5), partition=0)
    spec = spec_of(kafka_topics, name, topic)
    scope = run_here(spec).progress.commit_scope
    made_again(kafka_topics, topic, range(5, 5 + count))
    run_here(replace(spec, commit_scope=scope))
    assert seen() == list(range(5, 5 + count))


@pytest.mark.kafka
def test_lost_offsets_of_the_same_topic_are_a_loss(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(5), partition=0)
    spec = spec_of(kafka_topics, name, topic)
    scope = run_here(spec).progress.commit_scope
    kafka_topics.admin.delete_consumer_groups([f"connect-{name}"])[f"connect-{name}"].result()
    with pytest.raises(OffsetsLost, match="has no committed offset any more"):
        run_here(replace(spec, commit_scope=scope))


def test_an_offset_counts_only_for_the_topic_id_it_was_committed_for() -> None:
    """By the id in its metadata, else by that of the task's last commit where the ledger holds the offset."""
    old, new = manifest.encode("", "old"), manifest.encode("files", "new")
    offsets: dict[Any, Any] = {("a", 0): (5, old), ("a", 1): (5, new), ("a", 2): (5, ""), ("a", 3): (5, "")}
    found = of_topics_as_they_are(offsets, ids={"a": "new"}, ids_before={"a": "old"}, own_rows={("a", 3)})
    assert [offset for offset, _ in found.values()] == [None, 5, 5, None]
    assert manifest.decode(new) == "files"
    assert manifest.decode(old) == ""
    unknown = of_topics_as_they_are(offsets, ids={}, ids_before={"a": "old"}, own_rows={("a", 3)})
    assert [offset for offset, _ in unknown.values()] == [5, 5, 5, 5]


def test_a_commit_scope_keeps_the_ids_of_its_topics() -> None:
    scope = CommitScope.of("g", ["b", "a"], {"a": "1"}).beside(["c"])
    assert (scope.topics, scope.topic_ids, scope.elsewhere) == (("a", "b"), ("1", ""), ("c",))
    assert scope.without(["b", "c"]) == CommitScope("g", ("a",), (), ("1",))
    assert not scope.without(["a"]).covers("g", "a")
