"""The end of a command that changed several connectors: one document with all results, and the error if there is one.

Owns the rule that `-o json` prints exactly one document, also when some changes were made and others failed: the
error's document then has the results beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

import typer

from herdmesh.cli.display import views
from herdmesh.cli.display.output import Format, error_document, print_document
from herdmesh.cli.errors import CommandError


def end_with(
    output: Format, results: Sequence[views.Json], error: CommandError | None = None, *, as_list: bool | None = None
) -> None:
    """Print the results for programs, and raise the error.

    Args:
        as_list: print a list; None = only when there is not exactly one result.
    """
    if error is not None:
        if not output.has_errors or not results:
            raise error
        print_document(output, {**error_document(error), "results": list(results)})
        raise typer.Exit(error.exit_code)
    if output.is_document:
        alone = len(results) == 1 if as_list is None else not as_list
        print_document(output, results[0] if alone else list(results))
