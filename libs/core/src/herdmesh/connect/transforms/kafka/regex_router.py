"""RegexRouter: renames the topic by a regular expression (docs/reference/connect/transforms-converters.md, section
2.11).

Owns the settings, and a cache of topics.

Invariant: a topic that the expression does not match as a whole keeps its name. In a topic that it matches, the first
match is replaced, as in Java.
"""

from __future__ import annotations

from typing import Any

from herdmesh.connect.errors import NullPointerError
from herdmesh.connect.java import Replacement, compiled
from herdmesh.connect.transforms.base import Code, Column, Compiled, Shape, Transformation
from herdmesh.connect.transforms.kafka import definitions

_KNOWN_MOST = 10_000
"""Maximum number of cached topics."""


class RegexRouter(Transformation):
    """`org.apache.kafka.connect.transforms.RegexRouter`."""

    java_class = "org.apache.kafka.connect.transforms.RegexRouter"
    config_def = definitions.REGEX_ROUTER
    touches = frozenset[Column](("topic",))

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._pattern = compiled(settings["regex"])
        text: str | None = settings["replacement"]
        self._replacement = None if text is None else Replacement(text, self._pattern)
        self._known: dict[str | None, str] = {}

    def compile(self, shape: Shape) -> Compiled:
        def emit(code: Code) -> None:
            code.write("topic", f"{code.bind(self.routed)}({code.read('topic')})")

        return Compiled(shape, emit)

    def routed(self, topic: str | None) -> str:
        """The new topic. Raises NullPointerError for a record without a topic."""
        found = self._known.get(topic)
        if found is None:
            found = self._made(topic)
            if len(self._known) >= _KNOWN_MOST:
                self._known.clear()
            self._known[topic] = found
        return found

    def _made(self, topic: str | None) -> str:
        if topic is None:
            raise NullPointerError("the record has no topic")
        if self._pattern.fullmatch(topic) is None:
            return topic
        if self._replacement is None:
            raise NullPointerError("replacement is null")
        return self._replacement.first(topic)
