"""What a converter is.

Owns the base class. Concrete converters are one module each beside it; `converters` looks them up.

Invariant: after `configure`, `to_connect` and `from_connect` are plain callables without further state to look up, so
the record loop and the chain compiler can bind them once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from herdmesh.connect.config import ConfigDef, RawConfig
from herdmesh.connect.data import Schema


class Converter(ABC):
    """Between a record's bytes and Connect values (reference transforms-converters 4, 5)."""

    java_class: ClassVar[str]
    config_def: ClassVar[ConfigDef]

    read_schema: Schema | None = None
    """Schema of every value this converter reads; None = schemaless."""

    def configure(self, config: RawConfig, is_key: bool) -> None:
        """Take the settings below the converter's prefix, without it (`schemas.enable`, ...).

        Raises:
            ConfigError: a setting that cannot be used; `field` is the key without prefix.
        """
        self._set_up(self.config_def.parse({**config, "converter.type": "key" if is_key else "value"}))

    @abstractmethod
    def _set_up(self, settings: dict[str, Any]) -> None:
        """Take the parsed settings."""

    @abstractmethod
    def to_connect(self, data: bytes | None, /) -> Any:
        """Read one value; its schema is `read_schema`. Raises DataError with Connect's text."""

    @abstractmethod
    def from_connect(self, value: Any, /, schema: Schema | None = None) -> bytes | None:
        """Write one value; None means a tombstone. Raises DataError with Connect's text."""

    def to_connect_many(self, data: Sequence[bytes | None], /) -> list[Any]:
        """`to_connect` of each."""
        return list(map(self.to_connect, data))

    def from_connect_many(self, values: Sequence[Any], /, schema: Schema | None = None) -> list[bytes | None]:
        """`from_connect` of each, all under one schema."""
        if schema is None:
            return list(map(self.from_connect, values))
        return [self.from_connect(value, schema) for value in values]
