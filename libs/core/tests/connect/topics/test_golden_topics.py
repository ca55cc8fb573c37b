"""Records that a live Connect 4.3.1 wrote to its three topics: each decodes, encodes to the same bytes, and goes to
Java's partition.
"""

from __future__ import annotations

from types import ModuleType

import pytest

from herdmesh.connect.topics import config_topic, offsets_topic, status_topic
from herdmesh.connect.topics.decoding import Undecodable, Unknown
from herdmesh.topicstore.partitioner import partition_of
from tests.support import golden


@pytest.mark.parametrize(
    ("name", "codec", "count"),
    [
        ("config-topic.jsonl", config_topic, 235),
        ("status-topic.jsonl", status_topic, 664),
        ("offsets-topic.jsonl", offsets_topic, 34),
    ],
)
def test_every_record_survives_the_round_trip_and_keeps_its_partition(name: str, codec: ModuleType, count: int) -> None:
    lines = golden.lines(name)
    assert len(lines) == count or not golden.is_own()
    for line in lines:
        key, value = golden.key_and_value(line)
        record = codec.decode(key, value)
        assert not isinstance(record, Undecodable | Unknown), line["id"]
        assert codec.encode(record) == (key, value), line["id"]
        if name != "config-topic.jsonl":
            assert key is not None
            assert partition_of(key, 5) == line["partition"], line["id"]
