"""Reading the outcome of a transaction from a partition that receives more records meanwhile, and how a store and a run
handle a failure of that read. With a broker: test_kafka_hung and tests/faults/test_hung_transactions.py.
"""

from __future__ import annotations

import struct
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from herdmesh.connect.topics import transaction_topic
from herdmesh.engine.fencing import hung_offsets_transaction
from herdmesh.kafka.transaction_outcomes import DecisionsNotRead, decisions
from herdmesh.topicstore.kafka import hanging_transaction
from herdmesh.topicstore.log import LogBlocked, LogUnavailable
from herdmesh.topicstore.settings import TopicSettings

ID = "connect-cluster-c"
KEY = struct.pack(">hh", 0, len(ID)) + ID.encode()
COMMIT = (
    struct.pack(">hqhib", 0, 7, 3, 60_000, 2) + struct.pack(">ih", 1, 1) + b"t" + struct.pack(">ii", 1, 0) + bytes(16)
)


class Busy:
    """A consumer whose partition gets another record with every poll, so that it never reaches the end.

    `failure`: the error of the first request.
    """

    def __init__(self, failure: int | None = None) -> None:
        self.failure = failure
        self.offsets = count()
        self.closed = False

    def list_topics(self, name: str, _timeout_s: float) -> Any:
        if self.failure is not None:
            raise KafkaException(KafkaError(self.failure))
        return SimpleNamespace(topics={name: SimpleNamespace(error=None, partitions={0: None})})

    def get_watermark_offsets(self, _partition: object, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        return 0, 3

    def assign(self, partitions: list[Any]) -> None:
        assert [(one.topic, one.partition) for one in partitions] == [(transaction_topic.NAME, 0)]

    def consume(self, most: int, timeout_s: float) -> list[Any]:
        assert most > 0
        assert timeout_s > 0
        offset = next(self.offsets)
        assert offset < 10, "it reads on behind the end it was told"
        decided = {0: COMMIT}.get(offset)
        return [SimpleNamespace(error=lambda: None, key=lambda: KEY, value=lambda: decided, offset=lambda: offset)]

    def close(self) -> None:
        self.closed = True


class Stuck(Busy):
    """A consumer that gets the first record and nothing more."""

    turns = 0

    def consume(self, most: int, timeout_s: float) -> list[Any]:
        self.turns += 1
        return super().consume(most, timeout_s) if self.turns == 1 else []


def test_outcome_is_found_while_others_keep_writing() -> None:
    busy: Any = Busy()
    turns = count(1)
    found = decisions(busy, ID, [("t", 0), ("t", 1)], limit_s=5, moved=lambda: next(turns))
    assert found == {("t", 0): True}
    assert next(turns) == 4, "a caller is told of each turn"


def test_no_outcome_is_returned_before_all_records_are_read() -> None:
    """The first outcome that is read need not be the last one."""
    stuck: Any = Stuck()
    with pytest.raises(DecisionsNotRead, match=rf"'{ID}' in __transaction_state-0 could not be read in 0.05 s"):
        decisions(stuck, ID, [("t", 0)], limit_s=0.05)
    assert stuck.turns > 1


@pytest.mark.parametrize("end", [-1001, 0])
def test_end_offset_unknown_to_the_broker_is_an_error(end: int) -> None:
    """The caller has initialised the transactional id, which wrote a record to that partition."""

    class Young(Busy):
        def get_watermark_offsets(self, _partition: object, timeout: float) -> tuple[int, int]:
            assert timeout > 0
            return end, end

    young: Any = Young()
    with pytest.raises(KafkaException, match="does not know the end of __transaction_state-0 yet") as raised:
        decisions(young, ID, [("t", 0)], limit_s=5)
    assert raised.value.args[0].code() == KafkaError.LEADER_NOT_AVAILABLE


def _decided(asked: Busy, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Outcomes that a store learns for two partitions."""

    def opened(_: TopicSettings) -> Busy:
        return asked

    monkeypatch.setattr(hanging_transaction, "_open", opened)
    monkeypatch.setattr(hanging_transaction, "_READ_S", 0.05)
    try:
        settings = TopicSettings(topic="t", transactional_id=ID, election_group="g")
        return hanging_transaction.decided(settings, [("t", 0), ("t", 1)])
    finally:
        assert asked.closed


def test_store_learns_the_known_outcome_of_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _decided(Busy(), monkeypatch) == {("t", 0): True, ("t", 1): None}


def test_store_without_permission_to_read_outcomes_knows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Busy(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert _decided(refused, monkeypatch) == {("t", 0): None, ("t", 1): None}


@pytest.mark.parametrize("asked", [Stuck(), Busy(KafkaError.LEADER_NOT_AVAILABLE)], ids=["not read", "no leader"])
def test_store_is_blocked_while_a_retry_can_learn_more(asked: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LogBlocked, match="to learn how an earlier transaction of this store was decided"):
        _decided(asked, monkeypatch)


@pytest.mark.parametrize("silence", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT])  # pyright: ignore[reportPrivateUsage]
def test_store_with_an_unreachable_broker_reports_unavailable_not_blocked(
    silence: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LogUnavailable, match="cannot read __transaction_state: ") as raised:
        _decided(Busy(silence), monkeypatch)
    assert not isinstance(raised.value, LogBlocked)


@pytest.mark.parametrize("asked", [Stuck(), Busy(KafkaError.TOPIC_AUTHORIZATION_FAILED)], ids=["not read", "refused"])
def test_run_finishes_no_transaction_whose_outcome_was_not_read_and_logs_it(
    asked: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hung_offsets_transaction, "_DECISIONS_LIMIT_S", 0.05)
    untouched: Any = None
    hung_offsets_transaction.OffsetsFinisher("t", "c", ID, untouched, lambda: asked).finish(0)
    assert asked.closed
    [said] = caplog.messages
    assert said.startswith("the outcome of a transaction in t-0 could not be read, the next run tries again: ")
