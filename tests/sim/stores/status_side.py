"""The status store in a story: its real state and put rules over five partitions, without request ids.

Owns writing, reading and watching of a register of `tests.support.status_register` without the wire: compare-and-set is
by the position of the status' own record. Leases are not in it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from herdmesh.connect.topics.status_topic import ConnectorStatus, State
from herdmesh.rpc.errors import RevisionMismatch
from herdmesh.statusstore.state.statuses import StatusGone, StatusPut, StatusState
from herdmesh.statusstore.state.writes import Put, PutMode, PutResult, RecordPosition, decide_puts
from herdmesh.topicstore import Revision, StoreRole, TopicSettings, WatchChange, WatchSnapshot, WriteDecision
from herdmesh.topicstore.core import TopicStoreCore
from tests.support.config_register import Change, Snapshot
from tests.support.history import Kind, Operation
from tests.support.status_register import StatusRegister

SETTINGS = TopicSettings(
    topic="statuses",
    transactional_id="herdmesh-status-sim",
    election_group="herdmesh-status-store-sim",
    partitions=5,
)


class StatusServer:
    """One life's store; it has no background task."""

    def __init__(self, store: TopicStoreCore[Any, Any]) -> None:
        self.store = store

    def become(self, role: StoreRole) -> None:
        """Do nothing: a role has no consequence here."""

    async def run(self) -> None:
        """Do nothing."""


class StatusSide(StatusRegister):
    """See `ConfigSide`."""

    settings = SETTINGS

    def __init__(self) -> None:
        super().__init__("sim")

    def initial(self) -> StatusState:
        return StatusState()

    def server(self, store: TopicStoreCore[Any, Any], now_ms: Callable[[], int]) -> StatusServer:
        return StatusServer(store)

    async def write(self, server: StatusServer, operation: Operation, expected: RecordPosition | None) -> PutResult:
        gone = operation.value is None
        state = State.DESTROYED if gone else State.RUNNING
        status = ConnectorStatus(operation.key, state, "worker", 1, operation.value, worker_incarnation="one")
        if operation.kind is Kind.CREATE:
            expected = RecordPosition(-1, 0)
        put = Put(status, PutMode.PUT, None if gone else expected)

        def decide(state: StatusState) -> WriteDecision[PutResult]:
            decision = decide_puts(state, [put])
            return WriteDecision(decision.records, lambda _state, _revision: decision.results[0])

        result = await server.store.write(decide)
        if result is PutResult.REVISION_MISMATCH:
            raise RevisionMismatch("")
        assert result is PutResult.APPLIED, result
        return result

    async def read(self, server: StatusServer, demanded: tuple[int, ...] | None, linearizable: bool) -> Snapshot:
        store = server.store
        await store.wait_for(store.revision if demanded is None else Revision("sim", demanded))
        if linearizable:
            await store.barrier()
        return Snapshot(store.revision.next_offsets, _values(store.state), _positions(store.state))

    async def watch(self, server: StatusServer, resume: tuple[int, ...] | None) -> AsyncGenerator[Change, None]:
        async for event in server.store.watch(None if resume is None else Revision("sim", resume)):
            revision = event.revision.next_offsets
            if isinstance(event, WatchSnapshot):
                yield Change(revision, snapshot=_values(event.state))
            elif isinstance(event, WatchChange):
                for change in event.changes:
                    if isinstance(change, StatusPut):
                        yield Change(revision, key=change.stored.status.connector, value=change.stored.status.trace)
                    elif isinstance(change, StatusGone):
                        yield Change(revision, key=change.previous.status.connector)
            else:
                yield Change(revision)

    def everything(self, state: StatusState) -> object:
        return [(stored.status, stored.partition, stored.offset) for stored in state.statuses()]


def _values(state: StatusState) -> dict[str, str]:
    return {stored.status.connector: stored.status.trace or "" for stored in state.statuses()}


def _positions(state: StatusState) -> dict[str, Any]:
    return {stored.status.connector: RecordPosition(stored.partition, stored.offset + 1) for stored in state.statuses()}
