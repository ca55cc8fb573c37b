"""Tests of `PostgresSink` in the engine, with a real broker
and a real server: exact rows after kills and freezes.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from herdmesh.connect.spi.connector import PartitionId
from herdmesh.connectors.postgres.sink.task import PostgresSinkTask
from herdmesh.devstack.postgres import Postgres
from herdmesh.engine import RunEnd, RunSpec
from herdmesh.engine.runtime.failpoints import LEDGER_NAMES
from libs.connectors.tests.postgres.sink_driver import ask
from libs.core.tests.engine.harness import Kafka, make_spec, processes, run_here

pytestmark = pytest.mark.kafka
TASK = "herdmesh.connectors.postgres.sink.task:PostgresSinkTask"
RECORDS = 200
AMID = ("before-write", *LEDGER_NAMES)
POINTS = (*AMID, "after-write", "after-offset-commit")


class WithoutLedger(PostgresSinkTask):
    """Does not report its ledger's positions: the group's offsets decide."""

    def claim(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, int]:
        super().claim(partitions)
        return {}


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def sink(kafka: Kafka, name: str, topic: str, dsn: str, path: str = TASK, **more: str) -> RunSpec:
    config = {"topics": topic, "connection.url": dsn, "table.name.format": "rows", **more}
    return make_spec(kafka.bootstrap, name, path, config)


def anew(spec: RunSpec) -> RunSpec:
    """Return the spec of the task's next run."""
    return replace(spec, run_id=uuid.uuid4().hex)


def ids(dsn: str, table: str = "rows") -> list[int]:
    return [row[0] for row in ask(dsn, f"SELECT id FROM {table} ORDER BY id")]


def made_table(dsn: str, table: str = "rows") -> str:
    """Create a table that accepts any row any number of times."""
    ask(dsn, f"CREATE TABLE {table} (id int, name text, email text)")
    return table


@pytest.mark.parametrize(("harm", "points"), [("kill", POINTS), ("wake", AMID)])
def test_each_record_is_a_row_once_after_a_kill_or_freeze(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path, tmp_database: str, harm: str,
    points: Sequence[str],
) -> None:  # fmt: skip
    cases = [(point, kafka_topics.create_topic(tmp_topic()), tmp_topic("sink")) for point in points]
    tables = [made_table(tmp_database, f"rows_{number}") for number in range(len(points))]
    for _, topic, _ in cases:
        kafka_topics.produce_ids(topic, range(RECORDS))
    specs = [
        sink(kafka_topics, name, topic, tmp_database, **{"table.name.format": table})
        for (_, topic, name), table in zip(cases, tables, strict=True)
    ]
    with processes(tmp_path) as start:
        frozen = [start(spec, point) for spec, (point, _, _) in zip(specs, cases, strict=True)]
        for process, spec, table, (point, topic, name) in zip(frozen, specs, tables, cases, strict=True):
            process.until_frozen()
            before = ids(tmp_database, table)
            assert bool(before) == (point not in ("before-write", "before-target-commit")), point
            committed = kafka_topics.committed(f"connect-{name}", (topic, 0), (topic, 1))
            assert (committed == [0, 0]) == (point != "after-offset-commit"), "the target is ahead of the group"
            if harm == "kill":
                process.kill()
            kafka_topics.produce_ids(topic, range(RECORDS, RECORDS + 10))
            assert run_here(anew(spec)).reason is RunEnd.QUIET
            assert ids(tmp_database, table) == list(range(RECORDS + 10)), point
        if harm == "wake":
            for process, table, (point, _, _) in zip(frozen, tables, cases, strict=True):
                ended = process.resume()
                assert ended.get("error_class") == "FENCED", (point, ended)
                assert ids(tmp_database, table) == list(range(RECORDS + 10)), point


@pytest.mark.parametrize("path", [TASK, f"{__name__}:WithoutLedger"])
def test_records_are_written_twice_without_the_ledgers_positions(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path, tmp_database: str, path: str
) -> None:
    made_table(tmp_database)
    topic = kafka_topics.create_topic(tmp_topic())
    kafka_topics.produce_ids(topic, range(RECORDS))
    spec = sink(kafka_topics, tmp_topic("sink"), topic, tmp_database, path)
    with processes(tmp_path) as start:
        process = start(spec, "after-target-commit")
        process.until_frozen()
        process.kill()
    twice = ids(tmp_database) if path != TASK else []
    assert twice or path == TASK
    run_here(anew(spec))
    assert ids(tmp_database) == sorted([*range(RECORDS), *twice])


def test_a_killed_server_gets_the_remaining_records_after_its_restart(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """It is killed within a transaction; the run waits, and continues in a new session."""
    server = Postgres(tmp_path / "server")
    asyncio.run(server.start())
    try:
        made_table(server.dsn)
        topic = kafka_topics.create_topic(tmp_topic())
        kafka_topics.produce_ids(topic, range(RECORDS))
        often = {"errors.retry.delay.max.ms": "100"}
        with processes(tmp_path) as start:
            process = start(sink(kafka_topics, tmp_topic("sink"), topic, server.dsn, **often), "before-target-commit")
            process.until_frozen()
            server.kill()
            asyncio.run(server.start())
            assert ids(server.dsn) == []
            assert process.resume() == {"reason": "QUIET", "records_in": RECORDS}
        assert ids(server.dsn) == list(range(RECORDS))
    finally:
        server.kill()


def test_a_poison_record_is_a_dead_letter_and_the_rest_are_rows(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_database: str
) -> None:
    made_table(tmp_database)
    topic, name, queue = kafka_topics.create_topic(tmp_topic()), tmp_topic("sink"), tmp_topic("queue")
    good = [b'{"id":%d}' % number for number in range(20)]
    kafka_topics.produce(topic, [*good[:5], b"{", *good[5:9], b'{"id":"x"}', *good[9:]], partition=0)
    tolerant = {
        "errors.tolerance": "all", "errors.deadletterqueue.topic.name": queue,
        "errors.deadletterqueue.topic.replication.factor": "1",
    }  # fmt: skip
    outcome = run_here(sink(kafka_topics, name, topic, tmp_database, **tolerant))
    assert ids(tmp_database) == list(range(20))
    assert [value for _, value in kafka_topics.records(queue)] == [b"{", b'{"id":"x"}']
    assert outcome.progress.errors.dead_letters == 2
    assert kafka_topics.committed(f"connect-{name}", (topic, 0)) == [22]
