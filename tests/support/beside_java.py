"""Our two stores reading the topics of a running Java worker, and the comparison of both views.

Owns the two store processes, a watch of each, and a plain reader of the raw records. The third view matters: where
Java's REST API shows nothing (generations, task counts, the order of changes), our stores are compared with the
records themselves, folded here by Connect's rules in a few lines that share no code with the stores.

Invariant: an agreement is stated only for a moment in which Java's view did not change around the reading of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # pyright: ignore[reportPrivateImportUsage]

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.configstore.v1 import config_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as config_read
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as status_read
from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.listed_offsets import list_offsets
from herdmesh.rpc import properties
from tests.support.configstore_process import ConfigStoreProcess
from tests.support.java_connect import JavaConnect
from tests.support.side_by_side import SideBySide
from tests.support.statusstore_process import StatusStoreProcess

Json = dict[str, Any]
Event = tuple[str, str]
"""Kind of a change and its subject."""

AGREE_S = 45.0
#: Of all tests in which a Java worker runs: they wait for it to start, for its tasks to end and for each other's
#: groups; two and three JVMs at once are as many as the processors bear.
beside_java = SideBySide(at_once=3)
_TARGETS = {"RUNNING": "STARTED", "PAUSED": "PAUSED", "STOPPED": "STOPPED"}


def java_view(java: JavaConnect) -> dict[str, Json]:
    """All that Java's REST API shows of each connector that has a status. Traces by their first line."""
    return {
        name: {
            "config": one["info"]["config"],
            "tasks": java.task_configs(name),
            "topics": java.active_topics(name),
            "connector": _shown(one["status"]["connector"]),
            "task_statuses": [_shown(task) for task in one["status"]["tasks"]],
        }
        for name, one in java.connectors().items()
    }


def _shown(status: Json) -> Json:
    return {**status, "trace": _first_line(status.get("trace"))}


def _first_line(trace: str | None) -> str | None:
    return trace.splitlines()[0] if trace else None


@dataclass
class RawTopics:
    """The records of the config and the status topic as any consumer sees them (read_committed)."""

    bootstrap: str
    config_topic: str
    status_topic: str
    latest_config: dict[str, Any] = field(default_factory=lambda: {})
    latest_status: dict[str, Any] = field(default_factory=lambda: {})
    events: list[Event] = field(default_factory=lambda: [])
    """Calls that Connect's own listener would have got, in order (docs/reference/connect/config-topic.md, section
    4).
    """
    keys: Counter[str] = field(default_factory=lambda: Counter[str]())
    """Number of records of each key of the config topic."""
    end: int = 0
    """End of the config topic: markers of transactions count too."""
    past_config: int = 0
    """The offset after the last record of the config topic."""
    past_status: list[int] = field(default_factory=lambda: [])
    """The same for each partition of the status topic."""

    def __post_init__(self) -> None:
        self._targets: dict[str, str] = {}
        self._admin: Any = AdminClient({"bootstrap.servers": self.bootstrap, **NO_AUTO_CREATION})
        self._consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "raw-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,  # how long the client waits for more before it reports the end: 500 by default
            }
        )
        topics = self._consumer.list_topics(timeout=45).topics
        wanted = (self.config_topic, self.status_topic)
        self._places = [(topic, number) for topic in wanted for number in topics[topic].partitions]
        self._consumer.assign([TopicPartition(topic, number, 0) for topic, number in self._places])
        self._reached = dict.fromkeys(self._places, 0)
        self.past_status = [0] * len(topics[self.status_topic].partitions)

    def close(self) -> None:
        self._consumer.close()

    def read(self) -> None:
        """Read to the current ends."""
        # one request for all of them, by a client that does not wait in a fetch
        asked: Any = {TopicPartition(*place): OffsetSpec.latest() for place in self._places}
        answers = list_offsets(self._admin, asked, timeout_s=45)
        ends = {(place.topic, place.partition): answer.result().offset for place, answer in answers.items()}
        self.end = ends[self.config_topic, 0]
        while any(self._reached[place] < end for place, end in ends.items()):
            messages: list[Any] = self._consumer.consume(500, 0.05)
            for message in messages:
                place = message.topic(), message.partition()
                error = message.error()
                if error is None:
                    self._take(message)
                    self._reached[place] = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    # the end event has the offset after trailing markers, which no message shows
                    self._reached[place] = max(self._reached[place], message.offset())

    def _take(self, message: Any) -> None:
        key, value = message.key().decode(), message.value()
        decoded = None if value is None else json.loads(value)
        if message.topic() == self.status_topic:
            self.latest_status[key] = decoded
            self.past_status[message.partition()] = message.offset() + 1
            return
        self.keys[key] += 1
        self.past_config = message.offset() + 1
        event = self._event(key, decoded)
        self.latest_config[key] = decoded
        if event is not None:
            self.events.append(event)

    def _event(self, key: str, value: Any) -> Event | None:
        """The event of a record, by Connect's own rules."""
        if name := _after(key, "target-state-"):
            configured = self.latest_config.get(f"connector-{name}") is not None
            wanted = value and value.get("state.v2", value.get("state"))
            before = self._targets.get(name)
            if wanted is None:
                self._targets.pop(name, None)
                return None
            self._targets[name] = wanted
            return ("TARGET_STATE", name) if configured and wanted != before else None
        if name := _after(key, "connector-"):
            if value is None:
                return ("CONFIG_REMOVED", name)
            self._targets.setdefault(name, "STARTED")
            return ("CONFIG_UPDATED", name)
        if name := _after(key, "commit-"):
            return ("TASKS_COMMITTED", name) if self.latest_config.get(f"connector-{name}") is not None else None
        for prefix, kind in (("tasks-fencing-", "TASK_COUNT"), ("restart-connector-", "RESTART")):
            if name := _after(key, prefix):
                return (kind, name)
        if logger := _after(key, "logger-cluster-"):
            return ("LOGGER", logger)
        return ("SESSION_KEY", "") if key == "session-key" else None


def _after(key: str, prefix: str) -> str | None:
    return key.removeprefix(prefix) if key.startswith(prefix) else None


@dataclass
class Followed:
    """Events that a watcher of both stores got."""

    connectors: dict[str, config_pb2.ConnectorEntry] = field(default_factory=lambda: {})
    statuses: dict[tuple[str, int | None], status_pb2.Status] = field(default_factory=lambda: {})
    topics: dict[tuple[str, str], status_pb2.TopicStatus] = field(default_factory=lambda: {})
    events: list[Event] = field(default_factory=lambda: [])
    config_revision: int = 0
    status_revision: list[int] = field(default_factory=lambda: [])
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    def take_config(self, event: config_read.WatchResponse) -> None:
        kind = event.WhichOneof("event")
        if kind == "connector_changed":
            self._connector(event.connector_changed)
        elif kind == "snapshot_complete":
            self.complete.set()
        elif kind == "restart_requested":
            self.events.append(("RESTART", event.restart_requested.connector))
        elif kind == "session_key_changed" and self.complete.is_set():
            self.events.append(("SESSION_KEY", ""))
        elif kind == "logger_level_changed" and self.complete.is_set():
            self.events.append(("LOGGER", event.logger_level_changed.logger))
        for offset in event.meta.revision.next_offsets:
            assert offset >= self.config_revision, "the watch went back"
            self.config_revision = offset
        self.moved.set()

    def _connector(self, change: config_read.ConnectorChanged) -> None:
        known = self.connectors.get(change.name)
        kinds = [
            config_read.ConnectorChangeKind.Name(kind).removeprefix("CONNECTOR_CHANGE_KIND_") for kind in change.kinds
        ]
        if kinds != ["SNAPSHOT"]:
            assert (change.before if change.HasField("before") else None) == known, (
                f"{change.name}: not what was told before"
            )
            self.events += [(kind, change.name) for kind in kinds]
        if change.HasField("after"):
            self.connectors[change.name] = change.after
        else:
            self.connectors.pop(change.name, None)

    def take_status(self, event: status_read.WatchStatusesResponse) -> None:
        kind = event.WhichOneof("event")
        if kind == "status_put":
            self.statuses[_key(event.status_put)] = event.status_put
        elif kind == "status_deleted":
            self.statuses.pop(_key(event.status_deleted), None)
        elif kind == "topic_put":
            self.topics[event.topic_put.connector, event.topic_put.topic] = event.topic_put
        elif kind == "topic_deleted":
            self.topics.pop((event.topic_deleted.connector, event.topic_deleted.topic), None)
        offsets = list(event.meta.revision.next_offsets)
        if offsets:
            assert all(new >= old for new, old in zip(offsets, self.status_revision or offsets, strict=True))
            self.status_revision = offsets
        self.moved.set()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the watches have delivered enough for the condition."""
        try:
            async with asyncio.timeout(AGREE_S):
                while not condition():
                    self.moved.clear()
                    await self.moved.wait()
        except TimeoutError:
            raise AssertionError(f"the watches never told: {what}") from None


def _key(status: status_pb2.Status) -> tuple[str, int | None]:
    return status.connector, status.task if status.HasField("task") else None


def stored(status: status_pb2.Status) -> status_pb2.Status:
    """A status without the fields that reads join to it."""
    kept = status_pb2.Status()
    kept.CopyFrom(status)
    for joined in ("effective_state", "effective_reason"):
        kept.ClearField(joined)
    return kept


class OurStores:
    """The config store and the status store of one Connect group."""

    def __init__(self, bootstrap: str, java: JavaConnect, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        group, topics = java.group, java.topics
        self.config = ConfigStoreProcess(bootstrap, topics.config, folder / "config-store.log", group_id=group)
        self.status = StatusStoreProcess(bootstrap, topics.status, folder / "status-store.log", group_id=group)
        self.followed = Followed()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Both stores serve reads, with a watch on each; stopped in order at the end."""
        self.followed = Followed()
        await asyncio.gather(self.config.start(), self.status.start())
        try:
            await asyncio.gather(self.config.until_reading(), self.status.until_reading())
            async with asyncio.TaskGroup() as group:
                following = [group.create_task(self._follow_config()), group.create_task(self._follow_status())]
                await self.followed.complete.wait()
                yield
                for task in following:
                    task.cancel()
            assert await asyncio.gather(self.config.stop(), self.status.stop()) == [0, 0]
        finally:
            await asyncio.gather(self.config.kill(), self.status.kill())

    async def _follow_config(self) -> None:
        async for event in self.config.read.Watch(config_read.WatchRequest()):
            self.followed.take_config(event)

    async def _follow_status(self) -> None:
        async for event in self.status.read.WatchStatuses(status_read.WatchStatusesRequest()):
            self.followed.take_status(event)

    async def entries(self) -> dict[str, config_pb2.ConnectorEntry]:
        """The snapshot at the end of the topic."""
        answer = await self.config.read.GetSnapshot(config_read.GetSnapshotRequest(linearizable=True))
        return {entry.name: entry for entry in answer.connectors}

    async def view(self) -> dict[str, Json]:
        """Contents of both stores at the ends of their topics, in the format of `java_view`."""
        entries = await self.entries()
        answer = await self.status.read.ListStatuses(status_read.ListStatusesRequest(linearizable=True))
        view: dict[str, Json] = {}
        for name, entry in entries.items():
            if not entry.has_config:
                continue
            own = [one for one in answer.statuses if one.connector == name]
            topics = await self.status.read.ListTopics(status_read.ListTopicsRequest(connector=name))
            connector = [_told(one) for one in own if not one.HasField("task")]
            view[name] = {
                "config": properties.from_proto(entry.config),
                "tasks": [properties.from_proto(task) for task in entry.tasks],
                "topics": [one.topic for one in topics.topics],
                "connector": connector[0] if connector else None,
                "task_statuses": [_told(one) for one in own if one.HasField("task")],
            }
        return view

    async def assert_told_what_is_stored(self, raw: RawTopics) -> None:
        """Check that both watches, folded, equal the stored state. `raw` has been read to the ends."""
        told = self.followed
        # a marker after the last record is only reported with the next progress event, so that is not waited for
        await told.until(lambda: told.config_revision >= raw.past_config, f"the config topic up to {raw.past_config}")
        assert told.connectors == await self.entries()

        def caught_up() -> bool:
            return all(one >= other for one, other in zip(told.status_revision, raw.past_status, strict=False))

        await told.until(caught_up, f"the status topic up to {raw.past_status}")
        answer = await self.status.read.ListStatuses(status_read.ListStatusesRequest(linearizable=True))
        if told.status_revision == list(answer.meta.revision.next_offsets):
            statuses = {key: stored(status) for key, status in told.statuses.items()}
            assert statuses == {_key(status): stored(status) for status in answer.statuses}


def _told(status: status_pb2.Status) -> Json:
    told: Json = {
        "state": common.RunState.Name(status.state).removeprefix("RUN_STATE_"),
        "worker_id": status.worker_id,
        "version": status.version if status.HasField("version") else None,
        "trace": _first_line(status.trace),
    }
    return {"id": status.task, **told} if status.HasField("task") else told


async def agree(java: JavaConnect, ours: OurStores, step: str) -> dict[str, Json]:
    """Wait until Java's view and ours are equal; returns it. Fails with the remaining difference."""
    deadline_s = asyncio.get_running_loop().time() + AGREE_S
    while True:
        before = await asyncio.to_thread(java.connectors)
        theirs, mine = await asyncio.to_thread(java_view, java), await ours.view()
        if theirs == mine and before == await asyncio.to_thread(java.connectors):
            return mine
        assert asyncio.get_running_loop().time() < deadline_s, f"{step}: {_difference(theirs, mine)}"
        await asyncio.sleep(0.05)


def assert_targets(entries: dict[str, config_pb2.ConnectorEntry], view: dict[str, Json]) -> None:
    """Check that the stored target state of each connector is in effect, unless it failed or waits."""
    for name, one in view.items():
        state = one["connector"]["state"]
        if state in _TARGETS:
            stored_state = common.TargetState.Name(entries[name].target_state).removeprefix("TARGET_STATE_")
            assert stored_state == _TARGETS[state], f"{name} is {state}, and our store has {stored_state}"


def _difference(java: dict[str, Json], mine: dict[str, Json]) -> str:
    if java.keys() != mine.keys():
        return f"Java has the connectors {sorted(java)}, we have {sorted(mine)}"
    for name, one in java.items():
        for part, theirs in one.items():
            if theirs != mine[name][part]:
                return f"{part} of {name}: Java says {theirs}, we say {mine[name][part]}"
    return "Java's view never came to rest"
