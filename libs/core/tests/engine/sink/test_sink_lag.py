"""What a run tells of its lag, against a real broker: records that no put has returned for are behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest

from herdmesh.connect.spi.connector import SinkBatch
from herdmesh.connect.topics.lag import Lag, lag_of
from libs.core.tests.engine.harness import Kafka, Link, make_spec, run_here
from libs.core.tests.engine.sinks import ListSink

PATH = __name__


@pytest.fixture(scope="module")
def kafka_topics(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


class LookingSink(ListSink):
    """At each put, remembers what the run had told by then."""

    link: ClassVar[Link]
    told: ClassVar[list[list[Lag]]] = []

    def put(self, batch: SinkBatch) -> None:
        LookingSink.told.append([lag_of(one.partitions) for one in self.link.reports if one.partitions])
        super().put(batch)


def test_records_before_the_first_put_returns_are_behind_and_after_the_commit_nothing_is(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(50))
    LookingSink.told, LookingSink.link = [], Link()
    spec = make_spec(kafka_topics.bootstrap, name, f"{PATH}:LookingSink", {"topics": topic})
    outcome = run_here(spec, LookingSink.link)
    assert LookingSink.told[0][-1].behind == 50, "told before a put that may not return"
    assert lag_of(outcome.progress.partitions) == Lag(0, 0)
