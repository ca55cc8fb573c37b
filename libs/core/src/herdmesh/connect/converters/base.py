"""Base classes of converters.

Owns the interface. The converters are in the modules beside it and in the folders of their formats; `lookup` finds them
by name.

Invariant: after `configure`, reading and writing need nothing but their arguments, so that the record loop can bind
them once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Self

from herdmesh.connect.config import ConfigDef, RawConfig
from herdmesh.connect.model import Header, LazyColumn, Schema

Role = Literal["key", "value", "header"]
Schemas = Schema | None | list[Schema | None]
"""Schemas of a column: one for all its records (None = schemaless), or a list with one for each record."""


class HeaderConverter(ABC):
    """Converter between a header's bytes and a Connect header."""

    java_class: str
    """Name in configs; for an author's converter, the name that its author chose."""
    config_def: ClassVar[ConfigDef]

    def configure(self, config: RawConfig, role: Role) -> None:
        """Store the settings below the converter's prefix, given without it (`schemas.enable`, ...).

        Raises:
            ConfigError: a setting that cannot be used; `field` is the key without prefix.
        """
        self.role: Role = role
        self._set_up(self.config_def.parse({**config, "converter.type": role}))

    @abstractmethod
    def _set_up(self, settings: dict[str, Any]) -> None:
        """Store the parsed settings."""

    def for_topic(self, _topic: str, /) -> Self:
        """The converter for records of this topic: the same object, unless the converter distinguishes topics."""
        return self

    def close(self) -> None:
        """Release all resources; called once, when the chain is closed."""
        return

    @abstractmethod
    def read_header(self, name: str, data: bytes | None) -> Header:
        """Read one header. Raises DataError with Connect's text."""

    @abstractmethod
    def write_header(self, header: Header) -> bytes | None:
        """Write one header. Raises DataError with Connect's text."""

    def __str__(self) -> str:
        return f"converter {self.java_class}"


class Converter(HeaderConverter):
    """Converter between a record's bytes and Connect values (docs/reference/connect/transforms-converters.md, sections
    4 and 5); also converts headers.
    """

    is_static: bool = True
    """True when every value that this converter reads has `read_schema`."""
    read_schema: Schema | None = None
    """Schema of the values read; None = schemaless. Meaningless where `is_static` is False."""

    @abstractmethod
    def read(self, data: bytes | None, /) -> tuple[Schema | None, Any]:
        """Read one value and its schema. Raises DataError with Connect's text."""

    @abstractmethod
    def write(self, value: Any, schema: Schema | None, /) -> bytes | None:
        """Write one value; None means a tombstone. Raises DataError with Connect's text."""

    def read_many(self, data: Sequence[bytes | None], /) -> tuple[Schemas, Sequence[Any]]:
        """Read several values; returns their schemas and the values. Raises the error of `read` for any of them."""
        read = [self.read(one) for one in data]
        if self.is_static:
            return self.read_schema, [value for _, value in read]
        schemas: list[Schema | None] = [schema for schema, _ in read]
        first = schemas[0] if schemas else None
        return (first if schemas.count(first) == len(schemas) else schemas), [value for _, value in read]

    def unread(
        self, data: Sequence[bytes | None], read: Callable[[Sequence[bytes | None]], list[Any]]
    ) -> Sequence[Any]:
        """Lazy values of a static converter, for a caller that may not read them: `read` is called at the first use."""
        return LazyColumn(data, read)

    def write_many(self, values: Sequence[Any], schema: Schema | None, /) -> Sequence[bytes | None]:
        """Write several values of one schema."""
        return [self.write(value, schema) for value in values]

    def read_header(self, name: str, data: bytes | None) -> Header:
        schema, value = self.read(data)
        return Header(name, value, schema)

    def write_header(self, header: Header) -> bytes | None:
        return self.write(header.value, header.schema)
