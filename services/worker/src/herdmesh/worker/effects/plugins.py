"""Everything this worker can load: connectors, converters, transformations; and what each is configured with.

Owns the list that hello tells and the search by name over all kinds. Connectors come from the registry, the rest is the
library's (`herdmesh.connect`).

Invariant: what is listed can be described, by its class name and by each alias.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.connect.config import ConfigKey
from herdmesh.connect.connector import ConnectorKind
from herdmesh.connect.connector_keys import HERDMESH, SINK, SOURCE
from herdmesh.connect.converters import CONVERTERS
from herdmesh.connect.plugins import PluginDescriptor, PluginRegistry
from herdmesh.connect.transforms import TRANSFORMATIONS
from herdmesh.worker.effects.validation import definition_field

_LIBRARY = metadata.version("herdmesh-core")


@dataclass(frozen=True, slots=True)
class _Described:
    plugin: connector_pb2.Plugin
    keys: tuple[ConfigKey, ...]


class Plugins:
    """The plugins of a worker."""

    def __init__(self, registry: PluginRegistry) -> None:
        self._all = sorted(
            [*map(_connector, registry.all()), *_converters(), *_transformations()],
            key=lambda one: (one.plugin.class_name, one.plugin.kind),
        )

    def all(self) -> list[connector_pb2.Plugin]:
        """All plugins, sorted by class."""
        return [one.plugin for one in self._all]

    def fields(self, name: str) -> list[worker_service_pb2.ConfigField]:
        """The config definition of a plugin by class name or alias: its own keys first, then, of a connector, those
        that every connector has and it does not redefine. Raises KeyError for a name that nothing has."""
        for one in self._all:
            if name in (one.plugin.class_name, *one.plugin.aliases):
                return [definition_field(key) for key in one.keys]
        raise KeyError(f"this worker has no plugin {name}")


def _connector(descriptor: PluginDescriptor) -> _Described:
    sink = descriptor.kind is ConnectorKind.SINK
    plugin = connector_pb2.Plugin(
        class_name=descriptor.class_name,
        aliases=descriptor.aliases,
        kind=connector_pb2.PLUGIN_KIND_SINK if sink else connector_pb2.PLUGIN_KIND_SOURCE,
        version=descriptor.version,
    )
    shared = SINK if sink else SOURCE
    own = descriptor.connector.config_def().keys
    return _Described(plugin, tuple({**own, **_missing(own, shared.keys.values(), HERDMESH.keys.values())}.values()))


def _missing(own: Mapping[str, ConfigKey], *shared: Iterable[ConfigKey]) -> dict[str, ConfigKey]:
    return {key.name: key for keys in shared for key in keys if key.name not in own}


def _converters() -> Iterable[_Described]:
    for converter in dict.fromkeys(CONVERTERS.values()):
        names = [name for name, known in CONVERTERS.items() if known is converter and name != converter.java_class]
        plugin = connector_pb2.Plugin(
            class_name=converter.java_class,
            aliases=names,
            kind=connector_pb2.PLUGIN_KIND_CONVERTER,
            version=_LIBRARY,
        )
        yield _Described(plugin, tuple(converter.config_def.keys.values()))


def _transformations() -> Iterable[_Described]:
    by_class: dict[str, list[str]] = {}
    made = {name: known(on_key=on_key) for name, (known, on_key) in TRANSFORMATIONS.items()}
    for name, one in made.items():
        aliases = by_class.setdefault(one.class_name, [])
        if name != one.class_name:
            aliases.append(name)
    for class_name, aliases in by_class.items():
        plugin = connector_pb2.Plugin(
            class_name=class_name,
            aliases=aliases,
            kind=connector_pb2.PLUGIN_KIND_TRANSFORMATION,
            version=_LIBRARY,
        )
        yield _Described(plugin, tuple(made[class_name].config_def.keys.values()))
