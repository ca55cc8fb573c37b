"""Output of each path, counted from its beginning when all is over.

Owns the counting. Every record is counted, never every id: two records with one id are two. Invariant: the only waits
here are for the ends of topics that nobody writes to any more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg
from confluent_kafka import KafkaError

from tests.exactly_once.paths import OUTPUTS, TWIN_OUTPUTS, id_of, partitions_of, reader
from tests.exactly_once.twins import FOLDER
from tests.support.mesh import Mesh, parquet_ids

_READ_S_MAX = 300.0
_TAKEN_AT_ONCE = 10_000
_ASK_S = 10.0


@dataclass(frozen=True)
class Count:
    """The output of one connector."""

    count: int
    """Records for readers of committed ones; rows."""
    lost: int
    doubled: int
    """Records beyond the first of their id."""
    foreign: int
    """Records of ids that were never written."""

    def __str__(self) -> str:
        return f"{self.count} records, {self.lost} lost, {self.doubled} doubled, {self.foreign} foreign"


@dataclass(frozen=True)
class Result:
    """The counts of one path, and of its twin under the same kills."""

    path: Count
    twin: Count

    def __str__(self) -> str:
        return f"{self.path}; at least once: {self.twin}"

    def holds(self, records: int) -> bool:
        """True when the path has each of so many records once, and the twin proves the need: it has each, and some
        duplicates.
        """
        exact = self.path == Count(records, 0, 0, 0)
        return exact and self.twin.doubled > 0 and self.twin.lost == self.twin.foreign == 0


def results(mesh: Mesh, folder: Path, dsn: str, expected: int) -> Mapping[str, Result]:
    """Results by path. Blocks."""
    found = {
        path: (_read(mesh.bootstrap, topic), _read(mesh.bootstrap, TWIN_OUTPUTS[path]))
        for path, topic in OUTPUTS.items()
    }
    for topic in (*OUTPUTS.values(), *TWIN_OUTPUTS.values()):
        assert not open_transaction(mesh, topic), f"a transaction of {topic} has not ended: readers are kept from it"
    found["topic-to-postgres"] = (
        _rows(dsn, "SELECT id, count(*) FROM target GROUP BY id"),
        _rows(dsn, "SELECT id, count(*) FROM target_twin GROUP BY id"),
    )
    found["topic-to-parquet"] = parquet_ids(folder / "parquet"), parquet_ids(folder / FOLDER)
    return {path: Result(_count(ids, expected), _count(twins, expected)) for path, (ids, twins) in found.items()}


def open_transaction(mesh: Mesh, topic: str) -> bool:
    """True while the topic has records of a transaction that has not ended. Blocks."""
    committed, uncommitted = reader(mesh.bootstrap, committed=True), reader(mesh.bootstrap, committed=False)
    try:
        # A client answers the first request for a leader's end with the isolation level it reads with.
        return any(
            committed.get_watermark_offsets(one, _ASK_S)[1] < uncommitted.get_watermark_offsets(one, _ASK_S)[1]
            for one in partitions_of(topic)
        )
    finally:
        committed.close()
        uncommitted.close()


def _count(ids: Counter[int], expected: int) -> Count:
    foreign = sum(times for number, times in ids.items() if not 0 <= number < expected)
    lost = sum(number not in ids for number in range(expected))
    return Count(ids.total(), lost, ids.total() - len(ids), foreign)


def _read(bootstrap: str, topic: str) -> Counter[int]:
    """The ids of all committed records, from the first to the last."""
    consumer = reader(bootstrap, committed=True)
    found, ended = Counter[int](), set[int | None]()
    until_s = time.monotonic() + _READ_S_MAX
    try:
        everything = partitions_of(topic)
        consumer.assign(everything)
        while len(ended) < len(everything):
            assert time.monotonic() < until_s, f"{topic}: no end of {len(everything)} but {ended}"
            for message in consumer.consume(_TAKEN_AT_ONCE, 0.1):
                error = message.error()
                if error is None:
                    found[id_of(message.value() or b"")] += 1
                elif error.code() == KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]
                    ended.add(message.partition())
        return found
    finally:
        consumer.close()


def _rows(dsn: str, query: LiteralString) -> Counter[int]:
    with psycopg.connect(dsn) as connection:
        return Counter(dict(connection.execute(query)))
