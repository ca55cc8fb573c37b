"""Connect's predicates, which select the records that a transformation applies to
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
"""Definitions by Java class."""

_KNOWN_MOST = 10_000
"""Maximum number of cached topics."""


class Predicate(ABC):
    """Base of the predicate classes."""

    java_class: str
    """Name in configs; for an author's predicate, the name that its author chose."""
    config_def: ClassVar[ConfigDef]

    touches: ClassVar[frozenset[Column]]
    """The columns that the predicate reads."""

    def configure(self, config: RawConfig) -> None:
        """Store the settings below the alias, without prefix. Raises ConfigError; `field` is the key without prefix."""
        self._set_up(self.config_def.parse(config))

    @abstractmethod
    def _set_up(self, settings: dict[str, Any]) -> None:
        """Store the parsed settings."""

    @abstractmethod
    def emit(self, code: Code) -> str:
        """An expression that is true for the selected records."""

    @abstractmethod
    def test(self, key: Any, value: Any, topic: str | None, headers: Sequence[Header]) -> bool:
        """True when the predicate selects the record."""

    def alone(self, cells: Cells, _shape: Shape, _batch: Batch, _at: int) -> bool:
        """As `test`, for the cells of a record, with its shape and its index in its batch."""
        return self.test(*cells[:4])

    def close(self) -> None:
        """Release all resources; called once when the task ends."""
        return


class HasHeaderKey(Predicate):
    """Selects records with a header of that name."""

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
    """Selects records whose value is null."""

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
    """Selects records whose topic matches in full."""

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
"""Constructors by Java class and by simple name."""
