"""Everything this worker can load, as messages: what hello and ListPlugins tell, and what each is configured with.

Owns the messages. The list and the search by name are the registry's (`herdmesh.connect.plugins`).

Invariant: what is listed can be described, by its class name and by each alias.
"""

from __future__ import annotations

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.connect.plugins import PluginRegistry
from herdmesh.worker.effects.validation import describe


class Plugins:
    """The plugins of a worker."""

    def __init__(self, registry: PluginRegistry) -> None:
        self._registry = registry

    def all(self) -> list[connector_pb2.Plugin]:
        """All plugins in Connect's order: sinks, sources, transformations, predicates, converters, header converters,
        each sorted by class. A class that converts both values and headers is listed as both."""
        return [
            connector_pb2.Plugin(
                class_name=one.class_name,
                aliases=one.aliases,
                kind=connector_pb2.PluginKind.Value(f"PLUGIN_KIND_{one.kind.name}"),
                version=one.version,
            )
            for one in self._registry.all()
        ]

    def fields(self, name: str) -> list[worker_service_pb2.ConfigField]:
        """The config definition of a plugin by class name or alias: its own keys first, then, of a connector, those
        that every connector has and it does not redefine. Raises ConfigError for a name that nothing has."""
        return describe(name, self._registry)
