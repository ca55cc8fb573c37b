"""Deletion of single offsets of a group by librdkafka's own call, against a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from herdmesh.engine.librdkafka import delete_group_offsets, native, native_admin
from libs.core.tests.engine.harness import Kafka

pytestmark = pytest.mark.kafka
TIMEOUT_S = 10.0


def admin_of(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def commit(bootstrap: str, group: str, *offsets: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=list(offsets), asynchronous=False)
    finally:
        consumer.close()


def code_of(error: KafkaException) -> int:
    return error.args[0].code()


def test_the_installed_client_version_is_supported() -> None:
    """If not, it may be added to the list in `native`, once these tests pass with it."""
    assert delete_group_offsets.is_possible()


def test_only_the_named_offsets_are_deleted(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
    kafka, group = Kafka(kafka_bootstrap), tmp_topic("group-ü")
    topics = [kafka.create_topic(tmp_topic(), 3) for _ in range(2)]
    every = [(topic, number) for topic in topics for number in range(3)]
    commit(kafka_bootstrap, group, *(TopicPartition(topic, number, 7, "beside") for topic, number in every))
    admin = admin_of(kafka_bootstrap)
    assert delete_group_offsets.forget(admin, group, every[1:5], TIMEOUT_S) == {}
    assert kafka.committed(group, *every) == [7, -1001, -1001, -1001, -1001, 7]
    assert delete_group_offsets.forget(admin, group, every[4:], TIMEOUT_S) == {}
    assert kafka.committed(group, *every) == [7, *[-1001] * 5], "what has none is none all the same"


def test_a_refusal_by_kafka_is_reported(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
    kafka, group, topic = Kafka(kafka_bootstrap), tmp_topic("group"), tmp_topic()
    admin = admin_of(kafka_bootstrap)
    kafka.create_topic(topic, 2)
    with pytest.raises(KafkaException) as refused:
        delete_group_offsets.forget(admin, group, [(topic, 0)], TIMEOUT_S)
    assert code_of(refused.value) == KafkaError.GROUP_ID_NOT_FOUND
    commit(kafka_bootstrap, group, TopicPartition(topic, 0, 7))
    commit(kafka_bootstrap, group, TopicPartition(topic, 1, 7))
    [(partition, error)] = delete_group_offsets.forget(admin, group, [(topic, 9), (topic, 1)], TIMEOUT_S).items()
    assert (partition, error.code()) == ((topic, 9), KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert error.str().startswith(f"{topic}-9: ")
    assert kafka.committed(group, (topic, 0), (topic, 1)) == [7, -1001], "the other one is forgotten"
    with kafka.member(group, topic):
        [error] = delete_group_offsets.forget(admin, group, [(topic, 0)], TIMEOUT_S).values()
        assert error.code() == KafkaError.GROUP_SUBSCRIBED_TO_TOPIC
    assert kafka.committed(group, (topic, 0)) == [7]


def test_brokers_that_do_not_answer_end_the_call_after_its_timeout() -> None:
    began_s = time.monotonic()
    with pytest.raises(KafkaException) as refused:
        delete_group_offsets.forget(admin_of("127.0.0.1:1"), "group", [("t", 0)], 0.2)
    assert code_of(refused.value) == KafkaError._TIMED_OUT  # pyright: ignore[reportPrivateUsage]
    assert time.monotonic() - began_s < TIMEOUT_S


def test_an_unsupported_client_version_has_no_such_call(monkeypatch: pytest.MonkeyPatch) -> None:
    caches = (native.librdkafka, native_admin._library)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(confluent_kafka, "__version__", "1.0.0")
    for one in caches:
        one.cache_clear()
    try:
        assert not delete_group_offsets.is_possible()
        with pytest.raises(RuntimeError, match="not tested with this version of the client"):
            delete_group_offsets.forget(AdminClient({"log_level": 0}), "group", [("t", 0)], TIMEOUT_S)
    finally:
        for one in caches:
            one.cache_clear()
