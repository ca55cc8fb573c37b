"""Tests of the read rules, scenario by scenario (docs/reference/connect/status-topic.md, sections 8, 9 and 10)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.topics.status_topic import ConnectorStatus, State, TaskStatus, TopicStatus
from herdmesh.statusstore.state.statuses import (
    UNDECODABLE_KEPT,
    StatusGone,
    StatusPut,
    StatusState,
    StoredStatus,
    TopicGone,
    TopicPut,
)
from herdmesh.topicstore.contract import StoredRecord

THIS = "localhost:8083"
OTHER = "localhost:8084"


class Topic:
    """A state with records appended as a reader would read them."""

    def __init__(self) -> None:
        self.state = StatusState()
        self.offset = 0

    def read(self, key: str, value: Any) -> Any:
        """Append `value` as JSON, bytes unchanged, None = tombstone. Returns the changes."""
        raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        record = StoredRecord("status-topic", 0, self.offset, key.encode(), raw, 1000 + self.offset)
        self.offset += 1
        return self.state.apply(record)

    def status(self, key: str, state: str, worker: str, generation: int, **more: Any) -> Any:
        return self.read(key, {"state": state, "trace": None, "worker_id": worker, "generation": generation, **more})


@pytest.fixture
def topic() -> Topic:
    return Topic()


def test_read_connector_state_without_trace(topic: Topic) -> None:
    topic.read("status-connector-conn", {"worker_id": THIS, "state": "RUNNING", "generation": 0})
    stored = topic.state.get("conn", None)
    assert stored is not None
    assert stored.status == ConnectorStatus("conn", State.RUNNING, THIS, 0)


def test_read_task_state(topic: Topic) -> None:
    topic.status("status-task-conn-0", "RUNNING", THIS, 0)
    stored = topic.state.get("conn", 0)
    assert stored is not None
    assert stored.status == TaskStatus("conn", 0, State.RUNNING, THIS, 0)
    assert topic.state.get("conn", None) is None


def test_connector_statuses_replace_older_ones_of_any_generation(topic: Topic) -> None:
    topic.status("status-connector-conn", "RUNNING", OTHER, 10)
    topic.status("status-connector-conn", "UNASSIGNED", THIS, 9)
    stored = topic.state.get("conn", None)
    assert stored is not None
    assert stored.status.state is State.UNASSIGNED


def test_read_task_state_should_ignore_stale_statuses_from_other_workers(topic: Topic) -> None:
    topic.status("status-task-conn-0", "RUNNING", "a:1", 10)
    assert topic.status("status-task-conn-0", "UNASSIGNED", THIS, 9) == ()
    assert topic.status("status-task-conn-0", "UNASSIGNED", THIS, 10) == ()
    [change] = topic.status("status-task-conn-0", "RUNNING", "c:1", 1)
    assert (change.stored.status.worker_id, change.previous.status.worker_id) == ("c:1", "a:1")
    [change] = topic.status("status-task-conn-0", "UNASSIGNED", "a:1", 2)
    assert change.stored.status.state is State.UNASSIGNED


def test_our_unassigned_is_not_stale_after_the_cleaner_removed_its_tombstone(topic: Topic) -> None:
    topic.status("status-task-conn-0", "RUNNING", "a:1", 10, worker_incarnation="i1")
    assert topic.status("status-task-conn-0", "UNASSIGNED", "java:1", 10) == ()
    [change] = topic.status("status-task-conn-0", "UNASSIGNED", "a:1", 10, worker_incarnation="i1")
    assert change.stored.status.state is State.UNASSIGNED


def test_delete_connector_state_removes_its_tasks_and_keeps_its_topics(topic: Topic) -> None:
    topic.status("status-connector-conn", "RUNNING", THIS, 0)
    topic.status("status-task-conn-0", "RUNNING", THIS, 0)
    topic.status("status-task-conn-1", "RUNNING", THIS, 0)
    topic.read("status-topic-foo:connector-conn", _topic_value("foo", "conn"))
    changes = topic.read("status-connector-conn", None)
    assert [(change.previous.status.connector, change.previous.task) for change in changes] == [
        ("conn", 0),
        ("conn", 1),
        ("conn", None),
    ]
    assert topic.state.statuses() == []
    assert len(topic.state.topics_of("conn")) == 1
    # A late status of a task creates it again (docs/reference/connect/status-topic.md, section 5.4).
    topic.status("status-task-conn-0", "UNASSIGNED", THIS, 0)
    assert topic.state.get("conn", 0) is not None


def test_delete_task_state(topic: Topic) -> None:
    topic.status("status-task-conn-0", "RUNNING", THIS, 0)
    topic.status("status-task-conn-1", "RUNNING", THIS, 0)
    [gone] = topic.read("status-task-conn-0", None)
    assert isinstance(gone, StatusGone)
    assert [stored.task for stored in topic.state.tasks_of("conn")] == [1]
    assert topic.read("status-task-conn-0", None) == []


def _topic_value(topic: str, connector: str) -> Any:
    return {"topic": {"name": topic, "connector": connector, "task": 0, "discoverTimestamp": 1_700_000_000_000}}


def test_read_and_delete_topic_status(topic: Topic) -> None:
    [put] = topic.read("status-topic-foo-topic:connector-foo-source", _topic_value("foo-topic", "foo-source"))
    assert isinstance(put, TopicPut)
    assert topic.state.topics_of("foo-source") == [TopicStatus("foo-topic", "foo-source", 0, 1_700_000_000_000)]
    [gone] = topic.read("status-topic-foo-topic:connector-foo-source", None)
    assert isinstance(gone, TopicGone)
    assert topic.state.topics_of("foo-source") == []
    assert dict(topic.state.topics["foo-source"]) == {}


def test_two_topics_of_a_connector_coexist_and_equal_values_show_once(topic: Topic) -> None:
    topic.read("status-topic-bar:connector-c", _topic_value("bar", "c"))
    topic.read("status-topic-foo:connector-c", _topic_value("foo", "c"))
    assert [status.topic for status in topic.state.topics_of("c")] == ["bar", "foo"]
    topic.read("status-topic-baz:connector-c", _topic_value("foo", "c"))
    assert [status.topic for status in topic.state.topics_of("c")] == ["bar", "foo"]


@pytest.mark.parametrize(
    "key",
    [
        "status-unknown",
        "status-connector-",
        "status-task-",
        "status-task-foo-source-#",
        "status-topic-",
        "status-topic-:connector-",
        "status-topic-foo-topic:",
        "status-topic-foo-topic:connector-",
    ],
)
@pytest.mark.parametrize("tombstone", [True, False])
def test_read_invalid_status(topic: Topic, key: str, tombstone: bool) -> None:
    value = {"state": "RUNNING", "worker_id": THIS, "generation": 0, **_topic_value("a", "b")}
    assert topic.read(key, None if tombstone else value) == ()
    assert topic.state.statuses() == []
    assert not topic.state.topics
    assert topic.state.undecodable_count == 1
    assert topic.state.undecodable[0].key == key


@pytest.mark.parametrize("key", ["status-connector-c", "status-task-c-0", "status-topic-t:connector-c"])
@pytest.mark.parametrize(
    "value",
    [
        b"invalid",
        b"",
        b"[]",
        {"state": "NOPE", "worker_id": THIS, "generation": 0, "topic": []},
        {"state": "RUNNING", "worker_id": THIS, "generation": "0", "topic": {"name": 1}},
        {"state": "RUNNING", "worker_id": THIS, "generation": 0, "version": 4, "topic": None},
    ],
)
def test_read_invalid_status_value(topic: Topic, key: str, value: Any) -> None:
    assert topic.read(key, value) == ()
    assert topic.state.statuses() == []
    assert topic.state.undecodable_count == 1


def test_undecodable_records_are_all_counted_and_the_latest_kept(topic: Topic) -> None:
    for number in range(UNDECODABLE_KEPT + 5):
        topic.read(f"other-{number}", b"x")
    assert topic.state.undecodable_count == UNDECODABLE_KEPT + 5
    assert topic.state.undecodable[0].offset == 5


def test_added_members_are_ignored_and_task_keys_are_javas(topic: Topic) -> None:
    topic.status("status-task-a-b-+1", "RUNNING", THIS, 0, something={"new": 1})
    assert topic.state.get("a-b", 1) is not None


def test_statuses_are_listed_connectors_first_then_tasks(topic: Topic) -> None:
    for key in ("task-b-10", "task-b-2", "connector-b", "connector-a", "task-c-0"):
        topic.status(f"status-{key}", "RUNNING", THIS, 0)
    listed = [(stored.status.connector, stored.task) for stored in topic.state.statuses()]
    assert listed == [("a", None), ("b", None), ("b", 2), ("b", 10), ("c", 0)]
    assert [stored.status.connector for stored in topic.state.statuses(["c", "a"])] == ["a", "c"]


_KEYS = st.sampled_from(
    ["status-connector-a", "status-task-a-0", "status-task-a-1", "status-connector-b", "status-topic-t:connector-a"]
)


def _value(state: State, generation: int, worker: str) -> bytes:
    value = {"state": state.value, "generation": generation, "worker_id": worker, **_topic_value("t", "a")}
    return json.dumps(value).encode()


_VALUES = st.one_of(
    st.none(),
    st.binary(max_size=5),
    st.builds(_value, st.sampled_from(list(State)), st.integers(0, 3), st.sampled_from([THIS, OTHER])),
)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(_KEYS, _VALUES), max_size=40), st.integers(0, 40))
def test_changes_rebuild_the_state_and_a_copy_stays_unchanged(records: list[tuple[str, Any]], copy_at: int) -> None:
    topic = Topic()
    followed: dict[tuple[str, int | None], StoredStatus] = {}
    copied, shown = topic.state.copy(), topic.state.statuses()
    for number, (key, value) in enumerate(records):
        if number == copy_at:
            copied, shown = topic.state.copy(), topic.state.statuses()
        for change in topic.read(key, value):
            if isinstance(change, StatusPut):
                followed[change.stored.status.connector, change.stored.task] = change.stored
            elif isinstance(change, StatusGone):
                del followed[change.previous.status.connector, change.previous.task]
    assert {(s.status.connector, s.task): s for s in topic.state.statuses()} == followed
    assert copied.statuses() == shown
