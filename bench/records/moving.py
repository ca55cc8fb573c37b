"""One job on one side, timed from the create call until the last record is at the other end.

Owns the clock and the checks. `first_s` and `last_s` are the times when a reader of the file, or of committed records
of the topic, sees the first and the last record. Processor time is of all of the side's processes, without the
broker's.

Invariant: a timing is given only for a run whose output was checked to be complete.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec  # the package exports it too, but not for type checkers

from bench.records import workload
from bench.records.jobs import Job, Mirror, Sink, Source
from bench.sides import JavaSide, Side
from bench.usage import cpu_s
from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.listed_offsets import list_offsets
from herdmesh.kafka.transient import STALE_TOPIC

_TIMEOUT_S = 300.0
_ASK_S = 30.0
_FILE_PAUSE_S = 0.01
_TOPIC_PAUSE_S = 0.01
_MARKERS_MAX = 50
#: The error of the broker, or of the client's cache, depends on how far the creation of the topic is.
_NOT_MADE_YET = (
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    *STALE_TOPIC,
)


@dataclass(frozen=True, slots=True)
class Moved:
    """Seconds from the create call to the first and to the last record, and seconds of processor time."""

    records: int
    first_s: float
    last_s: float
    cpu_s: float

    @property
    def total(self) -> float:
        """Records per second from the create call on."""
        return self.records / self.last_s

    @property
    def steady(self) -> float:
        """Records per second from the first record on."""
        return self.records / max(self.last_s - self.first_s, 1e-6)

    @property
    def cpu_per_million_s(self) -> float:
        """Seconds of processor time for a million records, the start included."""
        return self.cpu_s / self.records * 1e6


@dataclass(frozen=True, slots=True)
class Place:
    """Where a bench runs."""

    bootstrap: str
    folder: Path
    records: int

    @property
    def input_file(self) -> Path:
        """The input of the sources."""
        return self.folder / "input.txt"


async def move(side: Side, job: Job, tasks: int, name: str, place: Place) -> Moved:
    """Run the job on that side under that name and check its output. Raises AssertionError for wrong output."""
    if isinstance(job, Sink):
        return await _sink(side, job, tasks, name, place)
    if isinstance(job, Mirror):
        return await _mirror(side, job, tasks, name, place)
    return await _source(side, job, name, place)


async def _sink(side: Side, job: Sink, tasks: int, name: str, place: Place) -> Moved:
    file = place.folder / f"{name}.txt"
    config = job.config(file, tasks, java=isinstance(side, JavaSide))
    moved = await timed(side, name, config, place, lambda begun_s: _lines(file, place, begun_s))
    await asyncio.to_thread(workload.check_file, file, place.records, job.expected)
    await asyncio.to_thread(file.unlink)
    return moved


async def _source(side: Side, job: Source, name: str, place: Place) -> Moved:
    topic = f"bench-records-out-{name}"
    await asyncio.to_thread(workload.create_topic, place.bootstrap, topic, 1)
    expected = await asyncio.to_thread(workload.digest_of_file, place.input_file, job.form)
    last = job.form(workload.text(place.records - 1))
    admin = await asyncio.to_thread(_looking, place, topic, 1)
    moved = await timed(
        side, name, job.config(place.input_file, topic), place,
        lambda begun_s: _committed(admin, topic, [(place.records, last)], place, begun_s),
    )  # fmt: skip
    await asyncio.to_thread(workload.check_topic, place.bootstrap, topic, place.records, expected)
    await asyncio.to_thread(workload.delete_topic, place.bootstrap, topic)
    return moved


async def _mirror(side: Side, job: Mirror, tasks: int, name: str, place: Place) -> Moved:
    copy = job.copy_of(job.topic, name)
    expected = await asyncio.to_thread(workload.contents, place.bootstrap, job.topic)
    lasts = [(one.records, one.last) for one in expected]
    admin = await asyncio.to_thread(_looking, place, copy, len(lasts))
    moved = await timed(
        side, name, job.config(place.bootstrap, name, tasks), place,
        lambda begun_s: _committed(admin, copy, lasts, place, begun_s),
    )  # fmt: skip
    found = await asyncio.to_thread(workload.contents, place.bootstrap, copy)
    assert found == expected, f"{copy} has {found}, not {expected}"
    await asyncio.to_thread(workload.delete_topic, place.bootstrap, copy)
    return moved


async def timed(
    side: Side, name: str, config: dict[str, str], place: Place, look: Callable[[float], tuple[float, float]]
) -> Moved:
    """Create the connector, wait for the result of `look` (the times of the first and the last record; it blocks, and
    its argument is the time of the create call), and delete the connector.
    """
    used_s = cpu_s(side.everything())
    begun_s = time.monotonic()
    looking = asyncio.create_task(asyncio.to_thread(look, begun_s))
    await side.put(name, config)
    first_s, last_s = await looking
    used_s = cpu_s(side.everything()) - used_s
    await side.delete(name)
    await side.until_gone(name)
    return Moved(place.records, first_s, last_s, used_s)


def _lines(file: Path, place: Place, begun_s: float) -> tuple[float, float]:
    """Count lines as the file grows. Blocking."""
    first_s, found = 0.0, 0
    while not file.exists():
        check_time(begun_s, found, place)
        time.sleep(0.005)
    with file.open("rb") as reader:
        while found < place.records:
            chunk = reader.read(4 << 20)
            if chunk:
                first_s = first_s or time.monotonic() - begun_s
                found += chunk.count(b"\n")
            else:
                check_time(begun_s, found, place)
                time.sleep(_FILE_PAUSE_S)
    return first_s, time.monotonic() - begun_s


def _looking(place: Place, topic: str, partitions: int) -> Any:
    """A client with one answered request: the first request of one client in fifty takes three seconds, in which all
    records could arrive unseen. Blocking.
    """
    admin: Any = AdminClient({"bootstrap.servers": place.bootstrap, **NO_AUTO_CREATION})
    ends(admin, topic, partitions)
    return admin


def _committed(
    admin: Any, topic: str, lasts: Sequence[tuple[int, bytes]], place: Place, begun_s: float
) -> tuple[float, float]:
    """Poll the ends of committed records until every partition's last record is there; `lasts` has the number of
    records and the last value of each partition. Blocking. `admin`: from `_looking`.
    """
    first_s, before = 0.0, [0] * len(lasts)
    waiting = set(range(len(lasts)))
    while True:
        found = ends(admin, topic, len(lasts))
        now_s = time.monotonic() - begun_s
        if any(found) and not first_s:
            first_s = now_s
        for number in list(waiting):
            records, last = lasts[number]
            # Transaction markers have offsets too, so only the record itself proves that it is there.
            if found[number] > before[number] and found[number] >= records:
                start = max(0, found[number] - _MARKERS_MAX)
                *_, latest = workload.committed_values(place.bootstrap, topic, start, number)
                if latest == last:
                    waiting.discard(number)
        if not waiting:
            return first_s, now_s
        before = found
        check_time(begun_s, sum(found), place)
        time.sleep(_TOPIC_PAUSE_S)


def ends(admin: Any, topic: str, partitions: int) -> list[int]:
    """The end of committed records in each partition; 0 while the topic is being created. Raises KafkaException."""
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    futures = list_offsets(admin, asked, isolation_level=IsolationLevel.READ_COMMITTED, timeout_s=_ASK_S)
    try:
        return [futures[one].result().offset for one in asked]
    except KafkaException as error:
        if error.args[0].code() in _NOT_MADE_YET:
            return [0] * partitions
        raise


def check_time(begun_s: float, found: int, place: Place) -> None:
    """Raise TimeoutError when the wait takes too long."""
    if time.monotonic() - begun_s > _TIMEOUT_S:
        raise TimeoutError(f"{found} of {place.records} records after {_TIMEOUT_S:g} s")
