"""A run whose worker does not hear its leader looks into the config topic before it moves a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from herdmesh.connect import config_topic
from herdmesh.connect.config_records import ConfigRecord, ManifestRecord, TargetState, TargetStateRecord
from herdmesh.engine import RunEnd
from herdmesh.engine.contract import ErrorClass, RunSpec, TaskSetClaim
from herdmesh.engine.errors import TaskFailed, TaskFenced
from libs.core.tests.engine.harness import Kafka, make_spec, run_here
from libs.core.tests.engine.sinks import PATH

DIGESTS = ("aa", "bb")


@pytest.fixture
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def manifest(connector: str, generation: int, **more: Any) -> ManifestRecord:
    made = ManifestRecord(connector, "i1", task_digests=DIGESTS, task_count=2, task_config_generation=generation)
    return msgspec.structs.replace(made, **more)


def write(bootstrap: str, topic: str, *records: ConfigRecord) -> None:
    """One transaction, as the config store writes."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    producer.begin_transaction()
    for record in records:
        key, value = config_topic.encode(record)
        producer.produce(topic, key=key, value=value)
    producer.commit_transaction(20)


def claiming(kafka: Kafka, name: str, config: str, offset: int, digest: str = "7:aa") -> RunSpec:
    spec = make_spec(kafka.bootstrap, name, f"{PATH}:ListSink", {"topics": kafka.create_topic(f"{name}-in", 1)})
    return replace(spec, claim=TaskSetClaim(config, offset, "i1", digest))


def test_the_set_in_force_runs(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    config, name = kafka_topics.create_topic(tmp_topic("configs"), 1), tmp_topic("sink")
    assert run_here(claiming(kafka_topics, name, config, 0)).reason is RunEnd.QUIET, "nobody wrote anything since"
    write(kafka_topics.bootstrap, config, manifest(name, 6), manifest("another", 9))
    write(kafka_topics.bootstrap, config, manifest(name, 7), TargetStateRecord(name, TargetState.PAUSED))
    assert run_here(claiming(kafka_topics, f"{name}-2", config, 0)).reason is RunEnd.QUIET, "nothing about this one"
    assert run_here(replace(claiming(kafka_topics, name + "-3", config, 0), connector=name)).reason is RunEnd.QUIET


@pytest.mark.parametrize(
    "newer",
    [{"task_config_generation": 8}, {"incarnation": "i2"}, {"deleted": True}, {"task_digests": ("cc", "bb")}],
    ids=lambda newer: next(iter(newer)),
)
def test_a_set_that_is_not_in_force_any_more_moves_nothing(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], newer: dict[str, Any]
) -> None:
    config, name = kafka_topics.create_topic(tmp_topic("configs"), 1), tmp_topic("sink")
    write(kafka_topics.bootstrap, config, manifest(name, 7))
    write(kafka_topics.bootstrap, config, manifest(name, 7, **newer))
    with pytest.raises(TaskFenced, match="not in force any more"):
        run_here(claiming(kafka_topics, name, config, 0))


def test_a_task_beyond_a_smaller_set_moves_nothing(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    config, name = kafka_topics.create_topic(tmp_topic("configs"), 1), tmp_topic("sink")
    write(kafka_topics.bootstrap, config, manifest(name, 7, task_digests=("aa",), task_count=1))
    spec = claiming(kafka_topics, name, config, 0, digest="7:bb")
    with pytest.raises(TaskFenced):
        run_here(replace(spec, task=1, task_count=2, transactional_id=f"{spec.transactional_id}-1"))


def test_another_topic_than_the_clusters_is_told(kafka_topics: Kafka, tmp_topic: Callable[..., str]) -> None:
    config, name = kafka_topics.create_topic(tmp_topic("configs"), 1), tmp_topic("sink")
    with pytest.raises(TaskFailed, match="config_storage_topic") as failed:
        run_here(claiming(kafka_topics, name, config, 5_000))
    assert failed.value.error_class is ErrorClass.RETRIABLE
