"""Reading a decision from a partition that others go on writing to. With a broker: test_kafka_hung."""

from __future__ import annotations

import struct
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from herdmesh.connect import transaction_topic
from herdmesh.topicstore import kafka_hanging
from herdmesh.topicstore.settings import TopicSettings

ID = "connect-cluster-c"
KEY = struct.pack(">hh", 0, len(ID)) + ID.encode()
COMMIT = (
    struct.pack(">hqhib", 0, 7, 3, 60_000, 2) + struct.pack(">ih", 1, 1) + b"t" + struct.pack(">ii", 1, 0) + bytes(16)
)


class Busy:
    """A consumer whose partition gets another record with every look, and so never comes to its end."""

    def __init__(self) -> None:
        self.offsets = count()

    def list_topics(self, name: str, _timeout_s: float) -> Any:
        return SimpleNamespace(topics={name: SimpleNamespace(error=None, partitions={0: None})})

    def get_watermark_offsets(self, _partition: object, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        return 0, 3

    def assign(self, partitions: list[Any]) -> None:
        assert [(one.topic, one.partition) for one in partitions] == [(transaction_topic.NAME, 0)]

    def consume(self, _most: int, _timeout_s: float) -> list[Any]:
        offset = next(self.offsets)
        assert offset < 10, "it reads on behind the end it was told"
        decided = {0: COMMIT}.get(offset)
        return [SimpleNamespace(error=lambda: None, key=lambda: KEY, value=lambda: decided, offset=lambda: offset)]

    def close(self) -> None:
        """Nothing is open."""


def test_a_decision_is_known_although_others_go_on_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(_: TopicSettings) -> Busy:
        return Busy()

    monkeypatch.setattr(kafka_hanging, "_open", opened)
    settings = TopicSettings(topic="t", transactional_id=ID, election_group="g")
    assert kafka_hanging.decisions(settings, [("t", 0), ("t", 1)]) == {("t", 0): True, ("t", 1): None}
