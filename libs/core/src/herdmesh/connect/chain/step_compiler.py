"""Step compiler: the steps of a chain, compiled once for every shape of record that occurs.

Owns the compiled loops and both ways of running them: over a whole batch, or one record and one step at a time.
Converts nothing.

Invariant: both ways give equal results. Records that cannot be compiled together run one by one, where each reports its
own error. The number of compiled loops is bounded, however many shapes occur.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from herdmesh.connect.chain.batch_assembly import part_of
from herdmesh.connect.chain.bisect_conversion import SHORT_RECORDS
from herdmesh.connect.chain.compiled_loop import Halted, Loop, Single, Step
from herdmesh.connect.chain.record_failure_policy import TRANSFORMATION, Attempts
from herdmesh.connect.model import Batch
from herdmesh.connect.transforms import Alone, Cells, Column, Diverged, Shape

SHAPES_MAX: Final = 1_000
"""Maximum number of compiled shapes: the default size of the converters' schema caches, so that a topic with one schema
per record does not exhaust memory.
"""
_V = TypeVar("_V")


class Steps:
    """All steps of one chain. `owned`: maps among the values belong to the chain and may be changed."""

    def __init__(self, steps: Sequence[Step], *, owned: bool) -> None:
        self.steps = tuple(steps)
        self._owned = owned
        self._loops: dict[Shape, Loop | None] = {}
        self._singles: list[dict[Shape, Single]] = [{} for _ in steps]

    @property
    def loops(self) -> Mapping[Shape, Loop | None]:
        """The compiled loops; None = records of that shape are processed one by one."""
        return self._loops

    def loop(self, shape: Shape) -> Loop:
        """The loop of all steps for this shape. Raises Diverged when there can be no such loop, or the error of
        compiling, which occurs again for each record processed alone.
        """
        try:
            found = self._loops[shape]
        except KeyError:
            try:
                found = Loop(self.steps, shape, owned=self._owned)
            except Diverged:
                found = None
            _keep(self._loops, shape, found)
        if found is None:
            raise Diverged
        return found

    def around(
        self,
        columns: Batch,
        start: int,
        stop: int,
        shape: Shape,
        take: Callable[[Batch], None],
        alone: Callable[[int], None],
    ) -> bool:
        """Process records `start` to `stop`, all of one shape, in order: `take` gets the results of several records,
        `alone` the index of a record to process by itself. Returns True if there was such a record.
        """
        halted = False
        while start < stop:
            try:
                loop = self.loop(shape)
            except Exception:  # noqa: BLE001 - processed alone, each record reports the error of its shape
                place, start = start, stop
            else:
                try:
                    take(loop.until(part_of(columns, start, stop)))
                    break
                except Halted as halt:
                    take(halt.made)
                    place = start + halt.place
                    # With many bad records in a row it is not worth restarting the loop after each.
                    start = place + 1 if halt.place >= SHORT_RECORDS else min(stop, place + SHORT_RECORDS)
            halted = True
            for at in range(place, start):
                alone(at)
        return halted

    def one(self, cells: Cells, shape: Shape, batch: Batch, at: int, attempts: Attempts) -> tuple[Cells, Shape] | None:
        """Process one record, step by step; None = the record is filtered."""
        for step, singles in zip(self.steps, self._singles, strict=True):
            after = attempts.attempt(
                partial(_step_one, step, singles, cells, shape, batch, at), TRANSFORMATION, step, batch, at
            )
            if after is None:
                return None
            cells, shape = after
        return cells, shape

    def close(self) -> None:
        """Release the transformations."""
        for step in self.steps:
            step.close()


def _step_one(
    step: Step, singles: dict[Shape, Single], cells: Cells, shape: Shape, batch: Batch, at: int
) -> tuple[Cells, Shape] | None:
    if not step.applies(cells, shape, batch, at):
        return cells, shape
    if isinstance(step.transformation, Alone):
        return step.transformation.alone(cells, shape, batch, at)
    single = singles.get(shape)
    if single is None:
        single = _keep(singles, shape, Single(step, shape))
    return single.run(cells, batch, at)


def _keep(compiled: dict[Shape, _V], shape: Shape, made: _V) -> _V:
    """Cache a shape's loop, and evict the oldest when there are too many."""
    if len(compiled) >= SHAPES_MAX:
        del compiled[next(iter(compiled))]
    compiled[shape] = made
    return made


def wanted_columns(steps: Sequence[Step]) -> frozenset[Column]:
    """The columns that the steps read or change, for every shape."""
    return frozenset[Column]().union(*(step.touches for step in steps))
