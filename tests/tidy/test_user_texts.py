"""Errors and log lines name cause and next step in an operator's words (docs/STYLE.md, section 4)."""

from __future__ import annotations

import re

import pytest

from tests.tidy import user_texts
from tests.tidy.conftest import Scan, by_room
from tests.tidy.rules import Source
from tests.tidy.test_tree import ROOT

#: Number of texts of each package that still have a phrase operators do not use. It may only fall.
RIDDLES_MAX: dict[str, int] = {}
#: Error classes whose docstring is a name alone.
_TERSE = {
    *("ClassCastError", "HerderError", "IllegalArgumentError", "IllegalStateError", "IndexOutOfBoundsError"),
    *("NullPointerError", "NumberFormatError", "_Wrong"),
}
PAGE = "docs/reference/log-events.md"


def test_no_package_has_more_unclear_texts_than_before(scan: Scan) -> None:
    findings = [
        (path, f"line {text.line}: {finding}") for path, text in scan.texts for finding in user_texts.riddles(text)
    ]
    for room, found in by_room(findings).items():
        assert len(found) <= RIDDLES_MAX.get(room, 0), f"{room} had {RIDDLES_MAX.get(room, 0)}\n" + "\n".join(found)


def test_every_error_class_explains_its_error(scan: Scan) -> None:
    assert len(scan.errors) > 100
    silent = [
        f"{path}: {name}" for path, name, docstring in scan.errors if len(docstring.split()) < 3 and name not in _TERSE
    ]
    assert not silent, "say in the docstring what happened and what to do"


def test_every_warning_and_error_event_has_its_cause_and_next_step(scan: Scan) -> None:
    """Checks structured events. Other log lines are sentences, which are searched for the phrases above."""
    lines = [line for line in (ROOT / PAGE).read_text("utf-8").splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    listed = {row[0].strip("`") for row in rows}
    logged = {text.text for _, text in scan.texts if text.is_event and text.kind in user_texts.LOUD}
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
def test_unclear_phrases_are_found_in_displayed_texts(code: str, riddle: str) -> None:
    source = Source("libs/core/src/herdmesh/kafka/a.py", code)
    found = [finding for text in user_texts.texts(source) for finding in user_texts.riddles(text)]
    assert [riddle in finding for finding in found] == ([True] * len(found) if riddle else [])
    assert bool(found) is bool(riddle)
