"""Our two stores as processes, driven operation by operation as `JavaStores` drives Connect's own.

Owns the translation of operations and views into our stores' calls. Owns no comparison.
Invariant: `play` accepts the operations of `JavaStores.play`, `show` answers in the format of `JavaStores.show`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc.aio

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.common.v1 import identity_pb2
from herdmesh.api.configstore.v1 import config_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as config_read
from herdmesh.api.configstore.v1 import config_write_service_pb2 as config_write
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as status_read
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as status_write
from herdmesh.rpc import properties
from herdmesh.rpc.errors import ConnectorNotFound
from herdmesh.rpc.properties import JsonValue
from tests.support.configstore_process import ConfigStoreProcess
from tests.support.java_stores import Json
from tests.support.sizes import SOAKING
from tests.support.statusstore_process import StatusStoreProcess
from tests.support.store_process import SHORT_SESSION

_WAIT_S = 60.0


class OurStores:
    """Our two stores; `play` accepts the operations that `JavaStores.play` accepts."""

    def __init__(self, bootstrap: str, config_topic: str, status_topic: str, folder: Path) -> None:
        # A soak runs for long on a busy machine, and no replica is there to take over.
        session: Sequence[str] = () if SOAKING else SHORT_SESSION
        self.config = ConfigStoreProcess(bootstrap, config_topic, folder / "config.log", more=session)
        self.status = StatusStoreProcess(
            bootstrap, status_topic, folder / "status.log", more=("--status-storage-partitions=1", *session)
        )
        self.token = identity_pb2.LeaderToken()
        #: Events a watcher got since the last `show`, in the format of Java's listener.
        self._told: list[list[Any]] = []
        self._watched = asyncio.Condition()
        self._watched_to = 0

    async def start(self) -> None:
        """Start both processes, and wait until they write."""
        await asyncio.gather(self.config.start(), self.status.start())
        await asyncio.gather(self.config.until_writing(), self.status.until_writing())

    async def stop(self) -> None:
        """End both."""
        await asyncio.gather(self.config.kill(), self.status.kill())

    async def play(self, operation: Json) -> None:
        """Play one operation. One that our store refuses (a task set of no connector, a stale status) changes
        nothing.
        """
        match operation["do"]:
            case "status":
                await self._status(operation)
            case "topic":
                topic = status_pb2.TopicStatus(
                    topic=operation["topic"], connector=operation["name"], task=operation["task"]
                )
                topic.discover_time.FromMilliseconds(operation["discovered"])
                await self.status.write.PutTopics(status_write.PutTopicsRequest(topics=[topic]))
            case "forget":
                await self.status.write.DeleteTopics(
                    status_write.DeleteTopicsRequest(connector=operation["name"], topics=[operation["topic"]])
                )
            case _:
                with suppress(ConnectorNotFound):
                    await self._config(operation)

    async def _config(self, operation: Json) -> None:
        name, write = operation["name"], self.config.write
        options = config_write.WriteOptions(leader=self.token)
        target = common.TargetState.Value(f"TARGET_STATE_{operation.get('target') or 'UNSPECIFIED'}")
        match operation["do"]:
            case "config":
                config = properties.to_proto(operation["config"])
                await write.PutConnectorConfig(
                    config_write.PutConnectorConfigRequest(connector=name, config=config, initial_target_state=target)
                )
            case "remove":
                await write.DeleteConnector(config_write.DeleteConnectorRequest(connector=name))
            case "tasks":
                tasks = [properties.to_proto(task) for task in operation["tasks"]]
                await write.CommitTaskConfigs(
                    config_write.CommitTaskConfigsRequest(options=options, connector=name, tasks=tasks)
                )
            case "target":
                await write.SetTargetState(config_write.SetTargetStateRequest(connector=name, target_state=target))
            case "restart":
                restart = config_pb2.RestartRequest(
                    connector=name, include_tasks=operation["include_tasks"], only_failed=operation["only_failed"]
                )
                await write.RequestRestart(config_write.RequestRestartRequest(options=options, restart=restart))
            case "session_key":
                key = config_pb2.SessionKey(key=base64.b64decode(operation["key"]), algorithm="HmacSHA256")
                key.create_time.FromMilliseconds(operation["created"])
                await write.PutSessionKey(config_write.PutSessionKeyRequest(options=options, session_key=key))
            case "logger":
                level = config_pb2.LoggerLevel(logger=name, level=operation["level"])
                await write.PutLoggerLevel(config_write.PutLoggerLevelRequest(logger_level=level))
            case _:
                await write.PutTaskCount(
                    config_write.PutTaskCountRequest(options=options, connector=name, task_count=operation["count"])
                )

    async def _status(self, operation: Json) -> None:
        status = status_pb2.Status(
            connector=operation["name"],
            task=operation.get("task"),
            state=common.RunState.Value(f"RUN_STATE_{operation['state']}"),
            generation=operation["generation"],
            version="4.3.1",
        )
        mode = status_write.PUT_MODE_PUT_SAFE if operation["safe"] else status_write.PUT_MODE_PUT
        writer = identity_pb2.WorkerIdentity(worker_id=operation["worker"], incarnation=operation["incarnation"])
        answer = await self.status.write.PutStatuses(
            status_write.PutStatusesRequest(writer=writer, puts=[status_write.StatusPut(status=status, mode=mode)])
        )
        if answer.outcomes[0].result == status_write.PUT_RESULT_APPLIED:
            listed = await self.status.read.ListStatuses(
                status_read.ListStatusesRequest(connectors=[operation["name"]], linearizable=True)
            )
            shown = [one.state for one in listed.statuses if _task_of(one) == operation.get("task")]
            expected = [] if operation["state"] == "DESTROYED" else [status.state]
            assert shown == expected, f"APPLIED, and not shown: {operation}"

    async def show(self, names: Sequence[str]) -> dict[str, Json]:
        """Contents of both stores at the ends of their topics, in the format of `JavaStores.show`."""
        snapshot = await self.config.read.GetSnapshot(
            config_read.GetSnapshotRequest(connectors=names, linearizable=True)
        )
        listed = await self.status.read.ListStatuses(
            status_read.ListStatusesRequest(connectors=names, linearizable=True)
        )
        entries = {entry.name: entry for entry in snapshot.connectors}
        shown: dict[str, Any] = {name: _shown(entries.get(name), name, listed.statuses) for name in names}
        for name in names:
            topics = await self.status.read.ListTopics(status_read.ListTopicsRequest(connector=name))
            shown[name]["topics"] = {
                one.topic: [one.connector, one.task, one.discover_time.ToMilliseconds()] for one in topics.topics
            }
        key = snapshot.session_key
        shown["session key"] = (
            [base64.b64encode(key.key).decode(), key.algorithm, key.create_time.ToMilliseconds()] if key.key else []
        )
        shown["told"] = await self._told_until(snapshot.meta.revision.next_offsets[0])
        return shown

    async def foreign(self, names: Sequence[str]) -> set[str]:
        """The connectors that Java wrote last."""
        snapshot = await self.config.read.GetSnapshot(config_read.GetSnapshotRequest(linearizable=True))
        known = {entry.name: entry.foreign for entry in snapshot.connectors}
        return {name for name in names if known.get(name, True)}

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Keep the config store's events about restarts and loggers."""
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await watch

    async def _watch(self) -> None:
        async for event in self.config.read.Watch(config_read.WatchRequest()):
            async with self._watched:
                match event.WhichOneof("event"):
                    case "restart_requested":
                        asked = event.restart_requested
                        self._told.append(["restart", asked.connector, asked.only_failed, asked.include_tasks])
                    case "logger_level_changed":
                        set_to = event.logger_level_changed
                        self._told.append(["logger", set_to.logger, set_to.level])
                    case _:
                        pass
                if event.meta.HasField("revision"):
                    self._watched_to = event.meta.revision.next_offsets[0]
                self._watched.notify_all()

    async def _told_until(self, offset: int) -> list[list[Any]]:
        async with asyncio.timeout(_WAIT_S), self._watched:
            await self._watched.wait_for(lambda: self._watched_to >= offset)
            told, self._told = self._told, []
            return told


def _shown(entry: config_pb2.ConnectorEntry | None, name: str, statuses: Sequence[status_pb2.Status]) -> Json:
    entry = entry or config_pb2.ConnectorEntry()
    target = common.TargetState.Name(entry.target_state).removeprefix("TARGET_STATE_")
    own = [one for one in statuses if one.connector == name]
    connector = [_status_shown(one) for one in own if not one.HasField("task")]
    return {
        "config": _properties(entry.config) if entry.has_config else None,
        "target": None if target == "UNSPECIFIED" else target,
        "tasks": [_properties(task) for task in entry.tasks],
        "count": entry.task_count,
        "pending": entry.pending_fencing,
        "record": entry.task_count_record if entry.HasField("task_count_record") else None,
        "inconsistent": entry.inconsistent,
        "applied": _properties(entry.applied_config) if entry.HasField("applied_config") else None,
        "status": connector[0] if connector else None,
        "task_statuses": {str(one.task): _status_shown(one) for one in own if one.HasField("task")},
    }


def as_java_shows(mine: dict[str, Json], theirs: dict[str, Json]) -> dict[str, Json]:
    """Our view without the config that the tasks were made of, where Java cannot show it, because it has values that
    are no texts (docs/reference/differences.md).
    """
    shown = dict(mine)
    for name in theirs.keys() - {"session key", "told"}:
        if theirs[name]["applied"] == "ClassCastException":
            applied: Json = mine[name]["applied"]
            assert any(not isinstance(value, str | None) for value in applied.values()), applied
            shown[name] = {**mine[name], "applied": "ClassCastException"}
    return shown


def _properties(message: common.Properties) -> dict[str, Any]:
    """Values as Java's maps hold them: a JSON value that is no text is missing there."""
    found = properties.from_proto(message)
    return {key: json.loads(value.text) if isinstance(value, JsonValue) else value for key, value in found.items()}


def _status_shown(status: status_pb2.Status) -> list[Any]:
    state = common.RunState.Name(status.state).removeprefix("RUN_STATE_")
    worker_id = status.worker_id if status.HasField("worker_id") else None
    return [state, worker_id, status.generation, status.version if status.HasField("version") else None]


def _task_of(status: status_pb2.Status) -> int | None:
    return status.task if status.HasField("task") else None
