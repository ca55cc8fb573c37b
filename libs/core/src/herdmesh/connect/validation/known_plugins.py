"""Interface to the plugins of a worker, with which validation imports no plugin and no discovery.

Owns the lookups that validation needs. `plugins.plugin_registry.PluginRegistry` implements them.

Invariant: a name finds at most one class; without a requested version it finds the latest (KIP-891).
"""

from __future__ import annotations

from typing import Protocol

from herdmesh.connect.config import KnownClasses, RawConfig, VersionRange
from herdmesh.connect.spi import PluginClass, PluginDescriptor, PluginKind


class KnownPlugins(KnownClasses, Protocol):
    """The plugins that a config can name."""

    def names(self, kind: PluginKind) -> list[str]:
        """The classes of a kind, sorted."""
        ...

    def versions(self, name: str) -> list[str]:
        """The versions of the class of that name or alias, oldest first; empty = no such class."""
        ...

    def class_named(self, name: str, wanted: VersionRange | None = None) -> PluginClass | None:
        """The class of that name or alias, including abstract ones, in the latest of the `wanted` versions; None =
        there is no such class.
        """
        ...

    def serving(self, name: str, config: RawConfig) -> str:
        """The name of the connector that serves a config with this `connector.class`. Raises ConfigError as `find`."""
        ...

    def find(self, name: str, version: str | None = None) -> PluginDescriptor:
        """The connector of that class name or alias, in the latest version that `version` allows.

        Raises:
            ConfigError: no such connector, or no such version.
        """
        ...
