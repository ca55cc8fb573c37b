"""What a transformation is: something that writes its own Python.

Owns the base class and `Code`, the page a transformation writes on. Does not compile: `chain`.

A transformation of a map's fields gives two things: statements that change a map in place (`emit_map`), fused with its
neighbours into one function, and what it does with anything else (`other`), which for these is to let it pass or
refuse.

Invariant: `emit_map` only touches the variable it is given and names it bound itself; it never changes a nested value
in place, since a source may still hold it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from herdmesh.connect.config import ConfigDef, RawConfig
from herdmesh.connect.errors import DataError
from herdmesh.connect.javavalues import java_class


class Code:
    """Python source in the making, with the constants it refers to.

    `source` is True when the records come from a source connector (which have no Kafka offset). `uses` collects the
    record columns that are needed: `offset`, `timestamp`.
    """

    def __init__(self, *, source: bool) -> None:
        self.source = source
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.uses: set[str] = set()
        self.indent = 0

    def line(self, text: str) -> None:
        """Add one statement at the current indentation."""
        self.lines.append("    " * self.indent + text)

    def bind(self, value: Any) -> str:
        """A name for a constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name


class Transformation(ABC):
    """One transformation class, for the key or for the value of a record."""

    java_class: ClassVar[str]
    """Java class without the `$Key` / `$Value` part."""
    config_def: ClassVar[ConfigDef]
    purpose: ClassVar[str]
    """What Connect's error texts say it was doing."""
    null_passes: ClassVar[bool]
    """True: a null key or value is returned unchanged. False: it is refused."""

    def __init__(self, *, on_key: bool) -> None:
        self.on_key = on_key

    @property
    def class_name(self) -> str:
        """Java class with the part it works on."""
        return f"{self.java_class}${'Key' if self.on_key else 'Value'}"

    def configure(self, config: RawConfig) -> None:
        """Take the settings below the alias, without prefix; unknown ones are ignored, as in Connect.

        Raises:
            ConfigError: `field` is the key without prefix.
        """
        self._set_up(self.config_def.parse(config))

    @abstractmethod
    def _set_up(self, settings: dict[str, Any]) -> None:
        """Take the parsed settings; check what the definition cannot."""

    @abstractmethod
    def emit_map(self, code: Code, name: str) -> None:
        """Write statements that transform the schemaless map `name` in place."""

    def other(self, value: Any, *, schemaless: bool) -> None:
        """What happens to a key or value that is no map: nothing, or DataError with Connect's text."""
        if value is None and self.null_passes:
            return
        found = "null" if value is None else java_class(value)
        what = "Map objects supported in absence of schema" if schemaless else "Struct objects supported"
        raise DataError(f"Only {what} for [{self.purpose}], found: {found}")
