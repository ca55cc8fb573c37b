"""Sizes of long tests, for `python -m tests.soak` to print: a line of JSON each in the file HERDMESH_SOAK_TALLY.

Owns the lines. Without that variable nothing is written; a test notes the same in both cases.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

VARIABLE = "HERDMESH_SOAK_TALLY"


def note(part: str, *, runs: int, operations: int, faults: Mapping[str, int], violations: int = 0) -> None:
    """Note one part's sizes: runs, operations and faults."""
    _write(
        {
            "part": part,
            "runs": runs,
            "operations": operations,
            "faults": dict(sorted(faults.items())),
            "violations": violations,
        }
    )


def caught(mutant: str, seed: int, checks: Sequence[str]) -> None:
    """Note that a build with one safety switched off was caught."""
    _write({"mutant": mutant, "seed": seed, "checks": list(checks)})


def _write(line: Mapping[str, object]) -> None:
    path = os.environ.get(VARIABLE, "")
    if path:
        with Path(path).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")
