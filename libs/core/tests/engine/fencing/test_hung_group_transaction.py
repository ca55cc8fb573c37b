"""Partition of a group in `__consumer_offsets`, and the format of transaction outcomes in the coordinator's log. With a
broker: tests/faults.
"""

from __future__ import annotations

import struct
import time
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from herdmesh.connect.topics import offsets_topic
from herdmesh.connect.topics.offsets_topic import OffsetRecord
from herdmesh.connect.topics.transaction_topic import TransactionDecision, decode
from herdmesh.engine.fencing.hung_group_transaction import neighbour, partition_of_group
from herdmesh.engine.source import source_offsets
from herdmesh.engine.source.source_offsets import SourceOffsets

ID = "cluster-c-0"
KEY = struct.pack(">hh", 0, len(ID)) + ID.encode()


@pytest.mark.parametrize(
    ("group", "code"),
    [("a", 97), ("hello", 99162322), ("polygenelubricants", 0), ("\U0001f600", 1772899)],
)
def test_the_partition_of_a_group_equals_javas(group: str, code: int) -> None:
    """Codes as Java's String.hashCode gives them; "polygenelubricants" has the one without an absolute value."""
    assert partition_of_group(group, 50) == code % 50


@pytest.mark.parametrize("count", [1, 5, 50])
def test_a_neighbour_group_shares_the_partition_and_the_name_prefix(count: int) -> None:
    found = neighbour("connect-sink", count)
    assert found.startswith("connect-sink.unhang-")
    assert partition_of_group(found, count) == partition_of_group("connect-sink", count)


def _value(version: int, status: int, partitions: bytes) -> bytes:
    return struct.pack(">hqhib", version, 7, 3, 60_000, status) + partitions + bytes(16)


PLAIN = struct.pack(">ih", 2, 1) + b"t" + struct.pack(">iii", 2, 0, 4) + struct.pack(">h1sii", 1, b"u", 1, 2)
FLEXIBLE = b"\x03\x02t\x03" + struct.pack(">ii", 0, 4) + b"\x00\x02u\x02" + struct.pack(">i", 2) + b"\x00"


@pytest.mark.parametrize(("version", "partitions"), [(0, PLAIN), (1, FLEXIBLE)])
@pytest.mark.parametrize(("status", "commit"), [(2, True), (3, False)])
def test_an_outcome_names_its_partitions(version: int, partitions: bytes, status: int, commit: bool) -> None:
    expected = TransactionDecision(commit, frozenset({("t", 0), ("t", 4), ("u", 2)}))
    assert decode(ID, KEY, _value(version, status, partitions)) == expected


def test_a_record_that_is_no_outcome_of_the_id_is_ignored() -> None:
    assert decode(ID, KEY, _value(0, 4, b"\x00\x00\x00\x00")) is None
    assert decode("cluster-c-1", KEY, _value(0, 2, PLAIN)) is None
    assert decode(ID, KEY, None) is None


def test_offsets_are_read_up_to_the_end_while_others_keep_writing() -> None:
    """Kafka reports the end of a partition only when it waits there for more."""
    offsets = count()

    class Busy:
        def consume(self, _most: int, _timeout_s: float) -> list[Any]:
            offset = next(offsets)
            assert offset < 10, "it reads on behind the end it was told"
            key, value = offsets_topic.encode(OffsetRecord("c", {"p": offset}, {"at": offset}))
            return [
                SimpleNamespace(
                    error=lambda: None, partition=lambda: 0, offset=lambda: offset, key=lambda: key, value=lambda: value
                )
            ]

    read: Any = source_offsets
    found = SourceOffsets("c")
    assert read._read_until(Busy(), found, {0: 0}, {0: 3}, time.monotonic() + 5) == {0: 3}
    assert found.committed_offset({"p": 2}) == {"at": 2}
