"""Rules of docs/glossary.md and docs/STYLE.md for public names and docstrings; older findings may only become fewer.

The numbers are the findings of each package today. A change that fixes one lowers the number; no change raises one. A
package that is not listed may have none.
"""

from __future__ import annotations

import re

import pytest

from tests.tidy import words
from tests.tidy.conftest import Scan, by_room
from tests.tidy.rules import Source
from tests.tidy.test_tree import ROOT

#: `RunEnd.QUIET` has the name of the protocol's released enum value.
NAMES_MAX = {"herdmesh.engine": 1}
DOCSTRINGS_MAX: dict[str, int] = {}
#: Class names that several modules define.
SAME_NAMES_MAX = 89


def test_no_package_has_more_bad_names_than_before(scan: Scan) -> None:
    findings = [
        (name.path, f"line {name.line}: {finding}") for name in scan.names for finding in words.what_is_wrong(name)
    ]
    for room, found in by_room(findings).items():
        assert len(found) <= NAMES_MAX.get(room, 0), f"{room} had {NAMES_MAX.get(room, 0)}\n" + "\n".join(found)


def test_no_package_has_more_bad_docstrings_than_before(scan: Scan) -> None:
    for room, found in by_room(scan.docstrings).items():
        most = DOCSTRINGS_MAX.get(room, 0)
        assert len(found) <= most, f"{room} had {most}\n" + "\n".join(found)


def test_no_more_classes_share_a_name_than_before(scan: Scan) -> None:
    shared = words.same_names(scan.names)
    assert len(shared) <= SAME_NAMES_MAX, "a class name means one thing: " + ", ".join(sorted(shared))


def test_every_banned_word_is_in_the_glossary() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text("utf-8")
    banned = {*words.BANNED_VERBS, *words.BARE_NOUNS, *words.BANNED_NAMES}
    missing = [word for word in sorted(banned) if not re.search(rf"\b{word}\b", glossary)]
    missing += [word for word in words.BANNED if not re.search(rf"\b{word.rstrip('s')}", glossary)]
    assert not missing


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("def settle(mesh): ...", "function settle names no object"),
        ("def settle_positions(mesh): ...", ""),
        ("class Reader: ...", "class Reader says not of what"),
        ("class TopicReader: ...", ""),
        ("class A:\n    def told(self): ...", "function told names no object"),
        ("class A:\n    asked_ms: int = 0", "field asked_ms has the word 'asked'"),
        ("class LetterTopic: ...", "class LetterTopic has the word 'letter'"),
        ("class DeadLetterTopic: ...\ndead_letters = 1", ""),
        ("def _settle(): ...\nclass _Reader:\n    def told(self): ...", ""),
        ("class StaleGeneration: ...", "class StaleGeneration: write Superseded"),
    ],
)
def test_names_that_the_glossary_bans_are_found(text: str, wrong: str) -> None:
    names = words.public_names(Source("libs/core/src/herdmesh/kafka/a.py", text))
    assert [finding.split(";")[0].split(" (")[0] for name in names for finding in words.what_is_wrong(name)] == (
        [wrong] if wrong else []
    )


def test_a_module_name_is_checked_too() -> None:
    names = words.public_names(Source("libs/core/src/herdmesh/kafka/letters.py", ""))
    assert [finding for name in names for finding in words.what_is_wrong(name)]


@pytest.mark.parametrize(
    ("docstring", "good"),
    [
        ("What of a connector lies beyond.", False),
        ("How it is run.", False),
        ("Owns x.", False),
        ("The reader of a topic.", True),
        ("Dead letters: records that failed.", True),
    ],
)
def test_docstrings_begin_with_a_noun(docstring: str, good: bool) -> None:
    source = Source("libs/core/src/herdmesh/kafka/a.py", f'"""{docstring}"""\n')
    assert [*words.begins_with_noun(source)] == [] if good else [*words.begins_with_noun(source)]
