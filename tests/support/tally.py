"""What long tests did, for `python -m tests.soak` to tell: a line of JSON each in the file HERDMESH_SOAK_TALLY.

Owns the lines. Without that variable nothing is written; a test notes the same in both cases.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

VARIABLE = "HERDMESH_SOAK_TALLY"


def note(part: str, *, runs: int, operations: int, faults: Mapping[str, int], violations: int = 0) -> None:
    """One part's sizes: what was run, asked and done to it."""
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
    """A build with one safety switched off was caught."""
    _write({"mutant": mutant, "seed": seed, "checks": list(checks)})


def _write(line: Mapping[str, object]) -> None:
    path = os.environ.get(VARIABLE, "")
    if path:
        with Path(path).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")
