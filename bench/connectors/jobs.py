"""What is measured beside Java: one `Pair` for each row, with the job that each side is given.

Owns the goals and the configs of the SDK's rows. The other jobs are those of `bench.records`; `postgres` has its own.
Knows neither side.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.connectors import lines
from bench.records import jobs
from bench.records.jobs import Job, Mirror, Sink, Source

GOAL = 2.0
"""Ours to Java's, records per second, for each row."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A row of the table: the same work, as each side has it."""

    name: str
    figure: str
    ours: Job
    java: Job
    tasks: tuple[int, ...]


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
    """All rows but those of databases."""
    known = {job.name: job for job in jobs.JOBS}
    sink, source, mirror = known["string"], known["file"], known["mirror"]
    assert isinstance(sink, Sink)
    assert isinstance(source, Source)
    assert isinstance(mirror, Mirror)
    return [
        Pair("file-sink", "topic -> file", sink, sink, sink.tasks),
        Pair("file-source", "file -> topic", source, source, source.tasks),
        Pair("mirror", "topic -> topic", mirror, mirror, mirror.tasks),
        _sdk_sink("sdk-sink-batch", "SDK sink, batches", sink, lines.BatchLinesSink.class_name),
        _sdk_sink("sdk-sink-records", "SDK sink, single records", sink, lines.RecordLinesSink.class_name),
        _sdk_source("sdk-source-batch", "SDK source, batches", source, lines.BatchLinesSource.class_name),
        _sdk_source("sdk-source-records", "SDK source, single records", source, lines.RecordLinesSource.class_name),
    ]


def _sdk_sink(name: str, figure: str, sink: Sink, connector: str) -> Pair:
    ours = SdkSink(name, figure, sink.topic, sink.goal, sink.converter, sink.steps, sink.expected, connector=connector)
    return Pair(name, figure, ours, sink, (1,))


def _sdk_source(name: str, figure: str, source: Source, connector: str) -> Pair:
    ours = SdkSource(name, figure, source.goal, source.converter, source.steps, source.form, connector=connector)
    return Pair(name, figure, ours, source, (1,))
