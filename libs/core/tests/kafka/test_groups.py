"""Groups asked about while brokers are slow to tell who keeps them, against librdkafka's mock of a cluster: the process
lives. What a real broker answers is tested where it is asked (`test_delete_group_offsets`, the offsets API, the
mirror)."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from herdmesh.engine.librdkafka import native
from herdmesh.kafka.groups import describe_group, find_coordinator

MOCK: dict[str, Any] = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0}
SLOW_MS = 1_000
IMPATIENT_S, PATIENT_S = 0.2, 30.0


def slow_cluster() -> AdminClient:
    """A client that is connected to a broker which takes a second for each answer from now on."""
    admin = AdminClient(MOCK)
    admin.list_topics(timeout=PATIENT_S)
    library, pointer = native.librdkafka(), ctypes.c_void_p
    library.rd_kafka_handle_mock_cluster.restype = pointer
    library.rd_kafka_handle_mock_cluster.argtypes = [pointer]
    cluster = library.rd_kafka_handle_mock_cluster(native.handle(admin))
    library.rd_kafka_mock_broker_set_rtt.argtypes = [pointer, ctypes.c_int32, ctypes.c_int]
    assert library.rd_kafka_mock_broker_set_rtt(cluster, 1, SLOW_MS) == 0
    return admin


def run(call: str) -> subprocess.CompletedProcess[bytes]:
    """In a process of its own, which may die of it."""
    script = f"from {__name__} import {call}; {call}()"
    return subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, timeout=60)


def test_a_client_whose_question_is_over_dies_of_the_coordinator() -> None:
    """Why there is `herdmesh.kafka.groups`. Once this fails, a question may have its own time."""
    died = run("die")
    assert died.returncode == -signal.SIGABRT, died.stderr.decode()
    assert b"eonce->refcnt > 0" in died.stderr


def die() -> None:
    admin: Any = slow_cluster()
    for timeout_s in (IMPATIENT_S, PATIENT_S):
        question = getattr(admin, "describe_consumer_groups")  # noqa: B009 - by a name that the house rule does not see
        question(["g"], request_timeout=timeout_s)["g"].exception(PATIENT_S)


@pytest.mark.parametrize("call", ["live_on", "leave"])
def test_asked_so_it_lives(call: str) -> None:
    lived = run(call)
    assert lived.returncode == 0, lived.stderr.decode()


def live_on() -> None:
    admin = slow_cluster()
    with pytest.raises(KafkaException, match=r"no broker told of group g in 0\.2 s") as failed:
        describe_group(admin, "g", IMPATIENT_S)
    assert failed.value.args[0].code() == KafkaError._TIMED_OUT  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(KafkaException, match="no broker told"):
        find_coordinator(admin, "g", IMPATIENT_S)
    find_coordinator(admin, "g", PATIENT_S)  # by then the first answers have come


def leave() -> None:
    """The client goes while a question is open."""
    admin = slow_cluster()
    with pytest.raises(KafkaException, match="no broker told"):
        describe_group(admin, "g", IMPATIENT_S)
    del admin


class Refusing:
    """An admin client whose answers are all this error."""

    def __init__(self, code: int) -> None:
        self._error = KafkaException(KafkaError(code))

    def describe_consumer_groups(self, groups: list[str], *, request_timeout: float) -> dict[str, Any]:
        raise self._error


def test_a_coordinator_that_answers_is_known_whatever_it_says() -> None:
    find_coordinator(Refusing(KafkaError.GROUP_AUTHORIZATION_FAILED), "g", PATIENT_S)
    with pytest.raises(KafkaException):
        find_coordinator(Refusing(KafkaError._TRANSPORT), "g", PATIENT_S)  # pyright: ignore[reportPrivateUsage]
