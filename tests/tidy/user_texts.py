"""Texts that a user or operator reads: messages of errors and log lines, found in the code, and their wording.

Owns the extraction and the list of phrases that name neither cause nor next step in an operator's words (docs/STYLE.md,
section 4). `test_user_texts.py` owns the number of older texts that still have one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.tidy.rules import Source

LEVELS: Final = ("debug", "info", "warning", "error", "exception", "critical")
#: Levels at which an operator must act, or must know that no action is needed.
LOUD: Final = ("warning", "error", "exception", "critical")

#: A phrase, and its replacement.
RIDDLES: Final = (
    (re.compile(r"\b(?:told|heard|hears|heeds?|says so)\b"), "report, receive, read: say who does it"),
    (re.compile(r"\b(?:not )?to be had\b"), "not available"),
    (re.compile(r"\b(?:is|are) no (?:[A-Z]\w+|letter|text|list|number)"), "is not a ..."),
    (re.compile(r"\b(?:is|are|was|were) asked\b|\basked again\b"), "queried, retried"),
    (re.compile(r"\bpassed over\b|\bleft out\b"), "ignored, skipped"),
    (re.compile(r"\banew\b"), "again"),
    (re.compile(r"\bgoes on after\b|\bgoing on without\b"), "continues after"),
    (re.compile(r"(?:^|[ ,;:(])what (?:is|was|are|were|came|it|they|a|the|has|had)\b"), "the thing itself: a noun"),
    (re.compile(r"(?:^|_)(?:un)?(?:heard|told)(?:_|$)"), "received, reported"),
    (re.compile(r"\bnot tried with\b"), "unsupported"),
    (re.compile(r"\bgiven up as\b|\bis given up\b|\bare given up\b"), "abandoned, skipped, released"),
)
_EVENT = re.compile(r"[a-z]+(?:_[a-z0-9]+)*")


class Text(NamedTuple):
    """A text in the code: its line, its kind (`raise` or a log level), and its words with {} for inserted values."""

    line: int
    kind: str
    text: str

    @property
    def is_event(self) -> bool:
        """True of the name of a structured event, as services log them; else it is a sentence."""
        return self.kind != "raise" and _EVENT.fullmatch(self.text) is not None


def texts(source: Source) -> Iterator[Text]:
    """Every message of an error that is raised, of an error class, and of a log call."""
    if not (source.is_python and source.is_shipped):
        return
    for node in source.nodes:
        match node:
            case ast.Raise(exc=ast.Call() as call):
                yield from (Text(node.lineno, "raise", text) for text in _words(call))
            case ast.Call(func=ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super")))):
                yield from (Text(node.lineno, "raise", text) for text in _words(node))
            case ast.Call(func=ast.Attribute(attr=level, value=logger), args=[first, *_]) if (
                level in LEVELS and "log" in ast.unparse(logger).lower()
            ):
                yield from (Text(node.lineno, level, text) for text in _words_of(first))
            case _:
                pass


def riddles(text: Text) -> Iterator[str]:
    """Faults in the wording of a text."""
    for pattern, instead in RIDDLES:
        if found := pattern.search(text.text):
            yield f"{found[0].strip()!r} in {text.text!r}; write {instead}"


def error_classes(source: Source) -> Iterator[tuple[str, str]]:
    """Name and docstring of every error class that a file of shipped code defines."""
    if not (source.is_python and source.is_shipped):
        return
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and any(_is_error(base) for base in node.bases):
            yield node.name, ast.get_docstring(node) or ""


def _is_error(base: ast.expr) -> bool:
    return bool(re.search(r"(?:Error|Exception|Unavailable|TaskFailed|StartError|NotApplied)$", ast.unparse(base)))


def _words(call: ast.Call) -> Iterator[str]:
    for argument in call.args:
        yield from _words_of(argument)


def _words_of(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)) if text.strip():
            yield text
        case ast.JoinedStr(values=values):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from _words_of(left)
            yield from _words_of(right)
        case ast.IfExp(body=body, orelse=orelse):
            yield from _words_of(body)
            yield from _words_of(orelse)
        case _:
            pass
