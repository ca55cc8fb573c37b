"""Two Kafka clusters, a topic that is written and read at one of them, and a mirror's copy of it at the other.

Owns the writing, the reading by a group, and the readers of the copy and of checkpoints, among them Java's own
`RemoteClusterUtils` (`MirrorSide.java`). Does not own the copying connectors: its tests run Java's and ours.

Invariant: record n is at offset n // PARTITIONS of partition n % PARTITIONS of the source, with its number as value and
header, so that a number identifies its origin.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from herdmesh.connectors.mirror.offset_translation import read_checkpoint
from herdmesh.devstack.broker import Broker
from herdmesh.devstack.jars import ensure_jars
from herdmesh.devstack.java import find_java
from libs.core.tests.engine.harness import Kafka
from tests.support.java_connect import MIRROR_JARS

TOPIC, SOURCE, TARGET = "orders", "eu", "us"
COPY, CHECKPOINTS = f"{SOURCE}.{TOPIC}", f"{SOURCE}.checkpoints.internal"
LIVE, PARKED = "readers", "parked"
PARTITIONS = 2
Place = tuple[str, int]


class Shop:
    """Writes numbers to the source, n to partition n % 2 at offset n // 2, and reads them there as a group, from two
    threads until stopped.
    """

    def __init__(self, source: Kafka) -> None:
        self._source = source
        self.written = 0
        #: the next offset that the group has not committed, by partition.
        self.committed = [0] * PARTITIONS
        self._closed, self._moved_house = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=one, name=one.__name__) for one in (self._write, self._read)]

    def open(self) -> None:
        for one in self._threads:
            one.start()

    def move_house(self) -> None:
        """Stop the group's reading at the source, at any position."""
        self._moved_house.set()
        self._threads[1].join()

    def close(self) -> int:
        """Stop writing; returns the number of records."""
        self._closed.set()
        self._threads[0].join()
        self.move_house()
        return self.written

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._source.bootstrap, "enable.idempotence": True, "linger.ms": 5})
        while not self._closed.wait(0.02):
            for number in range(self.written, self.written + 60):
                header: list[tuple[str, str | bytes | None]] = [("n", b"%d" % number)]
                producer.produce(TOPIC, b"%d" % number, b"k%d" % number, partition=number % PARTITIONS, headers=header)
            assert producer.flush(60) == 0
            self.written += 60

    def _read(self) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self._source.bootstrap, "group.id": LIVE, "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        while not self._moved_house.is_set():
            for one in consumer.consume(500, 0.2):
                assert one.error() is None, one.error()
                partition, offset = one.partition(), one.offset()
                assert partition is not None
                assert offset is not None
                assert offset == self.committed[partition], "the source's offsets have gaps"
                self.committed[partition] = offset + 1
            places = [TopicPartition(TOPIC, number, at) for number, at in enumerate(self.committed)]
            consumer.commit(offsets=places, asynchronous=False)
        consumer.close()


@dataclass
class Clusters:
    """Both clusters, with their readers."""

    source: Kafka
    target: Kafka
    broker: Broker
    """The target's broker, which the workers of both sides use."""
    folder: Path
    _class_path: str = field(init=False)

    def __post_init__(self) -> None:
        jars = ensure_jars(MIRROR_JARS)
        self._class_path = f"{self.folder}:{jars}"
        code = Path(__file__).with_name("MirrorSide.java")
        javac = find_java().executable.resolve().with_name("javac")
        subprocess.run([str(javac), "-cp", jars, "-d", str(self.folder), str(code)], check=True)

    def java_says(self, *groups: str) -> tuple[list[str], dict[str, dict[Place, int]]]:
        """Clusters with their hops, and the offset at which each group continues at the target, by Java's reader."""
        done = subprocess.run(
            [
                str(find_java().executable),
                "-cp",
                self._class_path,
                "MirrorSide",
                self.target.bootstrap,
                SOURCE,
                *groups,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
            timeout=90,
        )
        lines = [line.split() for line in done.stdout.splitlines()]
        at: dict[str, dict[Place, int]] = {group: {} for group in groups}
        for _, group, topic, partition, offset in (one for one in lines if one[0] == "group"):
            at[group][topic, int(partition)] = int(offset)
        return [" ".join(one[1:]) for one in lines if one[0] == "cluster"], at

    def we_say(self, *groups: str) -> dict[str, dict[Place, int]]:
        """The same, by our reader."""
        at: dict[str, dict[Place, int]] = {group: {} for group in groups}
        if CHECKPOINTS in self.target.admin.list_topics(timeout=20).topics:
            for one in self.target.messages(CHECKPOINTS, 1):
                found = read_checkpoint(one.key() or b"", one.value() or b"")
                if found.group in at:
                    at[found.group][found.partition] = found.downstream
        return at

    def copied(self) -> int:
        """Number of records and markers of the copy."""
        if COPY not in self.target.admin.list_topics(timeout=20).topics:
            return 0
        consumer = Consumer({"bootstrap.servers": self.target.bootstrap, "group.id": "looks"})
        try:
            ends = [consumer.get_watermark_offsets(TopicPartition(COPY, number), 20) for number in range(PARTITIONS)]
            return sum(end for _, end in ends)
        finally:
            consumer.close()

    def in_copy(self) -> list[list[tuple[int, int]]]:
        """Offsets and numbers of each partition, in order."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
        for one in self.target.messages(COPY, PARTITIONS):
            partition, offset, value = one.partition(), one.offset(), one.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            assert one.key() == b"k" + value
            assert one.headers() == [("n", value)]
            found[partition].append((offset, int(value)))
        return found

    def cut(self, connector: str, group: str) -> list[int]:
        """The next offset of each partition that is not committed as copied."""
        places = [0] * PARTITIONS
        for one in self.target.messages(f"{group}-offsets", 5):
            name, partition = json.loads(one.key() or b"")
            if name == connector and partition["topic"] == TOPIC and one.value():
                places[partition["partition"]] = json.loads(one.value() or b"")["offset"] + 1
        return places


def doubled(copy: list[list[tuple[int, int]]], written: int, cut: list[int], *, is_once: bool) -> int:
    """Check that no record is lost; returns the number of duplicates, which only uncommitted records may have."""
    twice_in_all = 0
    for partition, found in enumerate(copy):
        numbers, expected = [number for _, number in found], list(range(partition, written, PARTITIONS))
        if is_once:
            assert numbers == expected
            continue
        times = Counter(numbers)
        assert sorted(times) == expected, "lost"
        twice = [number for number, count in times.items() if count > 1]
        assert all(number // PARTITIONS >= cut[partition] for number in twice), "copied again although committed"
        assert not twice or max(times.values()) == 2
        twice_in_all += len(twice)
    return twice_in_all


def moved_house(target: Kafka, copy: list[list[tuple[int, int]]], committed: list[int], at: Mapping[Place, int]) -> int:
    """Check that the group's consumers, moved to the target, read to its end everything they had not read at the
    source; returns the number of records they had read there already.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": LIVE,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
        }
    )
    rest = [[number for offset, number in found if offset >= at[COPY, one]] for one, found in enumerate(copy)]
    found: list[list[int]] = [list[int]() for _ in range(PARTITIONS)]
    try:
        consumer.subscribe([COPY])
        while any(len(read) < len(there) for read, there in zip(found, rest, strict=True)):
            taken: list[Any] = consumer.consume(1_000, 5)
            assert taken, "the copy ends too soon"
            for one in taken:
                assert one.error() is None, one.error()
                found[int(one.partition())].append(int(one.value()))
    finally:
        consumer.close()
    assert found == rest
    again = 0
    for partition, read in enumerate(found):
        first_new = committed[partition] * PARTITIONS + partition
        assert read[0] <= first_new, "skipped"
        again += sum(number < first_new for number in read)
    return again
