"""Tests of the fold by Connect's rules: every scenario of docs/reference/connect/config-topic.md, section 10. Tests of
single rules are in `test_rules`.

| `KafkaConfigBackingStoreTest` | Test here, or the reason why there is none |
|---|---|
| testPutConnectorConfig | test_put_connector_config |
| testPutConnectorConfigWithTargetState | test_put_connector_config_with_target_state |
| testRestoreTargetStateUnexpectedDeletion | test_restore_target_state_unexpected_deletion |
| testRestoreTargetState | test_restore_target_state |
| testRestore | test_restore |
| testRestoreConnectorDeletion | test_restore_connector_deletion |
| testRestoreZeroTasks | test_restore_zero_tasks |
| testRecordToRestartRequest | test_restart_requests_are_events_and_logger_levels_are_kept |
| testRecordToRestartRequestOnlyFailedInconsistent | the same |
| testRecordToRestartRequestIncludeTasksInconsistent | `test_rules` test_restart_flags |
| testPutRestartRequestOnlyFailed | `test_service` test_restart_requests_session_keys_and_logger_levels |
| testPutRestartRequestOnlyFailedIncludingTasks | `test_rules` test_restart_flags |
| testRestoreRestartRequestInconsistentState | test_restart_requests_are_events_and_logger_levels_are_kept |
| testBackgroundConnectorDeletion | test_background_connector_deletion |
| testPutTaskConfigsDoesNotResolveAllInconsistencies | test_put_task_configs_does_not_resolve_all_inconsistencies |
| testPutTaskConfigsZeroTasks | test_put_task_configs_zero_tasks |
| testBackgroundUpdateTargetState | test_background_update_target_state |
| testSameTargetState | test_same_target_state |
| testPutLogLevel | test_restart_requests_are_events_and_logger_levels_are_kept; |
| | `test_service` test_restart_requests_session_keys_and_logger_levels |
| testTaskCountRecordsAndGenerations | test_task_count_records_and_generations |
| testPutTaskConfigs | test_put_task_configs_of_two_connectors |
| testPutTaskConfigsStartsOnlyReconfiguredTasks | the same |
| testSnapshotCannotMutateInternalState | test_copies_are_independent |
| testWritePrivileges | ours are epochs and the writer's fence: |
| | `test_writes` test_writes_that_only_the_leader_may_do, |
| | `tests/contract/test_topicstore.py` test_a_fenced_writer_applies_nothing_and_returns_when_allowed |
| testStartStop | `test_settings` (topic settings); creating the topic is the topic store's |
| testExceptionOnStartWhenConfigTopicHasMultiplePartitions | the topic store's: TopicMisconfigured |
| testPutConnectorConfigProducerError | the topic store's: its errors say whether a write was applied |
| testRemoveConnectorConfigSlowProducer | none: a write has no time-out of its own, the caller's deadline bounds it |
| testFencableProducerProperties... (2) | `test_settings` test_identities_are_connects_own |
| testConsumerProperties... (4) | none: the reader is always read_committed |
| testClientIds | none: client ids are no contract with users |
"""

from __future__ import annotations

import pytest

from herdmesh.configstore.state.changes import LoggerLevelChanged, RestartRequested, SessionKeyChanged
from herdmesh.connect.topics.config_records import (
    CommitRecord,
    ConnectorRecord,
    LoggerRecord,
    RestartRecord,
    TargetState,
    TargetStateRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from herdmesh.connect.topics.decoding import Tombstone
from tests.support.config_topic import ConfigTopic, compacted, replay

FIRST, SECOND, THIRD = {"name": "c1", "v": "1"}, {"name": "c1", "v": "2"}, {"name": "c1", "v": "3"}


def config(properties: dict[str, str] = FIRST, name: str = "c1") -> ConnectorRecord:
    return ConnectorRecord(name, properties)


def task(number: int, properties: dict[str, str] | None = None, name: str = "c1") -> TaskConfigRecord:
    return TaskConfigRecord(name, number, properties or {"task": str(number)})


def target(state: TargetState, name: str = "c1") -> TargetStateRecord:
    return TargetStateRecord(name, state)


GONE = Tombstone("connector", "c1")
TARGET_GONE = Tombstone("target-state", "c1")
COMMIT = CommitRecord("c1", 2)


def topic(*records: object) -> ConfigTopic:
    made = ConfigTopic()
    made.java(*records)  # pyright: ignore[reportArgumentType]
    return made


def tasks_of(made: ConfigTopic, name: str = "c1") -> list[object]:
    return [task.properties for task in made.connector(name).tasks]


def test_put_connector_config() -> None:
    made = topic(config(), config(name="c2"), Tombstone("connector", "c2"), Tombstone("target-state", "c2"))
    assert set(made.state.connectors) == {"c1"}
    assert made.connector("c1").config == FIRST
    assert made.connector("c1").target_state is TargetState.STARTED
    assert made.connector("c2").target_state is None
    assert made.kinds("c1") == ["config_updated"]
    assert made.kinds("c2") == ["config_updated", "config_removed"]


def test_put_connector_config_with_target_state() -> None:
    made = topic(target(TargetState.STOPPED), config())
    assert made.connector("c1").target_state is TargetState.STOPPED
    assert made.kinds("c1") == ["config_updated"]  # never the target state's listener


def test_restore_target_state_unexpected_deletion() -> None:
    made = topic(config(), task(0), task(1), TARGET_GONE, COMMIT)
    assert made.connector("c1").target_state is TargetState.STARTED
    assert made.kinds("c1") == ["config_updated", "tasks_committed"]


def test_restore_target_state() -> None:
    made = ConfigTopic()
    made.raw("target-state-c1", {"state": "PAUSED"})
    made.java(config())
    made.raw("target-state-c2", {"state": "PAUSED", "state.v2": "STOPPED"})
    assert set(made.state.connectors) == {"c1"}
    assert made.connector("c1").target_state is TargetState.PAUSED
    assert made.connector("c2").target_state is TargetState.STOPPED
    assert made.kinds("c2") == []
    assert [state.name for state in made.state.stored()] == ["c1", "c2"]


def test_restore() -> None:
    made = topic(
        TaskCountRecord("c1", 6), config(FIRST), task(0), task(1), config(SECOND), COMMIT, TaskCountRecord("c2", 9),
        config(THIRD), task(0, {"uncommitted": "1"}),
    )  # fmt: skip
    state = made.connector("c1")
    assert state.config == THIRD
    assert state.applied_config == SECOND
    assert tasks_of(made) == [{"task": "0"}, {"task": "1"}]
    assert made.connector("c2").task_count_record == 9
    assert state.pending_fencing
    assert not state.inconsistent


def test_restore_connector_deletion() -> None:
    made = topic(config(), task(0), task(1), GONE, TARGET_GONE, COMMIT)
    assert not made.state.connectors
    assert not made.state.stored()
    assert made.kinds("c1") == ["config_updated", "config_removed"]  # the commit after it calls no listener


def test_restore_zero_tasks() -> None:
    made = topic(config(), task(0), task(1), config(SECOND), COMMIT, config(THIRD), task(0), CommitRecord("c1", 0))
    assert tasks_of(made) == []
    assert not made.connector("c1").inconsistent
    assert made.connector("c1").config == THIRD
    assert made.connector("c1").task_count == 0


def test_background_connector_deletion() -> None:
    made = topic(config(), task(0), task(1), COMMIT, task(0), GONE, TARGET_GONE)
    state = made.connector("c1")
    assert (state.config, state.task_count, state.deferred, state.tasks) == (None, None, None, ())
    assert made.kinds("c1")[-1] == "config_removed"


def test_put_task_configs_does_not_resolve_all_inconsistencies() -> None:
    made = topic(config(), task(1), COMMIT, task(0))
    state = made.connector("c1")
    assert (state.inconsistent, state.task_count, state.tasks, state.pending_fencing) == (True, 2, (), True)
    assert state.applied_config is None
    assert state.task_config_generation == 0
    made.java(task(0), CommitRecord("c1", 1))
    assert not made.connector("c1").inconsistent
    assert tasks_of(made) == [{"task": "0"}]
    assert made.kinds("c1").count("tasks_committed") == 2


def test_put_task_configs_zero_tasks() -> None:
    made = topic(config(), CommitRecord("c1", 0))
    assert tasks_of(made) == []
    assert made.connector("c1").applied_config == FIRST
    assert made.connector("c1").task_config_generation == 0  # no task record was ever seen
    assert made.kinds("c1")[-1] == "tasks_committed"


def test_background_update_target_state() -> None:
    made = topic(config(), target(TargetState.PAUSED), target(TargetState.STOPPED, "c2"))
    assert made.kinds("c1") == ["config_updated", "target_state"]
    assert made.kinds("c2") == []
    assert made.connector("c2").target_state is TargetState.STOPPED


def test_same_target_state() -> None:
    made = topic(config(), target(TargetState.STARTED))
    assert made.kinds("c1") == ["config_updated"]
    assert (
        made.connector("c1").target_state_revision == 2
    )  # the record is newer all the same, and watchers get the change


def test_restart_requests_are_events_and_logger_levels_are_kept() -> None:
    made = ConfigTopic()
    made.java(RestartRecord("c1", include_tasks=False, only_failed=True), LoggerRecord("org", "DEBUG"))
    made.raw("restart-connector-c1", {"include-tasks": True})
    made.raw("restart-connector-c1", None)
    made.raw("logger-cluster-org", None)
    assert made.changes == [
        RestartRequested(RestartRecord("c1", include_tasks=False, only_failed=True)),
        LoggerLevelChanged(LoggerRecord("org", "DEBUG"), 2),
        RestartRequested(RestartRecord("c1", include_tasks=True, only_failed=False)),
    ]
    assert made.state.refused.count == 2
    assert not made.state.stored()
    assert list(made.state.logger_levels.values()) == [LoggerLevelChanged(LoggerRecord("org", "DEBUG"), 2)]
    made.java(LoggerRecord("root", "WARN"), LoggerRecord("org", "ERROR"))
    end = made.next_offset
    kept = [
        LoggerLevelChanged(LoggerRecord("root", "WARN"), end - 1),
        LoggerLevelChanged(LoggerRecord("org", "ERROR"), end),
    ]
    assert list(made.state.logger_levels.values()) == kept
    for cleaned in range(made.next_offset + 1):
        assert list(replay(compacted(made.records, cleaned)).logger_levels.values()) == kept


def test_task_count_records_and_generations() -> None:
    made = topic(config(), task(0), task(1), COMMIT)
    state = made.connector("c1")
    assert (state.pending_fencing, state.task_count_record, state.task_config_generation) == (True, None, 1)
    made.java(TaskCountRecord("c1", 4))
    state = made.connector("c1")
    assert (state.pending_fencing, state.task_count_record, state.task_config_generation) == (False, 4, 1)
    made.java(CommitRecord("c1", 0))  # an empty deferred map counts too
    assert made.connector("c1").task_config_generation == 2


def test_put_task_configs_of_two_connectors() -> None:
    made = topic(config(), config(name="c2"), task(0), task(1), COMMIT, task(0, name="c2"), CommitRecord("c2", 1))
    assert len(made.connector("c1").tasks) == 2
    assert len(made.connector("c2").tasks) == 1
    assert made.kinds("c2") == ["config_updated", "tasks_committed"]


def test_left_over_tasks_of_a_larger_set_are_not_shown() -> None:
    made = topic(config(), task(0), task(1), COMMIT, task(0, {"new": "0"}), CommitRecord("c1", 1))
    assert tasks_of(made) == [{"new": "0"}]
    assert set(made.connector("c1").task_configs) == {0, 1}


def test_a_removed_connector_keeps_what_connect_keeps() -> None:
    made = topic(config(), task(0), task(1), COMMIT, TaskCountRecord("c1", 2), task(1), COMMIT, GONE)
    state = made.connector("c1")
    assert (state.inconsistent, state.task_count_record, state.task_config_generation) == (True, 2, 1)
    assert (state.pending_fencing, state.target_state) == (True, TargetState.STARTED)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            {"state": "PAUSED", "state.v2": "NEW"},
            TargetState.STARTED,
        ),  # an unknown state.v2 decides alone: the record is refused
        ({"state": "PAUSED", "state.v2": 5}, TargetState.PAUSED),
        ({"state": "PAUSED", "state.v2": None}, TargetState.PAUSED),
        ({"state": "paused"}, TargetState.STARTED),
        ({"state.v2": "STOPPED"}, TargetState.STOPPED),
        ([], TargetState.STARTED),
        (b"", TargetState.STARTED),
        (b"null", TargetState.STARTED),
    ],
)
def test_target_state_values(value: object, expected: TargetState) -> None:
    made = topic(config())
    made.raw("target-state-c1", value)
    assert made.connector("c1").target_state is expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("connector-c1", []),
        ("connector-c1", {"properties": 1}),
        ("connector-c1", b"{"),
        ("task-c1-0", None),
        ("task-c1-0", {"properties": None}),
        ("task-c1", {"properties": {}}),
        ("task-c1-x", {"properties": {}}),
        ("commit-c1", None),
        ("commit-c1", {"tasks": 2.0}),
        ("commit-c1", {"tasks": "2"}),
        ("tasks-fencing-c1", {"task-count": None}),
        ("session-key", {"key": "", "algorithm": "HmacSHA256", "creation-timestamp": 1}),
        ("session-key", {"key": "!", "algorithm": "HmacSHA256", "creation-timestamp": 1}),
        ("session-keys", {}),
        ("anything", {}),
        ("herdmesh-connector-c1", {"incarnation": 1}),
        ("herdmesh-leader", {}),
    ],
)
def test_unreadable_records_change_nothing_and_are_counted(key: str, value: object) -> None:
    made = topic(config(), task(0), task(1), COMMIT)
    before = made.connector("c1")
    told = len(made.changes)
    made.raw(key, value)
    assert made.connector("c1") == before
    assert len(made.changes) == told
    assert made.state.refused.count == 1
    assert made.state.refused.latest[0].key == key
    assert made.state.refused.latest[0].offset == 4


def test_the_list_of_unreadable_records_is_bounded() -> None:
    made = ConfigTopic()
    for number in range(150):
        made.raw(f"unknown-{number}", {})
    assert made.state.refused.count == 150
    assert len(made.state.refused.latest) == 100
    assert made.state.refused.latest[-1].key == "unknown-149"


def test_an_unreadable_commit_without_config_clears_uncommitted_tasks() -> None:
    made = topic(task(0))
    made.raw("commit-c1", {"tasks": "1"})
    assert made.connector("c1").deferred is None
    made = topic(task(0))
    made.raw("commit-c1", b"{")  # not JSON: Connect does not reach the check of the key
    assert set(made.connector("c1").deferred or {}) == {0}


def test_odd_task_keys() -> None:
    made = ConfigTopic()
    for key in ("task-x-+1", "task-x-02", "task-x-3-", "task-x--4", "task--5"):
        made.raw(key, {"properties": {}})
    assert set(made.connector("x").deferred or {}) == {1, 2, 3}
    assert set(made.connector("x-").deferred or {}) == {4}
    assert set(made.connector("").deferred or {}) == {5}


def test_counts_are_cut_to_32_bits_and_negative_ones_count_as_complete() -> None:
    made = topic(config(), task(0))
    made.raw("commit-c1", {"tasks": 4294967297})
    assert made.connector("c1").task_count == 1
    made.raw("commit-c1", {"tasks": 2**31})
    assert made.connector("c1").task_count == -(2**31)
    assert made.connector("c1").tasks == ()
    assert not made.connector("c1").inconsistent
    made.raw("commit-c1", {"tasks": 2**31 - 1})
    assert made.connector("c1").inconsistent


def test_the_session_key_is_restored() -> None:
    made = ConfigTopic()
    made.raw("session-key", {"key": "a2V5", "algorithm": "HmacSHA256", "creation-timestamp": 7})
    assert isinstance(made.changes[0], SessionKeyChanged)
    assert replay(made.records).session_key == made.state.session_key
    assert made.state.session_key is not None
    assert made.state.session_key.key == b"key"


def test_a_null_key_is_counted() -> None:
    made = topic(config())
    record = made.records[0]
    state = replay([record])
    state.apply(type(record)(record.topic, 0, 1, None, b"{}", 0))
    assert state.refused.count == 1


def test_copies_are_independent() -> None:
    made = topic(config())
    copied = made.state.copy()
    made.java(GONE, LoggerRecord("a", "INFO"))
    made.raw("unknown", {})
    made.lead()
    assert copied.connector("c1").config == FIRST
    assert copied.refused.count == 0
    assert copied.leadership is None


def test_compaction_breaks_connects_own_rules_without_a_manifest() -> None:
    """KAFKA-17719: the config was written again after its task set, so compaction leaves it behind the commit."""
    made = topic(config(), task(0), task(1), COMMIT, config(SECOND))
    assert len(made.connector("c1").tasks) == 2
    after = replay(compacted(made.records, made.next_offset))
    assert after.connector("c1").tasks == ()
    assert after.connector("c1").foreign
