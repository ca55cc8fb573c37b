"""Tests that `GetSnapshot` has the data for every accessor of Connect's `ClusterConfigState`
(docs/reference/connect/config-topic.md, section 6), that a watch has the events of Connect's listeners, and that the
memory engine behaves the same (section 9).

`ClusterConfigState` below is Connect's class over one response of ours:

| Accessor | From |
|---|---|
| offset | `meta.revision`: it is at or after Connect's, for it counts transaction markers too; -1 is 0 here |
| sessionKey | `session_key` |
| contains, connectors | entries with `has_config` |
| rawConnectorConfig, appliedConnectorConfig | `config`, `applied_config` |
| connectorConfig, taskConfig | none: placeholders are resolved where the config is used, on the worker |
| targetState | `target_state` |
| rawTaskConfig | `tasks`, `stray_tasks` |
| taskCount | `task_count` |
| tasks | 0 to `task_count` - 1 unless `inconsistent`; a negative count has none, where Connect throws |
| pendingFencing, taskCountRecord | `pending_fencing`, `task_count_record` |
| taskConfigGeneration | `task_config_generation` - 1; 0 is Connect's null. Ours continues over a restart |
| inconsistentConnectors | entries with `inconsistent` |

| Section 9: Connect standalone | The memory engine |
|---|---|
| offset -1; no session key, count records, generations, pending fencing, inconsistent | as in Kafka |
| put task configs, target state of an unknown connector: IllegalArgumentException | CONNECTOR_NOT_FOUND, as in Kafka |
| put task configs replaces the set | the same: left-overs are `stray_tasks` |
| remove: listener only if it existed | CONNECTOR_NOT_FOUND if it did not |
| session key, restart request, count record, logger level: no-ops | as in Kafka |
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from herdmesh.api.common.v1 import connector_pb2, revision_pb2
from herdmesh.api.configstore.v1 import config_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as read_pb
from herdmesh.api.configstore.v1 import config_write_service_pb2 as write_pb
from herdmesh.connect.json_text import jackson
from herdmesh.connect.topics import config_topic
from herdmesh.connect.topics.config_records import (
    CommitRecord,
    ConnectorRecord,
    SessionKeyRecord,
    TargetState,
    TargetStateRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from herdmesh.connect.topics.decoding import Tombstone
from herdmesh.rpc import properties
from herdmesh.rpc.errors import ConnectorNotFound, RequestInvalid
from tests.support.configstore_replica import SETTINGS, WAIT_S, Cluster, Replica

Config = dict[str, properties.PropertyValue]


class ClusterConfigState:
    """Connect's accessors over one snapshot."""

    def __init__(self, snapshot: read_pb.GetSnapshotResponse) -> None:
        self._snapshot = snapshot
        self._entries = {entry.name: entry for entry in snapshot.connectors}

    def _entry(self, name: str) -> config_pb2.ConnectorEntry:
        return self._entries.get(name) or config_pb2.ConnectorEntry()

    @property
    def offset(self) -> int:
        return self._snapshot.meta.revision.next_offsets[0]

    @property
    def session_key(self) -> bytes | None:
        return self._snapshot.session_key.key if self._snapshot.HasField("session_key") else None

    def connectors(self) -> set[str]:
        return {entry.name for entry in self._snapshot.connectors if entry.has_config}

    def raw_connector_config(self, name: str) -> Config | None:
        entry = self._entry(name)
        return properties.from_proto(entry.config) if entry.has_config else None

    def applied_connector_config(self, name: str) -> Config | None:
        entry = self._entry(name)
        return properties.from_proto(entry.applied_config) if entry.HasField("applied_config") else None

    def target_state(self, name: str) -> str | None:
        state = connector_pb2.TargetState.Name(self._entry(name).target_state).removeprefix("TARGET_STATE_")
        return None if state == "UNSPECIFIED" else state

    def raw_task_config(self, name: str, task: int) -> Config | None:
        entry = self._entry(name)
        if 0 <= task < len(entry.tasks):
            return properties.from_proto(entry.tasks[task])
        return properties.from_proto(entry.stray_tasks[task]) if task in entry.stray_tasks else None

    def task_count(self, name: str) -> int:
        return self._entry(name).task_count

    def tasks(self, name: str) -> list[int]:
        entry = self._entry(name)
        return [] if entry.inconsistent else list(range(entry.task_count))

    def pending_fencing(self, name: str) -> bool:
        return self._entry(name).pending_fencing

    def task_count_record(self, name: str) -> int | None:
        entry = self._entry(name)
        return entry.task_count_record if entry.HasField("task_count_record") else None

    def task_config_generation(self, name: str) -> int | None:
        return self._entry(name).task_config_generation - 1 if self._entry(name).task_config_generation else None

    def inconsistent_connectors(self) -> set[str]:
        return {entry.name for entry in self._snapshot.connectors if entry.inconsistent}


async def snapshot(writer: Replica, *names: str) -> ClusterConfigState:
    request = read_pb.GetSnapshotRequest(linearizable=True, connectors=names)
    return ClusterConfigState(await writer.read.GetSnapshot(request))


def java(writer: Replica, *records: Any) -> None:
    """Append records as Java's plain producer does."""
    for record in records:
        key, value = config_topic.encode(record)
        writer.broker.produce(SETTINGS.config_storage_topic, key, value)


def task(number: int, value: str = "", name: str = "c1") -> TaskConfigRecord:
    return TaskConfigRecord(name, number, {"t": value or str(number)})


async def test_every_accessor_of_connects_snapshot(writer: Replica) -> None:
    empty = await snapshot(writer)
    assert (empty.offset, empty.session_key, empty.connectors()) == (0, None, set())
    assert (empty.raw_connector_config("c1"), empty.applied_connector_config("c1")) == (None, None)
    assert (empty.target_state("c1"), empty.task_count("c1"), empty.tasks("c1")) == (None, 0, [])
    assert (empty.pending_fencing("c1"), empty.task_count_record("c1"), empty.raw_task_config("c1", 0)) == (
        False, None, None,
    )  # fmt: skip
    assert empty.task_config_generation("c1") is None
    java(
        writer,
        SessionKeyRecord(b"key", "HmacSHA256", 1),
        ConnectorRecord("c1", {"v": "1"}), task(0), task(1), task(2), CommitRecord("c1", 3), TaskCountRecord("c1", 3),
        task(0, "new"), CommitRecord("c1", 1), ConnectorRecord("c1", {"v": "2"}), task(0, "uncommitted"),
        ConnectorRecord("c2", {}), task(1, name="c2"), CommitRecord("c2", 2), TaskConfigRecord("c2", 0, {}),
        TargetStateRecord("c3", TargetState.STOPPED),
    )  # fmt: skip
    state = await snapshot(writer)
    assert state.offset == 16
    assert state.session_key == b"key"
    assert state.connectors() == {"c1", "c2"}
    assert state.raw_connector_config("c1") == {"v": "2"}
    assert state.applied_connector_config("c1") == {"v": "1"}
    assert state.applied_connector_config("c2") is None
    assert [state.target_state(name) for name in ("c1", "c3", "c4")] == ["STARTED", "STOPPED", None]
    assert [state.raw_task_config("c1", number) for number in range(4)] == [
        {"t": "new"}, {"t": "1"}, {"t": "2"}, None,
    ]  # fmt: skip
    assert [state.raw_task_config("c2", number) for number in range(2)] == [None, None]
    assert (state.task_count("c1"), state.tasks("c1"), state.task_config_generation("c1")) == (1, [0], 1)
    assert (state.task_count("c2"), state.tasks("c2"), state.task_config_generation("c2")) == (2, [], None)
    assert [state.pending_fencing(name) for name in ("c1", "c2", "c3")] == [True, True, False]
    assert [state.task_count_record(name) for name in ("c1", "c2")] == [3, None]
    assert state.inconsistent_connectors() == {"c2"}


async def test_marks_of_a_deleted_connector_are_returned_when_it_is_named(writer: Replica) -> None:
    java(
        writer, ConnectorRecord("c1", {}), CommitRecord("c1", 2), Tombstone("connector", "c1"),
        Tombstone("target-state", "c1"),
    )  # fmt: skip
    everything = await writer.read.GetSnapshot(read_pb.GetSnapshotRequest(linearizable=True))
    assert list(everything.connectors) == []
    named = await snapshot(writer, "c1", "never-seen")
    assert named.connectors() == set()
    assert named.pending_fencing("c1")
    assert named.inconsistent_connectors() == {"c1"}
    assert named.task_count("c1") == 0


async def test_one_odd_record_hides_no_other_record(writer: Replica) -> None:
    """A foreign writer may store values that a protobuf message cannot carry unchanged."""
    for key, value in (
        ("connector-odd", {"properties": {"half": "\ud83d", "half \ud83d": "1", "n": 5, "list": ["\udc00"]}}),
        ("session-key", {"key": "YQ==", "algorithm": "\ud800", "creation-timestamp": 2**62}),
        ("commit-odd", {"tasks": -5}),
        ("target-state-odd", {"state.v2": "\ud800"}),
    ):
        writer.broker.produce(SETTINGS.config_storage_topic, key.encode(), jackson.dumps(value))
    await writer.put("c1", {"a": "ä😀"})
    answer = await writer.read.GetSnapshot(read_pb.GetSnapshotRequest(linearizable=True))
    mine, odd = answer.connectors
    assert properties.from_proto(mine.config) == {"a": "ä😀"}
    config = properties.from_proto(odd.config)
    assert config["half"] == properties.JsonValue('"\\uD83D"')
    assert config["n"] == properties.JsonValue("5")
    assert len(config) == 4
    assert odd.task_count == -5
    assert answer.session_key.create_time.ToDatetime().year == 9999
    status = (await writer.read.GetStoreStatus(read_pb.GetStoreStatusRequest())).status
    assert [one.key for one in status.undecodable] == ["target-state-odd"]
    events = aiter(writer.read.Watch(read_pb.WatchRequest()))
    async with asyncio.timeout(WAIT_S):
        while not (await anext(events)).HasField("snapshot_complete"):
            pass


async def test_a_watch_has_the_events_of_connects_listeners(writer: Replica) -> None:
    """Checks order, revisions, old and new values: each event's `before` is the `after` of the event before it."""
    events = aiter(writer.read.Watch(read_pb.WatchRequest()))
    assert (await anext(events)).HasField("snapshot_complete")
    java(
        writer, TargetStateRecord("c1", TargetState.PAUSED), ConnectorRecord("c1", {"v": "1"}), task(0), task(1),
        CommitRecord("c1", 2), TargetStateRecord("c1", TargetState.STARTED), TaskCountRecord("c1", 2),
        ConnectorRecord("c1", {"v": "1"}), Tombstone("connector", "c1"), Tombstone("target-state", "c1"),
    )  # fmt: skip
    seen = await _changes(events, 8)
    kinds = [[read_pb.ConnectorChangeKind.Name(kind)[22:] for kind in one.connector_changed.kinds] for one in seen]
    assert kinds == [
        [], ["CONFIG_UPDATED"], ["TASKS_COMMITTED"], ["TARGET_STATE"], ["TASK_COUNT"], ["CONFIG_UPDATED"],
        ["CONFIG_REMOVED"], [],
    ]  # fmt: skip
    offsets = [one.meta.revision.next_offsets[0] for one in seen]
    assert offsets == [1, 2, 5, 6, 7, 8, 9, 10]  # task configs that wait for their commit cause no event
    changed = [one.connector_changed for one in seen]
    assert not changed[0].HasField("before")
    for before, after in itertools.pairwise(changed):
        assert before.after == after.before
    assert changed[2].after.task_count == 2
    assert changed[2].after.tasks_revision.next_offsets == [5]
    assert changed[5].before.config == changed[5].after.config  # an event also when only the revision changed
    assert [changed[5].before.config_revision.next_offsets, changed[5].after.config_revision.next_offsets] == [[2], [8]]
    assert changed[3].before.target_state == connector_pb2.TARGET_STATE_PAUSED
    assert changed[6].after.task_count_record == 2  # the count is kept, so the name is still stored
    resumed = aiter(writer.read.Watch(read_pb.WatchRequest(resume=seen[1].meta.revision)))
    assert await _changes(resumed, 6) == seen[2:]


async def _changes(events: AsyncIterator[read_pb.WatchResponse], count: int) -> list[read_pb.WatchResponse]:
    """The next events other than progress."""
    found: list[read_pb.WatchResponse] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            event = await anext(events)
            if not event.HasField("progress"):
                found.append(event)
    return found


async def test_a_watch_waits_for_its_minimum_revision(writer: Replica, cluster: Cluster) -> None:
    replica = await cluster()
    replica.store.freeze()
    written = await writer.put("c1", {"a": "1"})
    watch = asyncio.create_task(_first(replica, at_least=written.meta.revision))
    stale = await _first(replica)
    assert stale == []  # without a minimum, a replica sends its current state
    replica.store.thaw()
    async with asyncio.timeout(WAIT_S):
        (entry,) = await watch
    assert entry == written.connector
    both = read_pb.WatchRequest(resume=written.meta.revision, at_least=written.meta.revision)
    with pytest.raises(RequestInvalid, match="at_least"):
        await anext(aiter(writer.read.Watch(both)))


async def _first(
    replica: Replica, at_least: revision_pb2.Revision | None = None
) -> Sequence[config_pb2.ConnectorEntry]:
    """The connectors of the snapshot that opens a watch."""
    found: list[config_pb2.ConnectorEntry] = []
    async for event in replica.read.Watch(read_pb.WatchRequest(at_least=at_least)):
        if event.HasField("snapshot_complete"):
            break
        found.append(event.connector_changed.after)
    return found


async def test_the_memory_engine_is_the_same_store(writer: Replica) -> None:
    """Section 9, where Connect's standalone store differs; see the table in the module's docstring."""
    leading = write_pb.WriteOptions(leader=await writer.epoch())
    with pytest.raises(ConnectorNotFound):
        await writer.write.CommitTaskConfigs(write_pb.CommitTaskConfigsRequest(options=leading, connector="c1"))
    with pytest.raises(ConnectorNotFound):
        await writer.write.SetTargetState(
            write_pb.SetTargetStateRequest(connector="c1", target_state=connector_pb2.TARGET_STATE_PAUSED)
        )
    with pytest.raises(ConnectorNotFound):
        await writer.write.DeleteConnector(write_pb.DeleteConnectorRequest(connector="c1"))
    await writer.put("c1", {"v": "1"})
    for count in (2, 1, 0):
        tasks = [properties.to_proto({"t": str(number)}) for number in range(count)]
        await writer.write.CommitTaskConfigs(
            write_pb.CommitTaskConfigsRequest(options=leading, connector="c1", tasks=tasks)
        )
        assert (await snapshot(writer)).tasks("c1") == list(range(count))
    await writer.put("c1", {"v": "2"})
    state = await snapshot(writer)
    assert state.applied_connector_config("c1") == {"v": "1"}
    assert state.raw_task_config("c1", 1) == {"t": "1"}
    assert state.pending_fencing("c1")
