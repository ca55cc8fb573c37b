"""Option lists of plugins, without values, for a form or `herd` (docs/reference/connect/rest-api.md, section 4).

Owns the choice of keys and their order; the definitions belong to the plugins.
"""

from __future__ import annotations

from herdmesh.connect.config import ConfigKey
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi import PluginKind
from herdmesh.connect.validation.connector_keys import HERDMESH
from herdmesh.connect.validation.framework_keys import base_definition
from herdmesh.connect.validation.known_plugins import KnownPlugins


def fields_of_plugin(class_name: str, plugins: KnownPlugins) -> list[ConfigKey]:
    """The keys of the connector, converter, transformation or predicate of that class name or alias.

    A connector's own keys come first, then those that every sink or source has and it does not define itself, then
    Herdmesh's (`herdmesh.*`).

    Raises:
        ConfigError: no such plugin, or an abstract class; the text is Connect's.
    """
    found = plugins.class_named(class_name)
    if found is None:
        raise ConfigError(f"Unknown plugin {class_name}.", fix="`herd get plugins` lists those that exist")
    if found.abstract:
        hint = f"use {' or '.join(found.nested)}" if found.nested else "name a class that can be instantiated"
        raise ConfigError("Instantiation error", fix=hint)
    keys = dict(found.definition.keys)
    if found.kinds[0] in (PluginKind.SINK, PluginKind.SOURCE):
        for definition in (base_definition(found.kinds[0]), HERDMESH):
            keys = {**keys, **{name: key for name, key in definition.keys.items() if name not in keys}}
    return list(keys.values())
