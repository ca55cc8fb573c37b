"""Both stores with clients and faults in virtual time, one seed per story; and broken builds that the checkers must
catch.

A failing story prints its seed and its violations. Run it again, alone and with its trace, by

    HERDMESH_SIM_SEED=17 .venv/bin/pytest -s tests/sim/stores -k 'no_promise and config'
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from typing import Any

import pytest
import structlog

from tests.sim.stores.config_side import ConfigSide
from tests.sim.stores.mutants import MUTANTS
from tests.sim.stores.status_side import StatusSide
from tests.sim.stores.story import Report, tell
from tests.support import tally
from tests.support.sizes import SOAKING, soak_or

SIDES: dict[str, Callable[[], Any]] = {"config": ConfigSide, "status": StatusSide}
STORIES = soak_or(50, 500)
_MUTANT_SEEDS = 30
#: The story that last found a build comes first, except in `make soak`, which searches the first of all.
_FOUND_AT = {} if SOAKING else {"fence": 8, "read-back": 1}
_SEED_VARIABLE = "HERDMESH_SIM_SEED"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Silence logging: a story's stores log every fault they meet, as they should; here it would hide the rest."""
    logging.disable(logging.CRITICAL)
    configured = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**configured)
        logging.disable(logging.NOTSET)


def _short(side: str, seed: int) -> Report:
    """Run a story for another process: without the trace, which only a story run alone has."""
    report = tell(SIDES[side], seed)
    report.trace = []
    return report


def _begin_process() -> None:
    """Prepare a process of a pool: objects that other tests left behind are not collected, and the garbage of a dozen
    stories, 2 MB each, is collected at once.
    """
    gc.freeze()
    gc.set_threshold(500_000, 20, 20)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("side", SIDES)
def test_no_promise_is_broken(side: str) -> None:
    """Every story ends healed, with every promise kept; together they meet every stage with every deed."""
    if _SEED_VARIABLE in os.environ:
        report = tell(SIDES[side], int(os.environ[_SEED_VARIABLE]))
        print("\n".join(report.trace))
        assert not report.violations, str(report)
        return
    reports: list[Report] = []
    with get_context("fork").Pool(2, _begin_process) as pool:
        for report in pool.imap(partial(_short, side), range(STORIES), chunksize=5):
            assert not report.violations, f"{report}\ntell it again with {_SEED_VARIABLE}={report.seed}"
            reports.append(report)
    faults = sum((report.faults for report in reports), Counter[str]())
    operations = sum(report.operations for report in reports)
    resumed = sum(report.resumed for report in reports)
    tally.note(f"simulator, {side} store", runs=len(reports), operations=operations, faults=faults)
    print(
        f"{side}: {len(reports)} stories, {operations} operations, {resumed} watches resumed, {faults.total()} faults"
    )
    harmed = {kind for kind in faults if " at " in kind and kind.startswith(("kill", "stop"))}
    assert len(harmed) == 12, f"not every stage was met with kill and stop: {sorted(harmed)}"
    assert faults["two writers at once"]
    assert faults["reader far behind"]
    assert faults["broker away"]
    assert faults["compaction"]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_checkers_catch_each_mutant(mutant: str) -> None:
    """A build with this safety switched off breaks promises, and the checkers find it within a few stories."""
    for seed in sorted(range(_MUTANT_SEEDS), key=lambda one: one != _FOUND_AT.get(mutant)):
        with MUTANTS[mutant]() as fenced:
            report = tell(ConfigSide, seed, fenced=fenced)
        seen_by_clients = [found for found in report.violations if found.check != "S3 one effective writer"]
        if seen_by_clients:
            checks = sorted({found.check for found in report.violations})
            tally.caught(mutant, seed, checks)
            print(f"without {mutant}: caught at seed {seed} by {'; '.join(checks)}")
            return
    pytest.fail(f"without {mutant}, {_MUTANT_SEEDS} stories were found right")


@pytest.fixture(scope="module")
def elsewhere() -> dict[str, str]:
    """Trace of story 7 of each side in a process with another hash seed."""
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, __file__, "7", *SIDES]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=True)
    return dict(zip(SIDES, told.stdout.split(), strict=True))


@pytest.mark.parametrize("side", SIDES)
def test_a_seed_gives_the_same_trace_every_time(side: str, elsewhere: dict[str, str]) -> None:
    """Line by line, in this process twice and in one with another hash seed."""
    once, again = tell(SIDES[side], 7), tell(SIDES[side], 7)
    assert once.trace == again.trace
    assert elsewhere[side] == _fingerprint(once)


def _fingerprint(report: Report) -> str:
    return hashlib.sha256("\n".join(report.trace).encode()).hexdigest()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for each in sys.argv[2:]:
        print(_fingerprint(tell(SIDES[each], int(sys.argv[1]))))
