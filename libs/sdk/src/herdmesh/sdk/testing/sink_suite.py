"""The standard suite for sinks: nothing lost wherever a run ends, and nothing duplicated where that is promised.

Owns the tests; `sink_trial` drives the runs. Invariant: a connector passes when, after every death at every point, the
target has the records of the topic: each at least once, and exactly once with a `StagingSinkTask`, a
`LedgerSinkTask` or an idempotent world.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar, Final, cast

import pytest

from herdmesh.connect.errors import DataError
from herdmesh.connect.spi import SinkConnector, SinkTask, SourceTask, StagingSinkTask
from herdmesh.engine.sink import LedgerSinkTask
from herdmesh.sdk.testing.configs import full_config, new_task, task_configs_of
from herdmesh.sdk.testing.sink_trial import NAME, SinkTrial, context_of
from herdmesh.sdk.testing.suite import ConnectorSuite, NewWorld
from herdmesh.sdk.testing.worlds import RecordForm, SinkWorld

RECORDS: Final = 9


class SinkSuite(ConnectorSuite[SinkWorld]):
    """Suite for sinks. Subclass it in a test module, with `connector` and `world`."""

    connector: ClassVar[type[SinkConnector]]  # pyright: ignore[reportIncompatibleVariableOverride]
    periods: ClassVar[tuple[int, ...]] = (1, 3)
    """Numbers of batches per commit: the loop commits by time, so a commit may have one or several. One number is
    enough if each commit takes long.
    """

    def test_lifecycle(self, new_world: NewWorld[SinkWorld]) -> None:
        """A task may be stopped before it was started; without a put there is nothing to flush or to stage."""
        new_task(self.connector).stop()
        world = new_world()
        (config,) = task_configs_of(self.connector, full_config(self.connector, world, NAME), 1)
        task = cast("SinkTask", new_task(self.connector))
        try:
            task.start(config, context_of(0, 1))
            if isinstance(task, LedgerSinkTask):
                assert not task.claim([]), "claim() returned partitions that were not requested"
            task.open([])
            if isinstance(task, LedgerSinkTask):
                task.begin({})
                task.advance({})
            elif isinstance(task, StagingSinkTask):
                task.recover({})
                assert not task.commit_due(), "commit_due() with nothing put"
                assert not task.stage(), "stage() names something to publish, with nothing put"
            else:
                task.flush()
                task.flush()
        finally:
            task.stop()
        assert world.found() == []

    def test_all_records_are_written(self, new_world: NewWorld[SinkWorld]) -> None:
        """Values of each form that the sink takes, written by one task and by up to two."""
        for tasks_max in (1, 2):
            for form in new_world().forms:
                trial = self._trial(new_world(), form)
                trial.write(range(RECORDS))
                trial.run(tasks_max=tasks_max, every=self.periods[0])
                trial.check_found(f"records of the form {form}, tasks.max {tasks_max}", exactly=True)

    def test_resume_after_a_kill_at_every_point(self, new_world: NewWorld[SinkWorld]) -> None:
        """A task dies at each point of a run in turn, without a call of `stop`; the next task completes the records."""
        for every in self.periods:
            deadly = 1
            while self._dies_and_resumes(new_world(), deadly, every):
                deadly += 1

    def test_resume_after_an_error(self, new_world: NewWorld[SinkWorld]) -> None:
        """A run ends after a put, with an error that is not the task's: `stop` is called, uncommitted records do not
        count.
        """
        trial = self._trial(new_world())
        trial.write(range(RECORDS))
        trial.run(fails_at=2, every=5)
        trial.run()
        trial.check_found("after a run that ended with an error", exactly=self._exactly(trial))

    def test_a_run_continues_where_the_last_one_ended(self, new_world: NewWorld[SinkWorld]) -> None:
        """New records between runs, and a run without new records."""
        trial = self._trial(new_world())
        for numbers in (range(4), range(0), range(4, RECORDS)):
            trial.write(numbers)
            trial.run()
            trial.check_found("after a run that was not the first", exactly=True)

    def test_redelivered_records(self, new_world: NewWorld[SinkWorld]) -> None:
        """A new task gets the same batches again, as after a rewind of the group's offsets: nothing fails, nothing is
        lost, and a ledger prevents duplicates.
        """
        trial = self._trial(new_world())
        trial.write(range(RECORDS))
        trial.run()
        trial.rewind()
        trial.run(every=3)
        trial.check_found("after a rewind", exactly=trial.world.is_idempotent or trial.keeps_ledger)

    def test_a_schema_changes_within_a_commit(self, new_world: NewWorld[SinkWorld]) -> None:
        """Fields appear and disappear in the middle of each partition, within one commit."""
        for form in new_world().forms:
            for every in self.periods:
                trial = self._trial(new_world(), form)
                trial.write(range(3))
                trial.write(range(3, 6), changed=True)
                trial.write(range(6, RECORDS))
                trial.run(every=every)
                trial.check_found(f"with records of two shapes of the form {form}", exactly=True)

    def test_tombstones(self, new_world: NewWorld[SinkWorld]) -> None:
        """A record without a value is written, or refused as bad data; the others are written."""
        trial = self._trial(new_world())
        trial.write(range(3))
        trial.write_tombstone()
        trial.write(range(3, RECORDS))
        if trial.world.takes_tombstones:
            trial.run()
            trial.check_found("with a tombstone among them", exactly=True)
        else:
            with pytest.raises(DataError):
                trial.run()

    def test_one_bad_record_is_skipped_alone(self, new_world: NewWorld[SinkWorld]) -> None:
        """With `errors.tolerance=all` a value that does not fit its schema is written or skipped
        (`context.skip_record`), and every other record of its batch is written.
        """
        world = new_world()
        if RecordForm.STRUCT not in world.forms:
            pytest.skip("it takes no structs")
        trial = self._trial(world, RecordForm.STRUCT)
        trial.write(range(3))
        place = trial.write_unfit(RECORDS)
        trial.write(range(3, RECORDS))
        trial.run(tolerated=True)
        assert set(trial.reported) <= {place}, f"{trial.reported} were reported as failed, and only {place} is bad"
        found = Counter(world.found())
        written = found.pop(RECORDS, 0)
        assert (written > 0) != bool(trial.reported), "the bad record must be either written or reported as failed"
        lost = sorted(set(range(RECORDS)) - found.keys())
        assert not lost, f"records {lost} were lost together with the one that was reported as failed"

    def test_staged_files_are_published_once(self, new_world: NewWorld[SinkWorld]) -> None:
        """Committed files may be recovered and published again, also by an owner that was stopped meanwhile."""
        trial = self._trial(new_world())
        if not trial.is_staging:
            pytest.skip("its task is not a StagingSinkTask")
        trial.write(range(RECORDS))
        deadly = self._after_the_last_commit(new_world())
        points = trial.run(deadly=deadly, every=99)
        assert points.last == "the commit after stage"
        committed = dict(trial.manifests)
        try:
            task = trial.take_over()
            try:
                trial.check_found("after recover() of what was committed", exactly=True)
                task.recover(committed)
                task.publish({one: text for one, text in committed.items() if text})
            finally:
                task.stop()
            trial.check_found("recovered and published again", exactly=True)
            (late,) = trial.dead
            cast("StagingSinkTask", late).publish({one: text for one, text in committed.items() if text})
            trial.check_found("published again by an owner who stood still", exactly=True)
        finally:
            trial.bury()

    def _after_the_last_commit(self, world: SinkWorld) -> int:
        """The point of a run with one commit: after that commit, before its manifest is published."""
        trial = self._trial(world)
        trial.write(range(RECORDS))
        points = trial.run(every=99)
        assert points.last == "publish", "nothing was published at the end of a run"
        return points.passed - 1

    def _dies_and_resumes(self, world: SinkWorld, deadly: int, every: int) -> bool:
        """False = the run has fewer points than `deadly`."""
        trial = self._trial(world)
        trial.write(range(RECORDS))
        points = trial.run(deadly=deadly, every=every)
        if points.passed < deadly:
            return False
        try:
            if trial.is_staging:
                early = sorted(Counter(world.found()).keys() - trial.numbers(trial.committed))
                assert not early, f"killed at {points.last}: records {early} are seen and were never committed"
            trial.run(every=every)
            what = f"after a kill at {points.last}, with {every} batches to a commit"
            trial.check_found(what, exactly=self._exactly(trial))
        finally:
            trial.bury()
        return True

    def _exactly(self, trial: SinkTrial) -> bool:
        return trial.is_staging or trial.keeps_ledger or trial.world.is_idempotent

    def _trial(self, world: SinkWorld, form: RecordForm | None = None) -> SinkTrial:
        return SinkTrial(self.connector, world, form)

    def _start(self, task: SourceTask | SinkTask, config: Mapping[str, str | None]) -> None:
        assert isinstance(task, SinkTask)
        task.start(config, context_of(0, 1))
