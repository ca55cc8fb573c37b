"""What came out of each path, counted anew from its beginning when all is over.

Owns the counting. Every record is counted, never every id: two records with one id are two. Invariant: nothing here
waits for anything but the ends of topics that nobody writes to any more.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psycopg
from confluent_kafka import KafkaError

from tests.exactly_once.paths import OUTPUTS, SINKS, Row, partitions_of, reader
from tests.support.mesh import Mesh, parquet_ids

_READ_S_MAX = 300.0
_TAKEN_AT_ONCE = 10_000
_ASK_S = 10.0
#: A line that a killed writer began may be followed by another's without an end between: only whole records count.
_CONTROL_RECORD = re.compile(rb'\{"id":(\d+),"pad":"x+"\}')


@dataclass(frozen=True)
class Result:
    """Of one path."""

    count: int
    """Records for readers of committed ones; rows."""
    lost: int
    doubled: int
    """Records beyond the first of their id."""
    foreign: int
    """Records of ids that were never written."""
    delivered_again: int
    """Records that were sent to the target more than once under the same kills, as at-least-once would show them."""

    def __str__(self) -> str:
        return (
            f"{self.count} records, {self.lost} lost, {self.doubled} doubled, {self.foreign} foreign; "
            f"{self.delivered_again} delivered again at least once"
        )


def results(mesh: Mesh, folder: Path, dsn: str, expected: int) -> Mapping[str, Result]:
    """By path. Blocks.

    What exactly-once hides is counted beside it. A source that is killed leaves an aborted transaction: readers of
    uncommitted records see its records, and then those of the next attempt. Of a sink's topic the control, which takes
    the same records from the same workers, has written lines twice.
    """
    found: dict[str, Result] = {}
    for path, topic in OUTPUTS.items():
        committed, committed_ends = _read(mesh.bootstrap, topic, committed=True)
        attempted, ends = _read(mesh.bootstrap, topic, committed=False)
        assert committed_ends == ends, f"{topic}: a transaction is open: readable to {committed_ends} of {ends}"
        found[path] = _result(committed, expected, attempted.total() - committed.total())
    control = Counter(map(int, _CONTROL_RECORD.findall((folder / "control.txt").read_bytes())))
    counted: Mapping[str, Callable[[], Counter[int]]] = {
        "topic-to-postgres": lambda: _rows(dsn),
        "topic-to-parquet": lambda: parquet_ids(folder / "parquet"),
    }
    for path in SINKS:
        found[path] = _result(counted[path](), expected, control.total() - len(control))
    return found


def open_transaction(mesh: Mesh, topic: str) -> bool:
    """True while the topic has records of a transaction that has not ended. Blocks."""
    committed, uncommitted = reader(mesh.bootstrap, committed=True), reader(mesh.bootstrap, committed=False)
    try:
        # A client answers the first question of a leader's end with the isolation level it reads with.
        return any(
            committed.get_watermark_offsets(one, _ASK_S)[1] < uncommitted.get_watermark_offsets(one, _ASK_S)[1]
            for one in partitions_of(topic)
        )
    finally:
        committed.close()
        uncommitted.close()


def _result(ids: Counter[int], expected: int, delivered_again: int) -> Result:
    foreign = sum(times for number, times in ids.items() if not 0 <= number < expected)
    lost = sum(number not in ids for number in range(expected))
    return Result(ids.total(), lost, ids.total() - len(ids), foreign, delivered_again)


def _read(bootstrap: str, topic: str, *, committed: bool) -> tuple[Counter[int], dict[int, int]]:
    """The ids of all records from the first to the last, and the ends, by partition."""
    consumer = reader(bootstrap, committed=committed)
    found, ends = Counter[int](), dict[int, int]()
    until_s = time.monotonic() + _READ_S_MAX
    try:
        everything = partitions_of(topic)
        consumer.assign(everything)
        while len(ends) < len(everything):
            assert time.monotonic() < until_s, f"{topic}: no end of {len(everything)} but {ends}"
            for message in consumer.consume(_TAKEN_AT_ONCE, 0.1):
                error, partition, offset = message.error(), message.partition(), message.offset()
                if error is None:
                    found[_id_of(message.value() or b"")] += 1
                elif error.code() == KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]
                    assert partition is not None
                    assert offset is not None
                    ends[partition] = offset
        return found, ends
    finally:
        consumer.close()


def _id_of(value: bytes) -> int:
    return int(value) if value.isdigit() else msgspec.json.decode(value, type=Row).id


def _rows(dsn: str) -> Counter[int]:
    with psycopg.connect(dsn) as connection:
        return Counter(dict(connection.execute("SELECT id, count(*) FROM target GROUP BY id")))
