"""Tests of a mirror's start positions, and of a source
topic that was deleted and recreated, with a broker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from herdmesh.connect.clients.offset_reset import read_offset_reset
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError, RetriableError
from herdmesh.connectors.mirror.source.connector import MirrorSourceConnector
from herdmesh.connectors.mirror.source.settings import settings_of
from herdmesh.connectors.mirror.source.start_positions import Places
from herdmesh.engine import RunEnd, RunSpec, Stop
from herdmesh.engine.runtime.contract import Command, ProgressReport
from herdmesh.engine.runtime.errors import OffsetsLost, TaskFailed
from herdmesh.engine.source.source_cluster import SourceCluster
from libs.connectors.tests.mirror.test_mirror import config_of, specs_of
from libs.core.tests.engine.harness import WAIT_S, Kafka, Link, run_here

pytestmark = pytest.mark.kafka
RESET = "source.consumer.auto.offset.reset"


@pytest.fixture(scope="module")
def broker(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def made_again(broker: Kafka, topic: str, count: int) -> None:
    broker.admin.delete_topics([topic])[topic].result()
    broker.create_topic(topic, 1)
    write(broker, topic, "new", count)


def write(broker: Kafka, topic: str, which: str, count: int) -> None:
    broker.produce(topic, (f"{which}-{number}".encode() for number in range(count)), partition=0)


def copies(broker: Kafka, topic: str, *, is_settling: bool = True) -> list[str]:
    return [(one.value() or b"").decode() for one in broker.messages(f"a.{topic}", 1, is_settling=is_settling)]


def spec_of(broker: Kafka, name: str, topic: str, **more: str) -> RunSpec:
    (spec,) = specs_of(broker, name, config_of(broker, topic, **{"emit.offset-syncs.enabled": "false", **more}))
    return spec


def stored(broker: Kafka, name: str) -> list[dict[str, Any]]:
    return [json.loads(value or b"null") for _, value in broker.records(f"{name}-offsets")]


@pytest.mark.parametrize("count", [2, 9], ids=["fewer", "more"])
def test_a_topic_recreated_between_two_runs_is_copied_from_its_start(
    broker: Kafka, tmp_topic: Callable[..., str], count: int
) -> None:
    """Even if it has more records by then than were copied: the stored offsets belong to its predecessor."""
    topic, name = broker.create_topic(tmp_topic(), 1), tmp_topic("mirror")
    write(broker, topic, "old", 5)
    run_here(spec_of(broker, name, topic))
    sign = MirrorSourceConnector().sign({**spec_of(broker, name, topic).task_config, "name": "before"})
    made_again(broker, topic, count)
    spec = spec_of(broker, name, topic)
    assert MirrorSourceConnector().sign({**spec.task_config, "name": "after"}) != sign, "an idle task is woken"
    run_here(spec)
    assert copies(broker, topic)[5:] == [f"new-{number}" for number in range(count)]
    before, after = stored(broker, name)
    assert (before["offset"], after["offset"]) == (4, count - 1)
    assert before["topic_id"] != after["topic_id"]


@pytest.mark.parametrize("count", [2, 9], ids=["fewer", "more"])
def test_a_topic_recreated_during_a_run_is_copied_once_from_its_start(
    broker: Kafka, tmp_topic: Callable[..., str], count: int
) -> None:
    """Without a check between the two topics: a position beyond
    the end, or the commit of the records, reveals it.
    """
    topic, name = broker.create_topic(tmp_topic(), 1), tmp_topic("mirror")
    write(broker, topic, "old", 5)
    new = [f"new-{number}" for number in range(count)]
    steps: list[str] = []

    def say(progress: ProgressReport) -> list[Command]:
        if not steps and progress.commit_time_ms is not None:
            steps.append("made again")
            made_again(broker, topic, count)
        return [Stop()] if steps and len(copies(broker, topic, is_settling=False)) >= 5 + count else []

    spec = replace(spec_of(broker, name, topic), linger_ms=int(WAIT_S * 1_000))
    ends = [run_here(spec, Link(say)).reason]
    while ends[-1] is RunEnd.YIELDED:  # the records read were discarded, and the worker runs the task again at once
        ends.append(run_here(spec_of(broker, name, topic)).reason)
    assert ends == ([RunEnd.STOPPED] if count < 5 else [RunEnd.YIELDED, RunEnd.QUIET])
    assert copies(broker, topic)[5:] == new
    assert stored(broker, name)[-1]["offset"] == count - 1


@dataclass
class _Ids:
    """A source that only has topic ids."""

    ids: dict[str, str]
    name = "a"
    is_away = False
    asked: int = 0

    def topic_ids(self, topics: Iterable[str], _timeout_s: float | None = None) -> dict[str, str]:
        if self.is_away:
            raise RetriableError("no answer")
        self.asked += 1
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}


def _reading(ids: _Ids, *topics: str) -> Places:
    places = Places(
        cast(SourceCluster, ids), read_offset_reset("earliest"), [(one, 0) for one in topics], lambda _: None
    )
    places.begin()
    return places


def test_topic_ids_are_checked_after_records_were_read() -> None:
    ids = _Ids({"t": "1", "u": "1"})
    places = _reading(ids, "t", "u")
    asked = ids.asked
    assert places.vouched(), "nothing was read"
    assert ids.asked == asked
    places.read_of("t")
    ids.ids["u"] = "2"
    assert places.vouched(), "of another topic nothing was read"
    places.read_of("u")
    assert not places.vouched()
    assert places.offset(("u", 0), 7) == {"offset": 7, "topic_id": "2"}


def test_a_deleted_topic_or_an_unreachable_source_does_not_block_a_commit(caplog: pytest.LogCaptureFixture) -> None:
    ids = _Ids({"t": "1"})
    places = _reading(ids, "t")
    places.read_of("t")
    del ids.ids["t"]
    assert places.vouched()
    assert places.offset(("t", 0), 7) == {"offset": 7, "topic_id": "1"}
    places.read_of("t")
    ids.is_away = True
    assert places.vouched()
    assert "some records twice" in caplog.text
    ids.is_away, ids.ids["t"] = False, "2"
    assert not places.vouched(), "asked for again, though nothing more was read"


def test_records_read_before_a_position_beyond_the_end_are_of_the_earlier_topic() -> None:
    ids = _Ids({"t": "1", "u": "1"})
    places = _reading(ids, "t", "u")
    for topic in "tu":
        places.read_of(topic)
    ids.ids = {"t": "2", "u": "2"}
    assert places.made_again() == (set(), set()), "asked a moment ago"
    assert places.made_again(beyond="t") == ({"t", "u"}, {"u"})
    assert places.vouched()


def test_reset_by_duration_and_none_for_a_new_partition(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name, now_ms = broker.create_topic(tmp_topic(), 1), tmp_topic("mirror"), int(time.time() * 1000)
    for which, age_s in (("old", 9_000), ("young", 5)):
        broker.produce(topic, [which.encode()], partition=0, timestamp=now_ms - age_s * 1000)
    with pytest.raises(TaskFailed, match=rf"no reset policy for partitions: \[{topic}-0\]") as failed:
        run_here(spec_of(broker, name, topic, **{RESET: "none"}))
    assert failed.value.error_class is ErrorClass.BAD_CONFIG
    run_here(spec_of(broker, name, topic, **{RESET: "by_duration:PT1H"}))
    assert copies(broker, topic) == ["young"]
    assert [one["offset"] for one in stored(broker, name)] == [0, 1], "the place is kept before any record"
    broker.produce(topic, [b"next"], partition=0)
    run_here(spec_of(broker, name, topic, **{RESET: "none"}))
    assert copies(broker, topic) == ["young", "next"]


def test_javas_offset_without_an_id_is_accepted_and_no_other_form(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic = broker.create_topic(tmp_topic(), 1)
    source = settings_of(config_of(broker, topic)).source

    def begun(offset: Mapping[str, Any] | None, reset: str = "latest") -> dict[Any, int]:
        return Places(source, read_offset_reset(reset), [(topic, 0)], lambda _: offset).begin()[0]

    assert begun({"offset": 41}) == {(topic, 0): 42}
    assert begun({"offset": 41, "topic_id": "another"}) == begun(None) == {(topic, 0): 0}
    for wrong in ({}, {"offset": "1"}, {"offset": True}):
        with pytest.raises(OffsetsLost, match="not an offset of a mirror"):
            begun(wrong)
    with pytest.raises(ConfigError, match="needs a number"):
        MirrorSourceConnector().alter_offsets({}, [({"cluster": "a", "partition": 0, "topic": topic}, {"offset": "1"})])
