"""Command `python -m tests.sim.mesh --seed N`: run one story with its trace. `--seeds A B`: run many, print the failing
ones.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from contextlib import nullcontext

from tests.sim.mesh.mutants import MUTANTS
from tests.sim.mesh.story import quiet, tell


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mesh", description="Tell stories of the whole mesh.")
    parser.add_argument("--seed", type=int, help="one story, with its trace")
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("FIRST", "END"), help="many, without")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="of a build with one safety switched off")
    parser.add_argument("--until-found", action="store_true", help="end with the first story that is found broken")
    parser.add_argument("--fingerprint", action="store_true", help="only a digest of the trace")
    wanted = parser.parse_args()
    quiet()
    with MUTANTS[wanted.mutant]() if wanted.mutant else nullcontext():
        return _tell(wanted)


def _tell(wanted: argparse.Namespace) -> int:
    if wanted.seed is not None:
        report = tell(wanted.seed, trace=True)
        if wanted.fingerprint:
            print(hashlib.sha256("\n".join(report.trace).encode()).hexdigest())
            return 0
        print("\n".join(report.trace))
        print(report)
        return 1 if report.violations else 0
    first, end = wanted.seeds or (0, 20)
    begun_s = time.perf_counter()
    failed = 0
    for seed in range(first, end):
        report = tell(seed)
        if report.violations:
            failed += 1
            print(report, flush=True)
            if wanted.until_found:
                return 1
    print(f"{end - first} stories, {failed} failed, {time.perf_counter() - begun_s:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
