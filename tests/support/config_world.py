"""One config topic that is compacted while replicas restart on it: the world of the compaction tests.

Owns the log as it was written, a cleaner that removes whatever a Kafka cleaner legally may, replicas that read
the remaining records when they started, and the comparison of every replica with the first one, which never restarted
and has read each record. The fold and the plans under test are the config store's own.

Invariant: the newest replica writes; the first would have written the same bytes, or `Differs` is raised.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from herdmesh.api.configstore.v1 import config_pb2
from herdmesh.configstore.service import wire
from herdmesh.configstore.state.config import ConfigState
from herdmesh.configstore.state.connector import ConnectorState
from herdmesh.configstore.state.mutations import LeaderToken, Mutation, WriteContext
from herdmesh.configstore.state.writes import WritePlan, plan, plan_epoch
from herdmesh.connect.topics import config_topic
from herdmesh.connect.topics.config_records import ConfigRecord, EpochRecord, ManifestRecord, RestartRecord
from herdmesh.connect.topics.decoding import Tombstone, Undecodable, Unknown
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.topicstore.contract import KEEP_ALIVE_KEY, NewRecord, StoredRecord
from herdmesh.topicstore.writes import PROVISIONAL_OFFSET
from tests.support.config_topic import AUDIT, STORE_ID, TOPIC, revision
from tests.support.java_config_rules import JavaConfigs

Raw = tuple[bytes, bytes | None]
Java = ConfigRecord | Tombstone | Raw


class Differs(AssertionError):
    """Two replicas do not agree where they have to."""


@dataclass
class Cleaner:
    """The remaining part of the log. Each pass goes at least as far as the one before."""

    removed: set[int] = field(default_factory=set[int])
    cleaned_to: int = 0

    def left(self, records: Iterable[StoredRecord]) -> list[StoredRecord]:
        """The records a reader finds now."""
        return [record for record in records if record.offset not in self.removed]

    def clean(self, records: Sequence[StoredRecord], up_to: int, tombstones_to: int, chance: random.Random) -> None:
        """A pass over all records before `up_to`. Of each key the last record there stays, an older one goes or stays
        (a pass may have been cut short), and a tombstone below `tombstones_to`, whose retention is over, goes or stays
        once no older record of its key remains.
        """
        self.cleaned_to = max(self.cleaned_to, up_to)
        thorough = chance.random() < 0.5
        last: dict[bytes | None, int] = {}
        for record in self._own(records):
            last[record.key] = record.offset
        kept_older: set[bytes | None] = set()
        for record in self._own(records):
            if last[record.key] != record.offset:
                if thorough or chance.random() < 0.6:
                    self.removed.add(record.offset)
                else:
                    kept_older.add(record.key)
            elif record.value is None and record.offset < tombstones_to and record.key not in kept_older:
                self.removed.add(record.offset)

    def _own(self, records: Sequence[StoredRecord]) -> Iterable[StoredRecord]:
        return (one for one in self.left(records) if one.topic == TOPIC and one.offset < self.cleaned_to)


@dataclass
class Replica:
    """One replica, with Java's own reading of the same records beside it."""

    state: ConfigState = field(default_factory=lambda: ConfigState(AUDIT))
    java: JavaConfigs = field(default_factory=JavaConfigs)
    #: Of each connector, the offset of the latest record in Connect's format that this replica has read.
    touched: dict[str, int] = field(default_factory=dict[str, int])
    manifested: set[str] = field(default_factory=set[str])

    def refuses(self, record: StoredRecord) -> bool:
        """Read one record; True when it must count as unreadable: by the oracle for Connect's kinds, by the decoder for
        ours.
        """
        key, led, refused = record.key or b"", self.state.leadership, self.java.refused
        self.read(record)
        if not key.startswith(b"herdmesh-"):
            return self.java.refused > refused
        decoded = config_topic.decode(key, record.value)
        if isinstance(decoded, EpochRecord):
            return self.state.leadership == led
        return key != KEEP_ALIVE_KEY and isinstance(decoded, Undecodable | Unknown)

    def read(self, record: StoredRecord) -> None:
        """Read one record."""
        self.state.apply(record)
        if record.topic == TOPIC:
            self.java.read(record.key or b"", record.value, record.offset)
            name = connector_of(record)
            if name is not None and is_manifest(record):
                self.manifested.add(name)
            elif name is not None:
                self.touched[name] = record.offset


def connector_of(record: StoredRecord) -> str | None:
    """The connector whose state the record is part of; None for records of no connector and for unreadable ones."""
    return _connector_of(record.key, record.value)


@lru_cache(maxsize=32_768)
def _connector_of(key: bytes | None, value: bytes | None) -> str | None:
    decoded = config_topic.decode(key, value)
    return None if isinstance(decoded, RestartRecord | Undecodable) else getattr(decoded, "connector", None)


def is_manifest(record: StoredRecord) -> bool:
    """True for a manifest and for a manifest's tombstone."""
    return (record.key or b"").startswith(config_topic.manifest_key(""))


class World:
    """The topic and its replicas; `replicas[0]` never restarts, the last one writes.

    `ours_alone` compares foreign connectors too, as if there were no other writer to follow, and only between
    transactions: within one a connector reads as foreign. `visible(record)` decides which records are written at
    all: a test that has to see the property fail drops some.
    """

    def __init__(self, *, ours_alone: bool = False, visible: Callable[[NewRecord], bool] = lambda _: True) -> None:
        self._ours_alone = ours_alone
        self.records: list[StoredRecord] = []
        self.cleaner = Cleaner()
        self.replicas = [Replica()]
        self._visible = visible
        self._next_offset = 0
        self._writes = 0
        self._manifests: dict[str, int] = {}
        #: Connectors whose pending fencing was adopted by a writer from which compaction had hidden it.
        self._adopted_unseen: set[str] = set()
        self._writing = False
        #: Counts of events, for tests that require a minimum of them.
        self.happened: Counter[str] = Counter()

    @property
    def first(self) -> Replica:
        return self.replicas[0]

    @property
    def writer(self) -> Replica:
        return self.replicas[-1]

    def java(self, records: Iterable[Java]) -> None:
        """Write as Java's plain producer does, record by record."""
        for record in records:
            self._append(NewRecord(*(record if isinstance(record, tuple) else config_topic.encode(record))))

    def write(self, mutation: Mutation, *, expected: bool, racing: Sequence[Java] = (), at: int = 0) -> None:
        """A write of ours, decided on the writer and on the first replica. `expected` sends the object's revision
        along; `racing` are Java's records that get in before record `at` of the transaction, decided already.
        """
        self._writes += 1
        name = getattr(mutation, "connector", None)
        context = self._context(mutation, expected)
        planned = _outcome(self.writer.state, mutation, context)
        known = name is None or not self._foreign(name)
        if known and _told(_outcome(self.first.state, mutation, context)) != _told(planned):
            raise Differs(f"the writer decides {planned}, the first replica would not")
        if isinstance(planned, str):
            self.happened["refused"] += 1
            return
        self.happened["adopted"] += not known
        intended = self.writer.state.copy()
        for record in planned.records:
            intended.apply(_stored(record, PROVISIONAL_OFFSET))
        at = min(at, len(planned.records) - 1)
        self._adopted_unseen |= self._seen_otherwise(name)
        self._writing = True
        for number, record in enumerate(planned.records):
            if number == at:
                self.java(racing)
            # The audit record is last, and gets the positions of the others.
            value = record.value if record.late is None else record.late(revision(self._next_offset))
            self._append(NewRecord(record.key, value, record.topic))
        self._next_offset += 1
        self._writing = False
        for replica in self.replicas:
            if _told(_outcome(replica.state, mutation, context)) != ([], planned.outcome):
                raise Differs("a retry is not told the first outcome")
        if name is not None:
            if not racing and self.first.state.connector(name).foreign:
                raise Differs(f"{name!r} was not adopted")
            self._is_as_intended(intended.connector(name))
            self.check([name])

    def lead(self, leader_id: str) -> None:
        """Grant the next epoch."""
        for record in plan_epoch(self.writer.state, leader_id, "127.0.0.1:7203"):
            self._append(record)
        self._next_offset += 1

    def clean(self, up_to: float, tombstones_to: float, seed: int) -> None:
        """A pass of the cleaner; the first two are fractions of the log and of the cleaned part."""
        end = round(up_to * self._next_offset)
        self.cleaner.clean(self.records, end, round(tombstones_to * end), random.Random(seed))

    def restart(self, up_to: float = 0.0, seed: int = 0) -> None:
        """A new replica takes over the writing. It has read a part of the log when the cleaner passes (`up_to` > 0),
        and continues in the remaining records; a tombstone outlives every reader that began before.
        """
        before = self.cleaner.left(self.records)
        half = len(before) // 2
        if up_to:
            self.clean(up_to, 0.0, seed)
        self.happened["restarted"] += 1
        replica = Replica()
        for record in [*before[:half], *(one for one in before[half:] if one.offset not in self.cleaner.removed)]:
            replica.read(record)
        self.replicas = [self.first, *self.replicas[1:][-1:], replica]
        self.check()

    def check(self, names: Iterable[str] | None = None) -> None:
        """Compare all replicas, for all connectors or the given names."""
        states = [replica.state for replica in self.replicas]
        every = {one.name for state in states for one in state.stored()} | {*self._manifests}
        for replica in self.replicas:
            for name in sorted(every if names is None else names):
                self._check(replica, name)
        for state in states:
            if _cluster_wide(state) != _cluster_wide(self.first.state):
                raise Differs("leadership or session key")

    def _check(self, replica: Replica, name: str) -> None:
        state, first = replica.state.connector(name), self.first.state.connector(name)
        fenced_as_java = state.pending_fencing == (name in replica.java.pending_fencing)
        if replica is self.first and fenced_as_java and not self._writing:
            self._adopted_unseen.discard(name)
        elif replica is self.first and not fenced_as_java and (state.foreign or name not in self._adopted_unseen):
            # It has read every record, so compaction is no excuse for a reading other than Java's, until a writer
            # adopts a compacted state: there Java's own readers disagree, and the manifest decides what they all
            # read from then on.
            raise Differs(f"{name!r}: pending fencing is {state.pending_fencing}, Java has the opposite")
        if state.foreign and not self._ours_alone:
            self.happened["followed Java"] += 1
            follows_java(state, replica)
        if not first.foreign or self._ours_alone:
            if entry(state) != entry(first):
                raise Differs(f"{name!r}: {entry(state)} is not {entry(first)}")
        elif not state.foreign and replica.touched.get(name, -1) > self._manifests.get(name, -1):
            raise Differs(f"{name!r} was last written by Java")

    def _seen_otherwise(self, name: str | None) -> set[str]:
        """The connector, if Java's reading of the writer's records leaves another pending fencing than Java's
        reading of all records: a later commit, which met no config, had replaced the one that waits for its fence.
        """
        first, writer = self.first.java.pending_fencing, self.writer.java.pending_fencing
        if name is None or (name in first) == (name in writer):
            return set()
        self.happened["adopted unseen"] += 1
        return {name}

    def _is_as_intended(self, intended: ConnectorState) -> None:
        """Either our record decides, and then the state is the decided one, or a foreign writer's record got in
        between.
        """
        actual = self.first.state.connector(intended.name)
        if not actual.foreign and _decided(actual) != _decided(intended):
            raise Differs(f"{intended.name!r}: {actual} is not {intended}, and not foreign")

    def _context(self, mutation: Mutation, expected: bool) -> WriteContext:
        leadership = self.first.state.leadership
        name = getattr(mutation, "connector", "")
        known = _revisions(self.writer.state.connector(name)).get(type(mutation).__name__, 0) if name else 0
        return WriteContext(
            operation=type(mutation).__name__,
            now_ms=1_700_000_000_000 + self._writes,
            new_incarnation=f"incarnation-{self._writes}",
            store_id=STORE_ID,
            audit_topic=AUDIT,
            request_id=f"request-{self._writes}",
            expected_revision=revision(known) if expected and known else None,
            leader=None if leadership is None else LeaderToken(leadership.epoch, leadership.leader_id),
        )

    def _foreign(self, name: str) -> bool:
        return any(replica.state.connector(name).foreign for replica in self.replicas)

    def _append(self, record: NewRecord) -> None:
        if not self._visible(record):
            return
        offset, self._next_offset = self._next_offset, self._next_offset + 1
        stored = _stored(record, offset)
        self.records.append(stored)
        for replica in self.replicas:
            replica.read(stored)
        name = connector_of(stored) if stored.topic == TOPIC else None
        if name is not None:
            if isinstance(config_topic.decode(stored.key, stored.value), ManifestRecord):
                self._manifests[name] = offset
            if not self._ours_alone:
                self.check([name])


def entry(state: ConnectorState) -> config_pb2.ConnectorEntry | None:
    """The answer of GetSnapshot for the connector; None when it is not listed."""
    return wire.entry(state, STORE_ID) if state.is_stored else None


def follows_java(state: ConnectorState, replica: Replica) -> None:
    """A foreign connector reads as Java reads the same records."""
    java, name = replica.java, state.name
    mine = {
        "config": state.config,
        "target state": state.target_state and state.target_state.value,
        "count": state.task_count or 0,
        "tasks": {number: task.properties for number, task in enumerate(state.tasks)},
        "task configs": {number: task.properties for number, task in state.task_configs.items()},
        "inconsistent": state.inconsistent,
        "applied": state.applied_config,
        "count record": state.task_count_record,
        "pending fencing": state.pending_fencing,
        "revisions": (state.config_revision, state.target_state_revision, state.tasks_revision),
    }
    offsets = (java.config_offsets, java.target_state_offsets, java.commit_offsets)
    theirs = {
        "config": java.configs.get(name),
        "target state": java.target_states.get(name),
        "count": java.task_counts.get(name, 0),
        "tasks": java.tasks(name),
        "task configs": java.task_configs.get(name, {}),
        "inconsistent": name in java.inconsistent,
        "applied": java.applied_configs.get(name),
        "count record": java.task_count_records.get(name),
        "pending fencing": name in java.pending_fencing,
        "revisions": tuple(known.get(name, -1) + 1 for known in offsets),
    }
    if name not in replica.manifested:
        mine["generation"], theirs["generation"] = state.task_config_generation, java.generations.get(name, -1) + 1
    if mine != theirs:
        raise Differs(f"{name!r}: {mine} is not Java's {theirs}")


def _decided(state: ConnectorState) -> tuple[object, ...]:
    """The parts of a connector that a manifest holds."""
    return (
        state.config, state.tasks, state.task_count or 0, state.applied_config, state.inconsistent,
        state.task_config_generation, state.incarnation,
    )  # fmt: skip


def _stored(record: NewRecord, offset: int) -> StoredRecord:
    return StoredRecord(record.topic or TOPIC, 0, offset, record.key, record.value, 1_700_000_000_000)


def _revisions(state: ConnectorState) -> dict[str, int]:
    return {
        "PutConnectorConfig": state.config_revision,
        "DeleteConnector": state.config_revision,
        "SetTargetState": state.target_state_revision,
        "CommitTaskConfigs": state.tasks_revision,
    }


def _cluster_wide(state: ConfigState) -> object:
    return state.leadership, state.session_key, state.session_key_revision


def _told(outcome: WritePlan | str) -> object:
    """An outcome as a value; of a late record, the part that a state sees."""
    if isinstance(outcome, str):
        return outcome
    return [(record.key, record.value, record.topic) for record in outcome.records], outcome.outcome


def _outcome(state: ConfigState, mutation: Mutation, context: WriteContext) -> WritePlan | str:
    try:
        return plan(state.copy(), mutation, context)
    except HerdmeshError as refusal:
        return f"{refusal.reason}: {refusal.message}"
