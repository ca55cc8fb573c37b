"""Which connectors this process can load.

Owns discovery through the entry point group `herdmesh.connectors` and the search by name. Owns no instance.

Invariant: a name finds at most one plugin; two plugins that claim one name are an error at discovery, not a surprise
later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata

from herdmesh.connect.connector import Connector, ConnectorKind
from herdmesh.connect.errors import ConfigError

ENTRY_POINT_GROUP = "herdmesh.connectors"


@dataclass(frozen=True, slots=True)
class PluginDescriptor:
    """One connector class."""

    class_name: str
    """Canonical, in Java's spelling where one exists."""
    aliases: tuple[str, ...]
    kind: ConnectorKind
    version: str
    connector: type[Connector]

    def load(self) -> Connector:
        """A new, never started instance."""
        return self.connector()


def describe(connector: type[Connector]) -> PluginDescriptor:
    """The descriptor of a connector class."""
    return PluginDescriptor(connector.class_name, connector.aliases, connector.kind, connector.version, connector)


class PluginRegistry:
    """The connectors a process knows."""

    def __init__(self, plugins: Iterable[PluginDescriptor]) -> None:
        """Raises ValueError when two plugins claim one name."""
        self._plugins = sorted(plugins, key=lambda plugin: plugin.class_name)
        self._by_name: dict[str, PluginDescriptor] = {}
        for plugin in self._plugins:
            for name in (plugin.class_name, *plugin.aliases):
                other = self._by_name.setdefault(name, plugin)
                if other is not plugin:
                    raise ValueError(f"both {other.connector} and {plugin.connector} are called {name}")

    @classmethod
    def discover(cls) -> PluginRegistry:
        """Every connector that is installed with the entry point group `herdmesh.connectors`.

        Raises TypeError when an entry point names something that is no connector.
        """
        found: list[PluginDescriptor] = []
        for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
            loaded = entry.load()
            if not (isinstance(loaded, type) and issubclass(loaded, Connector)):
                raise TypeError(f"entry point {entry.name} = {entry.value} names no Connector")
            found.append(describe(loaded))
        return cls(found)

    def all(self) -> list[PluginDescriptor]:
        """All plugins, sorted by class."""
        return list(self._plugins)

    def find(self, name: str) -> PluginDescriptor:
        """The plugin of that class name or alias.

        Raises:
            ConfigError: for the field `connector.class`, listing what exists.
        """
        plugin = self._by_name.get(name)
        if plugin is None:
            known = ", ".join((*plugin.aliases, plugin.class_name)[0] for plugin in self._plugins)
            raise ConfigError(
                f"Failed to find any class that implements Connector and which name matches {name}, "
                f"available connectors are: {known}",
                field="connector.class",
                fix=f"use one of: {known}",
            )
        return plugin
