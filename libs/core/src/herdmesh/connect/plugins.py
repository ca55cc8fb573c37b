"""Which plugins this process can load, and which classes a config can name.

Owns discovery of connectors through the entry point group `herdmesh.connectors` and the search by name; the other kinds
are `builtin`. Owns no instance.

Invariant: a name finds at most one class; two connectors that claim one name are an error at discovery, not a surprise
later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata

from herdmesh.connect.builtin import PluginClass, PluginKind, builtin_classes, registered_converters
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


@dataclass(frozen=True, slots=True)
class ListedPlugin:
    """One line of the list of plugins. A class of two kinds has two lines, as in Connect."""

    class_name: str
    kind: PluginKind
    version: str
    aliases: tuple[str, ...]


def describe(connector: type[Connector]) -> PluginDescriptor:
    """The descriptor of a connector class."""
    return PluginDescriptor(connector.class_name, connector.aliases, connector.kind, connector.version, connector)


class PluginRegistry:
    """The plugins a process knows."""

    def __init__(self, plugins: Iterable[PluginDescriptor], others: Iterable[PluginClass] = ()) -> None:
        """`others` exist besides these and Connect's own. Raises ValueError when two connectors claim one name."""
        self._connectors = sorted(plugins, key=lambda plugin: plugin.class_name)
        self._by_name: dict[str, PluginDescriptor] = {}
        for plugin in self._connectors:
            for name in (plugin.class_name, *plugin.aliases):
                other = self._by_name.setdefault(name, plugin)
                if other is not plugin:
                    raise ValueError(f"both {other.connector} and {plugin.connector} are called {name}")
        builtin = [*builtin_classes(), *others]
        self._concrete = [cls for cls in builtin if not cls.abstract]
        self._classes = {name: cls for cls in builtin for name in (cls.name, *cls.aliases)}

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
        return cls(found, registered_converters())

    def all(self) -> list[ListedPlugin]:
        """All plugins in Connect's order: by kind (sinks, sources, transformations, predicates, converters, header
        converters), then by class."""
        connectors = [
            ListedPlugin(one.class_name, PluginKind(one.kind.value), one.version, one.aliases)
            for one in self._connectors
        ]
        others = [
            ListedPlugin(cls.name, kind, cls.version, cls.aliases) for cls in self._concrete for kind in cls.kinds
        ]
        order = list(PluginKind)
        return sorted([*connectors, *others], key=lambda one: (order.index(one.kind), one.class_name))

    def names(self, kind: PluginKind) -> list[str]:
        """The classes of a kind, sorted: what a form offers."""
        return sorted(cls.name for cls in self._concrete if kind in cls.kinds)

    def class_named(self, name: str) -> PluginClass | None:
        """The class of that name or alias, abstract ones too; None = there is none."""
        connector = self._by_name.get(name)
        if connector is None:
            return self._classes.get(name)
        definition = connector.connector.config_def()
        kinds = (PluginKind(connector.kind.value),)
        return PluginClass(connector.class_name, kinds, definition, connector.aliases, connector.version)

    def full_name(self, name: str) -> str | None:
        """The class's full name, None = there is none (`config.FindClass`)."""
        found = self.class_named(name)
        return None if found is None else found.name

    def find(self, name: str) -> PluginDescriptor:
        """The connector of that class name or alias.

        Raises:
            ConfigError: for the field `connector.class`, listing what exists.
        """
        plugin = self._by_name.get(name)
        if plugin is None:
            known = ", ".join((*plugin.aliases, plugin.class_name)[0] for plugin in self._connectors)
            raise ConfigError(
                f"Failed to find any class that implements Connector and which name matches {name}, "
                f"available connectors are: {known}",
                field="connector.class",
                fix=f"use one of: {known}",
            )
        return plugin
