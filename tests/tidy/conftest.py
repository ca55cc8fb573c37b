"""One pass over the tree for all tests of the house rules: each file is read and parsed once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from tests.tidy import user_texts, words
from tests.tidy.rules import RULES, Rule
from tests.tidy.test_tree import tree_sources


@dataclass
class Scan:
    """Results of the pass. Lists have (path, finding)."""

    findings: dict[Rule, list[str]] = field(default_factory=lambda: {rule: [] for rule in RULES})
    names: list[words.Name] = field(default_factory=list[words.Name])
    docstrings: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    texts: list[tuple[str, user_texts.Text]] = field(default_factory=list[tuple[str, user_texts.Text]])
    #: path, name and docstring of each error class.
    errors: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])


@pytest.fixture(scope="session")
def scan() -> Scan:
    """File by file: each is parsed once for all rules, and released before the next. A million nodes of all trees at
    once would cost the garbage collector more than the rules take.
    """
    found = Scan()
    for source in tree_sources():
        for rule in RULES:
            found.findings[rule] += [f"{source.path}: {finding}" for finding in rule(source)]
        found.names += words.public_names(source)
        found.docstrings += [(source.path, finding) for finding in words.begins_with_noun(source)]
        found.texts += [(source.path, text) for text in user_texts.texts(source)]
        found.errors += [(source.path, *error) for error in user_texts.error_classes(source)]
    return found


def by_room(findings: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Findings of each package."""
    rooms: defaultdict[str, list[str]] = defaultdict(list)
    for path, finding in findings:
        rooms[words.room_of(path)].append(f"{path}: {finding}")
    return rooms
