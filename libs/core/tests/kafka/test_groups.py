"""Queries about consumer groups while brokers are slow to name the coordinator, against librdkafka's mock cluster: the
process survives. Answers of a real broker are tested beside their callers (`test_delete_group_offsets`, the offsets
API, the mirror).
"""

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
    """A client connected to a broker that delays each response by a second from now on."""
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
    """Run the call in a process of its own, which may crash."""
    script = f"from {__name__} import {call}; {call}()"
    return subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, timeout=60)


def test_librdkafka_aborts_when_a_coordinator_reply_arrives_after_the_request_timed_out() -> None:
    """The reason for `herdmesh.kafka.groups`. Once this test fails, a request may have its own timeout."""
    died = run("die")
    assert died.returncode == -signal.SIGABRT, died.stderr.decode()
    assert b"eonce->refcnt > 0" in died.stderr


def die() -> None:
    admin: Any = slow_cluster()
    for timeout_s in (IMPATIENT_S, PATIENT_S):
        question = getattr(admin, "describe_consumer_groups")  # noqa: B009 - by a name that the house rule does not see
        question(["g"], request_timeout=timeout_s)["g"].exception(PATIENT_S)


@pytest.mark.parametrize("call", ["live_on", "leave"])
def test_guarded_group_queries_survive_a_slow_coordinator_lookup(call: str) -> None:
    lived = run(call)
    assert lived.returncode == 0, lived.stderr.decode()


def live_on() -> None:
    admin = slow_cluster()
    with pytest.raises(KafkaException, match=r"no broker described group g within 0\.2 s") as failed:
        describe_group(admin, "g", IMPATIENT_S)
    assert failed.value.args[0].code() == KafkaError._TIMED_OUT  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(KafkaException, match="no broker described"):
        find_coordinator(admin, "g", IMPATIENT_S)
    find_coordinator(admin, "g", PATIENT_S)  # by then the first responses have arrived


def leave() -> None:
    """Drop the client while a request is open."""
    admin = slow_cluster()
    with pytest.raises(KafkaException, match="no broker described"):
        describe_group(admin, "g", IMPATIENT_S)
    del admin


class Refusing:
    """An admin client whose every response is this error."""

    def __init__(self, code: int) -> None:
        self._error = KafkaException(KafkaError(code))

    def describe_consumer_groups(self, groups: list[str], *, request_timeout: float) -> dict[str, Any]:
        raise self._error


def test_a_coordinator_that_answers_with_an_error_counts_as_found() -> None:
    find_coordinator(Refusing(KafkaError.GROUP_AUTHORIZATION_FAILED), "g", PATIENT_S)
    with pytest.raises(KafkaException):
        find_coordinator(Refusing(KafkaError._TRANSPORT), "g", PATIENT_S)  # pyright: ignore[reportPrivateUsage]
