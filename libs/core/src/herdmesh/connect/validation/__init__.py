"""Config validation: Connect's rules for a connector's config, and Herdmesh's in addition.

Owns the framework's keys, the rules between keys, the refusal of unsupported settings, and warnings about unknown keys.
Gets the plugins of a worker as `KnownPlugins`.

Invariant: imports no plugin; for Connect's own plugins the result equals a real worker's (golden vectors).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from herdmesh.connect.exports import lazy_exports

if TYPE_CHECKING:
    from herdmesh.connect.validation.connector_config import ValidatedField as ValidatedField
    from herdmesh.connect.validation.connector_config import Validation as Validation
    from herdmesh.connect.validation.connector_config import validate_connector as validate_connector
    from herdmesh.connect.validation.connector_keys import COMMON as COMMON
    from herdmesh.connect.validation.connector_keys import ERRORS as ERRORS
    from herdmesh.connect.validation.connector_keys import HERDMESH as HERDMESH
    from herdmesh.connect.validation.connector_keys import MEMORY_MIN_BYTES as MEMORY_MIN_BYTES
    from herdmesh.connect.validation.connector_keys import SINK as SINK
    from herdmesh.connect.validation.connector_keys import SOURCE as SOURCE
    from herdmesh.connect.validation.connector_keys import group_names as group_names
    from herdmesh.connect.validation.connector_keys import topic_creation as topic_creation
    from herdmesh.connect.validation.framework_keys import WorkerFacts as WorkerFacts
    from herdmesh.connect.validation.plugin_fields import fields_of_plugin as fields_of_plugin
    from herdmesh.connect.validation.unknown_keys import unknown as unknown
    from herdmesh.connect.validation.unknown_keys import unread_keys as unread_keys
    from herdmesh.connect.validation.unknown_keys import workers_spelling as workers_spelling
    from herdmesh.connect.validation.unsupported_settings import refusals as refusals
    from herdmesh.connect.validation.worker_keys import NOT_READ as NOT_READ
    from herdmesh.connect.validation.worker_keys import WORKER_KEYS as WORKER_KEYS
    from herdmesh.connect.validation.worker_keys import not_read as not_read
    from herdmesh.connect.validation.worker_keys import unknown_properties as unknown_properties
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "connector_config": (
                "ValidatedField",
                "Validation",
                "validate_connector",
            ),
            "connector_keys": (
                "COMMON",
                "ERRORS",
                "HERDMESH",
                "MEMORY_MIN_BYTES",
                "SINK",
                "SOURCE",
                "group_names",
                "topic_creation",
            ),
            "framework_keys": ("WorkerFacts",),
            "plugin_fields": ("fields_of_plugin",),
            "unknown_keys": (
                "unknown",
                "unread_keys",
                "workers_spelling",
            ),
            "unsupported_settings": ("refusals",),
            "worker_keys": (
                "NOT_READ",
                "WORKER_KEYS",
                "not_read",
                "unknown_properties",
            ),
        },
    )
