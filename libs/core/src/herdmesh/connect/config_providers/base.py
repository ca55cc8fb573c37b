"""Interface of a config provider. An author's providers are entry points of the group `herdmesh.config_providers`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

ENTRY_POINT_GROUP = "herdmesh.config_providers"


@dataclass(frozen=True, slots=True)
class ConfigData:
    """Result of a provider for a path: values by key, and the time for which they are valid in ms (None = no limit)."""

    data: Mapping[str, str]
    ttl_ms: int | None = None


class ConfigProvider(ABC):
    """Provider of values for references in configs. One instance serves all of a worker's configs, in several
    threads."""

    def configure(self, params: Mapping[str, str]) -> None:  # noqa: B027 - a provider may have no params
        """Configure the provider. `params` are `config.providers.<name>.param.*`, without the prefix (`ttl.ms` is
        handled by the caller). Raises ConfigError whose `field` is the param's name.
        """

    @abstractmethod
    def get(self, path: str, keys: frozenset[str]) -> ConfigData:
        """The values of those keys at the path ("" = the reference has no path); a missing key is left out.

        Raises ConfigError for a path that cannot be read.
        """

    def close(self) -> None:  # noqa: B027 - a provider may have no resources
        """Release all resources."""
