"""Slots: the rule that selects the waiting task for a free slot, and the runs that end or share theirs.

Owns the rule of fair sharing, which uses only the numbers of runs and of waiting tasks. Does not own runs or tasks
(`tasks`).

The rule: connectors are equal, then the tasks of one. A slot goes to the connector with the fewest runs; of several, to
the one that has waited longest since its last slot. Tasks of a connector take turns in its own slots. A connector
yields a slot to another when it has two more than the other, or the other has none. So a connector of 40 busy tasks and
one of 2 that share 8 slots have 6 and 2: the two never stop, and each of the 40 gets its turn within 7 shares.

A run that has nothing to do stays warm, so that its next record is not delayed (ADR 0009). No task waits for a slot
that a warm run keeps, which comes before fairness: the warm run ends at once, whichever connector it belongs to.

Spark's own queue decides nothing: the worker submits no more runs than there are slots, in the order determined here.

Invariants: a run is commanded to share once, and not before it took over, so a task that got a slot always gets to use
it. While tasks wait, as many runs end or share as tasks could run in their place, except runs that may not be
interrupted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from math import inf

from herdmesh.session.model import UnitId
from herdmesh.worker.state.run import Run


class Queue:
    """Tasks that wait for a slot, by connector, in the order of arrival."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[UnitId]] = {}
        self._count = 0
        self._turn = 0
        self._served: dict[str, int] = {}

    def __len__(self) -> int:
        return self._count

    def append(self, unit: UnitId) -> None:
        """Add a task."""
        self._waiting.setdefault(unit.connector, deque()).append(unit)
        self._count += 1

    def remove(self, unit: UnitId) -> None:
        """Remove a task."""
        tasks = self._waiting[unit.connector]
        tasks.remove(unit)
        if not tasks:
            del self._waiting[unit.connector]
        self._count -= 1

    def pop(self, running: Mapping[str, int]) -> UnitId:
        """Remove and return the task that gets the next slot. `running`: the number of runs of each connector."""
        name = min(self._waiting, key=lambda name: (running.get(name, 0), self._served.get(name, 0)))
        unit = self._waiting[name][0]
        self.remove(unit)
        self._turn += 1
        busy = self._waiting.keys() | running.keys()
        self._served = {other: turn for other, turn in self._served.items() if other in busy} | {name: self._turn}
        return unit

    def counts(self) -> dict[str, int]:
        """The number of waiting tasks of each connector."""
        return {name: len(tasks) for name, tasks in self._waiting.items()}


def warm_runs_to_end(runs: Collection[Run], waiting: int, warm_max: int) -> list[Run]:
    """The warm runs to end: one for each waiting task, and those above `warm_max`; the one that has been warm longest
    is first. Runs that already have the command are counted.
    """
    ready = sorted((run for run in runs if run.may_end), key=lambda run: run.warm_since or 0.0)
    told = sum(run.end_requested for run in runs)
    return ready[: max(0, waiting - told, len(ready) - warm_max)]


def left_waiting(waiting: Mapping[str, int], runs: Mapping[str, Sequence[Run]], free: int) -> Counter[str]:
    """The number of tasks of each connector that still wait after `free` slots are given as by `Queue.pop`."""
    left = Counter(waiting)
    has = Counter({name: len(own) for name, own in runs.items()})
    for _ in range(min(free, left.total())):
        name = min(+left, key=lambda name: has[name])
        left[name] -= 1
        has[name] += 1
    return +left


def runs_to_share(
    runs: Mapping[str, Sequence[Run]], waiting: Mapping[str, int], share_ms: int, now: float
) -> list[tuple[Run, int]]:
    """The runs to command to share, each with its limit of duration in ms, counted from its beginning.

    For each connector as many as its own tasks wait for and as it owes others, minus those with a command to share or
    stop, the oldest first. A commanded run ends by itself as soon as it has read all there is
    (`engine.runtime.run_commands`); otherwise after `share_ms`. A run that exceeds that may not be interrupted at this
    point (`SourceTask.may_yield`), and others are commanded in its place.
    """
    movable = {name: [run for run in own if not run.keeps_slot(now)] for name, own in runs.items()}
    owed = _slots_to_yield(runs, movable, waiting)
    asked: list[tuple[Run, int]] = []
    for name, own in movable.items():
        leaving = sum(1 for run in own if run.is_leaving(now))
        wanted = min(len(own), waiting.get(name, 0) + owed[name]) - leaving
        ready = sorted((run for run in own if run.may_share), key=lambda run: run.since)
        asked += [(run, int((now - run.since) * 1000) + share_ms) for run in ready[: max(0, wanted)]]
    return asked


def _slots_to_yield(
    runs: Mapping[str, Sequence[Run]], movable: Mapping[str, Sequence[Run]], waiting: Mapping[str, int]
) -> Counter[str]:
    """The number of slots that each connector must yield to others: slots move one by one from the connector with the
    most to the one with the fewest, of those with a run in `movable`.
    """
    has = Counter({name: len(own) for name, own in runs.items()})
    left = dict(waiting)
    owed: Counter[str] = Counter()
    while True:
        poor = min((name for name, count in left.items() if count > 0), key=lambda name: has[name], default=None)
        able = [name for name in has if owed[name] < len(movable.get(name, ()))]
        rich = max(able, key=lambda name: (has[name], -_oldest(movable[name])), default=None)
        if poor is None or rich is None or has[rich] == 0:
            return owed
        if has[rich] - has[poor] < 2 and (has[poor] > 0 or rich == poor):
            return owed
        has[rich] -= 1
        has[poor] += 1
        left[poor] -= 1
        owed[rich] += 1


def _oldest(runs: Sequence[Run]) -> float:
    return min((run.since for run in runs), default=inf)
