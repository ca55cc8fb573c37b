"""Public names and docstrings keep to docs/glossary.md and docs/STYLE.md; what is older may only become less.

The numbers are how many findings each package has today. Whoever mends one lowers the number; nobody raises one. A
package that is not listed may have none.
"""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from tests.tidy import words
from tests.tidy.rules import Source
from tests.tidy.test_tree import ROOT, tree_sources

#: Packages between which modules move are counted together.
_MOVING = "herdmesh.connect herdmesh.connectors herdmesh.engine herdmesh.herder herdmesh.session herdmesh.worker"
GROUP_OF = {room: "connect, connectors, engine, herder, session, worker" for room in _MOVING.split()}

NAMES_MAX = {
    "connect, connectors, engine, herder, session, worker": 209,
    "herdmesh.kafka": 2,
    "herdmesh.rpc": 1,
}
DOCSTRINGS_MAX = {
    "connect, connectors, engine, herder, session, worker": 168,
    "herdmesh.kafka": 7,
    "herdmesh.rpc": 3,
}
#: Class names that several modules define.
SAME_NAMES_MAX = 119


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return [source for source in tree_sources() if source.is_python and source.is_shipped]


def _by_room(sources: list[Source], find: str) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for source in sources:
        room = words.room_of(source.path)
        group = found[GROUP_OF.get(room, room)]
        if find == "docstrings":
            group += [f"{source.path}: {finding}" for finding in words.begins_with_noun(source)]
            continue
        for name in words.public_names(source):
            group += [f"{source.path}:{name.line}: {finding}" for finding in words.what_is_wrong(name)]
    return found


@pytest.mark.parametrize(("find", "most"), [("names", NAMES_MAX), ("docstrings", DOCSTRINGS_MAX)])
def test_no_package_has_more_findings_than_it_had(find: str, most: dict[str, int], sources: list[Source]) -> None:
    for room, found in _by_room(sources, find).items():
        assert len(found) <= most.get(room, 0), f"{room} had {most.get(room, 0)}\n" + "\n".join(found)


def test_no_more_classes_share_a_name_than_did(sources: list[Source]) -> None:
    shared = words.same_names(name for source in sources for name in words.public_names(source))
    assert len(shared) <= SAME_NAMES_MAX, "a class name means one thing: " + ", ".join(sorted(shared))


def test_what_the_rules_ban_is_in_the_glossary() -> None:
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


def test_a_module_is_named_too() -> None:
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
