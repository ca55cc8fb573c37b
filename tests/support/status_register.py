"""The status store as a set of registers: requests of clients, and its topic read back for the checkers.

Owns the translation between requests of a history (keys, texts) and the protos of the status store, for stubs to a
process; the simulator calls the state without the wire (`tests/sim/stores`) and shares the rest. A key is a connector's
name, or `<connector>/<task>`.

Invariant: a value is the trace of a status, unique in a history, so a status read back names its write; absence is a
tombstone. There are no request ids here: a write whose outcome is unknown is not sent again under the same value.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from herdmesh.api.common.v1 import connector_pb2, identity_pb2, revision_pb2
from herdmesh.api.statusstore.v1 import status_pb2, status_read_service_pb2, status_write_service_pb2
from herdmesh.connect.topics import status_topic
from herdmesh.connect.topics.decoding import Tombstone
from herdmesh.connect.topics.status_topic import ConnectorStatus, TaskStatus
from herdmesh.rpc.errors import HerdmeshError, RevisionMismatch
from herdmesh.topicstore import KEEP_ALIVE_KEY
from tests.support.config_register import CONTEXT, Archived, Change, Snapshot
from tests.support.history import Kind, Operation, Seen
from tests.support.store_checks import Logged, StoreLog, Visible

_Read, _Write = status_read_service_pb2, status_write_service_pb2
_WORKER = identity_pb2.WorkerIdentity(worker_id="worker", incarnation="one")


class StatusServer(Protocol):
    """A replica's services: stubs that accept a context and drop it."""

    write: Any
    read: Any


def key_of(connector: str, task: int | None) -> str:
    """The register of a status."""
    return connector if task is None else f"{connector}/{task}"


class StatusRegister:
    """Client-side knowledge of a status store whose revisions are of `store_id`."""

    partitions = 5
    has_requests = False
    refusal_is_final = False
    #: There is no update, and a deletion has no precondition: it is a PUT of None.
    kinds = (Kind.PUT, Kind.CREATE)

    def __init__(self, store_id: str) -> None:
        self.store_id = store_id

    async def write(self, server: Any, operation: Operation, expected: Any) -> Any:
        """Make the call; `expected` is the revision of the status' own record."""
        gone = operation.value is None
        state = connector_pb2.RUN_STATE_DESTROYED if gone else connector_pb2.RUN_STATE_RUNNING
        status = status_pb2.Status(connector=operation.key, state=state, generation=1, trace=operation.value)
        put = _Write.StatusPut(status=status, mode=_Write.PUT_MODE_PUT)
        if operation.kind is Kind.CREATE:
            put.expected_revision.CopyFrom(self.revision((0,) * self.partitions))
        elif expected is not None and not gone:
            put.expected_revision.CopyFrom(expected)
        answer = await server.write.PutStatuses(_Write.PutStatusesRequest(writer=_WORKER, puts=[put]), CONTEXT)
        [outcome] = answer.outcomes
        if outcome.result == _Write.PUT_RESULT_REVISION_MISMATCH:
            raise RevisionMismatch("")
        assert outcome.result == _Write.PUT_RESULT_APPLIED, outcome
        return answer

    def told(self, operation: Operation, answer: object) -> dict[str, tuple[str, Any]] | None:
        """A status' answer shows nothing of the register."""
        return None

    def refused(self, operation: Operation, error: HerdmeshError) -> bool:
        """True when `error` is a refusal, whose reason is put on `operation`."""
        operation.seen = Seen.PRESENT if operation.kind is Kind.CREATE else Seen.NOT_EXPECTED
        return isinstance(error, RevisionMismatch)

    async def read(self, server: Any, demanded: tuple[int, ...] | None, linearizable: bool) -> Snapshot:
        request = _Read.ListStatusesRequest(linearizable=linearizable)
        if demanded is not None:
            request.at_least.CopyFrom(self.revision(demanded))
        answer = await server.read.ListStatuses(request, CONTEXT)
        keyed = {_key(status): status for status in answer.statuses}
        return Snapshot(
            tuple(answer.meta.revision.next_offsets),
            {key: status.trace for key, status in keyed.items()},
            {key: status.revision for key, status in keyed.items()},
        )

    async def watch(self, server: Any, resume: tuple[int, ...] | None) -> AsyncGenerator[Change, None]:
        request = _Read.WatchStatusesRequest()
        if resume is not None:
            request.resume.CopyFrom(self.revision(resume))
        snapshot: dict[str, str] | None = {} if resume is None else None
        last = resume or ()
        async for event in server.read.WatchStatuses(request, CONTEXT):
            if event.meta.HasField("revision"):
                last = tuple(event.meta.revision.next_offsets)
            match event.WhichOneof("event"):
                case "snapshot_complete":
                    yield Change(last, snapshot=snapshot)
                    snapshot = None
                case "status_put" if snapshot is not None:
                    snapshot[_key(event.status_put)] = event.status_put.trace
                case "status_put":
                    yield Change(last, key=_key(event.status_put), value=event.status_put.trace)
                case "status_deleted":
                    yield Change(last, key=_key(event.status_deleted))
                case "progress":
                    yield Change(last)
                case _:
                    pass

    def revision(self, next_offsets: Sequence[int]) -> revision_pb2.Revision:
        """The revision as the store's callers send it."""
        return revision_pb2.Revision(store_id=self.store_id, next_offsets=next_offsets)

    def log(self, archive: Sequence[Archived]) -> StoreLog:
        """The archive as the checkers read it."""
        log = StoreLog(tells_empty_removals=False)
        for number, visible in enumerate(archive):
            log.visible.append(Visible(visible.writer, visible.owner))
            for record in visible.records:
                if record.key == KEEP_ALIVE_KEY:  # a take-over ended an earlier open transaction (ADR 0006)
                    continue
                match status_topic.decode(record.key, record.value):
                    case ConnectorStatus() as status:
                        key, value = key_of(status.connector, None), status.trace
                    case TaskStatus() as status:
                        key, value = key_of(status.connector, status.task), status.trace
                    case Tombstone() as gone:
                        key, value = key_of(gone.connector, gone.task), None
                    case other:
                        raise AssertionError(f"nobody here wrote {other}")
                log.writes.append(Logged(key, value, record.partition, record.offset, number))
        log.writes.sort(key=lambda write: (write.partition, write.offset))
        return log


def _key(status: status_pb2.Status) -> str:
    return key_of(status.connector, status.task if status.HasField("task") else None)
