"""Confirmation of a change that cannot be undone.

Owns the question and the rule that nobody is asked where nobody can answer. A command asks after it has checked its
arguments, so that no answer is wasted.
"""

from __future__ import annotations

import typer

from herdmesh.cli.errors import EXIT_USAGE, CommandError


def confirm(verb: str, question: str) -> None:
    """Ask on standard error. Raises CommandError without a terminal, and `typer.Abort` when the answer is no."""
    if not is_interactive():
        text = f"{verb} asks for confirmation: give --yes where nobody can answer"
        raise CommandError("USAGE", text, exit_code=EXIT_USAGE)
    typer.confirm(question, abort=True, err=True)


def is_interactive() -> bool:
    """True when somebody can answer a question."""
    return typer.get_text_stream("stdin").isatty()
