"""The jobs that are measured beside Java: one `Pair` for each row, with the job of each side.

Owns the goals and the configs of the SDK's rows. The other jobs are those of `bench.records`; `postgres` has its own.
Knows neither side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bench.connectors import lines
from bench.records import jobs
from bench.records.jobs import Job, Mirror, Sink, Source

GOAL, SDK_GOAL = 2.0, 1.0
"""Goals for the ratio of ours to Java's records per second: for the connectors that ship, and for an author's
connector, which must be as fast.
"""
JAVA, TUNED = "Java Connect", "Java Connect, tuned"
"""Java's ways: with a config without client settings, and with the client settings for its best speed."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A row of the table: the same work in the form of each side."""

    name: str
    figure: str
    ours: Job
    java: Mapping[str, Job]
    """Java's ways to do it, by their labels."""
    tasks: tuple[int, ...]
    goal: float = GOAL


@dataclass(frozen=True, slots=True)
class SdkSink(Sink):
    """A topic into a file by a class of `lines`."""

    connector: str = ""

    def config(self, file: Path, tasks: int, *, java: bool = False) -> dict[str, str]:
        return {**Sink.config(self, file, tasks, java=java), "connector.class": self.connector}


@dataclass(frozen=True, slots=True)
class SdkSource(Source):
    """A file into a topic by a class of `lines`."""

    connector: str = ""

    def config(self, file: Path, topic: str) -> dict[str, str]:
        return {**Source.config(self, file, topic), "connector.class": self.connector}


def pairs() -> list[Pair]:
    """All rows except those of databases."""
    known = {job.name: job for job in jobs.JOBS}
    sink, source, mirror = known["string"], known["file"], known["mirror"]
    assert isinstance(sink, Sink)
    assert isinstance(source, Source)
    assert isinstance(mirror, Mirror)
    return [
        Pair("file-sink", "topic -> file", sink, {TUNED: sink}, sink.tasks),
        Pair("file-source", "file -> topic", *_in_two_ways(source), source.tasks),
        Pair("mirror", "topic -> topic", *_in_two_ways(mirror), mirror.tasks),
        _sdk_sink("sdk-sink-batch", "SDK sink, batches", sink, lines.BatchLinesSink.class_name),
        _sdk_sink("sdk-sink-records", "SDK sink, single records", sink, lines.RecordLinesSink.class_name),
        _sdk_source("sdk-source-batch", "SDK source, batches", source, lines.BatchLinesSource.class_name),
        _sdk_source("sdk-source-records", "SDK source, single records", source, lines.RecordLinesSource.class_name),
    ]


def _in_two_ways(job: Source | Mirror) -> tuple[Job, dict[str, Job]]:
    """Our job with a config without client settings, as most configs are, and Java's ways beside it."""
    plain = replace(job, tuned=False)
    return plain, {JAVA: plain, TUNED: job}


def _sdk_sink(name: str, figure: str, sink: Sink, connector: str) -> Pair:
    ours = SdkSink(name, figure, sink.topic, sink.goal, sink.converter, sink.steps, sink.expected, connector=connector)
    return Pair(name, figure, ours, {TUNED: sink}, (1,), SDK_GOAL)


def _sdk_source(name: str, figure: str, source: Source, connector: str) -> Pair:
    ours = SdkSource(name, figure, source.goal, source.converter, source.steps, source.form, connector=connector)
    _, ways = _in_two_ways(source)
    return Pair(name, figure, replace(ours, tuned=False), ways, (1,), SDK_GOAL)
