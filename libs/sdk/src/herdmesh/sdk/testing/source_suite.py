"""The standard suite for sources: nothing lost, nothing duplicated, wherever a run ends.

Owns the tests; `source_trial` drives the runs. Invariant: a connector passes when, after every death at every point,
Kafka has the records of the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pytest

from herdmesh.connect.spi import SinkTask, SourceConnector, SourceTask, SourceTaskContext
from herdmesh.sdk.testing.configs import full_config, new_task
from herdmesh.sdk.testing.source_trial import NAME, SourceTrial
from herdmesh.sdk.testing.suite import ConnectorSuite, NewWorld
from herdmesh.sdk.testing.worlds import SourceWorld

RECORDS: Final = 7
PERIODS: Final = (1, 3)
"""Numbers of polls per transaction: the loop commits by time, so a commit may have one or several."""


class SourceSuite(ConnectorSuite[SourceWorld]):
    """Suite for sources. Subclass it in a test module, with `connector` and `world`."""

    connector: ClassVar[type[SourceConnector]]  # pyright: ignore[reportIncompatibleVariableOverride]

    def test_lifecycle(self, new_world: NewWorld[SourceWorld]) -> None:
        """A task may be stopped before it was started; a source without new records returns none, however often it is
        polled.
        """
        new_task(self.connector).stop()
        world = new_world()
        there = list(range(world.records_min))
        world.write(range(world.records_min))
        trial = self._trial(world)
        trial.run(wanted=world.records_min)
        assert trial.numbers == there, f"records came from a source that has {there or 'none'}"
        trial.run()
        assert trial.numbers == there

    def test_all_records_come_once_and_in_order(self, new_world: NewWorld[SourceWorld]) -> None:
        """Records of one task, and of up to three."""
        for tasks_max in (1, 3):
            world = new_world()
            world.write(range(RECORDS))
            trial = self._trial(world)
            trial.run(tasks_max=tasks_max, wanted=RECORDS)
            self._check(trial, world, RECORDS, f"after a run of {tasks_max} tasks at most", exactly=True)

    def test_a_run_continues_where_the_last_one_ended(self, new_world: NewWorld[SourceWorld]) -> None:
        """New records between runs, and runs without new records."""
        world = new_world()
        trial = self._trial(world)
        for wanted in (3, 3, 4, RECORDS):
            world.write(range(len(trial.sent), wanted))
            trial.run(wanted=wanted)
            self._check(trial, world, wanted, "after a run that was not the first", exactly=True)

    def test_resume_after_a_kill_at_every_point(self, new_world: NewWorld[SourceWorld]) -> None:
        """A task dies at each point of a run in turn, without a call of `stop`; the next task completes the records."""
        for every in PERIODS:
            deadly = 1
            while self._dies_and_resumes(new_world(), deadly, every):
                deadly += 1

    def test_resume_after_an_error(self, new_world: NewWorld[SourceWorld]) -> None:
        """A run ends after a poll, with an error that is not the task's: `stop` is called, uncommitted records do not
        count.
        """
        world = new_world()
        world.write(range(RECORDS))
        trial = self._trial(world)
        trial.run(fails_at=2, every=5, wanted=RECORDS)
        trial.run(wanted=RECORDS)
        self._check(trial, world, RECORDS, "after a run that ended with an error", exactly=self._exactly(world))

    def test_records_of_another_shape(self, new_world: NewWorld[SourceWorld]) -> None:
        """Fields or types change in the middle."""
        world = new_world()
        world.write(range(3))
        if not world.write_changed(range(3, 5)):
            pytest.skip("its records have one shape (`write_changed`)")
        world.write(range(5, RECORDS))
        trial = self._trial(world)
        trial.run(wanted=RECORDS)
        self._check(trial, world, RECORDS, "with records of two shapes", exactly=True)

    def test_stored_offsets_can_be_set(self, new_world: NewWorld[SourceWorld]) -> None:
        """`alter_offsets` accepts the task's own stored offsets (`herd offsets set`), and their deletion."""
        world = new_world()
        world.write(range(RECORDS))
        trial = self._trial(world)
        trial.run(wanted=RECORDS)
        config = full_config(self.connector, world, NAME)
        stored = list(trial.partitions.values())
        self.connector().alter_offsets(config, stored)
        self.connector().alter_offsets(config, [(partition, None) for partition, _ in stored])

    def _dies_and_resumes(self, world: SourceWorld, deadly: int, every: int) -> bool:
        """False = the run has fewer points than `deadly`."""
        world.write(range(RECORDS))
        trial = self._trial(world)
        points = trial.run(deadly=deadly, every=every, wanted=RECORDS)
        if points.passed < deadly:
            return False
        try:
            trial.run(wanted=RECORDS)
            what = f"after a kill at {points.last}, with {every} polls to a transaction"
            self._check(trial, world, RECORDS, what, exactly=self._exactly(world))
        finally:
            trial.bury()
        return True

    def _exactly(self, world: SourceWorld) -> bool:
        """Whether the connector states that it sends each record exactly once."""
        return self.connector().exactly_once_support(full_config(self.connector, world, NAME)) is True

    def _check(self, trial: SourceTrial, world: SourceWorld, wanted: int, what: str, *, exactly: bool) -> None:
        by_partition: dict[bytes, list[int]] = {}
        for one in trial.sent:
            by_partition.setdefault(one.source_partition, []).append(one.number)
        if world.each_task_has_all:
            count = len(by_partition)
            assert count == trial.task_count, f"{what}: {trial.task_count} tasks sent {count} source partitions"
        for numbers in by_partition.values() if world.each_task_has_all else [trial.numbers]:
            _check_numbers(numbers, wanted, what, exactly=exactly)
        if exactly and world.in_order:
            for numbers in by_partition.values():
                assert numbers == sorted(numbers), f"{what}: the order is {numbers}"

    def _trial(self, world: SourceWorld) -> SourceTrial:
        return SourceTrial(self.connector, world)

    def _start(self, task: SourceTask | SinkTask, config: Mapping[str, str | None]) -> None:
        assert isinstance(task, SourceTask)
        task.start(config, SourceTaskContext(NAME, 0, 1, "run", _no_offset))


def _check_numbers(numbers: list[int], wanted: int, what: str, *, exactly: bool) -> None:
    counted = Counter(numbers)
    lost = sorted(set(range(wanted)) - counted.keys())
    assert not lost, f"{what}: records {lost} are lost"
    foreign = sorted(counted.keys() - set(range(wanted)))
    assert not foreign, f"{what}: records {foreign} were never written"
    twice = sorted(number for number, times in counted.items() if times > 1)
    assert not (exactly and twice), f"{what}: records {twice} came more than once"


def _no_offset(_partition: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None
