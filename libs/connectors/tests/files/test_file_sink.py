"""Tests of `FileSink` with a real broker, into S3 (`devstack.s3`), HDFS (`devstack.hdfs`) and a local folder: exact
records, with kills and freezes at each step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from herdmesh.engine import RunEnd, RunSpec
from herdmesh.engine.runtime.failpoints import NAMES
from libs.connectors.tests.files.places import Place, hdfs_place, local_place, s3_place
from libs.core.tests.engine.harness import Kafka, make_spec, processes, run_here
from tests.support.sizes import SOAKING

pytestmark = pytest.mark.kafka

TASK = "herdmesh.connectors.files.task:FileSinkTask"
RECORDS = 400
COUNTRIES = ("DE", "FR", "IT")


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def sink(kafka: Kafka, name: str, topic: str, place: Place, **more: str) -> RunSpec:
    config = {
        "topics": topic, "directory": place.directory, **place.config, "format": "json", "flush.records": "100",
        "partitioner": "field", "partition.fields": "country", **more,
    }  # fmt: skip
    return make_spec(kafka.bootstrap, name, TASK, config)


def produce(kafka: Kafka, topic: str, ids: Iterable[int]) -> None:
    values = ({"id": number, "country": COUNTRIES[number % 3], "own": f"n{number}"} for number in ids)
    kafka.produce(topic, (json.dumps(value).encode() for value in values))


def ids(place: Place) -> list[int]:
    """Return the ids of every published file; checks that each is in the folder of its country."""
    found: list[int] = []
    for path, data in place.visible().items():
        rows = [json.loads(line) for line in data.splitlines()]
        assert {row["country"] for row in rows} == {path.partition("/")[0].removeprefix("country=")}, path
        found += [row["id"] for row in rows]
    return sorted(found)


@pytest.mark.parametrize("harm", ["kill", "wake"])
@pytest.mark.parametrize("kind", ["s3", "hdfs"] if SOAKING else ["s3"])
def test_each_record_is_in_one_object_once_after_a_kill_or_freeze(
    kafka_topics: Kafka,
    tmp_topic: Callable[..., str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    kind: str,
    harm: str,
) -> None:
    """For each failpoint: freeze an owner there, kill it or let a second one work and wake it, and count."""
    url, place_at = request.getfixturevalue(kind), s3_place if kind == "s3" else hdfs_place
    cases = [(point, kafka_topics.create_topic(tmp_topic()), tmp_topic("sink"), place_at(url)) for point in NAMES]
    for _, topic, _, _ in cases:
        produce(kafka_topics, topic, range(RECORDS))
    with processes(tmp_path) as start:
        frozen = [start(sink(kafka_topics, name, topic, place), point) for point, topic, name, place in cases]
        for process, (point, topic, name, place) in zip(frozen, cases, strict=True):
            process.until_frozen()
            assert ids(place) == [], point
            if harm == "kill":
                process.kill()
            produce(kafka_topics, topic, range(RECORDS, RECORDS + 10))
            assert run_here(sink(kafka_topics, name, topic, place)).reason is RunEnd.QUIET
            assert ids(place) == list(range(RECORDS + 10)), point
            assert place.hidden() == [], point
        if harm == "wake":
            for process, (point, _, _, place) in zip(frozen, cases, strict=True):
                before = place.visible()
                ended = process.resume()
                assert ended.get("error_class") == "FENCED", (point, ended)
                assert place.visible() == before, point


def test_the_next_owner_finishes_a_commit_of_many_files(
    kafka_topics: Kafka, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Their names do not fit into offset metadata."""
    topic, name, place = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink"), local_place(tmp_path / "out")
    produce(kafka_topics, topic, range(120))
    spec = sink(kafka_topics, name, topic, place, **{"partition.fields": "country,own", "flush.records": "1000"})
    with processes(tmp_path) as start:
        process = start(spec, "before-publish")
        process.until_frozen()
        process.kill()
    assert place.visible() == {}
    assert sum(path.endswith(".manifest") for path in place.hidden()) == 1
    run_here(sink(kafka_topics, name, topic, place, **{"partition.fields": "country,own"}))
    assert ids(place) == list(range(120))
    assert len(place.visible()) == 120
    run_here(sink(kafka_topics, name, topic, place, **{"partition.fields": "country,own"}))
    assert place.hidden() == []
