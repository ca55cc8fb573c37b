"""Field paths: the name of a field, or the path to a nested one (KIP-821,
docs/reference/connect/transforms-converters.md, section 2.3).

Owns the syntax of both versions.

Invariant: a path has the same steps as in Java's `SingleFieldPath`.
"""

from __future__ import annotations

from collections.abc import Sequence

from herdmesh.connect.errors import ConfigError


def steps_of(path: str, version: str) -> Sequence[str]:
    """The names along the path, outermost first. Version V1: the whole text is one name.

    Raises:
        ConfigError: V2, a backtick that opens a name and is not closed.
    """
    if version.upper() == "V1":
        return (path,)
    steps: list[str] = []
    rest = path
    while rest:
        if rest.startswith("`"):
            step, rest, more = _quoted(rest, path)
        else:
            step, dot, rest = rest.partition(".")
            more = bool(dot)
        steps.append(step)
        if more and not rest:
            steps.append("")
    return steps


def _quoted(text: str, path: str) -> tuple[str, str, bool]:
    """The name in backticks at the beginning of `text`, the text after it, and whether a dot separates the two."""
    at = 1
    while True:
        end = text.find("`", at)
        if end < 0:
            place = len(path) - len(text)
            raise ConfigError(
                f"Incomplete backtick pair in path: [{path}], consider adding a backslash before backtick at position "
                f"{place} to escape it"
            )
        last = end == len(text) - 1
        if (last or text[end + 1] == ".") and text[end - 1] != "\\":
            return _unescaped(text[1:end]), text[end + 2 :], not last
        at = end + 1


def _unescaped(name: str) -> str:
    """The name without the backslashes before backticks that are followed by a dot or the end."""
    return name.replace("\\`.", "`.")
