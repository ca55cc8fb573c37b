"""Legal compaction of the config topic: it changes no snapshot of the config store, and no decision of a writer that
restarted on a compacted topic.

For connectors that Java wrote last, Java's own rules decide, compaction and all: those are checked against a second
implementation of them (`tests.support.java_config_rules`) that reads the same records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from herdmesh.configstore.state import connector, manifest
from herdmesh.configstore.state.connector import ConnectorState
from herdmesh.configstore.state.mutations import CommitTaskConfigs, PutConnectorConfig, SetTargetState
from herdmesh.connect.topics.config_records import CommitRecord, ManifestRecord, TargetState, TaskConfigRecord
from herdmesh.connect.topics.config_topic import manifest_key
from herdmesh.topicstore.contract import NewRecord
from tests.support.config_histories import MIXED_HISTORIES, OUR_HISTORIES, Step, play
from tests.support.config_world import Differs, World
from tests.support.sizes import soak_or

_BUDGET = settings(
    max_examples=soak_or(60, 3_000),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
#: For histories that have to fail: found, not shrunk.
_SEARCH = settings(_BUDGET, max_examples=300, phases=[Phase.generate], report_multiple_bugs=False)


@pytest.mark.timeout(900)
@_BUDGET
@given(OUR_HISTORIES)
def test_our_records_read_the_same_after_any_compaction_and_restart(steps: list[Step]) -> None:
    world = play(steps, World(ours_alone=True))
    assert not any(one.foreign for one in world.first.state.stored())


@pytest.mark.timeout(900)
@_BUDGET
@given(MIXED_HISTORIES)
def test_beside_java_our_records_read_the_same_and_javas_read_as_java_reads_them(steps: list[Step]) -> None:
    play(steps, World())


def test_the_histories_exercise_adoption_restarts_and_refusals() -> None:
    happened: Counter[str] = Counter()

    @settings(_BUDGET, max_examples=30)
    @given(MIXED_HISTORIES)
    def count(steps: list[Step]) -> None:
        happened.update(play(steps, World()).happened)

    count()
    assert happened["adopted"] > 20
    assert happened["restarted"] > 100
    assert happened["followed Java"] > 200
    assert happened["refused"] > 20


def _played(histories: st.SearchStrategy[list[Step]], world: Callable[[], World]) -> None:
    @_SEARCH
    @given(histories)
    def run(steps: list[Step]) -> None:
        play(steps, world())

    run()


def _unchanged(state: ConnectorState) -> ConnectorState:
    return state


def _nothing(_: ConnectorState) -> list[TaskConfigRecord]:
    return []


def test_without_manifests_compaction_changes_snapshots() -> None:
    def no_manifest(record: NewRecord) -> bool:
        return not record.key.startswith(manifest_key(""))

    with pytest.raises(Differs):
        _played(OUR_HISTORIES, lambda: World(ours_alone=True, visible=no_manifest))


def test_without_digests_a_change_by_java_is_overruled(monkeypatch: pytest.MonkeyPatch) -> None:
    def same(_: object) -> str:
        return "same"

    monkeypatch.setattr(manifest, "task_config_digest", same)
    monkeypatch.setattr(connector, "task_config_digest", same)
    with pytest.raises(Differs):
        _played(MIXED_HISTORIES, World)


def test_without_the_deleted_marker_a_deleted_connector_reappears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "_gone", _unchanged)
    with pytest.raises(Differs):
        _played(OUR_HISTORIES, lambda: World(ours_alone=True))


def test_without_restated_tasks_a_dead_leaders_task_record_replaces_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task record is the latest of the number, though no commit followed: compaction leaves only that one."""

    def history(world: World) -> None:
        world.lead("h")
        world.write(PutConnectorConfig("c", {"v": "x"}), expected=False)
        world.write(CommitTaskConfigs("c", [{"t": "x"}]), expected=False)
        world.java([TaskConfigRecord("c", 0, {"t": "y"})])
        world.write(SetTargetState("c", TargetState.PAUSED), expected=False)
        world.clean(1.0, 1.0, 0)
        world.restart()

    history(World())
    monkeypatch.setattr(manifest, "restated", _nothing)
    with pytest.raises(Differs):
        history(World())


def _not_raced(_state: ConnectorState, _manifest: ManifestRecord) -> bool:
    return False


def test_without_the_latest_commit_a_connector_waits_for_a_fence_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit of Java's gets in before the config that we create: it met none, so nothing waits for a fence."""

    def history(world: World) -> None:
        world.lead("h")
        world.write(PutConnectorConfig("c", {"v": "x"}), expected=False, racing=[CommitRecord("c", 0)], at=0)
        world.restart()

    history(World())
    monkeypatch.setattr(manifest, "_is_raced", _not_raced)
    with pytest.raises(Differs):
        history(World())


def test_a_writer_that_continues_by_connects_rules_alone_loses_compacted_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manifest, "continued", _unchanged)
    with pytest.raises(Differs):
        _played(OUR_HISTORIES, lambda: World(ours_alone=True))
