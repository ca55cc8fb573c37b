"""Meshes for screens: their state as the services would send it, and a client that answers from it without a network.

Owns the contents. The messages are those of the real contracts, so every screen goes through the real views; the texts
are those of the services. Times are fixed: it is three in the morning of 2026-11-28.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.common.v1 import revision_pb2, store_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as store
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import connector_pb2
from herdmesh.api.herder.v1 import offset_messages_pb2 as offset_pb
from herdmesh.api.worker.v1 import task_pb2
from herdmesh.api.worker.v1 import worker_service_pb2 as worker_pb
from herdmesh.cli.display.views import Json
from herdmesh.connect.topics import ERROR_HEADER_PREFIX
from herdmesh.devstack.layout import ServiceState, StackState
from herdmesh.devstack.readiness import ClusterHealth

NOW = datetime(2026, 11, 28, 3, 0, 0, tzinfo=UTC)
HERDER = "kc1.prod.internal:7203"
CONFIG_STORES = ("kc1.prod.internal:7201", "kc2.prod.internal:7201")
STATUS_STORE = "kc1.prod.internal:7202"
KAFKA = "k1.prod.internal:9092"
RELEASE = "0.2.0"
W1, W2, W3 = (f"worker-{number}.prod.internal:7204" for number in (1, 2, 3))
LONG_NAME = "cdc." + "-".join(["prod", "eu-central-1", "warehouse", "billing", "invoice-line-items"] * 3)[:115] + "z"
WIDE_NAMES = ("注文-東京-データレイク-シンク", "заказы-склад", "🚚-deliveries")
assert len(LONG_NAME) == 120

_KINDS = {"sink": common.CONNECTOR_TYPE_SINK, "source": common.CONNECTOR_TYPE_SOURCE}
_ACTIVITIES = {
    common.RUN_STATE_PAUSED: task_pb2.TASK_ACTIVITY_PAUSED,
    common.RUN_STATE_FAILED: task_pb2.TASK_ACTIVITY_FAILED,
}
_CLASSES = {
    "sink": "io.confluent.connect.jdbc.JdbcSinkConnector",
    "source": "io.confluent.connect.jdbc.JdbcSourceConnector",
}
REFUSED = (
    "the table warehouse.orders has no column discount_code, and auto.evolve is false: "
    'column "discount_code" of relation "orders" does not exist'
)
TRACE = f"""Traceback (most recent call last):
  File "/opt/herdmesh/lib/python3.12/site-packages/herdmesh/engine/sink/sink_loop.py", line 214, in _put
    self._task.put(batch)
  File "/opt/herdmesh/lib/python3.12/site-packages/herdmesh/connectors/postgres/task.py", line 96, in put
    self._write(batch)
herdmesh.connect.spi.errors.RecordRefused: {REFUSED}
"""


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


@dataclass(slots=True)
class ShownMesh:
    """The contents of one mesh."""

    connectors: list[connector_pb2.Connector] = field(default_factory=list[connector_pb2.Connector])
    workers: list[connector_pb2.Worker] = field(default_factory=list[connector_pb2.Worker])
    usage: dict[str, worker_pb.GetWorkerStatusResponse] = field(
        default_factory=dict[str, worker_pb.GetWorkerStatusResponse]
    )
    """By worker; a worker without an entry does not answer."""
    stores: dict[str, store_pb2.StoreStatus | None] = field(default_factory=dict[str, store_pb2.StoreStatus | None])
    """By address; None = the replica does not answer."""
    refused: list[common.RefusedPlugin] = field(default_factory=list[common.RefusedPlugin])
    history: list[store.HistoryEntry] = field(default_factory=list[store.HistoryEntry])
    letters: list[admin.DeadLetter] = field(default_factory=list[admin.DeadLetter])
    offsets: list[offset_pb.OffsetEntry] = field(default_factory=list[offset_pb.OffsetEntry])
    plan: messages.PlanConfigResponse = field(default_factory=messages.PlanConfigResponse)
    kafka: ClusterHealth | str = field(default_factory=lambda: ClusterHealth("lkc-1", [], []))
    stack: StackState | None = None
    topics: list[Json] = field(default_factory=list[Json])
    clock_skew_s: float = 0.0
    """How far the clock of the last worker is ahead."""


class ShownClient:
    """A herder's client that answers from a mesh."""

    def __init__(self, mesh: ShownMesh) -> None:
        self.address = HERDER
        self._mesh = mesh

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        pass

    async def call(
        self, pick: Callable[[Any], Callable[[Any], Any]], request: Any, timeout_s: float | None = None
    ) -> Any:
        return pick(self)(request)

    def ListConnectors(self, request: messages.ListConnectorsRequest) -> messages.ListConnectorsResponse:
        return messages.ListConnectorsResponse(connectors=self._mesh.connectors)

    def GetConnector(self, request: messages.GetConnectorRequest) -> messages.GetConnectorResponse:
        (found,) = (one for one in self._mesh.connectors if one.name == request.name)
        return messages.GetConnectorResponse(connector=found)

    def ListWorkers(self, request: admin.ListWorkersRequest) -> admin.ListWorkersResponse:
        return admin.ListWorkersResponse(workers=self._mesh.workers)

    def GetCluster(self, request: admin.GetClusterRequest) -> admin.GetClusterResponse:
        return admin.GetClusterResponse(
            cluster_id="lkc-1", leader_id="h1", leader_address=HERDER, workers=self._mesh.workers, version=RELEASE
        )

    def ListPlugins(self, request: admin.ListPluginsRequest) -> admin.ListPluginsResponse:
        return admin.ListPluginsResponse(refused=self._mesh.refused)

    def GetPlugin(self, request: admin.GetPluginRequest) -> admin.GetPluginResponse:
        return admin.GetPluginResponse()

    def ValidateConfig(self, request: messages.ValidateConfigRequest) -> messages.ValidateConfigResponse:
        return messages.ValidateConfigResponse()

    def GetOffsets(self, request: offset_pb.GetOffsetsRequest) -> offset_pb.GetOffsetsResponse:
        return offset_pb.GetOffsetsResponse(offsets=self._mesh.offsets)

    def ListDeadLetters(self, request: admin.ListDeadLettersRequest) -> admin.ListDeadLettersResponse:
        return admin.ListDeadLettersResponse(topic="orders.dead-letters", letters=self._mesh.letters)

    def PlanConfig(self, request: messages.PlanConfigRequest) -> messages.PlanConfigResponse:
        return self._mesh.plan


async def history_of(mesh: ShownMesh) -> AsyncIterator[store.HistoryEntry]:
    for one in mesh.history:
        yield one


# --- building


def status(
    state: str, worker: str | None, since: datetime | None, explanation: str = "", **more: Any
) -> connector_pb2.UnitStatus:
    made = connector_pb2.UnitStatus(
        state=common.RunState.Value(f"RUN_STATE_{state}"),
        worker_id=worker or "",
        generation=23,
        start_count=3,
        explanation=explanation,
        **more,
    )
    if since is not None:
        made.since.FromDatetime(since)
    if worker is not None and since is not None:
        made.placed_because = "it is new"
        made.placed_time.FromDatetime(since)
    return made


def failed(worker: str, since: datetime, error_class: str, message: str, explanation: str) -> connector_pb2.UnitStatus:
    made = status("FAILED", worker, since, explanation)
    made.failure.message, made.failure.trace = message, TRACE
    made.failure.error_class = common.ErrorClass.Value(f"ERROR_CLASS_{error_class}")
    return made


def waiting(
    worker: str, target: str, message: str, since: datetime, tries: int = 0, next_time: datetime | None = None
) -> connector_pb2.UnitStatus:
    wait = common.Wait(waits_for=target, message=message, tries=tries)
    wait.since.FromDatetime(since)
    notes = [f"{tries} tries"] if tries else []
    if next_time is not None:
        wait.next_time.FromDatetime(next_time)
        notes.append(f"next at {next_time:%Y-%m-%dT%H:%M:%SZ}")
    text = f"waits for {target}: {message}" + (f" ({', '.join(notes)})" if notes else "")
    made = status("RUNNING", worker, ago(days=9), text)
    made.conditions.append(common.Condition(type="WAITING", message=text, wait=wait))
    return made


def task(
    connector: str,
    number: int,
    shown: connector_pb2.UnitStatus,
    *,
    rate: float = 0.0,
    behind: int | None = None,
    topic: str = "",
) -> connector_pb2.Task:
    made = connector_pb2.Task(id=common.TaskId(connector=connector, task=number), status=shown)
    if shown.state == common.RUN_STATE_UNASSIGNED:
        return made
    made.progress.activity = _ACTIVITIES.get(
        shown.state, task_pb2.TASK_ACTIVITY_RUNNING if rate else task_pb2.TASK_ACTIVITY_IDLE
    )
    made.progress.records_in = made.progress.records_out = 1_204_311 + number
    made.progress.records_per_second = rate
    if behind is not None:
        end = 1_204_311 + behind
        made.progress.partitions.add(
            topic=topic or "orders.eu-central-1.v3",
            partition=number,
            committed_offset=1_204_191,
            position=1_204_311,
            end_offset=end,
        )
    return made


def connector(
    name: str,
    kind: str,
    own: connector_pb2.UnitStatus,
    tasks: Sequence[connector_pb2.Task] = (),
    *,
    wanted: str = "STARTED",
    behind: int | None = None,
) -> connector_pb2.Connector:
    made = connector_pb2.Connector(
        name=name,
        type=_KINDS[kind],
        status=own,
        tasks=tasks,
        target_state=common.TargetState.Value(f"TARGET_STATE_{wanted}"),
    )
    if behind is not None:
        made.behind_records, made.uncommitted_records = behind, 120 * len(tasks)
    config = {
        "connector.class": _CLASSES[kind],
        "connection.url": "jdbc:postgresql://db.prod.internal:5432/shop?sslmode=verify-full&ApplicationName=herdmesh",
        "connection.password": "${file:/etc/herdmesh/secrets.properties:password}",
        "tasks.max": str(max(1, len(tasks))),
        "name": name,
    }
    if kind == "sink":
        config |= {"topics": "orders.eu-central-1.v3", "errors.deadletterqueue.topic.name": "orders.dead-letters"}
    for key, value in config.items():
        made.config.entries[key].text = value
    return made


def running(name: str, kind: str, worker: str, tasks: int, rate: float, behind: int = 0) -> connector_pb2.Connector:
    """A connector that runs as wanted; `behind` of each task."""
    is_sink = kind == "sink"
    made = [
        task(name, number, status("RUNNING", worker, ago(days=3)), rate=rate, behind=behind if is_sink else None)
        for number in range(tasks)
    ]
    own = status("RUNNING", worker, ago(days=3))
    return connector(name, kind, own, made, behind=behind * tasks if is_sink else None)


def worker(
    name: str, state: str, held: Iterable[connector_pb2.Connector], reason: str = "", slots: int = 8, queued: int = 0
) -> connector_pb2.Worker:
    """`queued` = its tasks that wait for a slot, while all slots are used."""
    made = connector_pb2.Worker(
        worker_id=name,
        address=name,
        state=connector_pb2.WorkerState.Value(f"WORKER_STATE_{state}"),
        slots=slots,
        reason=reason,
    )
    for one in held:
        if one.status.worker_id == name:
            made.connectors.append(one.name)
        made.tasks.extend(each.id for each in one.tasks if each.status.worker_id == name)
    if state != "LOST":
        made.slots_used, made.tasks_waiting_for_slot = slots if queued else len(made.tasks), queued
    return made


def usage(
    of: connector_pb2.Worker, cores: float, memory_mib: int, free_gib: float = 220.0, skipped: Sequence[str] = ()
) -> worker_pb.GetWorkerStatusResponse:
    """What the worker uses; every task but those of the `skipped` connectors has a run."""
    made = worker_pb.GetWorkerStatusResponse(slots=of.slots, version=RELEASE)
    made.own.cpu_ms, made.own.memory_bytes = int(cores * 1_000), memory_mib << 20
    for number, one in enumerate(each for each in of.tasks if each.connector not in skipped):
        used = worker_pb.ProcessUsage(cpu_ms=int(cores * 700 / (number + 1)), memory_bytes=(64 + 31 * number) << 20)
        made.runs.add(task=one, pid=40_100 + number, usage=used)
    made.disks.add(path="/var/lib/herdmesh", total_bytes=250 << 30, free_bytes=int(free_gib * (1 << 30)))
    return made


def store_status(
    role: str = "WRITER", condition: str = "HEALTHY", message: str = "", since: datetime | None = None, **more: Any
) -> store_pb2.StoreStatus:
    made = store_pb2.StoreStatus(
        role=store_pb2.StoreRole.Value(f"STORE_ROLE_{role}"),
        condition=store_pb2.StoreCondition.Value(f"STORE_CONDITION_{condition}"),
        message=message,
        version=RELEASE,
        cluster_id="lkc-1",
        **more,
    )
    made.since.FromDatetime(since or ago(days=12))
    return made


def change(
    at: datetime, caller: str, operation: str, offset: int, changed: Sequence[str] = (), **more: Any
) -> store.HistoryEntry:
    made = store.HistoryEntry(operation=operation, caller=caller, changed_properties=changed, **more)
    made.time.FromDatetime(at)
    made.revision.CopyFrom(revision_pb2.Revision(store_id="s", next_offsets=[offset]))
    for key in changed:
        made.config_after.entries[key].text = f"{key.rpartition('.')[2]}-{offset}"
    return made


def letter(offset: int, at: datetime, stage: str, exception: str, message: str, topic: str) -> admin.DeadLetter:
    made = admin.DeadLetter(partition=0, offset=offset)
    made.time.FromDatetime(at)
    for name, value in {
        "topic": topic,
        "partition": "3",
        "offset": str(1_204_000 + offset),
        "task.id": "3",
        "stage": stage,
        "class.name": "org.apache.kafka.connect.json.JsonConverter",
        "exception.class.name": exception,
        "exception.message": message,
    }.items():
        made.error_headers[ERROR_HEADER_PREFIX + name] = value
    return made


def topic(name: str, partitions: int, records: int | None, replicas: int = 3) -> Json:
    return {
        "name": name,
        "partitions": partitions,
        "replication_factor": replicas,
        "records": records,
        "internal": False,
    }


def described_topic(mesh: ShownMesh) -> Json:
    """The first topic; one partition has no leader where the mesh's Kafka has offline partitions."""
    is_well = not isinstance(mesh.kafka, str) and not mesh.kafka.offline_partitions
    partitions = [
        {
            "partition": number,
            "leader": number % 3 + 1 if is_well or number != 2 else None,
            "replicas": [1, 2, 3],
            "in_sync_replicas": [1, 2, 3] if is_well else [number % 3 + 1],
            "first_offset": 0,
            "end_offset": 1_204_311 + number if is_well or number != 2 else None,
        }
        for number in range(12)
    ]
    configs = {"cleanup.policy": "delete", "retention.ms": "604800000"}
    return {"name": mesh.topics[0]["name"], "replication_factor": 3, "partitions": partitions, "configs": configs}


def service(name: str, state: str = "serving", restarts: int = 0, detail: str = "") -> ServiceState:
    return ServiceState(name, f"127.0.0.1:{7300 + len(name)}", state, restarts=restarts, detail=detail)
