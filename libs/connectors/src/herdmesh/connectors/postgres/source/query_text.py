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
    """The query without semicolons at its end; "" = none.

    Raises:
        ConfigError: of `key`, where more than blanks stands behind a semicolon: a condition would be put behind it, or
            into a comment.
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
                f"{key}: a semicolon ends the query, and behind it stands {query[place:].strip()[:_SHOWN_CHARS]!r}",
                field=key,
                fix="write one SELECT without a semicolon; a comment may stand at its end",
            )
    return query


def _comment_end(query: str, place: int) -> int:
    """Behind a comment whose `/*` ends at `place`: PostgreSQL's can stand within each other."""
    depth = 1
    while depth and (found := _COMMENT.search(query, place)):
        depth += 1 if found[0] == "/*" else -1
        place = found.end()
    return len(query) if depth else place
