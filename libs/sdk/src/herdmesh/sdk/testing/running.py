"""The suites that need a broker: the real record loop, killed by SIGKILL at every point it has.

Owns the runs, their topics, and the two suites. They use the fixture `kafka_bootstrap`, the text `HOST:PORT` of a
broker for tests. The suites without a broker test the duties of a connector; these prove them with processes that
really die.

Invariant: a topic and a connector name serve one run and the one that follows it.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from herdmesh import failpoints
from herdmesh.connect.chain import chain_config
from herdmesh.connect.model import Batch
from herdmesh.connect.spi import Connector, SinkConnector, SourceConnector, StagingSinkTask
from herdmesh.engine import RunSpec, TaskKind, run
from herdmesh.engine.runtime import NAMES
from herdmesh.engine.sink import LedgerSinkTask
from herdmesh.sdk.testing.configs import full_config, new_task, task_configs_of
from herdmesh.sdk.testing.one_run import SilentLink
from herdmesh.sdk.testing.suite import NewWorld, Worlds
from herdmesh.sdk.testing.worlds import JSON_WITHOUT_SCHEMAS, RecordForm, SinkWorld, SourceWorld, World

RECORDS: Final = 60
WAIT_S: Final = 100.0
_GROUP: Final = "suite"
_CALL_S: Final = 20.0
_PUBLISH: Final = "before-publish"
_SCHEMAS: Final = "value.converter.schemas.enable"


@dataclass(frozen=True, slots=True)
class _Case:
    """One connector, and the point at which its first run dies."""

    point: str
    world: Any
    spec: RunSpec


class SourceRunSuite(Worlds[SourceWorld]):
    """Suite for sources on a broker. Subclass it in a test module, with `connector` and `world`."""

    connector: ClassVar[type[SourceConnector]]  # pyright: ignore[reportIncompatibleVariableOverride]

    def test_killed_runs_lose_no_record(
        self, new_world: NewWorld[SourceWorld], kafka_bootstrap: str, tmp_path: Path
    ) -> None:
        """For each point of the loop: a process dies there, the next run continues; each record is in Kafka once."""
        cases: list[_Case] = []
        for point in [point for point in NAMES if point != _PUBLISH]:
            world = new_world()
            _create_topics(kafka_bootstrap, world.topics())
            world.write(range(world.run_records or RECORDS))
            cases.append(_case(self.connector, world, kafka_bootstrap, TaskKind.SOURCE, point))
        killed(cases, tmp_path)
        for case in cases:
            run(replace(case.spec, run_id=uuid.uuid4().hex), SilentLink())
            wanted = case.world.run_records or RECORDS
            raw = values_in(kafka_bootstrap, case.world.topics(), wanted)
            counted: Counter[int] = Counter(case.world.number_of(value) for value in raw)
            lost = sorted(set(range(wanted)) - counted.keys())
            assert not lost, f"after a kill at {case.point}: records {lost} are lost"
            twice = sorted(number for number, times in counted.items() if times > 1)
            exactly = self.connector().exactly_once_support(case.spec.connector_config) is True
            assert not (twice and exactly), f"after a kill at {case.point}: records {twice} came more than once"


class SinkRunSuite(Worlds[SinkWorld]):
    """Suite for sinks on a broker. Subclass it in a test module, with `connector` and `world`."""

    connector: ClassVar[type[SinkConnector]]  # pyright: ignore[reportIncompatibleVariableOverride]
    own_points: ClassVar[tuple[str, ...]] = ()
    """Failpoints of the task in addition to the loop's: for a `LedgerSinkTask`, those of `LEDGER_NAMES` that it hits.
    """

    def test_killed_runs_lose_no_record(
        self, new_world: NewWorld[SinkWorld], kafka_bootstrap: str, tmp_path: Path
    ) -> None:
        """For each point of the loop: a process dies there, the next run continues; each record is outside."""
        task = new_task(self.connector)
        stages, keeps_ledger = isinstance(task, StagingSinkTask), isinstance(task, LedgerSinkTask)
        points = [point for point in (*NAMES, *self.own_points) if stages or point != _PUBLISH]
        cases = [_case(self.connector, new_world(), kafka_bootstrap, TaskKind.SINK, point) for point in points]
        for case in cases:
            _write(kafka_bootstrap, case.world)
        killed(cases, tmp_path)
        for case in cases:
            run(replace(case.spec, run_id=uuid.uuid4().hex), SilentLink())
            counted: Counter[int] = Counter(case.world.found())
            lost = sorted(set(range(RECORDS)) - counted.keys())
            assert not lost, f"after a kill at {case.point}: records {lost} are lost"
            twice = sorted(number for number, times in counted.items() if times > 1)
            exactly = stages or keeps_ledger or case.world.is_idempotent
            assert not (twice and exactly), f"after a kill at {case.point}: records {twice} are there more than once"


def _case(connector: type[Connector], world: World, bootstrap: str, kind: TaskKind, point: str) -> _Case:
    """A spec of the connector's only task, as a worker creates it, that ends as soon as there is nothing to do."""
    name = f"suite-{world.name}"
    config: dict[str, str | None] = {**full_config(connector, world, name), **_converters(world)}
    if kind is TaskKind.SINK:
        config["topics"] = world.name
    (task_config,) = task_configs_of(connector, config, 1)
    spec = RunSpec(
        run_id=uuid.uuid4().hex,
        connector=name,
        task=0,
        task_count=1,
        kind=kind,
        task_class=connector().task_class(),
        connector_config=config,
        task_config=task_config,
        bootstrap_servers=bootstrap,
        group_id=_GROUP,
        offset_storage_topic=f"{name}-offsets",
        transactional_id=f"{_GROUP}-{name}-0",
        worker_config={**JSON_WITHOUT_SCHEMAS, **connector.default_converters, "offset.storage.partitions": "1"},
        linger_ms=0,
    )
    return _Case(point, world, spec)


def _converters(world: World) -> Mapping[str, str]:
    """Converters that write the schema with the records, if the world's records need one."""
    if isinstance(world, SinkWorld) and world.forms[0] is RecordForm.STRUCT:
        return {**JSON_WITHOUT_SCHEMAS, _SCHEMAS: "true"}
    return {}


def killed(cases: Sequence[_Case], folder: Path) -> None:
    """Run all cases, each in a process that dies at its point. Raises AssertionError when one did not."""
    with _children() as children:
        for number, case in enumerate(cases):
            children.append(_child(case, folder / f"run-{number}"))
        for number, (case, child) in enumerate(zip(cases, children, strict=True)):
            child.wait(WAIT_S)  # do not wait for the end of its output: processes that it started may still write
            said = (folder / f"run-{number}.err").read_text(errors="replace")
            assert child.returncode == -signal.SIGKILL, (
                f"the run that was to die at {case.point} ended with {child.returncode}: {said[-2_000:]}"
            )


@contextmanager
def _children() -> Generator[list[subprocess.Popen[bytes]]]:
    """Processes that are killed at the end of the block."""
    made: list[subprocess.Popen[bytes]] = []
    try:
        yield made
    finally:
        for one in made:
            one.kill()
            one.wait(WAIT_S)


def _child(case: _Case, stem: Path) -> subprocess.Popen[bytes]:
    spec = stem.with_suffix(".spec")
    spec.write_bytes(pickle.dumps(case.spec))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        failpoints.VARIABLE: f"{case.point}=kill",
        failpoints.LOG_VARIABLE: str(stem.with_suffix(".log")),
    }
    command = [sys.executable, "-m", "herdmesh.sdk.testing.one_run", str(spec)]
    with stem.with_suffix(".err").open("wb") as said:
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=said)


def _create_topics(bootstrap: str, topics: Sequence[str]) -> None:
    """Create topics with one partition each; the broker may have automatic creation off."""
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    for creating in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        creating.result(_CALL_S)


def _write(bootstrap: str, world: SinkWorld) -> None:
    """Write the records of a sink's topic, which has the world's name."""
    _create_topics(bootstrap, [world.name])
    form = world.forms[0]
    rows = [world.record(number, form, changed=False) for number in range(RECORDS)]
    chain = chain_config.source_chain({**JSON_WITHOUT_SCHEMAS, **_converters(world)}, worker={})
    (raw,) = chain.run(Batch(world.name, 0, (), [value for value, _ in rows], value_schema=rows[0][1]))
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(raw.values):
        producer.produce(world.name, value, str(number).encode(), 0)
    assert not producer.flush(_CALL_S), f"the broker at {bootstrap} does not take the records"


def values_in(bootstrap: str, topics: Sequence[str], wanted: int) -> list[bytes]:
    """The values of all committed records of some topics, once there are as many as wanted, or the time is over."""
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    known = admin.list_topics(timeout=_CALL_S).topics
    missing = [topic for topic in topics if topic not in known]
    assert not missing, f"the source wrote nothing to {', '.join(missing)} (`topics` of its world)"
    partitions = [TopicPartition(topic, number, 0) for topic in topics for number in known[topic].partitions]
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "suite-reader", "isolation.level": "read_committed",
        "enable.partition.eof": True, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20,
    })  # fmt: skip
    try:
        consumer.assign(partitions)
        return _read(consumer, len(partitions), wanted)
    finally:
        consumer.close()


def _read(consumer: Consumer, partitions: int, wanted: int) -> list[bytes]:
    """Read to the end and on until there are enough records: the end event may come before the last transaction is
    decided.
    """
    found: list[bytes] = []
    ended: set[Any] = set()
    deadline_s = time.monotonic() + WAIT_S
    while len(found) < wanted or len(ended) < partitions:
        message = consumer.poll(1.0)
        if message is not None:
            error = message.error()
            if error is None:
                found.append(message.value() or b"")
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            (ended.discard if error is None else ended.add)((message.topic(), message.partition()))
        if time.monotonic() >= deadline_s:
            break
    return found
