"""Connect's predicates, which choose the records that a transformation applies to
(docs/reference/connect/transforms-converters.md, section 3).

Owns their options, with Connect's texts, and the test of a record.

Invariant: the definitions equal those that the real classes declare (golden configdef vectors); a predicate changes
nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from herdmesh.connect.config import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    Importance,
    RawConfig,
    Type,
    all_of,
    non_empty_string,
    regex,
)
from herdmesh.connect.java import compiled
from herdmesh.connect.model import Batch, Header
from herdmesh.connect.transforms.base import Cells, Code, Column, Shape

HAS_HEADER_KEY = ConfigDef(
    ConfigKey("name", Type.STRING, REQUIRED, Importance.MEDIUM,
              "The header name.",
              non_empty_string()),
)  # fmt: skip

TOPIC_NAME_MATCHES = ConfigDef(
    ConfigKey("pattern", Type.STRING, REQUIRED, Importance.MEDIUM,
              "A Java regular expression for matching against the name of a record's topic.",
              all_of(non_empty_string(), regex())),
)  # fmt: skip

RECORD_IS_TOMBSTONE = ConfigDef()

DEFINITIONS: Mapping[str, ConfigDef] = {
    f"org.apache.kafka.connect.transforms.predicates.{name}": definition
    for name, definition in {
        "HasHeaderKey": HAS_HEADER_KEY,
        "RecordIsTombstone": RECORD_IS_TOMBSTONE,
        "TopicNameMatches": TOPIC_NAME_MATCHES,
    }.items()
}
"""By Java class."""

_KNOWN_MOST = 10_000
"""Topics that are remembered."""


class Predicate(ABC):
    """One predicate class."""

    java_class: str
    """As a configuration names it; of an author's own, what its author calls it."""
    config_def: ClassVar[ConfigDef]

    touches: ClassVar[frozenset[Column]]
    """The columns it looks at."""

    def configure(self, config: RawConfig) -> None:
        """Take the settings below the alias, without prefix. Raises ConfigError; `field` is the key without prefix."""
        self._set_up(self.config_def.parse(config))

    @abstractmethod
    def _set_up(self, settings: dict[str, Any]) -> None:
        """Take the parsed settings."""

    @abstractmethod
    def emit(self, code: Code) -> str:
        """An expression that is true for the records wanted."""

    @abstractmethod
    def test(self, key: Any, value: Any, topic: str | None, headers: Sequence[Header]) -> bool:
        """Whether the record is wanted."""

    def alone(self, cells: Cells, _shape: Shape, _batch: Batch, _at: int) -> bool:
        """The same of a record's cells, with its shape, and where it was in its batch."""
        return self.test(*cells[:4])

    def close(self) -> None:
        """Release everything; called once when the task ends."""
        return


class HasHeaderKey(Predicate):
    """True for a record with a header of that name."""

    java_class = "org.apache.kafka.connect.transforms.predicates.HasHeaderKey"
    config_def = HAS_HEADER_KEY
    touches = frozenset[Column](("headers",))

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._name: str = settings["name"]

    def emit(self, code: Code) -> str:
        return f"any([header.key == {self._name!r} for header in {code.read('headers')}])"

    def test(self, key: Any, value: Any, topic: str | None, headers: Sequence[Header]) -> bool:
        return any(header.key == self._name for header in headers)


class RecordIsTombstone(Predicate):
    """True for a record whose value is null."""

    java_class = "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"
    config_def = RECORD_IS_TOMBSTONE
    touches = frozenset[Column](("value",))

    def _set_up(self, settings: dict[str, Any]) -> None:
        return

    def emit(self, code: Code) -> str:
        return f"{code.read('value')} is None"

    def test(self, key: Any, value: Any, topic: str | None, headers: Sequence[Header]) -> bool:
        return value is None


class TopicNameMatches(Predicate):
    """True for a record whose topic is matched in full."""

    java_class = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
    config_def = TOPIC_NAME_MATCHES
    touches = frozenset[Column](("topic",))

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._pattern = compiled(settings["pattern"])
        self._known: dict[str, bool] = {}

    def emit(self, code: Code) -> str:
        return f"{code.bind(self._matches)}({code.read('topic')})"

    def test(self, key: Any, value: Any, topic: str | None, headers: Sequence[Header]) -> bool:
        return self._matches(topic)

    def _matches(self, topic: str | None) -> bool:
        if topic is None:
            return False
        found = self._known.get(topic)
        if found is None:
            if len(self._known) >= _KNOWN_MOST:
                self._known.clear()
            found = self._known[topic] = self._pattern.fullmatch(topic) is not None
        return found


PREDICATES: Mapping[str, type[Predicate]] = {
    name: cls for cls in (HasHeaderKey, RecordIsTombstone, TopicNameMatches) for name in (cls.java_class, cls.__name__)
}
"""By Java class and simple name."""
