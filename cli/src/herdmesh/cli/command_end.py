"""The end of a command: an error, Ctrl-C and a closed pipe become output and an exit code.

Owns the exit codes of signals, which are those of a shell: 130 after Ctrl-C, 141 when the reader of a pipe has ended
(`herd get connectors | head -1`). Imports no client, because `herd transform` uses none.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import typer

from herdmesh.cli.display.output import EXIT_PIPE, Format, discard_output, out, print_error
from herdmesh.cli.errors import CommandError

EXIT_INTERRUPTED: Final = 130


@contextmanager
def command_end(output: Format) -> Generator[None]:
    """Turn whatever ends the block into the end of the command, in its output format."""
    out.whole = output.is_wide
    try:
        yield
    except CommandError as error:
        print_error(error, output)
        raise typer.Exit(error.exit_code) from None
    except BrokenPipeError:
        discard_output()
        raise typer.Exit(EXIT_PIPE) from None
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
