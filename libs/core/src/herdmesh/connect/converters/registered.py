"""Shared part of the converters with a schema registry.

Owns the common settings, subjects, one reader for each kind of message, one writer for each Connect schema, and the
handling of bytes that are not in the format. Each format has its own folder.

Invariant: a schema is requested, converted and compiled once for each kind of message or Connect schema; later records
cost no request and no conversion of a schema. A refusal is not cached: the next record requests again.
"""

from __future__ import annotations

import copy
import struct
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, Self

from herdmesh.connect.converters.base import Converter, Schemas
from herdmesh.connect.errors import DataError
from herdmesh.connect.model import Schema
from herdmesh.connect.registry import (
    HEAD_BYTES,
    NewSchema,
    Reference,
    RegisteredSchema,
    RegistryClient,
    Remembered,
    registry_settings,
    schema_id_of,
    subject_strategy,
    topic_name,
)
from herdmesh.connect.registry import Schemas as Registry

UNFIT = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RecursionError, StopIteration, TypeError,
    ValueError, struct.error,
)  # fmt: skip
"""Exceptions of the formats' libraries, and of code that walks a schema, for invalid bytes, values and schemas."""


class MessageReader(Protocol):
    """Reader of messages with the same head, and so of one schema."""

    schema: Schema | None

    def read_all(self, data: Sequence[bytes]) -> Sequence[Any]:
        """The values of whole messages. Raises DataError for the first that cannot be read."""
        ...


class MessageWriter(Protocol):
    """Writer of values of one Connect schema."""

    def write_all(self, values: Sequence[Any]) -> list[bytes | None]:
        """Whole messages. Raises DataError for the first that cannot be written."""
        ...


class RegisteredConverter(Converter):
    """Base of the converters whose schemas are in a registry."""

    is_static = False
    kind: ClassVar[str]
    """The registry's name for the format."""

    def _set_up(self, settings: dict[str, Any]) -> None:
        registry = registry_settings(settings)
        self._is_key = self.role == "key"
        self._strategy = subject_strategy(settings, is_key=self._is_key)
        self._registry = Registry(RegistryClient(registry), registry)
        self._cached: int = settings["schemas.cache.config"]
        self._topics: dict[str, Self] = {}
        self._begin("")

    def _begin(self, topic: str) -> None:
        self._topic = topic
        self._readers = Remembered[bytes, MessageReader](self._cached)
        self._writers = Remembered[Schema | None, MessageWriter](self._cached)

    def for_topic(self, topic: str, /) -> Self:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = copy.copy(self)  # shares the registry client and its cache
            found._begin(topic)
        return found

    def close(self) -> None:
        self._registry.close()

    @abstractmethod
    def _make_reader(self, head: bytes) -> MessageReader:
        """Create the reader for messages with this head. Raises DataError, RetriableError or ConfigError."""

    @abstractmethod
    def _make_writer(self, schema: Schema | None) -> MessageWriter:
        """Create the writer for values of this schema. Raises DataError, RetriableError or ConfigError."""

    def _head(self, data: bytes) -> bytes:
        """The bytes before the payload. Raises DataError for a message without the head of a registry's serializer."""
        schema_id_of(data)
        return data[:HEAD_BYTES]

    def _found(self, head: bytes) -> RegisteredSchema:
        """The schema that a message names."""
        subject = self._subject(None) if self._strategy is topic_name else ""
        return self._registry.by_id(schema_id_of(head), subject, self.kind)

    def _version(self, found: RegisteredSchema, record: str | None) -> int | None:
        """The schema's version under the subject of such records; None when it is not registered there."""
        return self._registry.version_of(self._subject(record), found)

    def _used(self, references: tuple[Reference, ...]) -> list[tuple[Reference, RegisteredSchema]]:
        return self._registry.used_by(references)

    def _to_write(
        self, text: str, record: str | None, references: tuple[Reference, ...] = ()
    ) -> tuple[int, RegisteredSchema | None]:
        """The id to write with, and the registered schema that replaces the given one, if any."""
        return self._registry.to_write(self._subject(record), NewSchema(text, self.kind, references))

    def _subject(self, record: str | None) -> str:
        return self._strategy(self._topic, self._is_key, record)

    def read(self, data: bytes | None, /) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        reader = self._reader(self._head(data))
        return reader.schema, reader.read_all((data,))[0]

    def read_many(self, data: Sequence[bytes | None], /) -> tuple[Schemas, Sequence[Any]]:
        first = data[0] if data else None
        if first is not None:
            head = self._head(first)
            same = [raw for raw in data if raw is not None and raw.startswith(head)]
            if len(same) == len(data):
                reader = self._reader(head)
                return reader.schema, reader.read_all(same)
        return self._read_mixed(data)

    def _read_mixed(self, data: Sequence[bytes | None]) -> tuple[Schemas, list[Any]]:
        """Read messages of several schemas and tombstones, grouped by their heads."""
        places: dict[bytes, list[int]] = {}
        for at, raw in enumerate(data):
            if raw is not None:
                places.setdefault(self._head(raw), []).append(at)
        schemas: list[Schema | None] = [None] * len(data)
        values: list[Any] = [None] * len(data)
        for head, alike in places.items():
            reader = self._reader(head)
            read = reader.read_all([raw for at in alike if (raw := data[at]) is not None])
            for at, value in zip(alike, read, strict=True):
                schemas[at], values[at] = reader.schema, value
        return schemas, values

    def write(self, value: Any, schema: Schema | None, /) -> bytes | None:
        return self.write_many((value,), schema)[0]

    def write_many(self, values: Sequence[Any], schema: Schema | None, /) -> Sequence[bytes | None]:
        if schema is None and all(value is None for value in values):
            return [None] * len(values)
        return self._writers.get(schema, lambda: self._writer(schema)).write_all(values)

    def _writer(self, schema: Schema | None) -> MessageWriter:
        try:
            return self._make_writer(schema)
        except UNFIT as error:
            raise DataError(f"No {self.kind} schema for {schema}: {type(error).__name__} {error}") from error

    def _reader(self, head: bytes) -> MessageReader:
        return self._readers.get(head, lambda: self._opened(head))

    def _opened(self, head: bytes) -> MessageReader:
        try:
            return self._make_reader(head)
        except UNFIT as error:
            schema_id = schema_id_of(head)
            raise DataError(
                f"Schema id {schema_id} is not a {self.kind} schema: {type(error).__name__} {error}"
            ) from error
