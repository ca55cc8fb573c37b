"""Subject names of schemas in a registry.

Owns Confluent's three strategies and their names. Source: `TopicNameStrategy`, `RecordNameStrategy` and
`TopicRecordNameStrategy` in `io.confluent.kafka.serializers.subject`.

Invariant: a strategy depends on the topic, the role and the schema's full name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from herdmesh.connect.errors import DataError

Strategy = Callable[[str, bool, str | None], str]
"""(topic, is a key, full name of the record or None) -> subject. Raises DataError where a name is needed."""


def topic_name(topic: str, is_key: bool, _record: str | None) -> str:
    """`topic-key` or `topic-value`."""
    return f"{topic}-{'key' if is_key else 'value'}"


def record_name(_topic: str, is_key: bool, record: str | None) -> str:
    """The record's full name. Raises DataError for a schema that is no record."""
    if record is None:
        kind = "key" if is_key else "value"
        raise DataError(
            f"In configuration {kind}.subject.name.strategy = RecordNameStrategy, the message {kind} must only be a "
            "record schema with a name; use TopicNameStrategy for other values."
        )
    return record


def topic_record_name(topic: str, is_key: bool, record: str | None) -> str:
    """`topic-` and the record's full name. Raises DataError for a schema that is no record."""
    return f"{topic}-{record_name(topic, is_key, record)}"


_PACKAGE = "io.confluent.kafka.serializers.subject."
_SHORT: Mapping[str, Strategy] = {
    "TopicNameStrategy": topic_name,
    "RecordNameStrategy": record_name,
    "TopicRecordNameStrategy": topic_record_name,
}
STRATEGIES: Mapping[str, Strategy] = {**_SHORT, **{_PACKAGE + name: made for name, made in _SHORT.items()}}
"""Strategies by Java class and by simple name."""
DEFAULT = _PACKAGE + "TopicNameStrategy"
