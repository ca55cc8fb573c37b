"""The standard suite passes for correct connectors, and catches each broken one by the test meant for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from herdmesh.sdk import SinkConnector, SourceConnector
from herdmesh.sdk.testing import SinkRunSuite, SinkSuite, SourceRunSuite, SourceSuite
from libs.sdk.tests import awaiting_examples, counted, examples, reading_examples

KILLS = "test_resume_after_a_kill_at_every_point"
GOES_ON = "test_a_run_continues_where_the_last_one_ended"
ALL_SENT = "test_all_records_come_once_and_in_order"
ALL_WRITTEN = "test_all_records_are_written"
CONFIG = "test_config_errors_name_their_field"
TASKS = "test_task_configs_are_the_same_at_every_request"
ONE_BAD = "test_one_bad_record_is_skipped_alone"
LIFECYCLE = "test_lifecycle"


class TestLinesSource(SourceSuite):
    connector = examples.LinesSource
    world = examples.LinesWorld


class TestCountedSource(SourceSuite):
    """Runs the suite with a world that needs an argument from outside."""

    connector = counted.CountedSource
    world = counted.CountedWorld

    @pytest.fixture
    def outside(self) -> dict[bytes, int]:
        return {str(number).encode(): number for number in range(100)}


class TestLinesSink(SinkSuite):
    connector = examples.LinesSink
    world = examples.LinesSinkWorld


class TestHoldsBackSink(SinkSuite):
    connector = reading_examples.HoldsBackSink
    world = examples.LinesSinkWorld


class TestStagedSink(SinkSuite):
    connector = examples.StagedSink
    world = examples.StagedWorld


class TestLedgerSink(SinkSuite):
    connector = examples.LedgerSink
    world = examples.LedgerWorld


class TestStagedSinkRuns(SinkRunSuite):
    connector = examples.StagedSink
    world = examples.StagedWorld


class TestAwaitedSource(SourceSuite):
    connector = awaiting_examples.AwaitedSource
    world = examples.LinesWorld


class TestAwaitedSourceRuns(SourceRunSuite):
    connector = awaiting_examples.AwaitedSource
    world = examples.LinesWorld


class TestAwaitedSink(SinkSuite):
    connector = awaiting_examples.AwaitedSink
    world = examples.LinesSinkWorld


class TestAwaitedSinkRuns(SinkRunSuite):
    connector = awaiting_examples.AwaitedSink
    world = examples.LinesSinkWorld


class TestAwaitedRecordSink(SinkSuite):
    connector = awaiting_examples.AwaitedRecordSink
    world = examples.LinesSinkWorld


class TestAwaitedRecordSinkRuns(SinkRunSuite):
    connector = awaiting_examples.AwaitedRecordSink
    world = examples.LinesSinkWorld


def failing(suite: Any, folder: Path) -> dict[str, str]:
    """Failing tests of a suite, with their messages."""
    found: dict[str, str] = {}
    for name in sorted(dir(suite)):
        if not name.startswith("test_"):
            continue
        worlds: list[Any] = []

        def make(test: str = name, worlds: list[Any] = worlds) -> Any:
            place = folder / test / str(len(worlds))
            place.mkdir(parents=True)
            worlds.append(suite.world(place))
            return worlds[-1]

        try:
            getattr(suite(), name)(make)
        except pytest.skip.Exception:
            continue
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - a broken connector may raise anything
            found[name] = f"{type(error).__name__}: {error}"
    return found


def source_suite(connector: type[SourceConnector], world: type[Any] = examples.LinesWorld) -> type[Any]:
    return type("Suite", (SourceSuite,), {"connector": connector, "world": world})


def sink_suite(connector: type[SinkConnector], world: type[Any]) -> type[Any]:
    return type("Suite", (SinkSuite,), {"connector": connector, "world": world})


def with_task(connector: type[Any], task: type[Any]) -> Any:
    """The correct connector with a broken task."""
    return type(task.__name__, (connector,), {"task": task.__name__})


@pytest.mark.parametrize(
    ("task", "caught", "says"),
    [
        (examples.OffsetForgotten, GOES_ON, "records [0, 1, 2] came more than once"),
        (examples.OffsetForgotten, KILLS, "came more than once"),
        (examples.OffsetTooHigh, KILLS, "are lost"),
        (examples.OffsetOfTheFirst, KILLS, "came more than once"),
        (examples.OffsetUnread, GOES_ON, "came more than once"),
        (examples.OffsetNoJson, ALL_SENT, "Error: "),
        (examples.PlaceInMemory, KILLS, "after a kill at poll 1, "),
        (examples.MovesOnCommit, KILLS, "came more than once"),
        (examples.Backwards, ALL_SENT, "the order is [1, 0, 3, 2, 5, 4, 6]"),
        (examples.StopNeedsStart, LIFECYCLE, "AttributeError"),
        (examples.UnevenColumns, ALL_SENT, "keys has 3 items, values 2"),
        (examples.AnotherSchema, ALL_SENT, "Invalid Java object for schema with type STRING"),
    ],
)
def test_a_broken_source_task_is_caught(tmp_path: Path, task: type[Any], caught: str, says: str) -> None:
    found = failing(source_suite(with_task(examples.LinesSource, task)), tmp_path)
    assert says in found.get(caught, "it passed"), found


@pytest.mark.parametrize(
    ("task", "caught", "says"),
    [
        (counted.OnlyTheFirst, ALL_SENT, "3 tasks sent 1 source partitions"),
        (counted.OnePartition, ALL_SENT, "3 tasks sent 1 source partitions"),
        (counted.OneMore, LIFECYCLE, "records came from a source that has [0]"),
        (counted.OneMore, ALL_SENT, "records [7] were never written"),
    ],
)
def test_a_broken_task_of_generated_records_is_caught(tmp_path: Path, task: type[Any], caught: str, says: str) -> None:
    found = failing(source_suite(with_task(counted.CountedSource, task), counted.CountedWorld), tmp_path)
    assert says in found.get(caught, "it passed"), found


@pytest.mark.parametrize(
    ("connector", "caught", "says"),
    [
        (examples.TooManyTasks, TASKS, "2 task configs where 1 are allowed"),
        (examples.OtherTasksEachTime, TASKS, "another instance makes other task configs"),
        (examples.UnnamedFields, CONFIG, "validation does not name file"),
        (examples.UnreadConfig, CONFIG, "connector and task start with {'file': None}"),
        (examples.OwnOffsetsRefused, "test_stored_offsets_can_be_set", "no offset can be set"),
    ],
)
def test_a_broken_connector_is_caught_by_exactly_one_test(
    tmp_path: Path, connector: type[SourceConnector], caught: str, says: str
) -> None:
    found = failing(source_suite(connector), tmp_path)
    assert says in found.get(caught, "it passed"), found
    assert list(found) == [caught]


@pytest.mark.parametrize(
    ("task", "world", "caught", "says"),
    [
        (examples.LosesOnFlush, examples.LinesSinkWorld, KILLS, "flush() returned, and records [0, 2] that were put"),
        (examples.FlushesHalf, examples.LinesSinkWorld, ALL_WRITTEN, "flush() returned, and records"),
        (reading_examples.AllowsTooMuch, examples.LinesSinkWorld, KILLS, "flush() returned, and records"),
        (reading_examples.AllowsMoreThanThereIs, examples.LinesSinkWorld, ALL_WRITTEN, "pre_commit() allows offsets"),
        (reading_examples.GoesBackTwice, examples.IdempotentWorld, ALL_WRITTEN, "are there more than once"),
        (awaiting_examples.DoesNotWait, examples.LinesSinkWorld, ALL_WRITTEN, "flush() returned, and records"),
        (examples.FlushNeedsRecords, examples.LinesSinkWorld, LIFECYCLE, "IndexError"),
        (examples.NoTombstones, examples.LinesSinkWorld, "test_tombstones", "TypeError"),
        (examples.LinesSinkTask, examples.PickyWorld, "test_tombstones", "DID NOT RAISE"),
        (examples.FailsForTheBatch, examples.LinesSinkWorld, ONE_BAD, "DataError: a name that is no text"),
        (examples.GivesUpTheBatch, examples.LinesSinkWorld, ONE_BAD, "records [4] that were put are not there"),
        (examples.FieldsOfTheFirst, examples.LinesSinkWorld, "test_a_schema_changes_within_a_commit", "no column for"),
        (examples.SinkStopNeedsStart, examples.LinesSinkWorld, LIFECYCLE, "AttributeError"),
        (examples.LinesSinkTask, examples.IdempotentWorld, "test_redelivered_records", "are there more than once"),
        (examples.LinesSinkTask, examples.IdempotentWorld, KILLS, "after a kill at flush, "),
        (examples.ShowsWhatIsStaged, examples.StagedWorld, KILLS, "stage() shows records [0, 2] before they are comm"),
        (examples.RecoversNothing, examples.StagedWorld, KILLS, "after a kill at the commit after stage, "),
        (examples.RecoverDeletes, examples.StagedWorld, KILLS, "after a kill at the commit after stage, "),
        (examples.StagesTwice, examples.StagedWorld, ALL_WRITTEN, "are there more than once"),
        (examples.MovesAfterwards, examples.LedgerWorld, KILLS, "after a kill at put 1, "),
        (
            examples.WritesAfterwards,
            examples.LedgerWorld,
            KILLS,
            "put() returned, and records [0, 2] that were",
        ),
        (
            examples.PublishAppends,
            examples.StagedWorld,
            "test_staged_files_are_published_once",
            "are there more than once",
        ),
    ],
)
def test_a_broken_sink_task_is_caught(
    tmp_path: Path, task: type[Any], world: type[Any], caught: str, says: str
) -> None:
    elsewhere: dict[str, Any] = {
        reading_examples.__name__: reading_examples.HoldsBackSink,
        awaiting_examples.__name__: awaiting_examples.AwaitedSink,
    }
    connector = elsewhere.get(task.__module__, examples.LinesSink)
    found = failing(sink_suite(with_task(connector, task), world), tmp_path)
    assert says in found.get(caught, "it passed"), found


def test_every_test_of_a_suite_also_passes_for_the_correct_connectors(tmp_path: Path) -> None:
    """The correct connectors pass when they are driven in the same way as the broken ones."""
    assert failing(source_suite(examples.LinesSource), tmp_path / "source") == {}
    assert failing(source_suite(counted.CountedSource, counted.CountedWorld), tmp_path / "counted") == {}
    assert failing(sink_suite(examples.LinesSink, examples.LinesSinkWorld), tmp_path / "sink") == {}
    assert failing(sink_suite(examples.LedgerSink, examples.LedgerWorld), tmp_path / "ledger") == {}
    assert failing(sink_suite(examples.StagedSink, examples.StagedWorld), tmp_path / "staged") == {}


def test_a_broken_sink_is_caught_by_a_real_run(kafka_bootstrap: str, tmp_path: Path) -> None:
    worlds: list[examples.LinesSinkWorld] = []

    def new_world() -> Any:
        place = tmp_path / f"world-{len(worlds)}"
        place.mkdir()
        worlds.append(examples.LinesSinkWorld(place))
        return worlds[-1]

    suite: Any = type("Suite", (SinkRunSuite,), {"connector": with_task(examples.LinesSink, examples.LosesOnFlush)})
    with pytest.raises(AssertionError, match=r"after a kill at after-offset-commit: records \[0.*\] are lost"):
        suite().test_killed_runs_lose_no_record(new_world, kafka_bootstrap, tmp_path)
