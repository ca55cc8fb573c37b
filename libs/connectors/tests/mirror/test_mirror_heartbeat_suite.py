"""The standard suite for authors, applied to the mirror's heartbeats, whose source is the clock, and further tests:
Java's bytes, the interval, and that a mirror copies heartbeats.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi.connector import SourceTaskContext
from herdmesh.connectors.mirror.heartbeat import task as mirror_heartbeat_task
from herdmesh.connectors.mirror.heartbeat.connector import MirrorHeartbeatConnector
from herdmesh.connectors.mirror.heartbeat.settings import settings_of, warnings_of
from herdmesh.connectors.mirror.heartbeat.task import Heartbeat, MirrorHeartbeatTask
from herdmesh.connectors.mirror.source.settings import settings_of as settings_of_mirror
from herdmesh.connectors.mirror.topic_naming import HEARTBEATS
from herdmesh.sdk.testing import BadConfig, SourceRunSuite, SourceSuite, SourceWorld, source_trial
from libs.connectors.tests.mirror.test_mirror import specs_of
from libs.core.tests.engine.harness import WAIT_S, Kafka, run_here

BASE = {"source.cluster.alias": "a", "target.cluster.alias": "b"}
BEGUN_S = 1_700_000_000


class Beats(SourceWorld):
    """A record is identified by its time, and the first time seen is record 0. All heartbeats have the same topic, so
    each world gets its own by a transformation.
    """

    patience_s = 20.0
    silence_s = 0.0
    records_min = 1
    run_records = 1

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._seen: list[bytes] = []

    def config(self) -> dict[str, str]:
        return {
            **BASE,
            "heartbeats.topic.replication.factor": "1",
            "transforms": "own",
            "transforms.own.type": "org.apache.kafka.connect.transforms.RegexRouter",
            "transforms.own.regex": HEARTBEATS,
            "transforms.own.replacement": self.name,
        }

    def bad_configs(self) -> list[BadConfig]:
        return [
            ({"emit.heartbeats.interval.seconds": "0"}, "emit.heartbeats.interval.seconds"),
            ({"source.cluster.alias": ""}, "source.cluster.alias"),
            ({"replication.policy.class": "com.example.Mine"}, "replication.policy.class"),
        ]

    def write(self, numbers: range) -> None:
        """Do nothing: time passes anyway."""

    def number_of(self, value: bytes) -> int:
        if value not in self._seen:
            self._seen.append(value)
        return self._seen.index(value)

    def topics(self) -> list[str]:
        return [self.name]


class Clock:
    """The task's clock."""

    def __init__(self) -> None:
        self.now_s = float(BEGUN_S)
        self.set_back_s = 0.0
        self.time = SimpleNamespace(
            time_ns=lambda: int((self.now_s - self.set_back_s) * 1e9), monotonic=lambda: self.now_s
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(mirror_heartbeat_task, "time", clock.time)
    return clock


class TestHeartbeats(SourceSuite):
    connector = MirrorHeartbeatConnector
    world = Beats

    @pytest.fixture(autouse=True)
    def waits(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let a second pass whenever the suite waits."""

        def sleep(_seconds: float) -> None:
            clock.now_s += 1

        monkeypatch.setattr(source_trial, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))


@pytest.fixture
def broker(kafka_bootstrap: str) -> Iterator[Kafka]:
    """Delete heartbeats and their copies at the end, because mirrors of other tests would copy them."""
    kafka = Kafka(kafka_bootstrap)
    yield kafka
    naming = settings_of_mirror({**BASE, "source.cluster.bootstrap.servers": "-"}).naming
    made = [topic for topic in kafka.admin.list_topics(timeout=WAIT_S).topics if naming.is_heartbeats(topic)]
    for deleted in kafka.admin.delete_topics(made).values() if made else ():
        deleted.result(WAIT_S)


@pytest.mark.usefixtures("broker")
class TestHeartbeatRuns(SourceRunSuite):
    connector = MirrorHeartbeatConnector
    world = Beats


# --- beside the suite


def task_of(offset: dict[str, Any] | None, **more: str) -> MirrorHeartbeatTask:
    task = MirrorHeartbeatTask()
    context = SourceTaskContext("beats", 0, 1, "run", lambda _partition: offset, make_topic=_make_nothing)
    task.start({**BASE, **more}, context)
    return task


def _make_nothing(_name: str, _partitions: int, _replicas: int, _config: Mapping[str, str]) -> None:
    """Create nothing: there is no Kafka."""


def times_of(task: MirrorHeartbeatTask, clock: Clock, seconds: int) -> list[int]:
    """Return the seconds with heartbeats; polls twice in each."""
    found: list[int] = []
    for second in range(seconds):
        for _ in range(2):
            if (batch := task.poll()) is not None:
                assert batch.timestamps_ms[0] == int((clock.now_s - clock.set_back_s) * 1000)
                found.append(second)
        clock.now_s += 1
    return found


def test_there_is_one_heartbeat_per_interval_for_any_clock(clock: Clock) -> None:
    task = task_of(None, **{"emit.heartbeats.interval.seconds": "3"})
    assert times_of(task, clock, 4) == [0, 3]
    assert task.wake_after_ms() == 2_000
    clock.set_back_s = 3_600
    assert times_of(task, clock, 4) == [2]


@pytest.mark.parametrize(
    ("last_ms", "first"),
    [
        (None, 0),  # a Java connector's offset
        ((BEGUN_S - 1) * 1000, 2),
        ((BEGUN_S - 60) * 1000, 0),  # missed heartbeats are not made up for
        ((BEGUN_S + 60) * 1000, 0),  # the clock was set back
        (True, 0),
        ("soon", 0),
    ],
)
def test_a_run_continues_the_interval_of_the_previous_one(clock: Clock, last_ms: object, first: int) -> None:
    offset = {"offset": 0} if last_ms is None else {"offset": 0, "timestamp": last_ms}
    task = task_of(offset, **{"emit.heartbeats.interval.seconds": "3"})
    assert times_of(task, clock, 3) == [first]


def test_a_heartbeat_has_the_bytes_of_javas_schemas() -> None:
    """`HeartbeatFormatter` of 4.3.1 prints them as
    `Heartbeat{sourceClusterAlias=é, targetClusterAlias=us, timestamp=1}`.
    """
    one = Heartbeat("é", "us", 1)
    assert one.key() == b"\0\2\xc3\xa9\0\2us"
    assert one.value() == b"\0\0" + b"\0" * 7 + b"\1"


def test_heartbeats_have_javas_form_and_a_mirror_copies_them(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    """They go to a compacted topic of one partition, with Java's source
    partition and offset; a mirror with no other topics copies them.
    """
    name = tmp_topic("beats")
    config = {"connector.class": "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector", **BASE}
    ones = {"heartbeats.topic.replication.factor": "1"}
    (spec,) = specs_of(broker, name, {**config, **ones}, tasks_max=3)
    first = run_here(spec)
    assert first.progress.records_in == 1
    assert 0 < first.wake_after_ms <= 1_000
    ((key, value),) = broker.records(HEARTBEATS, 1)
    assert key == Heartbeat("a", "b", 0).key()
    assert broker.partition_count(HEARTBEATS) == 1
    assert broker.topic_config(HEARTBEATS, "cleanup.policy") == "compact"
    stored, offset = broker.records(f"{name}-offsets", 1)[-1]
    assert stored == b'["%s",{"sourceClusterAlias":"a","targetClusterAlias":"b"}]' % name.encode()
    assert value is not None
    assert offset == b'{"offset":0,"timestamp":%d}' % int.from_bytes(value[2:])

    mirror = {
        "connector.class": "MirrorSource",
        "source.cluster.alias": name,
        "source.cluster.bootstrap.servers": broker.bootstrap,
        "topics": f"{name}-none",
        "replication.factor": "1",
    }
    (spec,) = specs_of(broker, f"{name}-mirror", mirror)
    run_here(spec)
    assert broker.records(f"{name}.{HEARTBEATS}", 1) == [(key, value)]


def test_more_replicas_than_brokers_are_refused_with_the_key(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    config = {"connector.class": "MirrorHeartbeat", **BASE}
    (spec,) = specs_of(broker, tmp_topic("beats"), config)
    with pytest.raises(ConfigError, match="replication factor") as caught:
        run_here(replace(spec, run_id="three"))
    assert caught.value.field == "heartbeats.topic.replication.factor"


def test_without_an_interval_there_is_no_task() -> None:
    for more in ({"emit.heartbeats.enabled": "false"}, {"emit.heartbeats.interval.seconds": "-1"}):
        connector = MirrorHeartbeatConnector()
        connector.start({**BASE, **more})
        assert connector.task_configs(5) == []
    assert settings_of({**BASE, "enabled": "false"}).interval_s == 1, "as in Java"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("enabled", "false", "emit.heartbeats.enabled"),
        ("target.cluster.bootstrap.servers", "h:1", "workers' cluster"),
        ("source.cluster.bootstrap.servers", "h:1", "does not read from the source cluster"),
        ("source.consumer.client.id", "x", "does not read from the source cluster"),
        ("topics", "orders", "other connectors"),
        ("sync.group.offsets.enabled", "true", "other connectors"),
        ("forwarding.admin.class", "com.example.Mine", "no Java"),
        ("value.converter", "org.apache.kafka.connect.json.JsonConverter", "as bytes"),
        ("emit.heartbeat.enabled", "false", "no such setting"),
    ],
)
def test_every_key_without_effect_is_named_once(key: str, value: str, text: str) -> None:
    (warning,) = warnings_of({**BASE, "name": "beats", key: value})
    assert warning.field == key
    assert text in warning.message
    same = {"enabled": "true", "replication.policy.separator": "_", "topic.creation.default.partitions": "1"}
    assert not warnings_of({**BASE, "name": "beats", **same})


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        (None, {"offset": 0}),
        ({"sourceClusterAlias": "a"}, {"offset": 0}),
        ({"sourceClusterAlias": "a", "targetClusterAlias": "b"}, {"offset": 1}),
    ],
)
def test_offsets_of_other_connectors_are_refused(
    partition: dict[str, object] | None, offset: dict[str, object]
) -> None:
    connector = MirrorHeartbeatConnector()
    with pytest.raises(ConfigError):
        connector.alter_offsets(BASE, [(partition, offset)])
    assert connector.alter_offsets(BASE, [(partition, None)])
