"""The whole mesh with clients and faults in virtual time, one seed per story; and broken builds that the checks must
find.

A failing story prints its seed. Run it again, alone and with its trace, by

    python -m tests.sim.mesh --seed 17

or `HERDMESH_SIM_SEED=17 pytest -s tests/sim/mesh -k no_promise`. Seeds in regressions.txt found a bug once, and are
run every time.
"""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path

import pytest
import structlog

from tests.sim.mesh.mutants import MUTANTS, OF_OFFSETS, RARE
from tests.sim.mesh.network import HARMS
from tests.sim.mesh.story import OPERATED, Report, quiet, tell
from tests.support import tally
from tests.support.sizes import SOAKING, soak_or

STORIES = soak_or(300, 10_000)
#: Additional stories, with an operator who changes offsets.
OPERATED_STORIES = soak_or(12, 1_000)
_SHOW_S = 60.0
Found = tuple[int, list[str]] | None
_SEED_VARIABLE = "HERDMESH_SIM_SEED"
_FOLDER = Path(__file__).parent

#: How many stories a mutant may survive. `make soak` searches the first that finds it, from 0 on; else a story
#: that found it, after few events, comes first, so that one is enough until the product changes the events in it.
MUTANT_STORIES = soak_or(60, 1_000)
FOUND_AT = {
    "stale epoch accepted": 3,
    "adoption by generation alone": 55,
    "lost timer": 31,
    "restart budget ignored": 31,
    "restart budget doubled": 7,
    "superseded placement forgotten after a broken session": 38,
    "new leader does not wait for workers": 1,
    "leader writes after its epoch": 82,
    "lease never ends": 1,
    "statuses of deleted connectors stay": 58,
    "UNASSIGNED never written": 8,
    "logger levels not sent to a worker that connects": 30,
    "worker that leaves is accepted again": 3,
    "units move to workers that leave next": 3,
    "change of offsets acknowledged before it is made": OPERATED,
    "change of offsets made again by the next leader": OPERATED + 7,
}
HUNTED = [mutant for mutant in MUTANTS if SOAKING or mutant not in RARE]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    quiet()


def _regressions() -> list[int]:
    lines = (_FOLDER / "regressions.txt").read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


def _short(seed: int, *, violations_max: int = 20) -> Report:
    """Run a story for a pool: without the parts that cannot or need not be pickled, and its 2 MB of garbage collected
    while they are still in the processor's cache.
    """
    report = tell(seed, violations_max=violations_max)
    report.operations = []
    gc.collect()
    return report


def _hunt(mutant: str) -> Found:
    """The first story that finds the mutant, and the checks that find it."""
    first = [] if SOAKING else [FOUND_AT.get(mutant, 0)]
    begin = OPERATED if mutant in OF_OFFSETS else 0
    for seed in [*first, *range(begin, begin + MUTANT_STORIES)]:
        with MUTANTS[mutant]():
            report = _short(seed, violations_max=1)
        if report.violations:
            return seed, sorted({found.check for found in report.violations})
    return None


def _begin_process() -> None:
    """Prepare a process of a pool: freeze imported objects, collect garbage only between stories, and silence all
    logs.
    """
    quiet()
    structlog.configure(cache_logger_on_first_use=True)
    gc.freeze()
    gc.disable()


def _pool() -> Pool:
    return get_context("fork").Pool(max(2, os.cpu_count() or 2) if SOAKING else 2, _begin_process)


@pytest.fixture(scope="module")
def hunts() -> Iterator[dict[str, AsyncResult[Found]]]:
    """All mutants, side by side."""
    with _pool() as pool:
        yield {mutant: pool.apply_async(_hunt, (mutant,)) for mutant in HUNTED}


class _Watch:
    """Prints the progress of a soak once a minute."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._begun_s = self._shown_s = time.monotonic()

    def show(self, told: int, failed: int) -> None:
        now_s = time.monotonic()
        if now_s - self._shown_s < _SHOW_S:
            return
        self._shown_s = now_s
        left_min = (now_s - self._begun_s) / told * (self._total - told) / 60
        print(f"{told} of {self._total} stories, {failed} failed, about {left_min:.0f} min to go", flush=True)


@pytest.mark.timeout(3 * 3_600)
def test_no_promise_is_broken() -> None:
    """Every story ends without a violation; together they meet every fault, many times."""
    if _SEED_VARIABLE in os.environ:
        report = tell(int(os.environ[_SEED_VARIABLE]), trace=True)
        print("\n".join(report.trace))
        assert not report.violations, str(report)
        return
    faults, counts, harmed, carried = Counter[str](), Counter[str](), Counter[str](), 0
    failed: list[str] = []
    seeds = list(dict.fromkeys([*_regressions(), *range(STORIES), *range(OPERATED, OPERATED + OPERATED_STORIES)]))
    watch = _Watch(len(seeds))
    with _pool() as pool:
        for told, report in enumerate(pool.imap_unordered(_short, seeds, chunksize=10), 1):
            faults += report.faults
            counts += report.counts
            harmed += report.harmed
            carried += report.carried
            if report.violations:
                failed.append(str(report))
                print(report, flush=True)
            watch.show(told, len(failed))
    requests = sum(times for kind, times in counts.items() if kind.startswith("requests "))
    tally.note("simulator, whole mesh", runs=STORIES, operations=requests, faults=faults, violations=len(failed))
    tally.note("simulator, links of the whole mesh", runs=STORIES, operations=carried, faults=harmed)
    print(f"{STORIES} stories, {requests} requests, {faults.total()} faults, {dict(sorted(counts.items()))}")
    print(f"{carried} messages, {dict(sorted(harmed.items()))}")
    assert not failed, "\n".join(
        [*failed[:5], f"{len(failed)} failed; tell one again: python -m tests.sim.mesh --seed N"]
    )
    assert len(faults) >= 20, sorted(faults)
    assert set(harmed) == set(HARMS), sorted(set(HARMS) - set(harmed))
    assert counts["requests acknowledged"] > STORIES
    assert counts["epochs"] > STORIES
    assert counts["fences"]
    assert counts["restarts acknowledged"]
    assert counts["changes of offsets acknowledged"] >= OPERATED_STORIES // 2
    assert counts["starts from offsets that were changed"]
    assert counts["creates that brought offsets"]


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("mutant", HUNTED)
def test_the_simulator_finds_each_mutant(mutant: str, hunts: dict[str, AsyncResult[Found]]) -> None:
    """A build with this safety switched off breaks promises, and the checks find it."""
    found = hunts[mutant].get()
    assert found is not None, f"{mutant}: {MUTANT_STORIES} stories were found right"
    seed, checks = found
    tally.caught(mutant, seed, checks)
    print(f"{mutant}: found at seed {seed} by {'; '.join(checks)}", flush=True)


def test_the_page_lists_each_mutant() -> None:
    """`docs/internals/bugs.md` has a row for each, and no other."""
    page = (_FOLDER.parents[2] / "docs" / "internals" / "bugs.md").read_text(encoding="utf-8")
    _, _, section = page.partition("## In builds with one safety switched off")
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")][2:]
    assert rows == list(MUTANTS)


@pytest.mark.timeout(1_800)
def test_a_seed_gives_the_same_trace_every_time() -> None:
    """Line by line, in this process twice and in one with another hash seed."""
    once, again = tell(7, trace=True), tell(7, trace=True)
    assert once.trace == again.trace
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.sim.mesh", "--seed", "7", "--fingerprint"]
    elsewhere = subprocess.run(
        command, cwd=_FOLDER.parents[2], env=environment, capture_output=True, text=True, check=False
    )
    assert elsewhere.stdout.strip() == hashlib.sha256("\n".join(once.trace).encode()).hexdigest(), elsewhere.stderr
