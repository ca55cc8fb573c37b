"""A connector whose config is read by one function into a settings object.

Owns validation and start by that function, not the settings themselves. Invariant: `start` accepts every config that
`validate` accepts, because both call `read`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from herdmesh.connect.spi import Connector
from herdmesh.sdk import Config, ConfigError

S = TypeVar("S")


class ReadConnector(Connector, Generic[S]):
    """A connector whose config is read by one function. List it before `SourceConnector` or `SinkConnector`."""

    settings: S
    """The settings, set by `start`."""

    @classmethod
    @abstractmethod
    def read(cls, config: Config) -> S:
        """Read the config of the connector or of a task. Raises ConfigError whose field is the key."""

    def validate(self, config: Config) -> Sequence[ConfigError]:
        found = list(self.not_built(config))
        fields = {one.field for one in found}
        try:
            self.read({key: value for key, value in config.items() if key not in fields})
        except ConfigError as error:
            found.append(error)
        return found

    def start(self, config: Config) -> None:
        self.settings = self.read(config)
        super().start(config)

    def answer_from(self, config: Config, question: Callable[[S], bool]) -> bool | None:
        """Apply a question to the settings of a connector that is not started; None = its config cannot be read."""
        try:
            return question(self.read(config))
        except ConfigError:
            return None
