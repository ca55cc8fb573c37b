"""Tests of Connect's rules, one by one (docs/reference/connect/config-topic.md, sections 2 to 9 and 11); whole
scenarios are in `test_fold`.

| Section | Rule | Test |
|---|---|---|
| 2 | keys and bytes of each kind | `libs/core/tests/connect` test_golden_topics, test_config_topic |
| 3 | the records of each operation, in order; no tasks; tombstones | `test_golden_write` |
| 3.2 | who may write | `test_writes` test_writes_that_only_the_leader_may_do, `test_epochs` |
| 4 | order of prefixes, whole keys, unknown keys | test_the_kind_of_each_key |
| 4.1 | null, with and without config | test_a_removed_target_state |
| 4.1 | `state.v2`, fallback to `state`, enum names | `test_fold` test_target_state_values |
| 4.1 | listener: differs, and config exists | test_which_target_state_changes_call_a_listener |
| 4.2 | null, not a map, properties not a map | test_a_removed_config; test_ignored_records |
| 4.2 | what an update keeps; listener always called | test_a_config_update_touches_nothing_else |
| 4.3 | task keys | `test_fold` test_odd_task_keys |
| 4.3 | deferred, overwritten, null removes nothing, no config needed | test_task_configs_wait_for_their_commit |
| 4.4 | step 1, no config | test_a_commit_without_config_removes |
| 4.4 | steps 2, 3: value not a map, `tasks` no integer | test_an_unreadable_commit_keeps_the_deferred_tasks |
| 4.4 | steps 4a, 4b, 5, 6 | test_the_effects_of_a_commit (incomplete, complete, zero, extra numbers) |
| 4.4 | generation: map absent, empty, filled | test_generations_count_task_sets |
| 4.4 | step 7, also with an empty set | test_the_effects_of_a_commit |
| 4.5 | flags, defaults | test_restart_flags |
| 4.6 | record, pending fencing, no connector needed | test_task_count_records |
| 4.7 | order of checks, last one wins | test_session_keys; test_ignored_records |
| 4.8 | level | test_ignored_records; `test_fold` |
| 4.9 | what removal clears and keeps | test_what_a_removal_clears_and_keeps |
| 5 | the example, the shrink example, resolution | test_an_inconsistent_set; test_a_shrunken_set_is_complete |
| 6 | accessors | `test_snapshot` |
| 7 | record and pending fencing by the order in the log | test_fencing_follows_the_order_of_the_log |
| 9 | standalone | `test_snapshot` test_the_memory_engine_is_the_same_store |
| 11 | added members, unknown keys | test_added_members_are_ignored |
| 11 | task keys, counts | `test_fold` test_odd_task_keys, test_counts_are_cut_to_32_bits_and_negative_ones_... |
| 11 | empty session key | test_ignored_records |
| 11 | UTF-16, Infinity, lone surrogates; what is refused | test_what_jackson_accepts_and_refuses |

We differ where Connect fails: an exception from its callback drops the rest of the poll batch (4.4 step 3, 4.6) or
kills its thread (4.7, null keys). Here such a record is counted and the next one is read. A live worker of Connect acts
only on records that it reads after its start ("started"): here a watch marks the changes that come after its snapshot.
"""

from __future__ import annotations

import codecs
from typing import Any

import pytest

from herdmesh.configstore.state.changes import RestartRequested
from herdmesh.configstore.state.connector import ConnectorState
from herdmesh.connect.topics import config_topic
from herdmesh.connect.topics.config_records import (
    CommitRecord,
    ConnectorRecord,
    RestartRecord,
    TargetState,
    TargetStateRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from herdmesh.connect.topics.decoding import Tombstone, Undecodable, Unknown
from tests.support.config_topic import ConfigTopic, compacted, replay

ONE, TWO = {"name": "c1", "v": "1"}, {"name": "c1", "v": "2"}


def of(*records: Any) -> ConfigTopic:
    """A topic with these records, written as Java writes them."""
    topic = ConfigTopic()
    topic.java(*records)
    return topic


def config(properties: dict[str, str] = ONE) -> ConnectorRecord:
    return ConnectorRecord("c1", properties)


def task(number: int, value: str = "") -> TaskConfigRecord:
    return TaskConfigRecord("c1", number, {"t": value or str(number)})


def commit(tasks: int) -> CommitRecord:
    return CommitRecord("c1", tasks)


def deferred(state: ConnectorState) -> dict[int, Any] | None:
    return None if state.deferred is None else {number: task.properties for number, task in state.deferred.items()}


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("target-state-connector-x", "target-state"), ("connector-task-x-1", "connector"), ("task-commit-x-1", "task"),
        ("commit-x", "commit"), ("restart-connector-x", "restart-connector"), ("tasks-fencing-x", "tasks-fencing"),
        ("session-key", "session-key"), ("logger-cluster-a.b", "logger-cluster"), ("connector-", "connector"),
        ("session-key-x", None), ("session-keyx", None), ("tasks-x", None), ("connector", None), ("Connector-x", None),
        ("logger-x", None), ("", None),
    ],
)  # fmt: skip
def test_the_kind_of_each_key(key: str, kind: str | None) -> None:
    decoded = config_topic.decode(key.encode(), b"[]")  # a value that none of the kinds accepts
    if kind is None:
        assert isinstance(decoded, Unknown)
    else:
        assert isinstance(decoded, Undecodable)
        assert decoded.kind == kind


def test_a_removed_target_state() -> None:
    topic = of(config(), TargetStateRecord("c1", TargetState.PAUSED), TargetStateRecord("c2", TargetState.PAUSED))
    told = topic.kinds("c1")
    topic.java(Tombstone("target-state", "c1"), Tombstone("target-state", "c2"))
    assert topic.connector("c1").target_state is TargetState.STARTED  # the connector has a config
    assert topic.connector("c2").target_state is None
    assert topic.kinds("c1") == told  # no listener is called
    assert not topic.connector("c2").is_stored


def test_which_target_state_changes_call_a_listener() -> None:
    topic = of(TargetStateRecord("c1", TargetState.PAUSED), config())
    assert topic.kinds("c1") == ["config_updated"]
    topic.java(TargetStateRecord("c1", TargetState.PAUSED))
    assert topic.kinds("c1") == ["config_updated"]
    topic.java(TargetStateRecord("c1", TargetState.STOPPED))
    assert topic.kinds("c1") == ["config_updated", "target_state"]
    topic.java(Tombstone("connector", "c1"), TargetStateRecord("c1", TargetState.PAUSED))
    assert topic.kinds("c1")[2:] == ["config_removed"]
    assert topic.connector("c1").target_state is TargetState.PAUSED


def test_a_removed_config() -> None:
    topic = of(Tombstone("connector", "unknown"))
    assert topic.kinds("unknown") == ["config_removed"]  # the listener is called even for an unknown connector
    assert not topic.state.stored()


def test_a_config_update_touches_nothing_else() -> None:
    topic = of(config(), task(0), task(1), commit(2), TaskCountRecord("c1", 2), task(0, "new"))
    before = topic.connector("c1")
    topic.java(config(TWO), config(TWO))
    after = topic.connector("c1")
    assert after.config == TWO
    for name in (
        "task_configs", "task_count", "deferred", "applied_config", "task_config_generation", "task_count_record",
        "pending_fencing", "target_state", "tasks_revision",
    ):  # fmt: skip
        assert getattr(after, name) == getattr(before, name), name
    assert topic.kinds("c1")[-2:] == ["config_updated", "config_updated"]  # also when nothing changed


def test_task_configs_wait_for_their_commit() -> None:
    topic = of(task(0), task(0, "later"))
    assert deferred(topic.connector("c1")) == {0: {"t": "later"}}  # also without a config of the connector
    topic.java(config())
    topic.raw("task-c1-0", None)
    assert deferred(topic.connector("c1")) == {0: {"t": "later"}}
    assert topic.connector("c1").tasks == ()
    assert topic.kinds("c1") == ["config_updated"]
    topic.java(commit(1))
    assert [one.properties for one in topic.connector("c1").tasks] == [{"t": "later"}]
    assert deferred(topic.connector("c1")) == {}


def test_a_commit_without_config_removes() -> None:
    values: list[Any] = [{"tasks": 1}, {"tasks": "1"}, None, []]  # checked before the value
    for value in values:
        topic = of(task(0), TargetStateRecord("c1", TargetState.PAUSED))
        topic.raw("commit-c1", value)
        state = topic.connector("c1")
        assert (state.deferred, state.task_count, state.pending_fencing) == (None, None, False)
        assert state.target_state is TargetState.PAUSED
        assert topic.kinds("c1") == []


@pytest.mark.parametrize("value", [None, [], {}, {"tasks": "1"}, {"tasks": 1.0}, {"tasks": None}, {"tasks": True}])
def test_an_unreadable_commit_keeps_the_deferred_tasks(value: object) -> None:
    topic = of(config(), task(0))
    before = topic.connector("c1")
    topic.raw("commit-c1", value)
    assert topic.connector("c1") == before
    topic.java(commit(1))  # the next record is read: Connect would have dropped the rest of its batch
    assert len(topic.connector("c1").tasks) == 1


def test_the_effects_of_a_commit() -> None:
    topic = of(config(), task(0), config(TWO), commit(2))
    state = topic.connector("c1")
    assert (state.inconsistent, state.task_count, state.pending_fencing) == (True, 2, True)
    assert (state.task_configs, state.applied_config, state.task_config_generation) == ({}, None, 0)
    assert deferred(state) == {}  # emptied all the same
    topic.java(task(0), task(1), task(5), commit(2))
    state = topic.connector("c1")
    assert (state.inconsistent, state.task_count, state.task_config_generation) == (False, 2, 1)
    assert sorted(state.task_configs) == [0, 1, 5]  # extra task numbers are merged too
    assert len(state.tasks) == 2
    assert state.applied_config == TWO
    topic.java(TaskCountRecord("c1", 2), commit(0))
    state = topic.connector("c1")
    assert (state.inconsistent, state.task_count, state.tasks, state.pending_fencing) == (False, 0, (), True)
    assert sorted(state.task_configs) == [0, 1, 5]  # merged, not replaced
    assert (
        topic.kinds("c1").count("tasks_committed") == 3
    )  # the listener is called for the incomplete and the empty set too


def test_generations_count_task_sets() -> None:
    topic = of(config(), commit(0))
    assert topic.connector("c1").task_config_generation == 0  # no task record since the start: unchanged
    topic.java(task(0), commit(1))
    assert topic.connector("c1").task_config_generation == 1
    topic.java(commit(0))
    assert topic.connector("c1").task_config_generation == 2  # an empty map counts
    topic.java(Tombstone("connector", "c1"), config(), commit(0))
    assert topic.connector("c1").task_config_generation == 2  # absent again; the counter was kept


@pytest.mark.parametrize(
    ("value", "include_tasks", "only_failed"),
    [
        ({"include-tasks": True, "only-failed": True}, True, True),
        ({"include-tasks": False, "only-failed": True}, False, True),
        ({"only-failed": True}, False, True),
        ({"include-tasks": True}, True, False),
        ({"include-tasks": "true", "only-failed": 1}, False, False),
        ({}, False, False),
    ],
)
def test_restart_flags(value: object, include_tasks: bool, only_failed: bool) -> None:
    topic = ConfigTopic()
    topic.raw("restart-connector-c1", value)
    assert topic.changes == [RestartRequested(RestartRecord("c1", include_tasks, only_failed))]
    assert not topic.state.stored()


def test_task_count_records() -> None:
    topic = of(TaskCountRecord("c1", 4))
    assert topic.connector("c1").task_count_record == 4  # no connector needed
    assert topic.connector("c1").is_stored
    topic.java(config(), commit(0))
    assert topic.connector("c1").pending_fencing
    topic.java(TaskCountRecord("c1", 0))
    assert not topic.connector("c1").pending_fencing
    assert topic.connector("c1").task_count_record == 0


def test_session_keys() -> None:
    topic = ConfigTopic()
    topic.raw("session-key", {"key": "YQ==", "algorithm": "HmacSHA256", "creation-timestamp": 1})
    topic.raw(
        "session-key", {"key": "YWI", "algorithm": "HmacSHA1", "creation-timestamp": 2}
    )  # padding may be left out
    topic.raw("session-key", {"key": "YQ==", "algorithm": "HmacSHA256", "creation-timestamp": 2.5})
    key = replay(topic.records).session_key
    assert key is not None
    assert (key.key, key.algorithm, key.creation_timestamp_ms) == (b"ab", "HmacSHA1", 2)
    assert replay(topic.records).session_key_revision == 2
    assert topic.state.refused.count == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("target-state-c1", []), ("target-state-c1", {}), ("target-state-c1", {"state": 1}),
        ("connector-c1", 1), ("connector-c1", {}), ("connector-c1", {"properties": []}),
        ("task-c1-0", []), ("task-c1-0", {}), ("task-c1-0", None), ("task-c1-99999999999", {"properties": {}}),
        ("tasks-fencing-c1", None), ("tasks-fencing-c1", {}), ("tasks-fencing-c1", {"task-count": 1.5}),
        ("restart-connector-c1", None), ("restart-connector-c1", 1),
        ("session-key", None), ("session-key", {}), ("session-key", {"key": "YQ==", "algorithm": "a"}),
        ("session-key", {"key": 1, "algorithm": "a", "creation-timestamp": 1}),
        ("session-key", {"key": "YQ==", "creation-timestamp": 1}),
        ("session-key", {"key": "", "algorithm": "a", "creation-timestamp": 1}),
        ("logger-cluster-a", None), ("logger-cluster-a", {"level": None}), ("logger-cluster-a", []),
        ("herdmesh-leader", {"epoch": 9, "leader_id": "x", "leader_address": "y", "next_generation": 2**40}),
    ],
)  # fmt: skip
def test_ignored_records(key: str, value: object) -> None:
    topic = of(config(), task(0), commit(1))
    before, told = topic.connector("c1"), len(topic.changes)
    topic.raw(key, value)
    assert topic.connector("c1") == before
    assert len(topic.changes) == told
    assert topic.state.session_key is None
    assert topic.state.leadership is None
    assert topic.state.refused.count == 1


def test_what_a_removal_clears_and_keeps() -> None:
    topic = of(
        config(), task(0), commit(1), TaskCountRecord("c1", 1), TargetStateRecord("c1", TargetState.PAUSED), task(1),
        commit(3), task(2), Tombstone("connector", "c1"),
    )  # fmt: skip
    state = topic.connector("c1")
    assert (state.config, state.task_count, state.task_configs, state.deferred, state.applied_config) == (
        None, None, {}, None, None,
    )  # fmt: skip
    assert (state.target_state, state.inconsistent, state.task_count_record, state.task_config_generation) == (
        TargetState.PAUSED, True, 1, 1,
    )  # fmt: skip
    assert state.pending_fencing
    topic.java(config())
    assert topic.connector("c1").inconsistent  # the mark of the earlier connector stays until a commit
    assert topic.connector("c1").task_count_record == 1  # fenced against the old count
    topic.java(task(0), commit(1))
    assert not topic.connector("c1").inconsistent
    assert topic.connector("c1").task_config_generation == 2


def test_an_inconsistent_set() -> None:
    """The example of section 5, as compaction leaves it."""
    topic = of(config(), task(0), task(1), commit(2), task(0, "new"))
    left = replay(compacted(topic.records, topic.next_offset))
    state = left.connector("c1")
    assert (state.inconsistent, state.task_count, state.tasks, state.task_configs) == (True, 2, (), {})
    assert deferred(state) == {0: {"t": "new"}}
    assert "c1" in left.connectors


def test_a_shrunken_set_is_complete() -> None:
    state = of(config(), task(1, "old"), task(0), commit(1)).connector("c1")
    assert not state.inconsistent
    assert [one.properties for one in state.tasks] == [{"t": "0"}]


def test_fencing_follows_the_order_of_the_log() -> None:
    for records, pending in (
        ([commit(0)], True),
        ([commit(0), TaskCountRecord("c1", 1)], False),
        ([TaskCountRecord("c1", 1), commit(0)], True),
        ([commit(0), TaskCountRecord("c1", 1), commit(1)], True),  # an incomplete set too
    ):
        assert of(config(), *records).connector("c1").pending_fencing is pending


def test_added_members_are_ignored() -> None:
    topic = ConfigTopic()
    topic.raw("connector-c1", {"properties": ONE, "added": [1]})
    topic.raw("task-c1-0", {"properties": {"t": "0"}, "added": {}})
    topic.raw("commit-c1", {"tasks": 1, "added": None})
    topic.raw("target-state-c1", {"state": "PAUSED", "state.v2": "PAUSED", "state.v3": "X"})
    topic.raw("tasks-fencing-c1", {"task-count": 3, "added": "x"})
    state = topic.connector("c1")
    assert (state.config, state.target_state, state.task_count_record) == (ONE, TargetState.PAUSED, 3)
    assert len(state.tasks) == 1
    assert topic.state.refused.count == 0


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ('{"properties":{"a":"ä"}}'.encode("utf-16"), {"a": "ä"}),
        ('{"properties":{"a":"b"}}'.encode("utf-32"), {"a": "b"}),
        (codecs.BOM_UTF8 + b'{"properties":{"a":"b"}}', {"a": "b"}),
        (b'{"properties":{"a":1e999}}', {"a": float("inf")}),
        (b'{"properties":{"a":"\\ud800"}}', {"a": "\ud800"}),
        (b'{"properties":{"a":"1","a":"2"}} trailing', {"a": "2"}),
        (b'{"properties":{"a":007}}', {"a": 7}),
        (b'{"properties":{"a":"\xff"}}', None),
        (b'{"properties":{"a":"\x01"}}', None),
        (b'{"properties":{"a":' + b"[" * 1001 + b"]" * 1001 + b"}}", None),
        (b'{"properties":{"a":' + b"1" * 1001 + b"}}", None),
        (b'{"properties":{"' + b"n" * 50_001 + b'":1}}', None),
        (b'{"properties":{"a":NaN}}', None),
        (b"{properties:{}}", None),
        (b'{"properties":{"a":1}', None),
    ],
)
def test_what_jackson_accepts_and_refuses(value: bytes, read: object) -> None:
    topic = ConfigTopic()
    topic.raw("connector-c1", value)
    assert topic.connector("c1").config == read
    assert topic.state.refused.count == (1 if read is None else 0)
