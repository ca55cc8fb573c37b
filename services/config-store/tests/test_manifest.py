"""Tests of the manifest: it decides after any compaction, as long as no record of another writer follows it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from herdmesh.configstore.state import manifest
from herdmesh.configstore.state.config import ConfigState
from herdmesh.configstore.state.mutations import (
    CommitTaskConfigs,
    DeleteConnector,
    LeaderToken,
    Mutation,
    PutConnectorConfig,
    PutTaskCount,
    SetTargetState,
)
from herdmesh.configstore.state.writes import plan
from herdmesh.connect.topics.config_records import (
    CommitRecord,
    ConnectorRecord,
    ManifestRecord,
    TargetState,
    TargetStateRecord,
    TaskConfigRecord,
    task_config_digest,
)
from herdmesh.connect.topics.decoding import Tombstone
from herdmesh.topicstore.contract import NewRecord
from herdmesh.topicstore.writes import PROVISIONAL_OFFSET
from tests.support.config_topic import ConfigTopic, compacted, replay


def config(value: str) -> dict[str, str]:
    return {"name": "c1", "value": value}


def tasks(*values: str) -> list[dict[str, str]]:
    return [{"task": value} for value in values]


def led() -> ConfigTopic:
    topic = ConfigTopic()
    topic.lead()
    return topic


def write(topic: ConfigTopic, mutation: Mutation) -> None:
    leadership = topic.state.leadership
    assert leadership is not None
    topic.write(mutation, leader=LeaderToken(leadership.epoch, leadership.leader_id))


def view(state: ConfigState) -> list[tuple[Any, ...]]:
    """Everything that a caller can read of every stored name."""
    return [
        (
            one.name, one.config, one.config_revision, one.target_state, one.target_state_revision, one.tasks,
            one.task_count, one.tasks_revision, one.inconsistent, one.applied_config, one.incarnation,
            one.task_config_generation, one.task_count_record, one.pending_fencing, one.foreign,
        )
        for one in state.stored()
    ]  # fmt: skip


def test_a_config_written_after_its_tasks_survives_compaction() -> None:
    """The case of KAFKA-17719, with a manifest."""
    topic = led()
    write(topic, PutConnectorConfig("c1", config("1")))
    write(topic, CommitTaskConfigs("c1", tasks("a", "b")))
    write(topic, PutConnectorConfig("c1", config("2")))
    after = replay(compacted(topic.records, topic.next_offset))
    state = after.connector("c1")
    assert [task.properties for task in state.tasks] == tasks("a", "b")
    assert (state.applied_config, state.config, state.foreign) == (config("1"), config("2"), False)
    assert view(after) == view(topic.state)


def test_a_manifest_ends_every_transaction_of_a_connector() -> None:
    topic = led()
    for mutation in (
        PutConnectorConfig("c1", config("1"), initial_target_state=TargetState.PAUSED),
        CommitTaskConfigs("c1", tasks("a")),
        SetTargetState("c1", TargetState.STARTED),
        PutTaskCount("c1", 1),
        DeleteConnector("c1"),
    ):
        write(topic, mutation)
        assert not topic.connector("c1").foreign
        assert topic.kinds("c1")[-1] == "manifest" or not topic.connector("c1").is_stored
    keys = [record.key for record in topic.records if record.topic == "connect-configs"]
    assert keys == [
        b"herdmesh-leader",
        b"target-state-c1", b"connector-c1", b"herdmesh-connector-c1",
        b"task-c1-0", b"commit-c1", b"herdmesh-connector-c1",
        b"target-state-c1", b"herdmesh-connector-c1",
        b"tasks-fencing-c1", b"herdmesh-connector-c1",
        b"connector-c1", b"target-state-c1", b"herdmesh-connector-c1",
    ]  # fmt: skip


def test_a_foreign_record_makes_connects_rules_apply_until_our_next_write() -> None:
    topic = led()
    write(topic, PutConnectorConfig("c1", config("1")))
    write(topic, CommitTaskConfigs("c1", tasks("a")))
    incarnation = topic.connector("c1").incarnation
    topic.java(TaskConfigRecord("c1", 0, {"task": "java"}))
    assert topic.connector("c1").foreign
    assert [task.properties for task in topic.connector("c1").tasks] == tasks("a")
    topic.java(CommitRecord("c1", 1))
    assert [task.properties for task in topic.connector("c1").tasks] == tasks("java")
    assert topic.connector("c1").task_config_generation == 2
    write(topic, SetTargetState("c1", TargetState.PAUSED))  # any write of ours adopts the state it finds
    state = topic.connector("c1")
    assert (state.foreign, state.incarnation, state.task_config_generation) == (False, incarnation, 2)
    assert view(replay(compacted(topic.records, topic.next_offset))) == view(topic.state)


def test_a_foreign_config_unknown_to_the_manifests_writer_makes_connects_rules_apply() -> None:
    """1. The writer decides. 2. A plain producer appends. 3. The writer's transaction follows: its digest is wrong."""
    topic = led()
    write(topic, PutConnectorConfig("c1", config("1")))
    mutation = SetTargetState("c1", TargetState.PAUSED)
    planned = plan(topic.state, mutation, topic.context(mutation))
    topic.java(ConnectorRecord("c1", config("java")))
    topic.transaction(planned.records)
    assert topic.connector("c1").foreign
    assert topic.connector("c1").config == config("java")
    assert topic.connector("c1").target_state is TargetState.PAUSED


def test_an_inconsistent_set_is_adopted_as_inconsistent() -> None:
    topic = led()
    topic.java(ConnectorRecord("c1", config("1")), TaskConfigRecord("c1", 1, {}), CommitRecord("c1", 2))
    write(topic, SetTargetState("c1", TargetState.PAUSED))
    state = topic.connector("c1")
    assert (state.inconsistent, state.task_count, state.foreign, state.tasks) == (True, 2, False, ())
    write(topic, CommitTaskConfigs("c1", tasks("a")))
    assert not topic.connector("c1").inconsistent


def test_a_negative_count_of_another_writer_is_shown_as_connect_shows_it() -> None:
    topic = led()
    topic.java(ConnectorRecord("c1", config("1")), CommitRecord("c1", -1))
    assert topic.connector("c1").task_count == -1
    write(topic, PutConnectorConfig("c1", config("2")))
    state = topic.connector("c1")
    assert (state.task_count, state.tasks, state.inconsistent, state.foreign) == (-1, (), False, False)
    assert view(replay(compacted(topic.records, topic.next_offset))) == view(topic.state)
    write(topic, CommitTaskConfigs("c1", tasks("a")))
    assert topic.connector("c1").task_count == 1


def test_a_task_record_without_commit_does_not_replace_the_one_in_force() -> None:
    topic = led()
    write(topic, PutConnectorConfig("c1", config("1")))
    write(topic, CommitTaskConfigs("c1", tasks("a")))
    topic.java(TaskConfigRecord("c1", 0, {"task": "of a leader that died"}))
    write(topic, SetTargetState("c1", TargetState.PAUSED))
    assert [task.properties for task in topic.connector("c1").tasks] == tasks("a")
    assert not topic.connector("c1").foreign


def test_a_recreated_connector_has_a_new_incarnation_and_restarts_its_counts() -> None:
    topic = led()
    write(topic, PutConnectorConfig("c1", config("1")))
    write(topic, CommitTaskConfigs("c1", tasks("a")))
    first = topic.connector("c1")
    write(topic, DeleteConnector("c1"))
    assert not topic.connector("c1").is_stored
    write(topic, PutConnectorConfig("c1", config("1")))
    second = topic.connector("c1")
    assert second.incarnation != first.incarnation
    assert (second.task_config_generation, second.tasks, second.tasks_revision) == (0, (), 0)
    assert second.target_state is TargetState.STARTED


def test_records_that_java_never_deletes_do_not_bring_back_a_deleted_connector() -> None:
    topic = led()
    write(topic, PutConnectorConfig("c1", config("1")))
    write(topic, CommitTaskConfigs("c1", tasks("a")))
    write(topic, PutTaskCount("c1", 1))
    write(topic, DeleteConnector("c1"))
    end = topic.next_offset
    after = replay(compacted(topic.records, end, tombstones_to=end))
    assert view(after) == view(topic.state)
    assert after.connector("c1").task_count_record == 1  # as in Connect: the next set is fenced against it
    assert not after.connectors


def test_after_the_manifest_is_removed_connects_rules_apply() -> None:
    topic = led()
    write(topic, PutConnectorConfig("c1", config("1")))
    topic.raw("herdmesh-connector-c1", None)
    assert topic.connector("c1").foreign
    assert topic.connector("c1").incarnation == ""


def test_a_manifest_has_known_revisions_and_zero_for_records_of_its_own_transaction() -> None:
    topic = led()
    write(topic, PutConnectorConfig("c1", config("1")))
    state = topic.connector("c1")
    made = manifest.build(state, "new")
    assert made == ManifestRecord(
        "c1", state.incarnation, config_digest=task_config_digest(config("1")), revisions={"config": 3, "commit": 0}
    )
    assert manifest.IN_FLIGHT_OFFSET == PROVISIONAL_OFFSET
    assert b'"revisions":{"commit":0,"config":0}' in (topic.records[2].value or b"")
    write(topic, CommitTaskConfigs("c1", tasks("a")))
    assert b'"revisions":{"commit":-1,' in (topic.records[-2].value or b"")


def test_reading_back_a_manifest_clears_foreign_and_changes_nothing_else() -> None:
    topic = ConfigTopic()
    topic.java(
        ConnectorRecord("c1", config("1")), TaskConfigRecord("c1", 0, {"a": "1"}), CommitRecord("c1", 1),
        ConnectorRecord("c1", config("2")),
    )  # fmt: skip
    state = topic.connector("c1")
    again = manifest.read(state, manifest.build(state, "new"))
    assert again.foreign is False
    assert again.incarnation == "new"
    assert (again.tasks, again.applied_config, again.task_config_generation) == (
        state.tasks, state.applied_config, state.task_config_generation,
    )  # fmt: skip


@pytest.mark.parametrize("deleted_before", [False, True])
def test_a_commit_without_config_requires_no_fence(deleted_before: bool) -> None:
    """Java wrote a task set of a connector that does not exist; the connector that we create afterwards waits for no
    fence.
    """
    topic = led()
    if deleted_before:
        write(topic, PutConnectorConfig("c1", config("0")))
        write(topic, DeleteConnector("c1"))
    topic.java(TaskConfigRecord("c1", 0, {"t": "a"}), CommitRecord("c1", 1))
    orphan_offset = topic.next_offset - 1
    write(topic, PutConnectorConfig("c1", config("1")))
    end = topic.next_offset
    for state in (topic.state, replay(compacted(topic.records, end, tombstones_to=end))):
        assert not state.connector("c1").pending_fencing
        assert state.connector("c1").tasks == ()
    assert f'"orphan_commit_offset":{orphan_offset}'.encode() in (topic.records[-2].value or b"")
    write(topic, DeleteConnector("c1"))
    assert not topic.connector("c1").pending_fencing
    write(topic, PutConnectorConfig("c1", config("1")))
    write(topic, CommitTaskConfigs("c1", tasks("a")))
    assert topic.connector("c1").pending_fencing
    assert b"orphan_commit_offset" not in (topic.records[-2].value or b"")


@pytest.mark.parametrize("met_the_config", [False, True])
def test_a_commit_that_races_with_a_create_requires_a_fence_if_it_met_the_config(met_the_config: bool) -> None:
    """The manifest's writer did not know the commit: Connect's rules apply until our next write."""
    topic = led()
    leadership = topic.state.leadership
    assert leadership is not None
    leader = LeaderToken(leadership.epoch, leadership.leader_id)
    mutation = PutConnectorConfig("c1", config("1"))
    records = plan(topic.state.copy(), mutation, topic.context(mutation, leader=leader)).records
    created = [record.key for record in records].index(b"connector-c1") + 1
    before = created if met_the_config else 0
    topic.transaction(records[:before])
    topic.java(CommitRecord("c1", 0))
    topic.transaction(records[before:])
    state = topic.connector("c1")
    assert (state.foreign, state.pending_fencing) == (True, met_the_config)
    write(topic, PutConnectorConfig("c1", config("2")))
    state = topic.connector("c1")
    assert (state.foreign, state.pending_fencing) == (False, met_the_config)


def test_a_fence_that_compaction_hid_before_our_write_is_hidden_from_all_readers() -> None:
    """A commit met its config and waits for a fence. The connector is deleted, and a later commit, which meets no
    config, replaces the first in the topic. Java's readers disagree from then on: one that has read the first commit
    knows of the fence, a new one does not. All our readers see the state that our writer had at its next write.
    """
    topic = led()
    topic.java(ConnectorRecord("c1", {"v": "1"}), CommitRecord("c1", 0), Tombstone("connector", "c1"))
    topic.java(CommitRecord("c1", 0))
    writer = ConfigTopic(compacted(topic.records, topic.next_offset), next_offset=topic.next_offset)
    writer.state = replay(writer.records)
    assert (topic.connector("c1").pending_fencing, writer.connector("c1").pending_fencing) == (True, False)
    before = len(writer.records)
    write(writer, PutConnectorConfig("c1", config("2")))
    topic.transaction([NewRecord(one.key or b"", one.value, one.topic) for one in writer.records[before:]])
    for state in (topic.connector("c1"), writer.connector("c1")):
        assert not state.pending_fencing
        assert not state.foreign


_ConnectorMutation = PutConnectorConfig | CommitTaskConfigs | SetTargetState | PutTaskCount | DeleteConnector
_NAMES = st.sampled_from(["c1", "c-2"])
_VALUES = st.sampled_from("xyz")
_STATES = st.sampled_from(list(TargetState))
_MUTATIONS: st.SearchStrategy[_ConnectorMutation] = st.one_of(
    st.builds(
        PutConnectorConfig,
        _NAMES,
        st.fixed_dictionaries({"v": _VALUES}),
        initial_target_state=st.none() | _STATES,
    ),
    st.builds(CommitTaskConfigs, _NAMES, st.lists(st.fixed_dictionaries({"t": _VALUES}), max_size=3)),
    st.builds(SetTargetState, _NAMES, _STATES),
    st.builds(PutTaskCount, _NAMES, st.integers(0, 3)),
    st.builds(DeleteConnector, _NAMES),
)
# A cleaner that has reached the end removes most records; one that stopped earlier leaves the oddest mixtures.
_CUTS = st.just(1.0) | st.floats(0, 1)
_STEPS = st.lists(_MUTATIONS, min_size=4, max_size=16)


def _play(steps: list[_ConnectorMutation]) -> ConfigTopic:
    topic = led()
    for mutation in steps:
        exists = topic.connector(mutation.connector).config is not None
        if exists or isinstance(mutation, PutConnectorConfig | PutTaskCount):
            write(topic, mutation)
    return topic


@settings(max_examples=250, deadline=None)
@given(steps=_STEPS, cut=_CUTS, tombstones=_CUTS)
@example(
    steps=[PutConnectorConfig("c1", {}), CommitTaskConfigs("c1", [{}]), PutConnectorConfig("c1", {})],
    cut=1.0,
    tombstones=0.0,
)
@example(
    steps=[
        PutConnectorConfig("c1", {}),
        CommitTaskConfigs("c1", [{}]),
        DeleteConnector("c1"),
        PutConnectorConfig("c1", {}),
    ],
    cut=1.0,
    tombstones=1.0,
)
def test_legal_compaction_does_not_change_the_folded_state(
    steps: list[_ConnectorMutation], cut: float, tombstones: float
) -> None:
    topic = _play(steps)
    cleaned_to = round(cut * topic.next_offset)
    left = compacted(topic.records, cleaned_to, round(tombstones * cleaned_to))
    assert view(replay(left)) == view(topic.state)


@settings(max_examples=80, deadline=None)
@given(
    steps=_STEPS,
    java=st.lists(st.tuples(_NAMES, st.sampled_from(["config", "tasks", "target", "recreate"]), _VALUES), max_size=6),
    cut=_CUTS,
)
@example(steps=[], java=[("c1", "config", "x"), ("c1", "tasks", "y"), ("c1", "config", "z")], cut=1.0)
def test_legal_compaction_does_not_change_adopted_records_of_java(
    steps: list[_ConnectorMutation], java: list[tuple[str, str, str]], cut: float
) -> None:
    topic = _play(steps)
    for name, operation, value in java:
        _java_writes(topic, name, operation, value)
    for name in list(topic.state.connectors):
        write(topic, SetTargetState(name, TargetState.PAUSED))
    left = compacted(topic.records, round(cut * topic.next_offset))
    assert view(replay(left)) == view(topic.state)
    assert not any(one.foreign for one in topic.state.connectors.values())


def _java_writes(topic: ConfigTopic, name: str, operation: str, value: str) -> None:
    exists = topic.connector(name).config is not None
    if operation == "config" or (operation == "recreate" and not exists):
        topic.java(ConnectorRecord(name, {"v": value}))
    elif operation == "tasks" and exists:
        topic.java(TaskConfigRecord(name, 0, {"t": value}), CommitRecord(name, 1))
    elif operation == "target" and exists:
        topic.java(TargetStateRecord(name, TargetState.STOPPED))
    elif operation == "recreate":
        topic.java(Tombstone("connector", name), Tombstone("target-state", name), ConnectorRecord(name, {"v": value}))
