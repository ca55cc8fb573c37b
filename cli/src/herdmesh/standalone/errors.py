"""Errors of files given to `herd run`, and of running them.

Owns the types. Invariant: a problem names its file, and its line and key where it has them, so that it can be fixed
without a search.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One error or warning. `line` from 1, 0 = the file as a whole; `key` "" = no property."""

    path: str
    line: int
    key: str
    message: str

    @property
    def place(self) -> str:
        """`file:line: key`, as far as known."""
        where = f"{self.path}:{self.line}" if self.line else self.path
        return f"{where}: {self.key}" if self.key else where


class BadFiles(Exception):
    """Files that cannot be run, with all problems found, in the order of the files."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{one.place}: {one.message}" for one in self.problems))


class PartEnded(Exception):
    """A part of the running process ended, or did not start; the message has the part and the reason."""
