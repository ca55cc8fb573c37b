"""Number of polls of a source that share a transaction, against a real broker and by a clock that only the source
moves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi.connector import Config, SourceBatch, SourceTask, SourceTaskContext
from herdmesh.engine import RunEnd, TaskFailed, TaskKind
from herdmesh.engine.source import source_loop
from libs.core.tests.engine.harness import Kafka, make_spec, run_here

pytestmark = pytest.mark.kafka
LINGER_MS = 200


class PacedSource(SourceTask):
    """Polls that take `polls` milliseconds each, one after the other, and return a record; those of `NOTHING` return
    none.
    """

    NOTHING: ClassVar[int] = 0
    polls: ClassVar[list[int]] = []
    now_s: ClassVar[float] = 0.0
    committed: ClassVar[list[int]] = []
    """Records committed so far, after each transaction."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self._topic = str(config["topic"])
        self._left = list(PacedSource.polls)
        self._records = 0
        PacedSource.committed.clear()

    def poll(self) -> SourceBatch | None:
        took_ms = self._left.pop(0) if self._left else PacedSource.NOTHING
        if took_ms == PacedSource.NOTHING:
            return None
        PacedSource.now_s += took_ms / 1000
        self._records += 1
        return SourceBatch(self._topic, [{"n": self._records}], {"paced": "a"}, {"next": self._records})

    def commit(self) -> None:
        PacedSource.committed.append(self._records)


def _sleep(seconds: float) -> None:
    PacedSource.now_s += seconds


@pytest.mark.parametrize(
    ("boundary", "committed"),
    [
        # 2 polls of 30 ms are the first 50 ms, then a second; the rest once the source has nothing more, and then the
        # first limit applies again. A poll that waited for long is committed at once: the next may wait as long.
        ({}, [2, 36, 55, 57, 60, 61]),
        # Each transaction takes the interval the user set, waiting time included.
        ({"transaction.boundary": "interval", "transaction.boundary.interval.ms": "400"}, [14, 28, 42, 55, 60, 61]),
        # The explicit value, although it is Connect's default, commits each poll by itself.
        ({"transaction.boundary": "Poll"}, list(range(1, 62))),
    ],
)
def test_the_first_records_after_a_pause_are_committed_soon(
    kafka_bootstrap: str,
    tmp_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    boundary: dict[str, str],
    committed: list[int],
) -> None:
    clock = SimpleNamespace(monotonic=lambda: PacedSource.now_s, time_ns=time.time_ns)
    monkeypatch.setattr(source_loop, "time", clock)
    commanded = SimpleNamespace(wait=_sleep, set=lambda: None, clear=lambda: None)
    monkeypatch.setattr(source_loop, "threading", SimpleNamespace(Event=lambda: commanded))
    monkeypatch.setattr(
        PacedSource, "polls", [30] * 55 + [PacedSource.NOTHING] + [30] * 5 + [PacedSource.NOTHING, 5_000]
    )
    topic, name = tmp_topic(), tmp_topic("source")
    config = {
        "topic": topic,
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
    }
    spec = make_spec(
        kafka_bootstrap, name, f"{__name__}:PacedSource", {**config, **boundary},
        kind=TaskKind.SOURCE, offset_storage_topic=f"{name}-offsets", linger_ms=LINGER_MS,
    )  # fmt: skip
    outcome = run_here(spec)
    assert (outcome.reason, outcome.progress.records_in) == (RunEnd.QUIET, 61)
    assert PacedSource.committed == committed
    assert len(Kafka(kafka_bootstrap).records(topic, 1)) == 61


class PairingSource(PacedSource):
    """Turns each found record into two, for a topic each: one find is two polls of the loop."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        super().start(config, context)
        self._rest: SourceBatch | None = None

    def poll(self) -> SourceBatch | None:
        batch, self._rest = self._rest, None
        if batch is None:
            batch = super().poll()
            if batch is not None:
                self._rest = replace(batch, topic=f"{batch.topic}-more")
        if batch is not None and self._records == PairingSource.stops_at and not self.has_rest():
            raise TaskFailed("in the midst of what was found", ErrorClass.RETRIABLE)
        return batch

    def has_rest(self) -> bool:
        return self._rest is not None

    stops_at: ClassVar[int] = 0


def test_records_found_at_once_are_committed_together_when_each_poll_is_a_transaction(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a run ends between two of its batches, and where a rate limit falls between them."""
    monkeypatch.setattr(PacedSource, "polls", [1] * 3)
    monkeypatch.setattr(PairingSource, "stops_at", 3)
    topic, name = tmp_topic(), tmp_topic("source")
    config = {
        "topic": topic, "transaction.boundary": "poll", "herdmesh.rate.records.per.second": "20",
        "topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1",
    }  # fmt: skip
    spec = make_spec(
        kafka_bootstrap, name, f"{__name__}:PairingSource", config,
        kind=TaskKind.SOURCE, offset_storage_topic=f"{name}-offsets", linger_ms=LINGER_MS,
    )  # fmt: skip
    with pytest.raises(TaskFailed, match="in the midst"):
        run_here(spec)
    assert PacedSource.committed == [1, 2]
    kafka = Kafka(kafka_bootstrap)
    for one in (topic, f"{topic}-more"):
        assert [value for _, value in kafka.records(one, 1)] == [b'{"n":1}', b'{"n":2}']
    monkeypatch.setattr(PairingSource, "stops_at", 0)
    run_here(spec)
    assert PacedSource.committed == [1, 2, 3]
