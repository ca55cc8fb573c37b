"""Plugin classes as data: kind, names, versions and options of a class that a config can name.

Owns the types that discovery (`plugins`) fills in and validation reads. Finds and loads nothing.

Invariant: a value says all that validation needs, so that validation imports no plugin.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from herdmesh.connect.config import ConfigDef
from herdmesh.connect.spi.connector import Connector, ConnectorKind
from herdmesh.connect.spi.custom_plugins import AuthoredPlugin

CONNECT_VERSION = "4.3.1"
"""The release of Kafka Connect whose behaviour its own classes have here."""


@dataclass(frozen=True, slots=True)
class PluginImports:
    """Import settings of a process for one plugin; part of a run's order."""

    folder: str
    """The virtual environment."""
    site_packages: str
    """The folder in it that modules are in."""
    own: tuple[str, ...]
    """The top-level modules that are always this installation's: Herdmesh's, and those of its requirements."""


class PluginKind(StrEnum):
    """Kinds of plugins, in the words of Connect's REST API and in the order in which it lists them."""

    SINK = "sink"
    SOURCE = "source"
    TRANSFORMATION = "transformation"
    PREDICATE = "predicate"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"


@dataclass(frozen=True, slots=True)
class PluginClass:
    """A class that a config can name. `kinds` are the interfaces that it implements, abstract or not; `nested` are the
    concrete classes within an abstract one."""

    name: str
    kinds: tuple[PluginKind, ...]
    definition: ConfigDef
    aliases: tuple[str, ...] = ()
    version: str = CONNECT_VERSION
    abstract: bool = False
    interface: bool = False
    nested: tuple[str, ...] = ()
    author: type[AuthoredPlugin] | None = None
    """An author's class; for a plugin folder, one that has its settings checked in the plugin's process."""
    imports: PluginImports | None = None
    """The plugin folder it is in; None = it is installed here."""


@dataclass(frozen=True, slots=True)
class PluginDescriptor:
    """One connector class in one version."""

    class_name: str
    """Canonical, in Java's spelling where one exists."""
    aliases: tuple[str, ...]
    kind: ConnectorKind
    version: str
    connector: type[Connector]
    """The author's class; for a plugin folder, a proxy that calls it in a process of the plugin's own."""
    imports: PluginImports | None = None
    """Where its tasks are imported from; None = it is installed here."""

    def load(self) -> Connector:
        """A new, never started instance."""
        return self.connector()
