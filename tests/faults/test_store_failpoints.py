"""The config store's writer killed or stopped at every stage of a write, under clients whose history is judged.

A real broker, two real processes; a run takes several steps of harm, chosen by its number so that 20 runs cover every
stage with kill and with stop more than once, each run with something else done to the cluster besides. The checkers are
those of the simulator (`tests/sim/stores`), where they are also shown to catch what they are for.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from herdmesh.devstack.broker import Broker
from herdmesh.topicstore import Stage
from tests.support import tally
from tests.support.sizes import soak_or
from tests.support.store_runs import BROKER_SETTINGS, Report, Run

pytestmark = pytest.mark.kafka

Step = Callable[[Run], Coroutine[Any, Any, None]]

#: Kill and stop at each stage. The first four are what breaks most easily: records sent and not committed, a commit
#: that took effect and is not known, and a writer that wakes up to records of its own that it has not read.
HARMS = [
    (Stage.BEFORE_COMMIT, "stop"),
    (Stage.AFTER_COMMIT, "kill"),
    (Stage.AFTER_SEND, "kill"),
    (Stage.BEFORE_READ_BACK, "stop"),
    (Stage.BEFORE_SEND, "stop"),
    (Stage.BEFORE_ANSWER, "kill"),
    (Stage.AFTER_COMMIT, "stop"),
    (Stage.BEFORE_COMMIT, "kill"),
    (Stage.BEFORE_ANSWER, "stop"),
    (Stage.BEFORE_SEND, "kill"),
    (Stage.AFTER_SEND, "stop"),
    (Stage.BEFORE_READ_BACK, "kill"),
]
BESIDES: list[Step] = [Run.restart_broker, Run.reader_far_behind, Run.start_late, Run.stop_cleanly]
RUNS = soak_or(2, 20)
_HARMS_A_RUN = 2


def harms_of(run: int) -> list[tuple[Stage, str]]:
    """What happens to the writer in one run."""
    return [HARMS[(run * _HARMS_A_RUN + number) % len(HARMS)] for number in range(_HARMS_A_RUN)]


def steps_of(run: int) -> list[Step]:
    """All that happens in one run, in an order of its own."""
    steps: list[Step] = [partial(Run.at_stage, stage=stage, deed=deed) for stage, deed in harms_of(run)]
    steps.append(BESIDES[run % len(BESIDES)])
    random.Random(run).shuffle(steps)
    return steps


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Broker]:
    """A broker that these runs may kill, with sessions short enough for many of them."""
    made = Broker(tmp_path_factory.mktemp("kafka-of-runs"), port=0, settings=BROKER_SETTINGS)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@pytest.mark.timeout(1_800)
@pytest.mark.asyncio(loop_scope="module")
async def test_no_promise_is_broken_at_any_stage(broker: Broker, tmp_path: Path) -> None:
    reports: list[Report] = []
    for number in range(RUNS):
        folder = tmp_path / f"run-{number}"
        folder.mkdir()
        report = await Run(broker, f"configs-of-run-{number}", folder, number).play(steps_of(number))
        print(
            f"run {number}: {report.operations} operations, {report.acknowledged} writes acknowledged, "
            f"{dict(report.faults)}, {report.seconds:.1f} s"
        )
        assert not report.violations, f"{report}\nits processes' logs are in {folder}"
        reports.append(report)
    tally.note(
        "real broker, config store",
        runs=len(reports),
        operations=sum(report.operations for report in reports),
        faults=sum((report.faults for report in reports), Counter[str]()),
    )


def test_twenty_runs_cover_every_stage() -> None:
    harms = Counter(harm for run in range(20) for harm in harms_of(run))
    assert set(harms) == {(stage, deed) for stage in Stage for deed in ("kill", "stop")}
    assert min(harms.values()) >= 3
