"""The option `-o` of the commands that print records: `herd consume` and `herd transform`.

Apart from `herdmesh.cli.runner`, because `herd transform` imports no client of a mesh.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from herdmesh.cli.display.output import RECORD_FORMATS, Format

_OPTION: Final[Any] = typer.Option(
    "-o",
    "--output",
    metavar="FORMAT",
    parser=Format.parse_of_records,
    autocompletion=lambda: [*RECORD_FORMATS, "jsonpath="],
    help="table: TIME, PARTITION:OFFSET, KEY, VALUE [headers]; wide: with the topic; json: a line per record, as "
    "`herd produce` reads it; value: only values, their own bytes; typed: JSON with schemas and exact types; yaml, "
    "csv, name, jsonpath='{.value}'.",
)
RecordOutputOption = Annotated[Format, _OPTION]
#: For a command whose records are JSON without the option too, but whose errors are then text.
OptionalRecordOutputOption = Annotated[Format | None, _OPTION]
