"""The writer of either store killed or stopped at every stage of a write, under clients whose history is judged.

A real broker, two real processes; a run takes several faults, chosen by its number so that 20 runs cover every
stage with kill and with stop more than once (10, as the status store has, at least once), each run with another fault
of the cluster besides. The checkers are those of the simulator (`tests/sim/stores`), whose tests also show that they
catch violations; `test_status_rules.py` shows it for the rules of a status put.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from herdmesh.devstack.broker import QUICK_JVM, Broker
from herdmesh.topicstore import WriteStage
from tests.support import tally
from tests.support.config_run import ConfigRun
from tests.support.sizes import soak_or
from tests.support.status_run import StatusRun
from tests.support.store_runs import BROKER_SETTINGS, Report, Run
from tests.support.waiting import of_stores

Step = Callable[[Run], Coroutine[Any, Any, None]]

#: Kill and stop at each stage. The first four are the most fragile: records sent and not committed, a commit
#: that took effect and is not known, and a writer that wakes up to records of its own that it has not read.
HARMS = [
    (WriteStage.BEFORE_COMMIT, "stop"),
    (WriteStage.AFTER_COMMIT, "kill"),
    (WriteStage.AFTER_SEND, "kill"),
    (WriteStage.BEFORE_READ_BACK, "stop"),
    (WriteStage.BEFORE_SEND, "stop"),
    (WriteStage.BEFORE_ANSWER, "kill"),
    (WriteStage.AFTER_COMMIT, "stop"),
    (WriteStage.BEFORE_COMMIT, "kill"),
    (WriteStage.BEFORE_ANSWER, "stop"),
    (WriteStage.BEFORE_SEND, "kill"),
    (WriteStage.AFTER_SEND, "stop"),
    (WriteStage.BEFORE_READ_BACK, "kill"),
]
BESIDES: list[Step] = [Run.restart_broker, Run.reader_far_behind, Run.start_late, Run.stop_cleanly]
#: Runs of each store; the small size of the status store has none that kills the broker.
RUNS: dict[type[Run], range] = {
    ConfigRun: range(soak_or(2, 20)),
    StatusRun: range(soak_or(1, 0), soak_or(2, 10)),
}
NAMES: dict[type[Run], str] = {ConfigRun: "config", StatusRun: "status"}
_HARMS_A_RUN = 2


def harms_of(run: int) -> list[tuple[WriteStage, str]]:
    """Faults of the writer in one run."""
    return [HARMS[(run * _HARMS_A_RUN + number) % len(HARMS)] for number in range(_HARMS_A_RUN)]


def steps_of(run: int) -> list[Step]:
    """All steps of one run, in an order of its own."""
    steps: list[Step] = [partial(Run.at_stage, stage=stage, deed=deed) for stage, deed in harms_of(run)]
    steps.append(BESIDES[run % len(BESIDES)])
    random.Random(run).shuffle(steps)
    return steps


def _killing(store: type[Run]) -> list[int]:
    """The runs of this store that kill the broker."""
    return [number for number in RUNS[store] if BESIDES[number % len(BESIDES)] is Run.restart_broker]


async def _play(broker: Broker, store: type[Run], numbers: Iterable[int], folder: Path) -> list[Report]:
    """Play these runs one after the other."""
    reports: list[Report] = []
    for number in numbers:
        run_folder = folder / f"run-{number}"
        run_folder.mkdir()
        report = await store(broker, f"{NAMES[store]}-of-run-{number}", run_folder, number).play(steps_of(number))
        print(
            f"{NAMES[store]} store, run {number}: {report.operations} operations, {report.acknowledged} writes "
            f"acknowledged, {dict(report.faults)}, refused {dict(report.refused)}, {report.seconds:.1f} s"
        )
        assert not report.violations, f"{report}\nits processes' logs are in {run_folder}"
        reports.append(report)
    return reports


def _tell(part: str, reports: Sequence[Report]) -> None:
    tally.note(
        part,
        runs=len(reports),
        operations=sum(report.operations for report in reports),
        faults=sum((report.faults for report in reports), Counter[str]()),
    )


@of_stores
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("store", RUNS, ids=NAMES.get)
async def test_killing_or_stopping_the_writer_at_any_stage_breaks_no_promise(
    store: type[Run], kafka: Broker, tmp_path: Path
) -> None:
    numbers = [number for number in RUNS[store] if number not in _killing(store)]
    reports = await _play(kafka, store, numbers, tmp_path)
    refused = sum((report.refused for report in reports), Counter[str]())
    if store is StatusRun:  # the rules of a put were exercised: every one of them in so many runs
        assert len(refused) >= soak_or(1, 3), refused
    _tell(f"real broker, {NAMES[store]} store", reports)


@of_stores
@pytest.mark.own_broker
@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("store", [store for store in RUNS if _killing(store)], ids=NAMES.get)
async def test_killing_the_broker_too_breaks_no_promise(store: type[Run], tmp_path: Path) -> None:
    broker = Broker(tmp_path / "kafka", port=0, settings=BROKER_SETTINGS, jvm=QUICK_JVM)
    await broker.start()
    try:
        reports = await _play(broker, store, _killing(store), tmp_path)
    finally:
        await broker.stop()
    _tell(f"real broker that is killed too, {NAMES[store]} store", reports)


@pytest.mark.parametrize(("runs", "times"), [(20, 3), (10, 1)])
def test_the_runs_cover_every_stage(runs: int, times: int) -> None:
    harms = Counter(harm for run in range(runs) for harm in harms_of(run))
    assert set(harms) == {(stage, deed) for stage in WriteStage for deed in ("kill", "stop")}
    assert min(harms.values()) >= times
