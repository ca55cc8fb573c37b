"""Starting offsets of a sink by `auto.offset.reset` when Kafka holds no offset of it, against a broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.engine import RunSpec
from herdmesh.engine.runtime.errors import TaskFailed
from libs.core.tests.engine.harness import Kafka, Link, make_spec, run_here
from libs.core.tests.engine.sinks import PATH, ListSink

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def spec_of(kafka: Kafka, name: str, topic: str, /, *, worker: Any = None, **more: Any) -> RunSpec:
    config = {"topics": topic, "value.converter.schemas.enable": "false", **more}
    return make_spec(kafka.bootstrap, name, f"{PATH}:ListSink", config, worker_config=worker or {})


def seen() -> list[int]:
    return [value["id"] for value in ListSink.values]


@pytest.mark.parametrize("prefix", ["consumer.override.", "consumer."])
def test_reset_by_duration_begins_at_the_first_record_that_is_new_enough_and_keeps_that_offset(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], prefix: str
) -> None:
    topic, name, now_ms = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink"), int(time.time() * 1000)
    for number, age_s in enumerate((9_000, 7_300, 7_100, 5)):
        kafka_topics.produce_ids(topic, [number], partition=0, timestamp=now_ms - age_s * 1000)
    says = {f"{prefix}auto.offset.reset": "by_duration:PT2H"}
    given: dict[str, Any] = says if "override" in prefix else {"worker": says}
    link = Link()
    run_here(spec_of(kafka_topics, name, topic, **given), link)
    assert seen() == [2, 3]
    first = next(one for one in link.reports if one.commit_scope)
    assert (first.records_in, [one.committed_offset for one in first.partitions]) == (0, [2]), "before any record"
    ListSink.values.clear()
    older = tmp_topic("sink")
    run_here(spec_of(kafka_topics, older, topic, **{"consumer.override.auto.offset.reset": "by_duration:PT1S"}))
    assert seen() == []
    assert kafka_topics.committed(f"connect-{older}", (topic, 0)) == [4], "every record is older: the end"


def test_reset_none_fails_with_the_partitions_until_they_have_offsets(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(3), partition=0)
    none = {"consumer.override.auto.offset.reset": "none"}
    with pytest.raises(TaskFailed, match=rf"no reset policy for partitions: \[{topic}-0\]") as failed:
        run_here(spec_of(kafka_topics, name, topic, **none))
    assert failed.value.error_class is ErrorClass.BAD_CONFIG
    run_here(spec_of(kafka_topics, name, topic))
    kafka_topics.produce_ids(topic, [3], partition=0)
    ListSink.values.clear()
    run_here(spec_of(kafka_topics, name, topic, **none))
    assert seen() == [3]
    kafka_topics.grow(topic, 2)
    with pytest.raises(TaskFailed, match=rf"\[{topic}-1\]"):
        run_here(spec_of(kafka_topics, name, topic, **none))
