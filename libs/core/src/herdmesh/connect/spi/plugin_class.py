"""Plugin classes as data: kind, names, versions and options of a class that a config can name.

Owns the types that discovery (`plugins`) fills in and validation reads. Finds and loads nothing.

Invariant: a value has everything that validation needs, so that validation imports no plugin.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from herdmesh.connect.config import ConfigDef
from herdmesh.connect.spi.connector import Connector, ConnectorKind
from herdmesh.connect.spi.custom_plugins import AuthoredPlugin

CONNECT_VERSION = "4.3.1"
"""The release of Kafka Connect whose built-in classes Herdmesh reproduces."""


@dataclass(frozen=True, slots=True)
class PluginImports:
    """Import settings of a process for one plugin; part of a run's order."""

    folder: str
    """Path of the virtual environment."""
    site_packages: str
    """The folder of the virtual environment that has the modules."""
    own: tuple[str, ...]
    """The top-level modules that are always imported from this installation: Herdmesh's and those of its requirements.
    """


class PluginKind(StrEnum):
    """Kinds of plugins, under the names of Connect's REST API and in its order."""

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
    """The author's class; for a plugin folder, a class whose settings are checked in the plugin's process."""
    imports: PluginImports | None = None
    """The plugin folder that has the class; None = the class is installed here."""


@dataclass(frozen=True, slots=True)
class PluginDescriptor:
    """One connector class in one version."""

    class_name: str
    """Canonical name, in Java's spelling where one exists."""
    aliases: tuple[str, ...]
    kind: ConnectorKind
    version: str
    connector: type[Connector]
    """The author's class; for a plugin folder, a proxy that calls the class in a process of the plugin."""
    imports: PluginImports | None = None
    """The plugin folder that its tasks are imported from; None = the class is installed here."""

    def load(self) -> Connector:
        """A new, never started instance."""
        return self.connector()
