"""The demo's folder: which one may be emptied, and what remains of it.

Owns the check before it is emptied, its removal, and the text that says where the demo's files are.

Invariant: no folder is emptied or removed that a demo did not create.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.layout import StackLayout

STACK: Final = "stack"
PARQUET: Final = "flights.parquet"


def empty(data_dir: Path) -> None:
    """Remove the files of an earlier demo. Raises DevstackError for a folder with other content."""
    is_a_demos = StackLayout(data_dir / STACK).state_file.exists()
    if data_dir.exists() and not is_a_demos and (not data_dir.is_dir() or any(data_dir.iterdir())):
        raise DevstackError(f"{data_dir} has files of something else: name an empty folder with --data")
    shutil.rmtree(data_dir, ignore_errors=True)


def remove(data_dir: Path) -> str:
    """Remove the demo's files, and the folder above if it is then empty (`.herd`). Returns the text for the user."""
    shutil.rmtree(data_dir, ignore_errors=True)
    with contextlib.suppress(OSError):  # it has other content
        data_dir.parent.rmdir()
    return f"{_shown(data_dir)} was removed; `herd demo --keep` keeps topic, Parquet and logs"


def kept(data_dir: Path) -> Iterator[str]:
    """The lines that say where everything is."""
    shown = _shown(data_dir)
    yield f"Parquet  {shown}/{PARQUET}"
    yield f"logs     {shown}/{STACK}/logs"
    yield f"cluster  herd up --data {shown}/{STACK} starts it again, with the topic and the connector"
    yield f"remove   rm -r {shown}"


def _shown(path: Path) -> str:
    """The path below the current folder, else the whole one."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
