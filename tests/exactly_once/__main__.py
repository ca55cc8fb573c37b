"""Command `python -m tests.exactly_once`: one run with a chosen seed and size.

    python -m tests.exactly_once --seed 7 --records 1000000

Exit code 1 when a record was lost or duplicated, or when a twin has no duplicate; then the folder with the logs of
every process stays, and its path is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.exactly_once.run import run_exactly_once


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.exactly_once", description="Kill a mesh at work, and count.")
    parser.add_argument("--seed", type=int, default=None, help="of the kills; default: a fresh one, printed")
    parser.add_argument("--records", type=int, default=100_000, help="of each path")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="herdmesh-exactly-once-"))
    failed = True
    try:
        outcome = asyncio.run(run_exactly_once(folder, seed, options.records))
        print(outcome.summary(), flush=True)
        failed = not all(one.holds(options.records) for one in outcome.results.values())
    finally:
        if failed:
            print(f"FAILED: seed {seed}, logs in {folder / 'stack' / 'logs'}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
