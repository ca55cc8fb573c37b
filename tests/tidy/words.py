"""Words in public names, and first words of docstrings, by docs/glossary.md and docs/STYLE.md.

Owns the lists of words and the counting. Public are the names of modules, classes, functions, methods and fields of
shipped code that do not begin with an underscore. `test_words.py` owns the list of older names that may still break the
rules.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from tests.tidy.rules import Source

#: A word of a name, and the glossary's replacement.
BANNED: Final = {
    **dict.fromkeys(("told", "heard", "heed", "heeds"), "report, notify, on_<event>"),
    **dict.fromkeys(("ask", "asks", "asked", "question", "questions"), "command, request, query"),
    **dict.fromkeys(("hold", "holds", "holding", "holdings"), "placement, held unit"),
    **dict.fromkeys(("stray", "strays"), "superseded placement"),
    **dict.fromkeys(("quiet", "rested", "resting"), "idle, warm"),
    **dict.fromkeys(("letter", "letters"), "dead letter"),
    **dict.fromkeys(("pulse", "pulses"), "progress report, heartbeat"),
    **dict.fromkeys(("reign", "reigns"), "leadership, epoch"),
    **dict.fromkeys(("twin", "twins"), "memory engine"),
    **dict.fromkeys(("uncertain", "owed"), "outcome unknown, due"),
}
#: A whole name that is one verb without an object.
BANNED_VERBS: Final = {
    *("told", "tell", "heard", "hear", "heed", "said", "say", "asked", "ask", "answered", "answer"),
    *("settle", "settled", "written", "lost", "taken", "take_in", "take_up", "given_up", "give_up"),
    *("let_go", "owed", "stands"),
}
#: A class name that does not say of what.
BARE_NOUNS: Final = {
    *("Reading", "Reader", "Column", "Plan", "Place", "Form", "Stage", "Role", "Decision"),
    *("Progress", "Limits", "Ahead", "Spread", "Account", "Outlet", "Beyond", "Taken"),
    *("Letter",),
}
#: Names that the glossary bans whole.
BANNED_NAMES: Final = {
    "StaleGeneration": "Superseded",
    "GenerateTaskConfigs": "RequestTaskConfigs",
    "task_set_generation": "task_set_version",
    **dict.fromkeys(("Rest", "RestRun", "to_rest", "may_rest"), "EndWarmRun, warm_runs_to_end, may_end"),
}
#: First words of a docstring that begin no noun phrase.
NO_NOUNS: Final = {
    *("What", "Which", "Who", "Whom", "Whose", "How", "That", "Whether", "Where", "When", "Why", "Of"),
    *("If", "From", "To", "In", "As", "Under", "Between", "So", "There", "It", "Asks", "Does", "Finds"),
    *("Gives", "Has", "Hears", "Holds", "Is", "Keeps", "Makes", "Owns", "Puts", "Reads", "Says", "Sees"),
    *("Takes", "Tells", "Writes"),
}
#: Words that are right after another one.
_RIGHT_AFTER: Final = {("dead", "letter"), ("dead", "letters")}


class Name(NamedTuple):
    """A public name, where it is defined, and as what."""

    path: str
    line: int
    kind: str
    name: str


def public_names(source: Source) -> Iterator[Name]:
    """Every public name that a file of shipped code defines."""
    if not (source.is_python and source.is_shipped):
        return
    stem = PurePosixPath(source.path).stem
    if not stem.startswith("_"):
        yield Name(source.path, 1, "module", stem)
    yield from _in_body(source.path, source.tree.body, inside_class=False)


def _in_body(path: str, body: list[ast.stmt], *, inside_class: bool) -> Iterator[Name]:
    for node in body:
        match node:
            case ast.ClassDef(name=name) if not name.startswith("_"):
                yield Name(path, node.lineno, "class", name)
                yield from _in_body(path, node.body, inside_class=True)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if not name.startswith("_"):
                yield Name(path, node.lineno, "function", name)
            case ast.AnnAssign(target=ast.Name(id=name)) if inside_class and not name.startswith("_"):
                yield Name(path, node.lineno, "field", name)
            case ast.Assign(targets=[ast.Name(id=name)]) if inside_class and not name.startswith("_"):
                yield Name(path, node.lineno, "field", name)
            case _:
                pass


def words_of(name: str) -> list[str]:
    """The words of a name: `fooBar_baz` has foo, bar and baz."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def what_is_wrong(found: Name) -> Iterator[str]:
    """Objections of the glossary to a name, one sentence each."""
    name = found.name
    if name in BANNED_NAMES:
        yield f"{found.kind} {name}: write {BANNED_NAMES[name]} (docs/glossary.md)"
    if found.kind == "function" and name in BANNED_VERBS:
        yield f"function {name} names no object; call it for what it does to what (docs/glossary.md)"
        return
    if found.kind == "class" and name in BARE_NOUNS:
        yield f"class {name} says not of what; put that before it (docs/glossary.md)"
        return
    words = words_of(name)
    for before, word in zip(["", *words], words, strict=False):
        if word in BANNED and (before, word) not in _RIGHT_AFTER:
            yield f"{found.kind} {name} has the word {word!r}; write {BANNED[word]} (docs/glossary.md)"


def same_names(names: Iterable[Name]) -> dict[str, list[Name]]:
    """Public classes of one name in several modules, by that name: one name may mean one thing."""
    classes: defaultdict[str, list[Name]] = defaultdict(list)
    for found in names:
        if found.kind == "class":
            classes[found.name].append(found)
    return {name: places for name, places in classes.items() if len(places) > 1}


def room_of(path: str) -> str:
    """The package of a file below `herdmesh`: `herdmesh.kafka`."""
    parts = PurePosixPath(path).parts
    return ".".join(parts[parts.index("src") + 1 :][:2])


def begins_with_noun(source: Source) -> Iterator[str]:
    """Faults of the first word of a shipped module's docstring, by a list of words."""
    if not (source.is_python and source.is_shipped):
        return
    words = (ast.get_docstring(source.tree) or "").split(maxsplit=1)
    if words and words[0].rstrip(",:") in NO_NOUNS:
        yield f"its docstring begins with {words[0]!r}; begin with a noun phrase that says what the module is"
