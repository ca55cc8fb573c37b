"""Tests of finding the end of a config's query."""

from __future__ import annotations

import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connectors.postgres.source.query_text import one_query

_TEXTS = "SELECT ';', E'\\';', \"a;b\", 'it''s;', $$;$$, $x$;$$;$x$"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (None, ""),
        (" ; ", ""),
        ("SELECT 1;", "SELECT 1"),
        ("SELECT 1 ; ;;\n", "SELECT 1"),
        ("SELECT 1 -- one; and all", "SELECT 1 -- one; and all"),
        ("SELECT 1 /* a; /* b; */ c; */", "SELECT 1 /* a; /* b; */ c; */"),
        (_TEXTS, _TEXTS),
        ("SELECT '--', 1;", "SELECT '--', 1"),
    ],
)
def test_semicolons_at_the_end_are_removed_and_those_in_texts_are_kept(written: str | None, read: str) -> None:
    assert one_query("query", written) == read


@pytest.mark.parametrize(
    ("written", "behind"),
    [
        ("SELECT 1; -- every row", "-- every row"),
        ("SELECT 1; /* every row */", "/* every row */"),
        ("SELECT 1; SELECT 2", "SELECT 2"),
        ("SELECT ';' ;;-- x", ";-- x"),
        ("SELECT a$1$ FROM t; DELETE FROM t", "DELETE FROM t"),
    ],
)
def test_text_after_a_semicolon_is_refused_and_shown(written: str, behind: str) -> None:
    with pytest.raises(ConfigError, match="a semicolon ends the query") as refused:
        one_query("query", written)
    assert repr(behind) in str(refused.value)
    assert (refused.value.field, refused.value.fix) == (
        "query",
        "write one SELECT without a semicolon; a comment may stand at its end",
    )
