"""Random histories written by Java's own stores and by ours in turn, on the same two topics: both read the same.

Either side does whatever its interface lets a herder or worker do, in any order: task sets of missing connectors,
commits and counts after a deletion, statuses of repeated and older generations, safe or not, deletions of
connectors whose tasks exist, restarts, session keys, logger levels, topics in use. In between come records that neither
writes: malformed ones, of unknown kinds, of older releases, of no worker. After each history the views of the two
interfaces of it are compared, at the end the views of all of them. Then both topics are compacted, as a cleaner
may leave them, and read by new stores. In `make soak` all this is run twice: Java's store drops the rest of a polled
batch behind an invalid number (docs/reference/differences.md), so that no such record may be among those that are
compacted.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support import tally
from tests.support.compacted_stores import assert_read_the_same_compacted
from tests.support.configstore_process import leading
from tests.support.java_stores import JavaStores, Json
from tests.support.our_stores import OurStores, as_java_shows
from tests.support.sizes import SOAKING, soak_or

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(7_200)]

HISTORIES = soak_or(4, int(os.environ.get("HERDMESH_HISTORIES", "2000")))
SEED = int(os.environ.get("HERDMESH_HISTORIES_SEED", "25"))
_WAIT_S = 60.0
_TARGETS = ("STARTED", "PAUSED", "STOPPED")
_CONNECTOR_STATES = ("RUNNING", "PAUSED", "FAILED", "UNASSIGNED", "STOPPED", "DESTROYED")
_TASK_STATES = ("RUNNING", "RUNNING", "UNASSIGNED", "UNASSIGNED", "PAUSED", "FAILED", "RESTARTING", "DESTROYED")
_WORKERS = ("w1:8083", "w2:8083")
_DO = (
    *("config", "tasks", "tasks", "remove", "target", "count", "restart", "session_key", "logger", "topic", "forget"),
    *("status", "status", "status", "status", "raw", "raw"),
)
Odd = Sequence[tuple[str, Any]]
_STATUS = {"state": "RUNNING", "trace": None, "worker_id": None, "generation": 3, "version": None}
#: Records of the config topic that no store writes: `%s` is a connector's name.
_ODD_CONFIGS: tuple[tuple[str, Any], ...] = (
    ("connector-%s", b"{"),
    ("connector-%s", {"properties": 5}),
    ("connector-%s", {"properties": {"v": None, "n": 5}}),
    ("task-%s-0", {"properties": {"t": "orphan"}}),
    ("task-%s-1", {"properties": None}),
    ("task-%s-x", {"properties": {"t": "x"}}),
    ("commit-%s", {"tasks": 2}),
    ("commit-%s", {"tasks": -1}),
    ("commit-%s", {"tasks": "2"}),
    ("commit-%s", None),
    ("target-state-%s", {"state": "PAUSED"}),
    ("target-state-%s", {"state": "NOPE"}),
    ("target-state-%s", None),
    ("tasks-fencing-%s", {"task-count": 3}),
    ("tasks-fencing-%s", {"task-count": "3"}),
    ("tasks-fencing-%s", None),
    ("restart-connector-%s", {"only-failed": True}),
    ("restart-connector-%s", {"only-failed": 1, "include-tasks": "yes"}),
    ("restart-connector-%s", 7),
    ("session-key", {"key": 5}),
    ("session-key", None),
    ("logger-cluster-%s", {"level": 5}),
    ("logger-cluster-%s", {"level": "WARN"}),
    ("unknown-%s", {"v": 1}),
)
#: Where Java's store reads several records at once, it drops those behind one of these.
_DROP_THE_REST = (("commit-%s", {"tasks": "2"}), ("tasks-fencing-%s", {"task-count": "3"}))
#: The same of the status topic.
_ODD_STATUSES: tuple[tuple[str, Any], ...] = (
    ("status-connector-%s", _STATUS),
    ("status-connector-%s", {**_STATUS, "state": "NOPE"}),
    ("status-connector-%s", {"state": "RUNNING"}),
    ("status-connector-%s", None),
    ("status-connector-%s", b"["),
    ("status-task-%s-0", _STATUS),
    ("status-task-%s-1", {**_STATUS, "generation": "3"}),
    ("status-task-%s-1", {**_STATUS, "state": "UNASSIGNED"}),
    ("status-task-%s-x", _STATUS),
    ("status-task-%s-0", None),
    ("status-topic-t:connector-%s", {"topic": 5}),
    ("status-topic-t:connector-%s", None),
    ("status-topic-t", {"topic": {}}),
    ("unknown-%s", {"v": 1}),
)


def _operation(chance: random.Random, names: Sequence[str], generation: int, odd_configs: Odd) -> Json:
    kind, name = chance.choice(_DO), chance.choice(names)
    operation: Json = {"do": kind, "name": name}
    match kind:
        case "config":
            operation |= {"config": {"name": name, "v": chance.choice("xyz")}}
            operation["target"] = chance.choice([None, None, *_TARGETS])
        case "tasks":
            operation["tasks"] = [{"t": chance.choice("xyz")} for _ in range(chance.choice([0, 1, 1, 2, 3]))]
        case "target":
            operation["target"] = chance.choice(_TARGETS)
        case "count":
            operation["count"] = chance.randrange(4)
        case "restart":
            operation |= {"only_failed": chance.random() < 0.5, "include_tasks": chance.random() < 0.5}
        case "session_key":
            operation |= {"key": base64.b64encode(chance.randbytes(32)).decode(), "created": 1_700_000_000_000}
        case "logger":
            operation["level"] = chance.choice(["INFO", "DEBUG"])
        case "topic":
            operation |= {"topic": chance.choice("tu"), "task": chance.randrange(2), "discovered": 1_700_000_000_000}
        case "forget":
            operation["topic"] = chance.choice("tu")
        case "raw":
            operation["of"] = chance.choice(["config", "status"])
            key, value = chance.choice(odd_configs if operation["of"] == "config" else _ODD_STATUSES)
            operation |= {"key": key.replace("%s", name), "value": value}
        case "status":
            operation["safe"] = chance.random() < 0.4
            operation["worker"] = chance.choice(_WORKERS)
            operation["incarnation"] = f"{operation['worker']}-{chance.choice('ab')}"
            operation["generation"] = max(generation + chance.choice([0, 0, 1, -1, -2, -5]), 0)
            if chance.random() < 0.8:
                operation |= {"task": chance.randrange(2), "state": chance.choice(_TASK_STATES)}
            else:
                operation["state"] = chance.choice(_CONNECTOR_STATES)
        case _:
            pass
    return operation


@pytest.mark.parametrize(
    "compacts",
    [pytest.param(True, id="compacted"), *([pytest.param(False, id="as-written")] if SOAKING else [])],
)
async def test_both_sides_read_the_same_whoever_wrote(
    kafka_bootstrap: str, tmp_topic: Callable[[str], str], tmp_path: Path, compacts: bool
) -> None:
    odd_configs = [one for one in _ODD_CONFIGS if not (compacts and one in _DROP_THE_REST)]
    operations = 0
    topics: tuple[str, str] = (tmp_topic("configs"), tmp_topic("status"))
    java, ours = JavaStores(kafka_bootstrap, *topics, tmp_path), OurStores(kafka_bootstrap, *topics, tmp_path)
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "linger.ms": 0})
    chance, generation, every = random.Random(SEED), 1, list[str]()
    await java.start()
    try:
        await ours.start()
        async with leading(ours.config) as ours.token, ours.watching():
            for number in range(HISTORIES):
                names = [f"c{number}", f"c{number}-1", f"odd é ☃ {number}"]
                every += names
                done = list[str]()
                for _ in range(chance.randint(4, 16)):
                    generation += chance.random() < 0.3
                    operation = _operation(chance, names, generation, odd_configs)
                    side = "raw" if operation["do"] == "raw" else chance.choice(["java", "ours"])
                    done.append(f"{side}: {operation}")
                    match side:
                        case "raw":
                            value = operation["value"]
                            raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
                            producer.produce(
                                topics[1 if operation["of"] == "status" else 0], raw, operation["key"].encode()
                            )
                            assert producer.flush(_WAIT_S) == 0
                        case "java":
                            await java.play(operation)
                        case _:
                            await ours.play(operation)
                mine, theirs = await ours.show(names), await java.show(names)
                mine = as_java_shows(mine, theirs)
                assert mine == theirs, "\n".join([f"history {number}", *done])
                operations += len(done)
            mine, theirs = await ours.show(every), await java.show(every)
            mine = as_java_shows(mine, theirs)
            assert mine == theirs, "a later history changed what an earlier one left"
            foreign = await ours.foreign(every)
    finally:
        await asyncio.gather(java.stop(), ours.stop())
    if compacts:
        await assert_read_the_same_compacted(
            kafka_bootstrap, topics, tmp_topic, tmp_path, random.Random(SEED), mine, foreign
        )
    part = f"histories by Java's stores and ours{', compacted' * compacts}"
    tally.note(part, runs=HISTORIES, operations=operations, faults={})
