"""Interfaces for an author's transformations, predicates and converters, and their discovery by entry points.

Owns the interfaces (Java: `Transformation`, `Predicate`, `Converter`, each with Connect's life cycle: made, configured,
called record by record, closed) and the discovery. `chain.custom_transforms` puts them into a chain. Connect's own are
written in another way (`transforms`, `converters`) and compiled.

Invariant: nothing is imported before a config names a class that is none of Connect's own.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, ClassVar, Final, cast

from herdmesh.connect.config import ConfigDef, LeftOut, loaded_entry, rank, version_range
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.model import ConnectRecord, Schema
from herdmesh.connect.spi.author_checks import checked_class, checked_definition

_log = logging.getLogger(__name__)

Config = Mapping[str, str | None]
GROUPS: Final = ("herdmesh.transformations", "herdmesh.predicates", "herdmesh.converters")
"""Of entry points: `Name = "module:Class"`."""


class AuthoredPlugin(ABC):
    """What the three kinds have in common. Made without arguments, also only to have a config checked."""

    class_name: ClassVar[str]
    """The name in configs, in Java's spelling where a Java class does the same."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """The other names it answers to."""
    version: ClassVar[str] = ""
    """"" = its distribution's."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Its keys, without the prefix they have in a connector's config (`transforms.<alias>.`, `key.converter.`)."""
        return ConfigDef()

    def configure(self, config: Config) -> None:
        """Take the settings, without prefix; once, before anything else. Raises ConfigError, with the key without
        prefix as its field: the connector is refused then. `config_def().parse` and `Settings.parse` raise it too."""
        return

    def close(self) -> None:
        """Release everything; called once, when the task ends."""
        return


class RecordTransformation(AuthoredPlugin):
    """Changes records, one by one."""

    @abstractmethod
    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """The resulting record, None = the record is dropped.

        The given record may be changed; a value in it may not, as others may hold it. Schemas go with values: under a
        schema a struct is a `Struct` of it.

        The result may differ in topic, key, value, their schemas and headers; it may not in partition, offset and time.
        Exceptions are handled as `errors.tolerance` says.
        """


class RecordPredicate(AuthoredPlugin):
    """Chooses the records that a transformation applies to."""

    @abstractmethod
    def test(self, record: ConnectRecord) -> bool:
        """Whether the transformation applies (`negate`: does not). To be looked at only."""


class RecordConverter(AuthoredPlugin):
    """Between the bytes of keys, values or headers and Connect values. `configure` is also given `converter.type`:
    `key`, `value` or `header`."""

    @abstractmethod
    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The value of these bytes, and its schema, None = without schema. Raises DataError for unreadable bytes."""

    @abstractmethod
    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """The bytes of a value, None = a tombstone. Raises DataError for a value that cannot be written."""


FindAuthored = Callable[[str, str | None], "type[AuthoredPlugin] | None"]
"""Finds a class by name and `plugin.version`; None = no class has that name. Raises ConfigError when it has no such
version."""


def entries(left_out: LeftOut | None = None) -> list[tuple[type[AuthoredPlugin], str]]:
    """The classes that this process can import, and the version of each.

    Without `left_out`, raises TypeError when an entry point names something else, ConfigError for a class with invalid
    attributes, and any exception of the import.
    """
    found: list[tuple[type[AuthoredPlugin], str]] = []
    for entry in _entry_points():
        try:
            one = _loaded(entry)
            checked_class(one[0])
            checked_definition(one[0])
            found.append(one)
        except Exception as error:  # importing an author's code may raise anything
            if left_out is None:
                raise
            left_out(entry, error)
    return found


def _entry_points() -> list[metadata.EntryPoint]:
    every = metadata.entry_points()
    return [entry for group in GROUPS for entry in every.select(group=group)]


def _loaded(entry: metadata.EntryPoint) -> tuple[type[AuthoredPlugin], str]:
    cls = authored_class(loaded_entry(entry), entry.value)
    return cls, cls.version or (entry.dist.version if entry.dist is not None else "")


def authored_class(loaded: Any, where: str) -> type[AuthoredPlugin]:
    """The class that an entry point names. Raises TypeError unless it is one of the three kinds."""
    kinds = RecordTransformation | RecordPredicate | RecordConverter
    if not (isinstance(loaded, type) and issubclass(loaded, kinds)):
        raise TypeError(f"{where} names no RecordTransformation, RecordPredicate or RecordConverter")
    return cast("type[AuthoredPlugin]", loaded)


def here(name: str, version: str | None) -> type[AuthoredPlugin] | None:
    """`FindAuthored` for the classes that this process can import: the latest of the requested versions. A failed
    import is logged and skipped, because it may be another plugin's."""
    there: list[tuple[type[AuthoredPlugin], str]] = []
    for entry in _entry_points():
        try:
            cls, one = _loaded(entry)
        except Exception:  # noqa: BLE001 - importing an author's code may raise anything
            _log.exception("%s = %s cannot be imported", entry.name, entry.value)
            continue
        if name in (cls.class_name, *cls.aliases):
            there.append((cls, one))
    wanted = version_range(version)
    usable = [pair for pair in there if wanted is None or wanted.holds(pair[1])]
    if there and not usable:
        raise ConfigError(f"{name} is not there in version {version}: there is {', '.join(one for _, one in there)}")
    return max(usable, key=lambda pair: rank(pair[1]))[0] if usable else None
