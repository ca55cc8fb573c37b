"""Folder of the topics recorded from Java Connect 4.3.1, and of its REST API's answers after each scenario.

Owns the folder and the reading of its lines; each test interprets them. `HERDMESH_GOLDEN_DIR` names another
folder of the same shape, which may hold other scenarios, steps whose answers are held out, and fewer files.

Invariant: a file that is missing from the tree's own folder is an error, never an empty list.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

Line = dict[str, Any]

_OWN = Path(__file__).resolve().parents[1] / "golden" / "connect"


def is_own() -> bool:
    """True for the folder in the tree, whose counts are known."""
    return golden_dir() == _OWN


def golden_dir() -> Path:
    """HERDMESH_GOLDEN_DIR, or the folder in the tree."""
    named = os.environ.get("HERDMESH_GOLDEN_DIR", "")
    return Path(named) if named else _OWN


def lines(name: str) -> list[Line]:
    """Every line of a file such as `config-topic.jsonl`, in order. [] where another folder does not have the file."""
    path = golden_dir() / name
    if not is_own() and not path.is_file():
        return []
    return _read(path)


def own_lines(name: str) -> list[Line]:
    """Every line of a file in the tree's own folder, whatever HERDMESH_GOLDEN_DIR is: other files refer to these
    lines.
    """
    return _read(_OWN / name)


def lines_or_own(name: str) -> list[Line]:
    """Every line of a file in the named folder, or in the tree's own where the named one does not have it."""
    return lines(name) if (golden_dir() / name).is_file() else own_lines(name)


def key_and_value(line: Line) -> tuple[bytes | None, bytes | None]:
    """Key and value bytes of a dumped record."""
    key, value = line["key_b64"], line["value_b64"]
    return None if key is None else base64.b64decode(key), None if value is None else base64.b64decode(value)


def _read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
