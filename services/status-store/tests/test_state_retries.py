"""Tests that repeated, late and reordered events do no harm: retries over a fail-over, and partitions read in any
order.

A retry after an unknown outcome decides the same batch again on a state that has the batch or has it not (a transaction
is all or nothing). Where the writer changed, its kept outcomes are gone too, so only the rules can make the retry
harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.topics.status_topic import ConnectorStatus, State, TaskStatus, TopicStatus
from herdmesh.statusstore.state.sequences import KEYS_KEPT, WRITERS_KEPT, Sequences
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
from herdmesh.topicstore.partitioner import partition_of
from tests.support.sizes import soak_or

CHECKED = settings(max_examples=soak_or(60, 3_000), deadline=None, derandomize=True)
PARTITIONS = 5
W1, W2 = "w1:7204", "w2:7205"
#: Two processes of one worker, another worker, and Java.
WRITERS = st.sampled_from([(W1, "a"), (W1, "a2"), (W2, "b"), (W2, "")])


class Topic:
    """A topic of five partitions and its folded state; each `write` is one transaction, a millisecond after the
    last.
    """

    def __init__(self) -> None:
        self.state = StatusState()
        self.partitions: list[list[StoredRecord]] = [[] for _ in range(PARTITIONS)]
        self._now_ms = 1000

    def write(self, records: Sequence[NewRecord]) -> None:
        self._now_ms += 1
        for record in records:
            partition = partition_of(record.key, PARTITIONS)
            log = self.partitions[partition]
            log.append(StoredRecord("t", partition, len(log), record.key, record.value, self._now_ms))
            self.state.apply(log[-1])

    def put(self, *puts: Put) -> tuple[PutResult, ...]:
        decision = decide_puts(self.state, puts)
        self.write(decision.records)
        return decision.results


def _shown(state: StatusState) -> list[AnyStatus]:
    return [stored.status for stored in state.statuses()]


@st.composite
def _puts(draw: st.DrawFn, positions: bool = True, writers: st.SearchStrategy[tuple[str, str]] = WRITERS) -> Put:
    name, task = draw(st.sampled_from("cd")), draw(st.sampled_from([None, 0, 1]))
    state = draw(st.sampled_from([State.RUNNING, State.UNASSIGNED, State.FAILED, State.DESTROYED]))
    generation, (worker_id, incarnation) = draw(st.integers(0, 3)), draw(writers)
    status: AnyStatus
    if task is None:
        status = ConnectorStatus(name, state, worker_id, generation, worker_incarnation=incarnation)
    else:
        status = TaskStatus(name, task, state, worker_id, generation, worker_incarnation=incarnation)
    expected = None
    if positions:
        near = st.builds(RecordPosition, st.integers(0, PARTITIONS - 1), st.integers(1, 3))
        expected = draw(st.none() | st.just(RecordPosition(-1, 0)) | near)
    return Put(status, draw(st.sampled_from(PutMode)), expected)


def _aimed(topic: Topic, put: Put) -> Put:
    """The same put with an `expected` that its caller may hold: of the stored record, so that many compare-and-sets
    succeed, or of an older one; never of a record that is not written yet.
    """
    if put.expected is None or put.expected.partition < 0:
        return put
    stored = topic.state.get(*put.key)
    if put.expected.partition < 3 and stored is not None:
        return replace(put, expected=RecordPosition(stored.partition, stored.offset + 1))
    given = put.expected.next_offset <= len(topic.partitions[put.expected.partition])
    return put if given else replace(put, expected=None)


@CHECKED
@given(st.lists(_puts(positions=False), max_size=6), st.lists(_puts(), min_size=1, max_size=6))
def test_a_batch_decided_again_ends_in_the_same_state_or_a_justified_refusal(
    before: list[Put], batch: list[Put]
) -> None:
    topic = Topic()
    for put in before:
        topic.put(put)
    batch = [_aimed(topic, put) for put in batch]
    first = topic.put(*batch)
    once = _shown(topic.state)
    again = topic.put(*batch)
    lost = [at for at, (was, now) in enumerate(zip(first, again, strict=True)) if was is PutResult.APPLIED is not now]
    if not lost:
        assert _shown(topic.state) == once
    for at in lost:
        # Justified: a status of a later generation, or another record than the expected one, is stored now, unless the
        # rest of the batch removed it.
        put, rest = batch[at], batch[at + 1 :]
        if not any(later.key in (put.key, (put.key[0], None)) for later in rest):
            stored = topic.state.get(*put.key)
            assert put.expected is not None or stored is not None
            assert stored is None or stored.status != put.status


@CHECKED
@given(
    st.lists(_puts(positions=False), max_size=6),
    st.lists(_puts(writers=st.just((W1, "a"))), min_size=1, max_size=6),
    st.integers(1, 6),
)
def test_a_batch_of_one_process_decided_again_changes_nothing_and_gets_the_same_results(
    before: list[Put], batch: list[Put], prefix: int
) -> None:
    """A batch as our workers send it: one status for each unit, all of one process. The retry is any prefix of it,
    since the sender may have fewer statuses by then.
    """
    topic = Topic()
    for put in before:
        topic.put(put)
    unique = {
        put.key: put
        for put in batch
        if not (
            put.key[1] is None and put.status.state is State.DESTROYED
        )  # the leader writes that one, and it removes tasks
    }
    batch = [_aimed(topic, put) for put in unique.values()][:prefix]
    first = topic.put(*batch)
    once = _shown(topic.state)
    again = topic.put(*batch)
    assert _shown(topic.state) == once
    for put, was, now in zip(batch, first, again, strict=True):
        assert (was is PutResult.APPLIED) == (now is PutResult.APPLIED), put


@CHECKED
@given(st.lists(_puts(positions=False), max_size=8), st.sampled_from([None, 0, 1]), st.booleans())
def test_deletions_and_topics_decided_again_write_nothing(
    before: list[Put], tasks_from: int | None, topics: bool
) -> None:
    topic = Topic()
    for put in before:
        topic.put(put)
    used = [TopicStatus(name, "c", 0, 1) for name in ("t", "u")]
    topic.write(decide_topics(topic.state, used))
    assert decide_topics(topic.state, used) == []
    topic.write(decide_connector_deletion(topic.state, "c", tasks_from, topics))
    assert decide_connector_deletion(topic.state, "c", tasks_from, topics) == []
    topic.write(decide_topic_deletion(topic.state, "c", ["t"]))
    assert decide_topic_deletion(topic.state, "c", ["t"]) == []
    left = [stored.task for stored in topic.state.tasks_of("c")]
    assert all(tasks_from is not None and task is not None and task < tasks_from for task in left)


@CHECKED
@given(st.integers(0, 3), st.lists(st.tuples(st.integers(0, 3), WRITERS), max_size=3), st.integers(1, 4))
def test_a_removal_keeps_statuses_at_its_bound_and_is_decided_once(
    generation: int, tasks: list[tuple[int, tuple[str, str]]], bound: int
) -> None:
    topic = Topic()
    connector = ConnectorStatus("c", State.RUNNING, W1, generation, worker_incarnation="a")
    statuses = [
        TaskStatus("c", task, State.RUNNING, worker_id, generation, worker_incarnation=incarnation)
        for task, (generation, (worker_id, incarnation)) in enumerate(tasks)
    ]
    topic.put(Put(connector, PutMode.PUT), *(Put(one, PutMode.PUT) for one in statuses))
    topic.write(decide_connector_deletion(topic.state, "c", None, False, bound))
    left = _shown(topic.state)
    stay = [one for one in statuses if one.worker_incarnation and one.generation >= bound]
    assert [one for one in left if isinstance(one, TaskStatus)] == stay
    # If a task is kept, the connector is kept too: its tombstone would remove the task.
    assert (connector in left) == bool(stay or generation >= bound)
    assert decide_connector_deletion(topic.state, "c", None, False, bound) == []


# -- partitions in any order


@CHECKED
@given(
    st.lists(_puts(positions=False) | st.sampled_from(["delete c", "late c", "delete d", "shrink c"]), max_size=16),
    st.randoms(use_true_random=False),
)
def test_our_writes_read_the_same_in_any_partition_order_and_after_any_compaction(
    script: list[Put | str], random: Random
) -> None:
    topic = Topic()
    for step in script:
        if isinstance(step, Put):
            topic.put(step)
        else:
            what, _, name = step.partition(" ")
            tasks_from, below = 1 if what == "shrink" else None, 2 if what == "late" else 0
            topic.write(decide_connector_deletion(topic.state, name, tasks_from, True, below))
    logs = [_compacted(log, random) for log in topic.partitions]
    replica = StatusState()
    while waiting := [log for log in logs if log]:
        replica.apply(random.choice(waiting).pop(0))
    assert _shown(replica) == _shown(topic.state)


def _compacted(log: list[StoredRecord], random: Random) -> list[StoredRecord]:
    """The log as a log cleaner may leave it after its last pass: the last record of each key, with or without
    tombstones.
    """
    cleaned = log[: random.randint(0, len(log))]
    last = {record.key: record.offset for record in cleaned}
    drops = random.random() < 0.5
    kept = [one for one in cleaned if last[one.key] == one.offset and not (drops and one.value is None)]
    return kept + log[len(cleaned) :]


def test_a_tombstone_of_the_first_life_read_last_hides_no_task_of_the_second() -> None:
    topic = Topic()
    running = TaskStatus("c", 0, State.RUNNING, W1, 1, worker_incarnation="a")
    connector = ConnectorStatus("c", State.RUNNING, W1, 1, worker_incarnation="a")
    topic.put(Put(connector, PutMode.PUT), Put(running, PutMode.PUT))
    topic.write(decide_connector_deletion(topic.state, "c", None, False))
    topic.put(Put(running, PutMode.PUT))
    there, here = partition_of(b"status-connector-c", PARTITIONS), partition_of(b"status-task-c-0", PARTITIONS)
    assert there != here
    replica = StatusState()
    for record in [*topic.partitions[here], *topic.partitions[there]]:
        replica.apply(record)
    assert _shown(replica) == [running]


# -- sequences


def test_an_abandoned_put_cannot_overwrite_a_later_one() -> None:
    sequences = Sequences()
    key = ("c", 0)
    assert not sequences.late(W1, "a", 7, [key])
    assert sequences.late(W1, "a", 6, [key, ("c", 1)]) == {key}
    assert not sequences.late(W1, "a", 7, [key])  # decided again, after a barrier
    assert not sequences.late(W1, "a", 8, [key])
    assert sequences.late(W1, "a", 7, [key]) == {key}
    assert not sequences.late(W1, "a2", 1, [key])  # another process has its own sequence
    assert not sequences.late(W1, "a", 0, [key])  # not ordered
    topic = Topic()
    put = Put(TaskStatus("c", 0, State.RUNNING, W1, 1, worker_incarnation="a"), PutMode.PUT)
    decision = decide_puts(topic.state, [put], late=[key])
    assert (decision.results, decision.records) == ((PutResult.SUPERSEDED,), ())


def test_sequences_are_bounded() -> None:
    sequences = Sequences()
    sequences.late(W1, "a", 2, [("c", task) for task in range(KEYS_KEPT + 1)])
    assert not sequences.late(W1, "a", 1, [("c", 0)])
    assert sequences.late(W1, "a", 1, [("c", KEYS_KEPT)])
    for number in range(WRITERS_KEPT):
        sequences.late(f"w{number}", "x", 1, [("c", 0)])
    assert not sequences.late(W1, "a", 1, [("c", KEYS_KEPT)])
