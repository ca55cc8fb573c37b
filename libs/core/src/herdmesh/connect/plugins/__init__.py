"""Plugin discovery: the connectors, transformations, predicates and converters that this process can use.

Owns the registry of plugins by name and version, Connect's built-in classes, and the import order in a process of one
plugin. The worker (`herdmesh.worker`) finds plugin folders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from herdmesh.connect.exports import lazy_exports

if TYPE_CHECKING:
    from herdmesh.connect.plugins.builtin import authored_class as authored_class
    from herdmesh.connect.plugins.builtin import builtin_classes as builtin_classes
    from herdmesh.connect.plugins.builtin import installed_classes as installed_classes
    from herdmesh.connect.plugins.builtin import third_party_classes as third_party_classes
    from herdmesh.connect.plugins.plugin_registry import ENTRY_POINT_GROUP as ENTRY_POINT_GROUP
    from herdmesh.connect.plugins.plugin_registry import PLUGIN_VERSION as PLUGIN_VERSION
    from herdmesh.connect.plugins.plugin_registry import PluginRegistry as PluginRegistry
    from herdmesh.connect.plugins.plugin_registry import describe as describe
    from herdmesh.connect.plugins.plugin_registry import named_classes as named_classes
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "builtin": (
                "authored_class",
                "builtin_classes",
                "installed_classes",
                "third_party_classes",
            ),
            "plugin_registry": (
                "ENTRY_POINT_GROUP",
                "PLUGIN_VERSION",
                "PluginRegistry",
                "describe",
                "named_classes",
            ),
        },
    )
