"""Interfaces for an author's transformations, predicates and converters, and their discovery by entry points.

Owns the interfaces (Java: `Transformation`, `Predicate`, `Converter`) and the discovery. Each plugin has Connect's life
cycle: created, configured, called record by record, closed. `chain.custom_transforms` puts the plugins into a chain.
Connect's own plugins have other interfaces (`transforms`, `converters`) and are compiled.

Invariant: nothing is imported before a config names a class that Connect does not have.
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
"""Groups of entry points: `Name = "module:Class"`."""


class AuthoredPlugin(ABC):
    """Base of the three kinds of an author's plugins. Created without arguments, also when a config is only checked."""

    class_name: ClassVar[str]
    """The name in configs, in Java's spelling where a Java class does the same."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Further names that a config may use for this class."""
    version: ClassVar[str] = ""
    """"" = the version of its distribution."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The keys of the plugin, without the prefix that they have in a connector's config (`transforms.<alias>.`,
        `key.converter.`).
        """
        return ConfigDef()

    def configure(self, config: Config) -> None:
        """Store the settings, given without prefix; called once, before any other method.

        Raises ConfigError whose field is the key without prefix: the connector is then refused. `config_def().parse`
        and `Settings.parse` raise it too.
        """
        return

    def close(self) -> None:
        """Release all resources; called once, when the task ends."""
        return


class RecordTransformation(AuthoredPlugin):
    """Transformation that changes records one by one."""

    @abstractmethod
    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """The resulting record; None = the record is filtered.

        The method may change the given record, but not a value in it, because other records may share the value. Schema
        and value must agree: under a struct schema the value is a `Struct` of that schema.

        The result may differ in topic, key, value, their schemas and headers, but not in partition, offset and
        timestamp. Exceptions are handled as `errors.tolerance` configures.
        """


class RecordPredicate(AuthoredPlugin):
    """Predicate that selects the records a transformation applies to."""

    @abstractmethod
    def test(self, record: ConnectRecord) -> bool:
        """True when the transformation applies (with `negate`: when it does not). Must not change the record."""


class RecordConverter(AuthoredPlugin):
    """Converter between the bytes of keys, values or headers and Connect values. `configure` also receives
    `converter.type`: `key`, `value` or `header`.
    """

    @abstractmethod
    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The schema and value of these bytes; the schema is None for a schemaless value. Raises DataError for
        unreadable bytes.
        """

    @abstractmethod
    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """The bytes of a value; None = a tombstone. Raises DataError for a value that cannot be written."""


FindAuthored = Callable[[str, str | None], "type[AuthoredPlugin] | None"]
"""Function that finds a class by name and `plugin.version`; None = no class has that name. Raises ConfigError when the
class is not there in that version.
"""


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
    """The class that an entry point names. Raises TypeError unless it is a transformation, predicate or converter."""
    kinds = RecordTransformation | RecordPredicate | RecordConverter
    if not (isinstance(loaded, type) and issubclass(loaded, kinds)):
        raise TypeError(f"{where} names no RecordTransformation, RecordPredicate or RecordConverter")
    return cast("type[AuthoredPlugin]", loaded)


def here(name: str, version: str | None) -> type[AuthoredPlugin] | None:
    """Find a class (`FindAuthored`) among those that this process can import; returns the latest of the requested
    versions. Logs and skips a failed import, because it may belong to another plugin.
    """
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
    usable = [pair for pair in there if wanted is None or wanted.contains(pair[1])]
    if there and not usable:
        raise ConfigError(f"{name} is not there in version {version}: there is {', '.join(one for _, one in there)}")
    return max(usable, key=lambda pair: rank(pair[1]))[0] if usable else None
