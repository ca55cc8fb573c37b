"""Five paths of data through one mesh, each exactly once. Beside each is a twin that is not (`twins`).

Owns the configs, the three origins (a file, a table, a topic) and their growth, and the progress of each path. Judges
nothing (`truth` does).

    file-to-topic       FileStreamSource               origin.txt          -> topic lines
    postgres-to-topic   JdbcSourceConnector            table origin        -> topic db-origin
    topic-to-topic      MirrorSourceConnector          topic orders        -> topic eu.orders
    topic-to-postgres   PostgresSink                   topic orders        -> table target, which has no key of any kind
    topic-to-parquet    ParquetSink                    topic orders        -> folder parquet

Invariant: `Origins.grown` counts ids that all three origins have, acknowledged: 0, 1, 2, ... each once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.support.mesh import Mesh, parquet_sink

INPUT = "orders"
#: Output topics of the sources, by path.
OUTPUTS = {"file-to-topic": "lines", "postgres-to-topic": "db-origin", "topic-to-topic": f"eu.{INPUT}"}
#: Output topics of their twins, for the same data.
TWIN_OUTPUTS = {"file-to-topic": "lines-twin", "postgres-to-topic": "twin-origin", "topic-to-topic": f"twin.{INPUT}"}
SINKS = ("topic-to-postgres", "topic-to-parquet")
PATHS = (*OUTPUTS, *SINKS)
#: Where a run is held for an aimed kill: its output is written, and the commit is not done.
POINTS = dict.fromkeys(PATHS, "after-write") | {"topic-to-postgres": "after-target-commit"}
_OF_PATHS = {"file-to-topic": 2, "postgres-to-topic": 2, "topic-to-topic": 4}
_PARTITIONS = {INPUT: 4, **{of[path]: count for of in (OUTPUTS, TWIN_OUTPUTS) for path, count in _OF_PATHS.items()}}
_PAD = "x" * 32
_STRINGS = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}
_JSON = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
#: Longer than a killed broker may take to serve again (`tests.chaos.harm`).
_FLUSH_S = 300.0
_TAKEN_AT_ONCE = 10_000


class Row(msgspec.Struct):
    """A record of the topics whose values are JSON."""

    id: int
    pad: str = _PAD


def configs(mesh: Mesh, folder: Path, dsn: str) -> Mapping[str, dict[str, Any]]:
    """Configs by connector. Every source requests what it has by default: exactly-once delivery, or an error."""
    required = {"exactly.once.support": "required"}
    return {
        "file-to-topic": {
            "connector.class": "FileStreamSource",
            "tasks.max": "1",
            "file": str(folder / "origin.txt"),
            "topic": OUTPUTS["file-to-topic"],
            **_STRINGS,
            **required,
        },
        "postgres-to-topic": {
            "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
            "tasks.max": "1",
            "connection.url": dsn,
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "table.whitelist": "origin",
            "topic.prefix": "db-",
            "poll.interval.ms": "100",
            **_JSON,
            **required,
        },
        "topic-to-topic": {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "tasks.max": "2",
            "source.cluster.alias": "eu",
            "target.cluster.alias": "us",
            "source.cluster.bootstrap.servers": mesh.bootstrap,
            "topics": INPUT,
            "replication.factor": "1",
            **required,
        },
        "topic-to-postgres": {
            "connector.class": "PostgresSink",
            "tasks.max": "2",
            "topics": INPUT,
            "connection.url": dsn,
            "table.name.format": "target",
            **_JSON,
        },
        "topic-to-parquet": parquet_sink(INPUT, folder / "parquet"),
    }


class Origins:
    """A file, a table and a topic with the same ids. One caller at a time; every call blocks."""

    def __init__(self, mesh: Mesh, folder: Path, dsn: str) -> None:
        self.grown = 0
        for topic, partitions in _PARTITIONS.items():
            mesh.create_topic(topic, partitions)
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._connection.execute("CREATE TABLE origin (id bigint PRIMARY KEY, pad text NOT NULL)")
        for table in ("target", "target_twin"):
            self._connection.execute(f"CREATE TABLE {table} (id bigint, pad text)")
        self._file = (folder / "origin.txt").open("a")
        self._producer = Producer(
            {
                "bootstrap.servers": mesh.bootstrap,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                # A killed broker makes it send again: only an idempotent producer does that without duplicates.
                "enable.idempotence": True,
                "log_level": 0,
            }
        )

    def grow(self, upto: int) -> None:
        """Give them all ids below this. Returns when they are durable; raises when one is not."""
        ids = range(self.grown, upto)
        if not ids:
            return
        self._file.writelines(f"{number}\n" for number in ids)
        self._file.flush()
        self._connection.execute(
            "INSERT INTO origin SELECT id, %s::text FROM generate_series(%s::bigint, %s::bigint) id ORDER BY id",
            (_PAD, ids.start, ids.stop - 1),
        )
        refused: list[Any] = []
        encode = msgspec.json.Encoder().encode
        for number in ids:
            self._producer.produce(
                INPUT,
                encode(Row(number)),
                str(number).encode(),
                on_delivery=lambda error, _: refused.append(error) if error is not None else None,
            )
            if number % 1_000 == 0:
                self._producer.poll(0)
        left = self._producer.flush(_FLUSH_S)
        assert left == 0, f"{left} records are not acknowledged after {_FLUSH_S:g} s"
        assert not refused, refused[:3]
        self.grown = upto

    def close(self) -> None:
        self._file.close()
        self._connection.close()


class Progress:
    """Number of records that readers of committed records can see, by path. Blocks; never for a broker."""

    def __init__(self, mesh: Mesh, folder: Path, dsn: str) -> None:
        self._mesh = mesh
        self._folder = folder / "parquet"
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._tails = {path: Tail(mesh.bootstrap, topic) for path, topic in OUTPUTS.items()}
        self._broker = mesh.stack.broker.pid

    async def look(self) -> dict[str, int]:
        """Counts by path."""
        return await asyncio.to_thread(self._look)

    def _look(self) -> dict[str, int]:
        self._renew()
        found = {path: tail.look() for path, tail in self._tails.items()}
        return found | {"topic-to-postgres": self._rows(), "topic-to-parquet": self._published()}

    def _renew(self) -> None:
        """Create new clients for a restarted broker: the old ones may have lost it for good
        (`herdmesh.kafka.broker_reachability`).
        """
        broker = next(one for one in self._mesh.stack.state.services if one.name == "broker")
        pid = self._mesh.stack.broker.pid
        if pid is not None and pid != self._broker and broker.state == "serving":
            self._broker = pid
            for tail in self._tails.values():
                tail.renew()

    def _rows(self) -> int:
        """Count by the ledger: it moves with the rows, and the topic has nothing but the records from offset 0 on. The
        twin has rows in it, too, which do not count.
        """
        made = self._connection.execute("SELECT to_regclass('herdmesh_ledger') IS NOT NULL").fetchone()
        if made is None or not made[0]:
            return 0
        query = (
            "SELECT coalesce(sum(next_offset), 0)::bigint FROM herdmesh_ledger WHERE connector = 'topic-to-postgres'"
        )
        row = self._connection.execute(query).fetchone()
        assert row is not None
        return row[0]

    def _published(self) -> int:
        """Count by the names of the files: `<topic>+<partition>+<first offset>+<last offset>.parquet`."""
        spans = (one.name.removesuffix(".parquet").split("+")[2:4] for one in self._folder.glob(f"{INPUT}+*.parquet"))
        return sum(int(last) - int(first) + 1 for first, last in spans)

    def close(self) -> None:
        self._connection.close()
        for tail in self._tails.values():
            tail.close()


class Tail:
    """Counts the committed records of a topic as they come."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._count = 0
        self._positions = dict.fromkeys([(topic, number) for number in range(_PARTITIONS[topic])], 0)
        self._consumer = self._made()

    def look(self) -> int:
        """How many there were so far."""
        while messages := self._consumer.consume(_TAKEN_AT_ONCE, 0):
            for message in messages:
                if message.error() is None:
                    self.take(message)
        return self._count

    def take(self, message: Message) -> None:
        """Count one more."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic and partition is not None and offset is not None:
            self._count += 1
            self._positions[topic, partition] = offset + 1

    def renew(self) -> None:
        """Continue with another client."""
        self._consumer.close()
        self._consumer = self._made()

    def close(self) -> None:
        self._consumer.close()

    def _made(self) -> Consumer:
        made = reader(self._bootstrap, committed=True)
        made.assign([TopicPartition(*one, offset) for one, offset in self._positions.items()])
        return made


def reader(bootstrap: str, *, committed: bool) -> Consumer:
    """A client that reports ends of partitions, and reads committed or all records."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "exactly-once-tests",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )


def id_of(value: bytes) -> int:
    """The id of a record of any of the topics."""
    return int(value) if value.isdigit() else msgspec.json.decode(value, type=Row).id


def partitions_of(topic: str) -> list[TopicPartition]:
    """All partitions, from their beginnings."""
    return [TopicPartition(topic, number, 0) for number in range(_PARTITIONS[topic])]
