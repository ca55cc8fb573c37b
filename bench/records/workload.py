"""The records that both sides move, and the check that all of them arrived.

Owns the content of a record (the 166 bytes of the design's feasibility figures), its forms in topics and in a file, and
the expected output. Knows neither side.

Invariant: a check passes only when every record arrived exactly once. Contents are compared completely where both sides
must write the same bytes, else in a sample (each side has its own text for a map).
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import fastavro
import httpx
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from fastavro import parse_schema

from herdmesh.kafka.transient import is_transient

JSON_TOPIC = "bench-records-json"
SCHEMA_TOPIC = "bench-records-schema"
AVRO_TOPIC = "bench-records-avro"
PARTITIONS = 2
_SAMPLE = 997  # one line in this many is compared completely
_AT_ONCE = 10_000
_TIMEOUT_S = 120.0
_FIELDS = (("id", "int64"), ("name", "string"), ("email", "string"), ("amount", "double"), ("ts", "int64"),
           ("note", "string"))  # fmt: skip
_SCHEMA = {
    "type": "struct",
    "fields": [{"type": kind, "optional": False, "field": name} for name, kind in _FIELDS],
    "optional": False,
    "name": "bench.Record",
}
AVRO_SCHEMA = {
    "type": "record",
    "name": "Record",
    "namespace": "bench",
    "fields": [{"name": name, "type": "long" if kind == "int64" else kind} for name, kind in _FIELDS],
}
_HEAD = b'{"schema":' + json.dumps(_SCHEMA).encode() + b',"payload":'
#: The id in JSON, in the text of a Java map and in that of a Struct.
_ID = re.compile(rb'(?:"id": ?|[{, ]id=)(\d+)')

Expected = Callable[[int], Mapping[str, Any]]
"""The expected fields of a record, by its number."""


def record(number: int) -> dict[str, Any]:
    """One record."""
    return {
        "id": number,
        "name": f"user{number % 1000}",
        "email": f"user{number}@example.com",
        "amount": number * 0.01,
        "ts": 1_700_000_000_000 + number,
        "note": "the quick brown fox jumps over the lazy dog",
    }


def transformed(number: int) -> dict[str, Any]:
    """The record after the sinks' three transformations."""
    fields = record(number)
    fields["comment"] = fields.pop("note")
    return {**fields, "email": "", "source": "x"}


def text(number: int) -> bytes:
    """The record as it is in the topic and in the file."""
    return json.dumps(record(number)).encode()


def hoisted(line: bytes) -> bytes:
    """A line of the file after the sources' three transformations and JsonConverter."""
    return json.dumps({"text": line.decode(), "source": "x"}, separators=(",", ":")).encode()


def enveloped(number: int) -> bytes:
    """The record with its schema, as JsonConverter has it."""
    return _HEAD + text(number) + b"}"


def avro(schema_id: int) -> Callable[[int], bytes]:
    """A function that returns a record as Avro, after the five bytes that name its schema in the registry."""
    head = b"\0" + schema_id.to_bytes(4, "big")
    parse: Callable[..., Any] = parse_schema
    schema = parse(AVRO_SCHEMA)
    write: Callable[..., None] = cast(Any, fastavro).schemaless_writer

    def value(number: int) -> bytes:
        made = io.BytesIO()
        made.write(head)
        write(made, schema, record(number))
        return made.getvalue()

    return value


# --- input


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Create a topic."""
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result()


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic."""
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics([topic]).values():
        future.result()


def register_avro(registry: str) -> int:
    """The id of the Avro schema in the registry with that address, as the value of its topic."""
    url = f"{registry}/subjects/{AVRO_TOPIC}-value/versions"
    return httpx.post(url, json={"schema": json.dumps(AVRO_SCHEMA)}).raise_for_status().json()["id"]


def write_topic(bootstrap: str, topic: str, records: int, value: Callable[[int], bytes]) -> None:
    """Write a topic of that many records, compressed with lz4."""
    create_topic(bootstrap, topic, PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "compression.type": "lz4",
        }
    )
    for start in range(0, records, _AT_ONCE):
        numbers = range(start, min(start + _AT_ONCE, records))
        left: list[dict[str, Any]] = [{"value": value(number), "key": str(number).encode()} for number in numbers]
        while left:
            producer.produce_batch(topic, left)
            left = [message for message in left if message.pop("_error", None) is not None]
            producer.poll(0.05 if left else 0)
    assert producer.flush(_TIMEOUT_S) == 0


def write_file(path: Path, records: int) -> None:
    """Write a file of that many lines."""
    with path.open("wb") as file:
        file.writelines(text(number) + b"\n" for number in range(records))


# --- output


def check_file(file: Path, records: int, expected: Expected) -> None:
    """Assert that every record is in one line of the file, and that those of the sample have the expected fields.
    Raises AssertionError.
    """
    found = bytearray(records)
    lines = 0
    for chunk in _chunks(file):
        for number in map(int, _ID.findall(chunk)):
            found[number] += 1
        for line in itertools.islice(chunk.splitlines(), 0, None, _SAMPLE):
            fields = _fields(line)
            number = int(fields["id"])
            _compare(fields, expected(number))
        lines += chunk.count(b"\n")
    assert lines == records, f"{lines} lines, not {records}"
    assert found.count(1) == records, f"{records - found.count(1)} records are missing or there twice"


def _chunks(file: Path) -> Iterator[bytes]:
    """Chunks of complete lines."""
    with file.open("rb") as reader:
        while chunk := reader.read(8 << 20):
            yield chunk + reader.readline()


def _fields(line: bytes) -> dict[str, Any]:
    """The fields of JSON, `{id=1, ...}` or `Struct{id=1,...}`; the last two give texts."""
    if line.startswith(b'{"'):
        return json.loads(line)
    inner = line.decode().removeprefix("Struct").strip("{}")
    pairs = (part.strip().partition("=") for part in inner.split(","))
    return {name: value for name, _, value in pairs}


def _compare(fields: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert fields.keys() == expected.keys(), f"{sorted(fields)}, not {sorted(expected)}"
    for name, value in expected.items():
        same = float(fields[name]) == value if isinstance(value, int | float) else fields[name] == value
        assert same, f"{name} is {fields[name]!r}, not {value!r}"


def digest(values: Iterable[bytes]) -> str:
    """The digest of all values in order."""
    made = hashlib.sha256()
    for value in values:
        made.update(value)
        made.update(b"\n")
    return made.hexdigest()


def digest_of_file(path: Path, form: Callable[[bytes], bytes]) -> str:
    """The digest of the file's lines, each in that form."""
    with path.open("rb") as reader:
        return digest(form(line.rstrip(b"\n")) for line in reader)


def check_topic(bootstrap: str, topic: str, records: int, expected: str) -> None:
    """Assert that the topic's only partition has exactly the expected committed records, in that order. Raises
    AssertionError.
    """
    values = list(committed_values(bootstrap, topic, 0))
    assert len(values) == records, f"{len(values)} records, not {records}"
    assert digest(values) == expected, "the records are not those of the file, or not in its order"


@dataclass(frozen=True, slots=True)
class Content:
    """The committed records of one partition: their number, the digest of keys, values and times, and the last
    value.
    """

    records: int
    digest: str
    last: bytes


def contents(bootstrap: str, topic: str) -> list[Content]:
    """The content of each partition of a topic of `PARTITIONS`."""
    return [_content(bootstrap, topic, number) for number in range(PARTITIONS)]


def _content(bootstrap: str, topic: str, partition: int) -> Content:
    made, records, last = hashlib.sha256(), 0, b""
    for message in committed(bootstrap, topic, 0, partition):
        last = message.value() or b""
        made.update(b"%r %b\n%b\n" % (message.timestamp(), message.key() or b"", last))
        records += 1
    return Content(records, made.hexdigest(), last)


def committed_values(bootstrap: str, topic: str, start: int, partition: int = 0) -> Iterator[bytes]:
    """The values from that offset of a partition to its end."""
    return (message.value() or b"" for message in committed(bootstrap, topic, start, partition))


def committed(bootstrap: str, topic: str, start: int, partition: int) -> Iterator[Message]:
    """The committed records from that offset of a partition to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-records-check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
        }
    )
    deadline_s = time.monotonic() + _TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        while time.monotonic() < deadline_s:
            first = consumer.poll(0.1)
            for message in [*([] if first is None else [first]), *consumer.consume(_AT_ONCE, 0)]:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]
                    return
                elif not is_transient(error):
                    raise AssertionError(error.str())
    finally:
        consumer.close()
    raise TimeoutError(f"{topic} has no end")
