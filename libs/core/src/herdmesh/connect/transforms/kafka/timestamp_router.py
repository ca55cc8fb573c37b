"""TimestampRouter: puts the record's time into the topic name (docs/reference/connect/transforms-converters.md, section
2.15).

Owns both formats, and a cache of names.

Invariant: `${topic}` is replaced first, then `${timestamp}` in the result; the time is UTC.
"""

from __future__ import annotations

from typing import Any

from herdmesh.connect.errors import DataError, NullPointerError
from herdmesh.connect.java import DAY_MS, DateFormat, tokens_of
from herdmesh.connect.transforms.base import Code, Column, Compiled, Shape, Transformation
from herdmesh.connect.transforms.kafka import definitions

_KNOWN_MOST = 10_000
"""Maximum number of cached names."""
_STEPS_MS = {"S": 1, "s": 1000, "m": 60_000, **dict.fromkeys("HkKha", 3_600_000)}
"""Interval at which the output of a pattern letter can change; other letters change with the day."""


class TimestampRouter(Transformation):
    """`org.apache.kafka.connect.transforms.TimestampRouter`."""

    java_class = "org.apache.kafka.connect.transforms.TimestampRouter"
    config_def = definitions.TIMESTAMP_ROUTER
    touches = frozenset[Column](("topic", "timestamp"))

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._topic_format: str | None = settings["topic.format"]
        self._pattern: str | None = settings["timestamp.format"]
        self._format: DateFormat | None = None
        self._step_ms = 1
        self._known: dict[tuple[str | None, int], str] = {}

    def compile(self, shape: Shape) -> Compiled:
        def emit(code: Code) -> None:
            topic, timestamp = code.read("topic"), code.read("timestamp")
            with code.block(f"if {timestamp} is None"):
                code.line(f"{code.bind(_refuse)}({topic}, partition)")
            code.write("topic", f"{code.bind(self._routed)}({topic}, {timestamp})")

        return Compiled(shape, emit)

    def _routed(self, topic: str | None, timestamp: int) -> str:
        found = self._known.get((topic, timestamp // self._step_ms))
        if found is None:
            if len(self._known) >= _KNOWN_MOST:
                self._known.clear()
            found = self._made(topic, timestamp)
            self._known[topic, timestamp // self._step_ms] = found
        return found

    def _made(self, topic: str | None, timestamp: int) -> str:
        # As in Java, an invalid pattern is reported for the first record.
        if self._format is None:
            if self._pattern is None:
                raise NullPointerError("timestamp.format is null")
            self._format = DateFormat(self._pattern)
            letters = [letter for letter, _, _ in tokens_of(self._pattern)]
            self._step_ms = min((_STEPS_MS.get(letter, DAY_MS) for letter in letters), default=DAY_MS)
        text = self._format.format(timestamp)
        if self._topic_format is None or topic is None:
            raise NullPointerError("topic.format is null" if topic is not None else "the record has no topic")
        return self._topic_format.replace("${topic}", topic).replace("${timestamp}", text)


def _refuse(topic: str | None, partition: int | None) -> None:
    # Java prints the whole record here. Key and value are not available: reading them would decode those of all
    # records.
    shown = "null" if partition is None else partition
    raise DataError(f"Timestamp missing on record: ConnectRecord{{topic='{topic}', kafkaPartition={shown}}}")
