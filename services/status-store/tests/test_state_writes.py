"""Tests of the write rules: PUT, PUT_SAFE, compare-and-set, deletions (docs/reference/connect/status-topic.md, sections
4, 6 and 8).
"""

from __future__ import annotations

import pytest

from herdmesh.connect.topics import status_topic
from herdmesh.connect.topics.status_topic import ConnectorStatus, State, TaskStatus, TopicStatus
from herdmesh.rpc.errors import RequestInvalid
from herdmesh.statusstore.state.statuses import AnyStatus, StatusState
from herdmesh.statusstore.state.writes import (
    Put,
    PutMode,
    PutResult,
    RecordPosition,
    decide_connector_deletion,
    decide_puts,
    decide_topic_deletion,
    decide_topics,
)
from herdmesh.topicstore.contract import NewRecord, StoredRecord
from tests.support.java_status_rules import JavaStatuses

THIS = "localhost:8083"
OTHER = "localhost:8084"


def _connector(state: State, worker: str, generation: int, incarnation: str = "") -> ConnectorStatus:
    return ConnectorStatus("conn", state, worker, generation, worker_incarnation=incarnation)


def _task(state: State, worker: str, generation: int, incarnation: str = "", task: int = 0) -> TaskStatus:
    return TaskStatus("conn", task, state, worker, generation, worker_incarnation=incarnation)


def _state(*stored: AnyStatus | TopicStatus) -> StatusState:
    state = StatusState()
    for offset, status in enumerate(stored):
        key, value = status_topic.encode(status)
        state.apply(StoredRecord("status-topic", 3, offset, key, value, 0))
    return state


def _one(state: StatusState, status: AnyStatus, mode: PutMode, expected: RecordPosition | None = None) -> PutResult:
    decision = decide_puts(state, [Put(status, mode, expected)])
    [result] = decision.results
    assert len(decision.records) <= (result is PutResult.APPLIED)
    return result


def test_put_safe_connector_ignores_stale_status() -> None:
    state = _state(_connector(State.RUNNING, OTHER, 1))
    assert _one(state, _connector(State.UNASSIGNED, THIS, 0), PutMode.PUT_SAFE) is PutResult.STATUS_NEWER


def test_put_safe_with_no_previous_value_is_propagated() -> None:
    decision = decide_puts(_state(), [Put(_connector(State.FAILED, THIS, 0), PutMode.PUT_SAFE)])
    assert decision.results == (PutResult.APPLIED,)
    value = b'{"state":"FAILED","trace":null,"worker_id":"localhost:8083","generation":0,"version":null}'
    assert decision.records == (NewRecord(b"status-connector-conn", value),)


def test_put_safe_overrides_value_set_by_same_worker() -> None:
    state = _state(_connector(State.RUNNING, THIS, 1))
    assert _one(state, _connector(State.UNASSIGNED, THIS, 0), PutMode.PUT_SAFE) is PutResult.APPLIED


def test_put_safe_over_an_older_or_equal_generation() -> None:
    state = _state(_connector(State.RUNNING, OTHER, 1))
    assert _one(state, _connector(State.UNASSIGNED, THIS, 1), PutMode.PUT_SAFE) is PutResult.APPLIED


def test_put_connector_state_should_override() -> None:
    state = _state(_connector(State.RUNNING, OTHER, 1))
    assert _one(state, _connector(State.RUNNING, THIS, 0), PutMode.PUT) is PutResult.APPLIED


@pytest.mark.parametrize("worker", [THIS, OTHER])
@pytest.mark.parametrize("incarnation", ["", "new"])
def test_put_of_a_replaced_process_is_stale(worker: str, incarnation: str) -> None:
    state = _state(_task(State.RUNNING, THIS, 5, "old"))
    assert _one(state, _task(State.RUNNING, worker, 4, incarnation), PutMode.PUT) is PutResult.STALE_GENERATION
    assert _one(state, _task(State.RUNNING, worker, 5, incarnation), PutMode.PUT) is PutResult.APPLIED
    assert _one(state, _task(State.RUNNING, worker, 4, "old"), PutMode.PUT) is PutResult.APPLIED


def test_put_safe_of_another_process_at_the_same_address() -> None:
    state = _state(_task(State.RUNNING, THIS, 5, "new"))
    assert _one(state, _task(State.FAILED, THIS, 4, "old"), PutMode.PUT_SAFE) is PutResult.STATUS_NEWER
    assert _one(state, _task(State.FAILED, THIS, 4), PutMode.PUT_SAFE) is PutResult.APPLIED


def test_put_safe_of_ours_over_a_status_of_java() -> None:
    state = _state(_task(State.RUNNING, OTHER, 50))
    assert _one(state, _task(State.FAILED, THIS, 4, "ours"), PutMode.PUT_SAFE) is PutResult.APPLIED
    assert _one(state, _task(State.FAILED, THIS, 4), PutMode.PUT_SAFE) is PutResult.STATUS_NEWER  # Java's own rule


def test_a_write_that_readers_would_ignore_is_refused() -> None:
    state = _state(_task(State.RUNNING, OTHER, 5))
    assert _one(state, _task(State.UNASSIGNED, THIS, 5), PutMode.PUT_SAFE) is PutResult.STATUS_NEWER
    assert _one(state, _task(State.UNASSIGNED, THIS, 5), PutMode.PUT) is PutResult.STATUS_NEWER
    assert _one(state, _task(State.UNASSIGNED, THIS, 6), PutMode.PUT_SAFE) is PutResult.APPLIED


@pytest.mark.parametrize("generation", [5, 4])
@pytest.mark.parametrize("mode", PutMode)
def test_every_reader_shows_the_unassigned_of_the_process_that_ran_the_task(mode: PutMode, generation: int) -> None:
    """Java would ignore it as stale beside that RUNNING: a tombstone is written before it (fault F2)."""
    unassigned = _task(State.UNASSIGNED, THIS, generation, "i1")
    running = _task(State.RUNNING, THIS, 5, "i1")
    decision = decide_puts(_state(running), [Put(unassigned, mode)])
    assert decision.results == (PutResult.APPLIED,)
    key, value = status_topic.encode(unassigned)
    assert decision.records == (NewRecord(key, None), NewRecord(key, value))
    java = JavaStatuses(plain=True)
    for record in (NewRecord(*status_topic.encode(running)), *decision.records):
        java.read(record.key, record.value, 0)
    assert java.tasks["conn"][0].state == "UNASSIGNED"
    other = _task(State.UNASSIGNED, OTHER, generation, "i2")
    assert _one(_state(running), other, PutMode.PUT_SAFE) is PutResult.STATUS_NEWER


def test_the_expected_revision_is_that_of_the_record() -> None:
    state = _state(_task(State.RUNNING, OTHER, 5), _task(State.RUNNING, THIS, 6))
    new = _task(State.PAUSED, THIS, 6)
    assert _one(state, new, PutMode.PUT, RecordPosition(3, 2)) is PutResult.APPLIED
    assert _one(state, new, PutMode.PUT, RecordPosition(3, 1)) is PutResult.REVISION_MISMATCH
    assert _one(state, new, PutMode.PUT, RecordPosition(2, 2)) is PutResult.REVISION_MISMATCH
    assert _one(state, new, PutMode.PUT, RecordPosition(-1, 0)) is PutResult.REVISION_MISMATCH
    other = _task(State.PAUSED, THIS, 6, task=1)
    assert _one(state, other, PutMode.PUT, RecordPosition(-1, 0)) is PutResult.APPLIED


def test_a_retry_of_an_applied_compare_and_set_is_applied() -> None:
    new = _task(State.PAUSED, THIS, 6)
    decision = decide_puts(_state(new), [Put(new, PutMode.PUT, RecordPosition(3, 7))])
    assert decision.results == (PutResult.APPLIED,)
    assert decision.records == ()


def test_a_batch_is_decided_in_order() -> None:
    puts = [
        Put(_task(State.RUNNING, THIS, 5, "i"), PutMode.PUT),
        Put(_task(State.UNASSIGNED, OTHER, 4), PutMode.PUT_SAFE),
        Put(_task(State.DESTROYED, THIS, 5, "i"), PutMode.PUT),
        Put(_task(State.UNASSIGNED, OTHER, 4), PutMode.PUT_SAFE),
    ]
    decision = decide_puts(_state(), puts)
    assert decision.results == (
        PutResult.APPLIED,
        PutResult.STATUS_NEWER,
        PutResult.APPLIED,
        PutResult.APPLIED,
    )
    assert [record.value is None for record in decision.records] == [False, True, False]


def test_a_destroyed_connector_removes_its_tasks_within_a_batch() -> None:
    state = _state(_connector(State.RUNNING, THIS, 1), _task(State.RUNNING, THIS, 9))
    puts = [
        Put(_task(State.RUNNING, THIS, 9, task=1), PutMode.PUT),
        Put(_connector(State.DESTROYED, THIS, 2), PutMode.PUT),
        Put(_task(State.UNASSIGNED, OTHER, 1), PutMode.PUT_SAFE),
        Put(_task(State.UNASSIGNED, OTHER, 1, task=1), PutMode.PUT_SAFE),
    ]
    assert decide_puts(state, puts).results == (PutResult.APPLIED,) * 4


def test_destroying_a_missing_status_writes_nothing() -> None:
    decision = decide_puts(_state(), [Put(_task(State.DESTROYED, THIS, 0), PutMode.PUT)])
    assert (decision.results, decision.records) == ((PutResult.APPLIED,), ())


def test_a_record_too_large_for_the_broker_is_refused() -> None:
    huge = ConnectorStatus("conn", State.FAILED, "w" * 1_000_000, 1)
    with pytest.raises(RequestInvalid, match="bytes as JSON"):
        decide_puts(_state(), [Put(huge, PutMode.PUT)])


def _keys(records: list[NewRecord]) -> list[str]:
    assert all(record.value is None for record in records)
    return [record.key.decode() for record in records]


def test_deletions() -> None:
    state = _state(
        _connector(State.RUNNING, THIS, 1),
        _task(State.RUNNING, THIS, 1, task=0),
        _task(State.RUNNING, THIS, 1, task=1),
        TopicStatus("t", "conn", 0, 5),
    )
    assert _keys(decide_connector_deletion(state, "conn", 1, False)) == ["status-task-conn-1"]
    assert _keys(decide_connector_deletion(state, "conn", None, True)) == [
        "status-task-conn-0",
        "status-task-conn-1",
        "status-connector-conn",
        "status-topic-t:connector-conn",
    ]
    assert decide_connector_deletion(state, "other", None, True) == []


def test_a_late_removal_keeps_statuses_of_the_next_life() -> None:
    """Task 0 and the connector were started again before the removal arrived; task 2 was written by Java's worker."""
    state = _state(
        _connector(State.RUNNING, THIS, 8, "i2"),
        _task(State.RUNNING, THIS, 9, "i2", task=0),
        _task(State.RUNNING, OTHER, 7, "i1", task=1),
        _task(State.RUNNING, OTHER, 30, task=2),
    )
    assert _keys(decide_connector_deletion(state, "conn", None, False, 8)) == [
        "status-task-conn-1",
        "status-task-conn-2",
    ]
    assert _keys(decide_connector_deletion(state, "conn", 1, False, 7)) == ["status-task-conn-2"]


def test_a_late_removal_keeps_a_new_task_whose_connector_has_no_status_yet() -> None:
    """The next life's task is RUNNING before the status of its connector arrives: a tombstone of the connector would
    remove the task, and the first life's UNASSIGNED would stay in its place for ever.
    """
    running = _task(State.RUNNING, OTHER, 29, "i2", task=2)
    state = _state(_connector(State.RUNNING, THIS, 9, "i1"), _task(State.RUNNING, THIS, 10, "i1", task=1), running)
    removal = decide_connector_deletion(state, "conn", None, False, 26)
    assert _keys(removal) == ["status-task-conn-1"]
    for offset, record in enumerate(removal, start=10):
        state.apply(StoredRecord("status-topic", 3, offset, record.key, record.value, 700))
    assert [stored.status for stored in state.tasks_of("conn")] == [running]
    assert _one(state, _task(State.UNASSIGNED, THIS, 12, "i1", task=2), PutMode.PUT_SAFE) is PutResult.STATUS_NEWER
    assert _one(state, _connector(State.RUNNING, THIS, 26, "i2"), PutMode.PUT) is PutResult.APPLIED


def test_deletions_of_topics() -> None:
    state = _state(TopicStatus("t", "conn", 0, 5))
    assert _keys(decide_topic_deletion(state, "conn", ["t", "unknown"])) == ["status-topic-t:connector-conn"]
    assert _keys(decide_topic_deletion(state, "conn", [])) == ["status-topic-t:connector-conn"]


def test_put_topic_state() -> None:
    known = TopicStatus("t", "conn", 0, 5)
    [record] = decide_topics(_state(known), [known, TopicStatus("u", "conn", 1, 6)])
    assert record.key == b"status-topic-u:connector-conn"
    assert record.value == b'{"topic":{"name":"u","connector":"conn","task":1,"discoverTimestamp":6}}'
