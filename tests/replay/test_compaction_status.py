"""Readings of the status topic that no compaction and no reading order of partitions changes.

True of every key whose latest record is ours: it reads as that record, whatever is compacted in whichever partition,
in whatever order partitions are read, and whatever Java wrote under other keys, the deletion of a task's connector
apart. For this our writer gives each task of a deleted connector a tombstone of its own, and a reader lets a
connector's tombstone delete no younger record, and never counts an UNASSIGNED of ours as stale. It needs a
clock that does not go back when another writer takes over.

True of Java's own reader too, in the order in which all was written: our writer puts a tombstone before an UNASSIGNED
that a RUNNING would make stale for it.

Not true of Java's records, by the nature of its topic (docs/reference/connect/status-topic.md, sections 5.2 and 5.4):
a connector's tombstone also deletes tasks that are in other partitions, and an UNASSIGNED that was ignored under a
RUNNING shows once compaction has removed that RUNNING. Java's statuses read as Java reads the same records in the same
order. Nor is it true of Java's reader in another order of partitions, whoever wrote the records: the two tests
`test_java_shows_...` have the cases.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs

from herdmesh.connect.topics import status_topic
from herdmesh.connect.topics.decoding import Tombstone
from herdmesh.connect.topics.status_topic import ConnectorStatus, State, StatusRecord, TaskStatus, TopicStatus
from herdmesh.statusstore.state import statuses, writes
from herdmesh.statusstore.state.statuses import StatusState
from herdmesh.statusstore.state.writes import (
    Put,
    PutMode,
    decide_connector_deletion,
    decide_puts,
    decide_topic_deletion,
    decide_topics,
)
from herdmesh.topicstore.contract import NewRecord, StoredRecord
from herdmesh.topicstore.partitioner import partition_of
from tests.support.java_status_rules import JavaStatuses
from tests.support.sizes import soak_or
from tests.support.status_reading import reads_as_java

_PARTITIONS = 5
_BUDGET = settings(
    max_examples=soak_or(150, 3_000),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
_SEARCH = settings(_BUDGET, max_examples=500, phases=[Phase.generate], report_multiple_bugs=False)


class Topic:
    """The partitions as they were written, with the writer's own state."""

    def __init__(self) -> None:
        self.partitions: list[list[StoredRecord]] = [[] for _ in range(_PARTITIONS)]
        self.state = StatusState()
        #: Java's reading with and without the two rules that our reader adds.
        self.java, self.plain = JavaStatuses(), JavaStatuses(plain=True)
        self.now_ms = 1_000
        #: Of each key, our last record; Java's record removes it.
        self.ours: dict[bytes, StoredRecord] = {}
        #: The last RUNNING of each task that a worker of ours put, whatever happened to it.
        self.ran: dict[tuple[str, int], TaskStatus] = {}

    def write(self, records: list[NewRecord]) -> None:
        """One transaction of ours."""
        for record in records:
            self.ours[record.key] = self._append(record.key, record.value)

    def put(self, puts: list[Put]) -> None:
        """A batch of a worker's."""
        running = [put.status for put in puts if put.status.state is State.RUNNING]
        self.ran.update({(one.connector, one.task): one for one in running if isinstance(one, TaskStatus)})
        self.write(list(decide_puts(self.state, puts).records))

    def foreign(self, record: StatusRecord | Tombstone) -> None:
        """A record of Java's."""
        key, value = status_topic.encode(record)
        self.ours.pop(key, None)
        gone = self._append(key, value)
        if value is None and key == status_topic.connector_status_key(record.connector):
            # Java's own leader writes their tombstones first; without those, the existing tasks are deleted too.
            tasks = status_topic.task_status_key(record.connector, 0).rpartition(b"-")[0]
            self.ours = {
                other: stored
                for other, stored in self.ours.items()
                if other.rpartition(b"-")[0] != tasks
                or stored.value is None
                or (stored.timestamp_ms >= self.now_ms and stored.partition != gone.partition)
            }

    def _append(self, key: bytes, value: bytes | None) -> StoredRecord:
        partition = partition_of(key, _PARTITIONS)
        log = self.partitions[partition]
        stored = StoredRecord("connect-status", partition, len(log), key, value, self.now_ms)
        log.append(stored)
        self.state.apply(stored)
        for java in (self.java, self.plain):
            java.read(key, value, self.now_ms, partition)
        return stored


def left_of(log: list[StoredRecord], chance: Random) -> list[StoredRecord]:
    """Records that a reader finds in a partition where a cleaner came some way: of each key the last record before
    there and any of the older ones; a tombstone may go too when its retention is over and no older record of its key is
    left.

    `test_cleaner_model.py` compares this with a real broker. On its disk a pass, which goes from the oldest segment on,
    never leaves an older record of a key and removes a younger one; but a reader that has read the older one before the
    pass sees just that.
    """
    cleaned_to, tombstones_to = (round(chance.choice([0, 1, chance.random()]) * len(log)) for _ in range(2))
    last = {record.key: record.offset for record in log[:cleaned_to]}
    left: list[StoredRecord] = []
    kept_older: set[bytes | None] = set()
    for record in log:
        if record.offset >= cleaned_to:
            left.append(record)
        elif last[record.key] != record.offset:
            if chance.random() < 0.3:
                left.append(record)
                kept_older.add(record.key)
        elif record.value is not None or record.offset >= tombstones_to or record.key in kept_older:
            left.append(record)
    return left


def replayed(topic: Topic, chance: Random) -> StatusState:
    """A replica that reads a compacted topic, one record of any partition after the other."""
    logs = [left_of(log, chance) for log in topic.partitions]
    state = StatusState()
    while waiting := [log for log in logs if log]:
        log = chance.choice(waiting)
        for _ in range(chance.randint(1, len(log))):
            state.apply(log.pop(0))
    return state


def shown(state: StatusState) -> dict[bytes, object]:
    """Everything listed, by the key of its record; of statuses the revision too."""
    found: dict[bytes, object] = {}
    for stored in state.statuses():
        key, value = status_topic.encode(stored.status)
        found[key] = (value, stored.partition, stored.offset)
    for name, topics in state.topics.items():
        for topic, status in topics.items():
            found[status_topic.topic_status_key(topic, name)] = status_topic.encode(status)[1]
    return found


def check(topic: Topic, state: StatusState) -> None:
    """Check that our last records read as they were written."""
    found = shown(state)
    for key, record in topic.ours.items():
        actual = found.get(key)
        if record.value is None or key.startswith(b"status-topic-"):
            assert actual == record.value, key
        else:
            assert actual == (record.value, record.partition, record.offset), key


Step = Callable[[Topic], None]

_NAMES = st.sampled_from(["c", "c", "c-1"])
_TASKS = st.integers(0, 2)
_PROCESSES = st.sampled_from([("w1:1", "a"), ("w1:1", "b"), ("w2:1", "c")])
_STATES = st.sampled_from([State.RUNNING, State.RUNNING, State.UNASSIGNED, State.FAILED, State.DESTROYED])


def _status(name: str, task: int | None, state: State, process: tuple[str, str], generation: int) -> Put:
    worker, incarnation = process
    if task is None:
        status = ConnectorStatus(name, state, worker, generation, worker_incarnation=incarnation)
        return Put(status, PutMode.PUT)
    return Put(TaskStatus(name, task, state, worker, generation, worker_incarnation=incarnation), PutMode.PUT)


def _puts(puts: list[Put]) -> Step:
    return lambda topic: topic.put(puts)


def _ends(name: str, task: int, older: int) -> Step:
    def step(topic: Topic) -> None:
        ran = topic.ran.get((name, task))
        if ran is not None:
            status = structs.replace(ran, state=State.UNASSIGNED, generation=ran.generation - older)
            topic.put([Put(status, PutMode.PUT)])

    return step


def _deletes(name: str, tasks_from: int | None, topics: bool) -> Step:
    return lambda topic: topic.write(decide_connector_deletion(topic.state, name, tasks_from, topics))


def _uses(name: str, used: str, forget: bool) -> Step:
    def step(topic: Topic) -> None:
        if forget:
            topic.write(decide_topic_deletion(topic.state, name, [used]))
        else:
            topic.write(decide_topics(topic.state, [TopicStatus(used, name, 0, topic.now_ms)]))

    return step


def _waits(ms: int) -> Step:
    def step(topic: Topic) -> None:
        topic.now_ms += ms

    return step


def _foreign(record: StatusRecord | Tombstone) -> Step:
    return lambda topic: topic.foreign(record)


_PUT = st.builds(_status, _NAMES, st.none() | _TASKS | _TASKS, _STATES, _PROCESSES, st.integers(1, 3))
_OURS = (
    st.builds(_puts, st.lists(_PUT, min_size=1, max_size=4)),
    st.builds(_puts, st.lists(_PUT, min_size=1, max_size=4)),
    st.builds(_ends, _NAMES, _TASKS, st.integers(0, 1)),
    st.builds(_deletes, _NAMES, st.none() | _TASKS, st.booleans()),
    st.builds(_uses, _NAMES, st.sampled_from(["t", "u"]), st.booleans()),
    st.builds(_waits, st.sampled_from([1, 10])),
)
_JAVA = st.one_of(
    st.builds(ConnectorStatus, _NAMES, _STATES, st.just("j:1"), st.integers(1, 3)),
    st.builds(TaskStatus, _NAMES, _TASKS, _STATES, st.just("j:1"), st.integers(1, 3)),
    st.builds(TaskStatus, _NAMES, _TASKS, _STATES, st.just("j:1"), st.integers(1, 3)),
    st.builds(TopicStatus, st.sampled_from(["t", "u"]), _NAMES, st.just(0), st.integers(1, 3)),
    st.builds(Tombstone, st.just("status-connector"), _NAMES),
    st.builds(Tombstone, st.just("status-task"), _NAMES, _TASKS),
)


def _histories(*kinds: st.SearchStrategy[Step]) -> st.SearchStrategy[list[Step]]:
    step = st.integers(0, len(kinds) - 1).flatmap(lambda number: kinds[number])
    return st.lists(step, min_size=6, max_size=25)


_OUR_HISTORIES = _histories(*_OURS)
_MIXED_HISTORIES = _histories(*_OURS, st.builds(_foreign, _JAVA), st.builds(_foreign, _JAVA))
_SEEDS = st.integers(0, 2**16)


def _plays_ours(steps: list[Step], seed: int) -> None:
    topic = Topic()
    for step in steps:
        step(topic)
    check(topic, topic.state)
    chance = Random(seed)
    for _ in range(3):
        assert shown(replayed(topic, chance)) == shown(topic.state)


def _plays_mixed(steps: list[Step], seed: int) -> None:
    topic = Topic()
    for step in steps:
        step(topic)
        check(topic, topic.state)
        assert reads_as_java(topic.state, topic.java)
    chance = Random(seed)
    for _ in range(3):
        check(topic, replayed(topic, chance))


@pytest.mark.timeout(900)
@_BUDGET
@given(_OUR_HISTORIES, _SEEDS)
def test_our_statuses_read_the_same_after_any_compaction_in_any_order(steps: list[Step], seed: int) -> None:
    _plays_ours(steps, seed)


@pytest.mark.timeout(900)
@_BUDGET
@given(_MIXED_HISTORIES, _SEEDS)
def test_beside_java_our_statuses_read_the_same_and_javas_as_java_reads_them(steps: list[Step], seed: int) -> None:
    _plays_mixed(steps, seed)


@pytest.mark.timeout(900)
@_BUDGET
@given(_MIXED_HISTORIES)
def test_java_itself_reads_the_same_in_the_order_written(steps: list[Step]) -> None:
    topic = Topic()
    for step in steps:
        topic.now_ms += 1  # in records of two partitions and one millisecond, the writer decides the order
        step(topic)
        assert reads_as_java(topic.state, topic.plain)


_A_LIFE = TaskStatus("c", 0, State.RUNNING, "w1:1", 5, worker_incarnation="a")
_ITS_END = TaskStatus("c", 0, State.UNASSIGNED, "w1:1", 5, worker_incarnation="a")


def _orders(topic: Topic) -> list[list[StoredRecord]]:
    """The records of both partitions, one after the other: first the tasks', first the connector's, as written."""
    tasks, connectors = (
        topic.partitions[partition_of(key, _PARTITIONS)] for key in (b"status-task-c-0", b"status-connector-c")
    )
    assert tasks is not connectors
    written = sorted([*tasks, *connectors], key=lambda record: (record.timestamp_ms, record.partition))
    return [[*tasks, *connectors], [*connectors, *tasks], written]


def test_java_shows_a_task_after_its_connectors_tombstone_depending_on_the_partition_order() -> None:
    """No record can change that: a reader that reads all of the task's partition first ends with the tombstone. Our
    store shows the same in every order, and Java never the RUNNING that is over.
    """
    topic = Topic()
    topic.put([Put(_A_LIFE, PutMode.PUT)])
    topic.now_ms += 1
    topic.foreign(Tombstone("status-connector", "c"))
    topic.now_ms += 1
    topic.put([Put(_ITS_END, PutMode.PUT)])
    shown_by_java = list[set[str]]()
    for order in _orders(topic):
        state, java = StatusState(), JavaStatuses(plain=True)
        for record in order:
            state.apply(record)
            java.read(record.key or b"", record.value, record.timestamp_ms, record.partition)
        assert [stored.status for stored in state.statuses()] == [_ITS_END]
        shown_by_java.append({status.state for status in java.tasks.get("c", {}).values()})
    assert shown_by_java == [set(), {"UNASSIGNED"}, {"UNASSIGNED"}]


def test_java_shows_an_unassigned_depending_on_whether_it_read_before_the_cleaner() -> None:
    """A reader that has read the RUNNING finds the UNASSIGNED without the tombstone between them: Java's keeps RUNNING
    until the next status, ours shows the written status.
    """
    topic = Topic()
    topic.put([Put(_A_LIFE, PutMode.PUT)])
    topic.put([Put(_ITS_END, PutMode.PUT)])
    running, tombstone, unassigned = topic.partitions[partition_of(b"status-task-c-0", _PARTITIONS)]
    assert tombstone.value is None
    for left, java_shows in (([running, unassigned], "RUNNING"), ([unassigned], "UNASSIGNED")):
        state, java = StatusState(), JavaStatuses(plain=True)
        for record in left:
            state.apply(record)
            java.read(record.key or b"", record.value, record.timestamp_ms, record.partition)
        assert [stored.status for stored in state.statuses()] == [_ITS_END]
        assert java.tasks["c"][0].state == java_shows


def _searched(histories: st.SearchStrategy[list[Step]], play: Callable[[list[Step], int], None]) -> None:
    @_SEARCH
    @given(histories, _SEEDS)
    def run(steps: list[Step], seed: int) -> None:
        play(steps, seed)

    run()


def _always(stored: statuses.StoredStatus, tombstone: StoredRecord) -> bool:
    return True


def _never(new: writes.AnyStatus, stored: statuses.StoredStatus | None) -> bool:
    return False


def test_a_cleaner_that_removes_the_last_record_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_but_one(log: list[StoredRecord], chance: Random) -> list[StoredRecord]:
        return log[:-1]

    monkeypatch.setitem(globals(), "left_of", all_but_one)
    with pytest.raises(AssertionError):
        _searched(_OUR_HISTORIES, _plays_ours)


def test_a_connectors_tombstone_that_deletes_younger_tasks_makes_the_order_visible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statuses, "dies_with_its_connector", _always)
    with pytest.raises(AssertionError):
        _searched(_OUR_HISTORIES, _plays_ours)


def test_without_the_tombstone_before_an_unassigned_java_reads_another_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def play(steps: list[Step], seed: int) -> None:
        topic = Topic()
        for step in steps:
            step(topic)
        assert reads_as_java(topic.state, topic.plain)

    monkeypatch.setattr(writes, "_could_be_read_as_stale", _never)
    with pytest.raises(AssertionError):
        _searched(_OUR_HISTORIES, play)
