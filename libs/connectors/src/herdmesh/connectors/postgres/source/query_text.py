"""The query of a config, prepared so that conditions can be put around it.

Owns finding its end: a semicolon counts only outside of texts, names and comments. Knows no other SQL.
"""

from __future__ import annotations

import re
from typing import Final

from herdmesh.sdk import ConfigError

_SHOWN_CHARS: Final = 40
_TOKEN: Final = re.compile(
    r"""
      --[^\n]* | (?P<comment>/\*) | (?P<end>;)
    | (?<!\w)[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*"
    | (?<!\w)\$(?P<tag>[A-Za-z_]\w*)?\$.*?\$(?(tag)(?P=tag))\$
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT: Final = re.compile(r"/\*|\*/")


def one_query(key: str, text: str | None) -> str:
    """Return the query without semicolons at its end; "" = none.

    Raises:
        ConfigError: of `key`, for text other than blanks after a semicolon: a condition would be appended to that text,
            or be in a comment.
    """
    query = (text or "").strip()
    while query.endswith(";"):
        query = query[:-1].rstrip()
    place = 0
    while found := _TOKEN.search(query, place):
        place = found.end()
        if found["comment"]:
            place = _comment_end(query, place)
        elif found["end"]:
            raise ConfigError(
                f"{key}: a semicolon ends the query, and it is followed by {query[place:].strip()[:_SHOWN_CHARS]!r}",
                field=key,
                fix="write one SELECT without a semicolon; a comment may stand at its end",
            )
    return query


def _comment_end(query: str, place: int) -> int:
    """Return the position after a comment whose `/*` ends at `place`: PostgreSQL's comments can be nested."""
    depth = 1
    while depth and (found := _COMMENT.search(query, place)):
        depth += 1 if found[0] == "/*" else -1
        place = found.end()
    return len(query) if depth else place
