"""Command `python -m tests.chaos`: a long run of chaos. `make chaos` calls it.

    python -m tests.chaos                     15 minutes from a fresh seed
    python -m tests.chaos --seed 7 --seconds 60

Exit code 1 when anything was violated; then the folder with the logs of every process stays, and its path is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import run_chaos

LONG_S = 900


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Harm a whole mesh at random.")
    parser.add_argument("--seed", type=int, default=None, help="of the faults; default: a fresh one, printed")
    parser.add_argument("--seconds", type=float, default=LONG_S, help="harm for so long, and until all were killed")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="herdmesh-chaos-"))
    failed = True
    try:
        outcome = asyncio.run(run_chaos(folder, seed, options.seconds))
        print(outcome.summary(), flush=True)
        failed = bool(outcome.violations)
    finally:
        if failed:
            print(f"FAILED: seed {seed}, logs in {folder / 'stack' / 'logs'}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
