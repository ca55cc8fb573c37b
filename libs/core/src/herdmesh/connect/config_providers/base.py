"""Interface of a config provider. Authors' own are entry points of the group `herdmesh.config_providers`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

ENTRY_POINT_GROUP = "herdmesh.config_providers"


@dataclass(frozen=True, slots=True)
class ConfigData:
    """The result of a provider for a path: values by key, and how long they are valid in ms (None = for ever)."""

    data: Mapping[str, str]
    ttl_ms: int | None = None


class ConfigProvider(ABC):
    """Looks values up. One instance serves all of a worker's configs, in several threads."""

    def configure(self, params: Mapping[str, str]) -> None:  # noqa: B027 - a provider may have no params
        """Configure with `config.providers.<name>.param.*`, stripped (`ttl.ms` is handled outside). Raises ConfigError
        whose `field` is the param's name."""

    @abstractmethod
    def get(self, path: str, keys: frozenset[str]) -> ConfigData:
        """The values of those keys at the path ("" = none was written); a key that is not there is left out.

        Raises ConfigError for a path that cannot be read.
        """

    def close(self) -> None:  # noqa: B027 - a provider may hold nothing
        """Release all resources."""
