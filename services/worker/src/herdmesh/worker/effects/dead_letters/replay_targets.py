"""Targets of a replay: the topic that a dead letter goes to, and its form there.

A sink's dead letter is the record its task consumed, byte for byte. It returns to its original topic and partition, so
that it stays with the records of its key whatever partitioner their producer has; where that partition no longer
exists, the key decides. A source's dead letter is the record its task polled, as JSON with schema. It passes the
connector's current transformations and converters, to the topic they give, as if it had just been polled.

Owns the choice, and the reason why a dead letter cannot be replayed. Writes nothing.

Invariant: a dead letter that cannot be replayed gives a reason of one line, never an error that affects others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, cast

from confluent_kafka import KafkaException

from herdmesh.connect.chain import chain_config
from herdmesh.connect.converters import make_converter
from herdmesh.connect.errors import ConnectError
from herdmesh.connect.model import Batch, Header
from herdmesh.engine.runtime import RunSpec, TaskKind, message_of, sink_settings
from herdmesh.worker.effects.dead_letters.queue_reader import TopicLog
from herdmesh.worker.state import dead_letter_headers
from herdmesh.worker.state.dead_letter_headers import DeadLetter

_JSON: Final = {"converter": "org.apache.kafka.connect.json.JsonConverter"}
"""The converter with which `engine.bad_records.dead_letters` writes a source's record: with schemas, its default."""
_NAMELESS: Final = (
    "its original topic is unknown: it was written without errors.deadletterqueue.context.headers.enable=true; replay "
    "it from a file that names one (original.topic)"
)
_WHOLE_FROM_FILE: Final = (
    f"replay it from a file with its whole key and value, and without the header {dead_letter_headers.CUT}"
)


@dataclass(frozen=True, slots=True)
class Put:
    """One record to produce; `partition` None = chosen by its key."""

    dead_letter: DeadLetter
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[dead_letter_headers.Header]


@dataclass(frozen=True, slots=True)
class Refused:
    """A dead letter that cannot be replayed, and the reason."""

    dead_letter: DeadLetter
    reason: str


class Targets(Protocol):
    """Chooser of targets for one connector."""

    def put(self, letter: DeadLetter) -> list[Put] | Refused:
        """The records to produce; empty when the connector's transformations filter the record."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


def targets(spec: RunSpec, log: TopicLog) -> Targets:
    """The targets of a connector. Raises ConfigError."""
    return SinkTargets(spec, log) if spec.kind is TaskKind.SINK else SourceTargets(spec, log)


class SinkTargets:
    """Targets of a sink: the topic from which the record was read."""

    def __init__(self, spec: RunSpec, log: TopicLog) -> None:
        self._settings = sink_settings(spec)
        self._connector = spec.connector
        self._topics = _Topics(log)
        self._queue = log.topic
        self._spec = spec
        #: reader of the original records of truncated dead letters.
        self._records: TopicLog | None = None

    def put(self, letter: DeadLetter) -> list[Put] | Refused:
        topic = letter.error(dead_letter_headers.TOPIC)
        if not topic:
            return Refused(letter, _NAMELESS)
        if not self._settings.wants(topic):
            return Refused(letter, f"{self._connector} does not read {topic} (any more)")
        count = self._topics.partition_count(topic)
        if count is None:
            return Refused(letter, f"topic {topic} does not exist (any more)")
        partition = _number(letter.error(dead_letter_headers.PARTITION))
        if partition is not None and not 0 <= partition < count:
            partition = None
        whole = self._whole(letter, topic) if letter.is_cut else letter
        if isinstance(whole, Refused):
            return whole
        headers = dead_letter_headers.put_back_headers(whole, self._queue)
        return [Put(whole, topic, partition, whole.key, whole.value, headers)]

    def close(self) -> None:
        if self._records is not None:
            self._records.close()

    def _whole(self, letter: DeadLetter, topic: str) -> DeadLetter | Refused:
        """The dead letter with the complete record from its original topic."""
        partition, offset = (
            _number(letter.error(dead_letter_headers.PARTITION)),
            _number(letter.error(dead_letter_headers.OFFSET)),
        )
        if partition is None or offset is None:
            return Refused(letter, f"it was cut, and its record is in no topic: {_WHOLE_FROM_FILE}")
        if self._records is None:
            self._records = TopicLog(self._spec, topic)
        try:
            record = self._records.record(topic, partition, offset)
        except KafkaException as error:
            return Refused(letter, f"it was cut, and {topic}-{partition}@{offset} cannot be read: {error}")
        if record is None:
            gone = f"it was cut, and {topic}-{partition} has no record at offset {offset} (any more)"
            return Refused(letter, f"{gone}: {_WHOLE_FROM_FILE}")
        headers = cast("Sequence[dead_letter_headers.Header]", record.headers() or ())
        return replace(letter, key=record.key(), value=record.value(), headers=tuple(headers))


class SourceTargets:
    """Targets of a source: the record passes the connector's chain again."""

    def __init__(self, spec: RunSpec, log: TopicLog) -> None:
        config, worker = spec.connector_config, spec.worker_config
        self._chain = chain_config.source_chain(config, worker=worker)
        self._key = make_converter("converter", _JSON, role="key")
        self._value = make_converter("converter", _JSON, role="value")
        self._topics = _Topics(log)
        self._queue = log.topic

    def put(self, letter: DeadLetter) -> list[Put] | Refused:
        topic = letter.error(dead_letter_headers.TOPIC)
        if not topic:
            return Refused(letter, _NAMELESS)
        if letter.is_cut:
            return Refused(letter, f"it was cut, and its record is in no topic: {_WHOLE_FROM_FILE}")
        try:
            made = self._chain.run(self._batch(letter, topic, _number(letter.error(dead_letter_headers.PARTITION))))
        except ConnectError as error:
            return Refused(letter, message_of(error))
        puts: list[Put] = []
        for batch in made:
            if self._topics.partition_count(batch.topic) is None:
                return Refused(letter, f"topic {batch.topic} does not exist: create it first")
            for at, value in enumerate(batch.values):
                key = batch.keys[at] if batch.keys else None
                own = tuple(batch.headers[at]) if batch.headers else ()
                mark = (dead_letter_headers.REPLAYED, dead_letter_headers.replayed_text(letter, self._queue))
                puts.append(Put(letter, batch.topic, batch.partition, key, value, (*own, mark)))
        return puts

    def close(self) -> None:
        self._chain.close()

    def _batch(self, letter: DeadLetter, topic: str, partition: int | None) -> Batch:
        key_schema, key = self._key.read(letter.key)
        value_schema, value = self._value.read(letter.value)
        headers: list[Header] = []
        for name, data in letter.headers:
            schema, content = self._value.read(data)
            headers.append(Header(name, content, schema))
        return Batch(
            topic,
            partition,
            (key,),
            (value,),
            timestamps_ms=(letter.time_ms,),
            key_schema=key_schema,
            value_schema=value_schema,
            headers=(headers,),
        )


class _Topics:
    """Cache of partition counts, one request per topic."""

    def __init__(self, log: TopicLog) -> None:
        self._log = log
        self._counts: dict[str, int | None] = {}

    def partition_count(self, topic: str) -> int | None:
        """The partition count; None when the topic does not exist."""
        if topic not in self._counts:
            self._counts[topic] = self._log.partition_counts([topic]).get(topic)
        return self._counts[topic]


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
