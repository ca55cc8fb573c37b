"""Replacement texts of Java's `Matcher.replaceFirst`: `$1`, `${name}` and backslashes.

Owns that syntax.

Invariant: an invalid replacement text is refused at its first use, as in Java, and not before.
"""

from __future__ import annotations

import regex

from herdmesh.connect.errors import IllegalArgumentError, IndexOutOfBoundsError, JavaRuntimeError

_MISSING_BRACE = "named capturing group is missing trailing '}'"


class Replacement:
    """A replacement for one pattern."""

    def __init__(self, text: str, pattern: regex.Pattern[str]) -> None:
        self._text = text
        self._pattern = pattern
        self._parts: list[str | int] = []
        self._wrong: JavaRuntimeError | None = None
        try:
            self._parse()
        except JavaRuntimeError as error:
            self._wrong = error

    def first(self, text: str) -> str:
        """The text with its first match replaced; the same text where nothing matches.

        Raises:
            IllegalArgumentError, IndexOutOfBoundsError: the replacement is invalid, with Java's text.
        """
        found = self._pattern.search(text)
        if found is None:
            return text
        if self._wrong is not None:
            raise self._wrong
        made = "".join(part if isinstance(part, str) else found[part] or "" for part in self._parts)
        return text[: found.start()] + made + text[found.end() :]

    def _parse(self) -> None:
        text, at = self._text, 0
        while at < len(text):
            char = text[at]
            at += 1
            if char == "\\":
                if at == len(text):
                    raise IllegalArgumentError("character to be escaped is missing")
                self._parts.append(text[at])
                at += 1
            elif char != "$":
                self._parts.append(char)
            elif at == len(text):
                raise IllegalArgumentError("Illegal group reference: group index is missing")
            else:
                at = self._named(at + 1) if text[at] == "{" else self._numbered(at)

    def _named(self, at: int) -> int:
        end = at
        while self._text[end : end + 1].isascii() and self._text[end : end + 1].isalnum():
            end += 1
        name = self._text[at:end]
        if not name or self._text[end : end + 1] != "}":
            raise IllegalArgumentError(_MISSING_BRACE)
        if name[0].isdigit():
            raise IllegalArgumentError(f"capturing group name {{{name}}} starts with digit character")
        if name not in self._pattern.groupindex:
            raise IllegalArgumentError(f"No group with name {{{name}}}")
        self._parts.append(self._pattern.groupindex[name])
        return end + 1

    def _numbered(self, at: int) -> int:
        """Parse the longest number that is the number of a group."""
        number, groups = 0, self._pattern.groups
        start = at
        while at < len(self._text) and self._text[at] in "0123456789":
            longer = number * 10 + int(self._text[at])
            if at > start and longer > groups:
                break
            number = longer
            at += 1
        if at == start:
            raise IllegalArgumentError("Illegal group reference")
        if number > groups:
            raise IndexOutOfBoundsError(f"No group {number}")
        self._parts.append(number)
        return at
