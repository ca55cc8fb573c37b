"""Errors and log lines say cause and next step in an operator's words (docs/STYLE.md, section 4)."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from tests.tidy import user_texts, words
from tests.tidy.rules import Source
from tests.tidy.test_tree import ROOT, tree_sources
from tests.tidy.test_words import GROUP_OF

#: How many texts of each package still have a phrase that operators do not use. These may only fall.
RIDDLES_MAX = {"connect, connectors, engine, herder, session, worker": 60}
#: Error classes whose docstring is a name alone.
_TERSE = {
    *("ClassCastError", "HerderError", "IllegalArgumentError", "IllegalStateError", "IndexOutOfBoundsError"),
    *("NullPointerError", "NumberFormatError", "_Wrong"),
}
PAGE = "docs/reference/log-events.md"


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return [source for source in tree_sources() if source.is_python and source.is_shipped]


def test_no_package_has_more_riddles_than_it_had(sources: list[Source]) -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for source in sources:
        room = words.room_of(source.path)
        for text in user_texts.texts(source):
            found[GROUP_OF.get(room, room)] += [
                f"{source.path}:{text.line}: {finding}" for finding in user_texts.riddles(text)
            ]
    for room, findings in found.items():
        most = RIDDLES_MAX.get(room, 0)
        assert len(findings) <= most, f"{room} had {most}\n" + "\n".join(findings)


def test_every_error_class_says_what_happened(sources: list[Source]) -> None:
    classes = [(source.path, *found) for source in sources for found in user_texts.error_classes(source)]
    assert len(classes) > 100
    silent = [
        f"{path}: {name}" for path, name, text in classes if len(text.split()) < 3 and name not in _TERSE
    ]
    assert not silent, "say in the docstring what happened and what to do"


def test_every_loud_log_event_has_its_cause_and_next_step(sources: list[Source]) -> None:
    """Of structured events. Others log sentences, which the phrases above are looked for in."""
    page = (ROOT / PAGE).read_text("utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    listed = {row[0].strip("`") for row in rows}
    logged = {
        text.text
        for source in sources
        for text in user_texts.texts(source)
        if text.is_event and text.kind in user_texts.LOUD
    }
    assert len(logged) > 40
    assert not logged - listed, f"these are not in {PAGE}"
    assert not listed - logged, f"{PAGE} has these, which nothing logs"
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    for event, part, cause, next_step in rows:
        assert part in {"all", "config store", "herder", "standalone", "status store", "worker"}, event
        assert len(cause.split()) >= 4, f"{event}: name the cause"
        assert re.match(r"[A-Z]\w+", next_step), f"{event}: name the next step"


@pytest.mark.parametrize(
    ("code", "riddle"),
    [
        ('raise ValueError("the task is no SinkTask")', "is no SinkTask"),
        ('raise ValueError(f"{x} is not to be had here")', "not to be had"),
        ('log.warning("going on without what was committed: %s", x)', "going on without"),
        ('_log.warning("arrivals_not_heard", error=x)', "_heard"),
        ('super().__init__("what is beside a write failed")', "what is"),
        ('log.warning("skipped 3 records: %s", x)', ""),
        ('raise ValueError("the value is not a number: write digits")', ""),
        ('print("told")', ""),
    ],
)
def test_riddles_are_found_in_what_is_shown(code: str, riddle: str) -> None:
    source = Source("libs/core/src/herdmesh/kafka/a.py", code)
    found = [finding for text in user_texts.texts(source) for finding in user_texts.riddles(text)]
    assert [riddle in finding for finding in found] == ([True] * len(found) if riddle else [])
    assert bool(found) is bool(riddle)
