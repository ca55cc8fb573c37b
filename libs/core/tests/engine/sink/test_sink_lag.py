"""Lag that a run reports, against a real broker: records whose put has not returned count as lag."""

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
    """At each put, remembers the progress reported so far."""

    link: ClassVar[Link]
    told: ClassVar[list[list[Lag]]] = []

    def put(self, batch: SinkBatch) -> None:
        LookingSink.told.append([lag_of(one.partitions) for one in self.link.reports if one.partitions])
        super().put(batch)


def test_records_are_lag_until_the_first_put_returns_and_there_is_none_after_the_commit(
    kafka_topics: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = kafka_topics.create_topic(tmp_topic(), 1), tmp_topic("sink")
    kafka_topics.produce_ids(topic, range(50))
    LookingSink.told, LookingSink.link = [], Link()
    spec = make_spec(kafka_topics.bootstrap, name, f"{PATH}:LookingSink", {"topics": topic})
    outcome = run_here(spec, LookingSink.link)
    assert LookingSink.told[0][-1].behind == 50, "told before a put that may not return"
    assert lag_of(outcome.progress.partitions) == Lag(0, 0)
