"""Tests of the lease table: events and times in, the table and instructions out."""

from __future__ import annotations

import pytest

from herdmesh.connect.topics import status_topic
from herdmesh.connect.topics.status_topic import ConnectorStatus, State, TaskStatus
from herdmesh.statusstore.state.leases import (
    FORGET_MS,
    LEASE_EXPIRED,
    LEASE_UNKNOWN,
    PULSE_MS,
    SILENT_MS,
    BecameWriter,
    Heartbeat,
    Lease,
    LeaseTable,
    Publish,
    Relayed,
    StatusWritten,
    StoppedWriting,
    Tick,
    WakeAt,
    running_workers,
)
from herdmesh.statusstore.state.statuses import StatusState
from herdmesh.topicstore.contract import StoredRecord

LEASE_MS = 6000
W1 = "127.0.0.1:7204"
W2 = "127.0.0.1:7205"


def _running(worker: str, incarnation: str) -> TaskStatus:
    return TaskStatus("c", 0, State.RUNNING, worker, 1, worker_incarnation=incarnation)


@pytest.fixture
def table() -> LeaseTable:
    made = LeaseTable()
    made.handle(BecameWriter({}, LEASE_MS), 0)
    return made


def test_a_heartbeat_creates_a_lease_and_silence_ends_it(table: LeaseTable) -> None:
    assert table.handle(Heartbeat(W1, "a", LEASE_MS), 100) == [Publish(), WakeAt(6100)]
    assert table.effective(_running(W1, "a")) == (State.RUNNING, "")
    assert table.handle(Heartbeat(W1, "a", LEASE_MS), 1100) == []
    assert table.handle(Tick(), 6100) == [WakeAt(7100)]
    assert table.handle(Tick(), 7100) == [Publish(), WakeAt(7100 + FORGET_MS)]
    assert table.leases() == [Lease(W1, "a", 7100, live=False)]
    assert table.effective(_running(W1, "a")) == (State.UNASSIGNED, LEASE_EXPIRED)
    assert table.handle(Heartbeat(W1, "a", LEASE_MS), 8000) == [Publish(), WakeAt(14_000)]
    assert table.effective(_running(W1, "a")) == (State.RUNNING, "")


def test_an_expired_lease_is_discarded_after_a_while(table: LeaseTable) -> None:
    table.handle(Heartbeat(W1, "a", LEASE_MS), 0)
    table.handle(Tick(), 6000)
    assert table.handle(Tick(), 6000 + FORGET_MS) == [Publish()]
    assert table.leases() == []
    assert table.effective(_running(W1, "a")) == (State.UNASSIGNED, LEASE_EXPIRED)


def test_leaving_ends_the_lease_at_once_and_for_good(table: LeaseTable) -> None:
    table.handle(Heartbeat(W1, "a", LEASE_MS), 0)
    assert Publish() in table.handle(Heartbeat(W1, "a", LEASE_MS, leaving=True), 500)
    assert table.effective(_running(W1, "a")) == (State.UNASSIGNED, LEASE_EXPIRED)
    # Sent before the announcement that it leaves, received after it:
    assert Publish() not in table.handle(Heartbeat(W1, "a", LEASE_MS), 600)
    assert Publish() not in table.handle(StatusWritten(W1, "a", LEASE_MS), 600)
    assert Publish() not in table.handle(Heartbeat(W1, "a", LEASE_MS, leaving=True), 700)
    assert table.effective(_running(W1, "a")) == (State.UNASSIGNED, LEASE_EXPIRED)
    assert Publish() in table.handle(Heartbeat(W1, "b", LEASE_MS), 800)
    assert table.effective(_running(W1, "b")) == (State.RUNNING, "")


def test_a_leaving_announcement_of_a_replaced_process_changes_nothing(table: LeaseTable) -> None:
    assert table.handle(Heartbeat(W1, "x", LEASE_MS, leaving=True), 0) == []
    assert table.leases() == []
    table.handle(Heartbeat(W1, "a", LEASE_MS), 0)
    table.handle(Heartbeat(W1, "b", LEASE_MS), 10)
    assert Publish() not in table.handle(Heartbeat(W1, "a", LEASE_MS, leaving=True), 20)
    assert table.effective(_running(W1, "b")) == (State.RUNNING, "")


def test_a_new_process_takes_over_the_lease_of_its_worker_id(table: LeaseTable) -> None:
    table.handle(Heartbeat(W1, "a", LEASE_MS), 0)
    assert Publish() in table.handle(Heartbeat(W1, "b", LEASE_MS), 10)
    assert table.effective(_running(W1, "a")) == (State.UNASSIGNED, LEASE_EXPIRED)
    assert table.effective(_running(W1, "b")) == (State.RUNNING, "")


def test_a_replaced_process_does_not_get_the_lease_back_while_its_successor_lives(table: LeaseTable) -> None:
    table.handle(Heartbeat(W1, "a", LEASE_MS), 0)
    table.handle(Heartbeat(W1, "b", LEASE_MS), 10)
    assert table.handle(Heartbeat(W1, "a", LEASE_MS), 20) == []
    assert table.effective(_running(W1, "b")) == (State.RUNNING, "")
    table.handle(Tick(), 6000)
    assert Publish() in table.handle(Tick(), 6010)
    # The successor is gone and the old process sends a heartbeat: it is alive.
    assert Publish() in table.handle(Heartbeat(W1, "a", LEASE_MS), 6020)
    assert table.effective(_running(W1, "a")) == (State.RUNNING, "")


def test_a_written_status_extends_a_lease_but_takes_no_worker_id_over(table: LeaseTable) -> None:
    assert Publish() in table.handle(StatusWritten(W1, "a", LEASE_MS), 0)
    assert table.handle(StatusWritten(W1, "a", LEASE_MS), 1000) == []
    assert table.leases() == [Lease(W1, "a", 7000, live=True)]
    table.handle(Heartbeat(W1, "b", LEASE_MS), 1000)
    assert table.handle(StatusWritten(W1, "a", LEASE_MS), 2000) == []
    assert table.effective(_running(W1, "b")) == (State.RUNNING, "")


def test_a_heartbeat_never_shortens_a_lease(table: LeaseTable) -> None:
    table.handle(Heartbeat(W1, "a", 60_000), 0)
    table.handle(Heartbeat(W1, "a", 1000), 10)
    assert table.leases() == [Lease(W1, "a", 60_000, live=True)]


def test_a_stalled_store_ends_no_leases(table: LeaseTable) -> None:
    table.handle(Heartbeat(W1, "a", LEASE_MS), 0)
    # The tick was due at 6000 and comes at 60000: every worker gets one full lease from now on.
    assert table.handle(Tick(), 60_000) == [WakeAt(66_000)]
    assert table.leases() == [Lease(W1, "a", 66_000, live=True)]
    assert Publish() in table.handle(Tick(), 66_000)


def test_statuses_of_java_are_shown_unchanged(table: LeaseTable) -> None:
    assert table.effective(_running("java:8083", "")) == (State.RUNNING, "")


def test_only_running_statuses_are_joined_with_leases(table: LeaseTable) -> None:
    failed = ConnectorStatus("c", State.FAILED, W1, 1, worker_incarnation="a")
    assert table.effective(failed) == (State.FAILED, "")


def test_before_the_first_writer_no_table_is_known() -> None:
    table = LeaseTable()
    assert not table.known
    assert table.effective(_running(W1, "a")) == (State.RUNNING, "")
    assert table.handle(Tick(), 1_000_000) == []


def test_a_new_writer_grants_every_known_worker_one_full_lease() -> None:
    table = LeaseTable()
    table.handle(Relayed((Lease(W1, "a", 50, live=True), Lease(W2, "x", 10, live=False))), 0)
    instructions = table.handle(BecameWriter({W1: "a", "w3": "c"}, LEASE_MS), 1000)
    assert instructions == [Publish(), WakeAt(7000)]
    assert [(lease.worker_id, lease.live, lease.expires_ms) for lease in table.leases()] == [
        (W1, True, 7000),
        (W2, False, 1000),
        ("w3", True, 7000),
    ]


def test_a_replica_shows_the_writers_last_table_unchanged(table: LeaseTable) -> None:
    table.handle(Heartbeat(W1, "a", LEASE_MS), 0)
    assert table.handle(StoppedWriting(), 100) == [WakeAt(100 + SILENT_MS)]
    assert table.handle(Tick(), 7000) == [WakeAt(100 + SILENT_MS)]
    assert table.effective(_running(W1, "a")) == (State.RUNNING, "")
    assert table.handle(Relayed((Lease(W1, "a", 0, live=False),)), 7200) == [Publish()]
    assert table.effective(_running(W1, "a")) == (State.UNASSIGNED, LEASE_EXPIRED)


def test_a_repeated_table_is_published_only_when_a_reader_would_see_a_difference() -> None:
    table = LeaseTable()
    assert table.handle(StoppedWriting(), 0) == [WakeAt(SILENT_MS)]
    assert table.handle(Relayed((Lease(W1, "a", 6000, live=True),)), 100) == [Publish()]
    assert table.handle(Relayed((Lease(W1, "a", 7000, live=True),)), 1100) == []
    assert table.handle(Relayed((Lease(W1, "b", 7000, live=True),)), 2100) == [Publish()]
    assert table.handle(Relayed(()), 3100) == [Publish()]


def test_a_replica_trusts_a_silent_writers_table_for_a_bounded_time() -> None:
    table = LeaseTable()
    table.handle(StoppedWriting(), 0)
    assert not table.known
    table.handle(Relayed((Lease(W1, "a", 6000, live=True),)), 5000)
    assert table.handle(Tick(), SILENT_MS) == [WakeAt(5000 + SILENT_MS)]
    assert table.effective(_running(W1, "a")) == (State.RUNNING, "")
    assert table.handle(Tick(), 5000 + SILENT_MS) == [Publish()]
    assert table.effective(_running(W1, "a")) == (State.UNASSIGNED, LEASE_UNKNOWN)
    assert [lease.live for lease in table.leases()] == [False]
    # The writer is found again: its table counts at once.
    assert table.handle(Relayed((Lease(W1, "a", 6000, live=True),)), 20_000)[0] == Publish()
    assert table.effective(_running(W1, "a")) == (State.RUNNING, "")


def test_a_replica_without_any_table_shows_no_lease_after_a_while() -> None:
    table = LeaseTable()
    table.handle(StoppedWriting(), 0)
    table.handle(StoppedWriting(), 6000)  # another lost election: the wait continues
    assert table.effective(_running(W1, "a")) == (State.RUNNING, "")
    assert table.handle(Tick(), SILENT_MS) == [Publish()]
    assert table.known
    assert table.effective(_running(W1, "a")) == (State.UNASSIGNED, LEASE_UNKNOWN)


def test_a_stalled_replica_waits_for_messages_before_it_calls_the_writer_silent() -> None:
    table = LeaseTable()
    table.handle(StoppedWriting(), 0)
    table.handle(Relayed((Lease(W1, "a", 6000, live=True),)), 0)
    assert table.handle(Tick(), 60_000) == [WakeAt(60_000 + 2 * PULSE_MS)]
    assert table.effective(_running(W1, "a")) == (State.RUNNING, "")
    assert table.handle(Tick(), 60_000 + 2 * PULSE_MS) == [Publish()]
    assert table.effective(_running(W1, "a")) == (State.UNASSIGNED, LEASE_UNKNOWN)


def test_a_take_over_counts_no_silence_against_workers() -> None:
    table = LeaseTable()
    table.handle(StoppedWriting(), 0)
    table.handle(Relayed((Lease(W1, "a", 6000, live=True), Lease(W2, "b", 0, live=False))), 0)
    assert table.handle(Tick(), SILENT_MS) == [Publish()]
    table.handle(BecameWriter({}, LEASE_MS), SILENT_MS)
    assert [(lease.worker_id, lease.live) for lease in table.leases()] == [(W1, True), (W2, False)]


def test_the_writers_own_table_wins_over_a_late_relay(table: LeaseTable) -> None:
    table.handle(Heartbeat(W1, "a", LEASE_MS), 0)
    assert table.handle(Relayed(()), 10) == []
    assert len(table.leases()) == 1


def test_running_workers_are_ours_and_the_latest_process_counts() -> None:
    state = StatusState()
    statuses = [
        TaskStatus("c", 0, State.RUNNING, W1, 1, worker_incarnation="old"),
        TaskStatus("c", 1, State.RUNNING, W1, 2, worker_incarnation="new"),
        TaskStatus("c", 2, State.PAUSED, W2, 2, worker_incarnation="x"),
        ConnectorStatus("c", State.RUNNING, "java:8083", 2),
    ]
    for offset, status in enumerate(statuses):
        key, value = status_topic.encode(status)
        state.apply(StoredRecord("t", 0, offset, key, value, offset))
    assert running_workers(state) == {W1: "new"}
