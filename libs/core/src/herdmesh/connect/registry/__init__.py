"""Schema registry client: REST API, subject names, wire format and caches of a Confluent-compatible registry.

Owns requests, retries and the caches of responses. The converter of a format interprets its schemas (`converters.avro`,
`converters.json_schema`, `converters.protobuf`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from herdmesh.connect.exports import lazy_exports

if TYPE_CHECKING:
    from herdmesh.connect.registry.client import NewSchema as NewSchema
    from herdmesh.connect.registry.client import Reference as Reference
    from herdmesh.connect.registry.client import RegisteredSchema as RegisteredSchema
    from herdmesh.connect.registry.client import RegistryClient as RegistryClient
    from herdmesh.connect.registry.retry_after import retry_after_s as retry_after_s
    from herdmesh.connect.registry.schemas import Remembered as Remembered
    from herdmesh.connect.registry.schemas import Schemas as Schemas
    from herdmesh.connect.registry.settings import REGISTRY_KEYS as REGISTRY_KEYS
    from herdmesh.connect.registry.settings import registry_settings as registry_settings
    from herdmesh.connect.registry.settings import subject_strategy as subject_strategy
    from herdmesh.connect.registry.subjects import topic_name as topic_name
    from herdmesh.connect.registry.wire import HEAD_BYTES as HEAD_BYTES
    from herdmesh.connect.registry.wire import frame as frame
    from herdmesh.connect.registry.wire import schema_id_of as schema_id_of
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "client": (
                "NewSchema",
                "Reference",
                "RegisteredSchema",
                "RegistryClient",
            ),
            "retry_after": ("retry_after_s",),
            "schemas": (
                "Remembered",
                "Schemas",
            ),
            "settings": (
                "REGISTRY_KEYS",
                "registry_settings",
                "subject_strategy",
            ),
            "subjects": ("topic_name",),
            "wire": (
                "HEAD_BYTES",
                "frame",
                "schema_id_of",
            ),
        },
    )
