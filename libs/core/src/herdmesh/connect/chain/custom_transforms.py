"""Adapters that put an author's transformations, predicates and converters into a chain.

A record with a custom step passes through the chain alone, step by step (`step_compiler`), because the schemas of the
result are known only after the step.

Invariant: a step sees the record as it is at that step of the chain, and cannot change the parts that it must not
change.
"""

from __future__ import annotations

from typing import Any, Final, Self

from herdmesh.connect.config import RawConfig, keep_secret
from herdmesh.connect.converters import Converter, Role
from herdmesh.connect.errors import DataError
from herdmesh.connect.model import Batch, ConnectRecord, Header, Schema
from herdmesh.connect.spi import AuthoredPlugin, RecordConverter, RecordPredicate, RecordTransformation
from herdmesh.connect.transforms import Alone, Cells, Code, Column, Compiled, Diverged, Predicate, Shape, Transformation

_ALL: Final = frozenset[Column](("key", "value", "topic", "headers"))


def _configure(author: AuthoredPlugin, config: RawConfig) -> None:
    """Configure the author's plugin. From then on every text of this process redacts the passwords among its
    settings."""
    keep_secret(author.config_def().passwords(config))
    author.configure({name: None if value is None else str(value) for name, value in config.items()})


def record_of(cells: Cells, shape: Shape, batch: Batch, at: int) -> ConnectRecord:
    """The record at index `at` of the batch, in its current form within the chain."""
    key, value, topic, headers, partition, timestamp_ms = cells
    return ConnectRecord(
        topic, partition, key, value, timestamp_ms, headers,
        shape.key, shape.value, batch.offsets[at] if batch.offsets else None,
        original_topic=None if shape.source else batch.topic,
    )  # fmt: skip


class AuthoredTransformation(Transformation, Alone):
    """Transformation that calls a configured `RecordTransformation`."""

    touches = _ALL
    makes_times = True

    def __init__(self, author: RecordTransformation) -> None:
        self.author = author

    @property
    def class_name(self) -> str:
        return self.author.class_name

    def configure(self, config: RawConfig) -> None:
        _configure(self.author, config)

    def _set_up(self, settings: dict[str, Any]) -> None:
        raise AssertionError("an author's class takes its settings itself")

    def compile(self, shape: Shape) -> Compiled:
        raise Diverged

    def alone(self, cells: Cells, shape: Shape, batch: Batch, at: int) -> tuple[Cells, Shape] | None:
        given = record_of(cells, shape, batch, at)
        fixed = given.offset, None if shape.source else given.partition
        made = self.author.apply(given)
        if made is None:
            return None
        if (made.offset, None if shape.source else made.partition) != fixed:
            raise DataError(f"{self.class_name} changed the partition or offset that a sink's record was read from")
        if not made.topic:
            raise DataError(f"{self.class_name} left a record without a topic")
        headers = [one if type(one) is Header else Header(one.key, one.value, one.schema) for one in made.headers]
        after = Shape(made.key_schema, made.value_schema, shape.source)
        return (made.key, made.value, made.topic, headers, made.partition, made.timestamp_ms), after

    def close(self) -> None:
        self.author.close()


class AuthoredPredicate(Predicate):
    """Predicate that calls a configured `RecordPredicate`."""

    touches = _ALL

    def __init__(self, author: RecordPredicate) -> None:
        self.author = author
        self.java_class = author.class_name

    def configure(self, config: RawConfig) -> None:
        _configure(self.author, config)

    def _set_up(self, settings: dict[str, Any]) -> None:
        raise AssertionError("an author's class takes its settings itself")

    def emit(self, code: Code) -> str:
        raise Diverged

    def test(self, key: Any, value: Any, topic: str | None, headers: Any) -> bool:
        raise AssertionError("a custom predicate tests whole records only")

    def alone(self, cells: Cells, shape: Shape, batch: Batch, at: int) -> bool:
        return bool(self.author.test(record_of(cells, shape, batch, at)))

    def close(self) -> None:
        self.author.close()


class AuthoredConverter(Converter):
    """Converter that calls a configured `RecordConverter`."""

    is_static = False

    def __init__(self, author: RecordConverter, topic: str = "") -> None:
        self.author = author
        self.java_class = author.class_name
        self.topic = topic
        self._by_topic: dict[str, Self] = {}

    def configure(self, config: RawConfig, role: Role) -> None:
        self.role = role
        _configure(self.author, {**config, "converter.type": role})

    def _set_up(self, settings: dict[str, Any]) -> None:
        raise AssertionError("an author's class takes its settings itself")

    def for_topic(self, topic: str, /) -> Self:
        found = self._by_topic.get(topic)
        if found is None:
            found = self._by_topic[topic] = type(self)(self.author, topic)
        return found

    def read(self, data: bytes | None, /) -> tuple[Schema | None, Any]:
        return self.author.to_connect(self.topic, data)

    def write(self, value: Any, schema: Schema | None, /) -> bytes | None:
        return self.author.from_connect(self.topic, schema, value)

    def close(self) -> None:
        self.author.close()
