"""Config providers: values that a config refers to as `${provider:path:key}` (docs/reference/connect/configs.md,
section 8, KIP-297, KIP-421).

Owns Kafka's three providers (`builtin`), secret stores (`secret_stores`), and the resolver of a worker's configs.

Invariant: every resolved value is known to `herdmesh.connect.config.redaction` before any caller gets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from herdmesh.connect.exports import lazy_exports

if TYPE_CHECKING:
    from herdmesh.connect.config_providers.base import ConfigData as ConfigData
    from herdmesh.connect.config_providers.base import ConfigProvider as ConfigProvider
    from herdmesh.connect.config_providers.resolver import PROVIDERS as PROVIDERS
    from herdmesh.connect.config_providers.resolver import ConfigProviders as ConfigProviders
    from herdmesh.connect.config_providers.resolver import Resolved as Resolved
    from herdmesh.connect.config_providers.resolver import has_reference as has_reference
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "base": (
                "ConfigData",
                "ConfigProvider",
            ),
            "resolver": (
                "ConfigProviders",
                "PROVIDERS",
                "Resolved",
                "has_reference",
            ),
        },
    )
