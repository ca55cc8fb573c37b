"""The process that runs cases: of this tree, or of an older one by its interpreter.

Owns the protocol with its starter. Each line of its input is JSON, `{"case": ..., "repeats": ...}`, and so is its
output, `{"seconds": ...}` or `{"error": ...}`; the first line it writes has the names of all cases.
"""

from __future__ import annotations

import json
import sys

from bench.tasks.cases import cases


def run(dsn: str) -> None:
    """Run cases until the input ends. `dsn`: the database for the cases that need one; empty = they are left out."""
    with cases() as found:
        if dsn:
            from bench.tasks import databases

            found |= dict(databases.cases(dsn))
        _say({"cases": list(found)})
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                _say({"seconds": found[asked["case"]](asked["repeats"])})
            except Exception as error:  # noqa: BLE001 - an older tree may lack functions of this one
                _say({"error": f"{type(error).__name__}: {error}"})


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    run(sys.argv[1] if len(sys.argv) > 1 else "")
