"""The status store's replicas: the real rules, servicer and lease table, over the simulated log.

Owns the watches, the timer of the leases, and their relay from the writer to the other replicas, as
`statusstore.effects.leases` and `.relay` do it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as read_pb
from herdmesh.rpc import revisions
from herdmesh.rpc.errors import RevisionInFuture
from herdmesh.statusstore.effects.leases import ShownLease
from herdmesh.statusstore.service import wire
from herdmesh.statusstore.service.writes import StatusWriteService
from herdmesh.statusstore.state import leases as ls
from herdmesh.statusstore.state.statuses import StatusGone, StatusPut
from tests.sim.mesh.log import Entry, Log, Replica
from tests.sim.mesh.network import Stream

if TYPE_CHECKING:
    from tests.sim.mesh.world import World

LEASE_MS = 6_000


class Keeper:
    """The lease table of one replica with its timer; a `LeaseKeeper` for the methods that the servicer uses."""

    def __init__(self, replica: StatusReplica) -> None:
        self._replica = replica
        self.table = ls.LeaseTable()
        self._wake_ms: int | None = None

    def handle(self, event: ls.Event) -> None:
        for instruction in self.table.handle(event, self._replica.now_ms):
            match instruction:
                case ls.Publish():
                    self._replica.publish()
                case ls.WakeAt(at_ms=at_ms):
                    self._wake_ms = at_ms
                    self._replica.after(max(0, at_ms - self._replica.now_ms), lambda at_ms=at_ms: self._wake(at_ms))

    def shown_of(self, worker_id: str) -> ShownLease | None:
        lease = self.table.get(worker_id)
        return None if lease is None else _shown(lease)

    def _wake(self, at_ms: int) -> None:
        if self._wake_ms == at_ms:
            self._wake_ms = None
            self.handle(ls.Tick())


class _Once:
    """Answers kept for retries, in this process' memory."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], Any] = {}

    async def once(self, method: str, request_id: str, work: Callable[[], Awaitable[Any]]) -> Any:
        if not request_id:
            return await work()
        if (method, request_id) not in self._answers:
            self._answers[method, request_id] = await work()
        return self._answers[method, request_id]


class StatusReplica(Replica):
    """One process of the status store."""

    def __init__(self, name: str, world: World, log: Log) -> None:
        super().__init__(name, world, log)
        self._begin_service()

    def _begin_service(self) -> None:
        self.keeper = Keeper(self)
        self._writes = StatusWriteService(cast("Any", self), cast("Any", self.keeper), cast("Any", _Once()), LEASE_MS)
        self._lease_watchers: list[Stream] = []

    def begin(self) -> None:
        super().begin()
        self._begin_service()
        self.keeper.handle(ls.StoppedWriting())
        self.after(ls.PULSE_MS, self._pulse)

    def serve(self, path: str, request: Any) -> Coroutine[Any, Any, Any]:
        service, _, method = path.rpartition("/")
        if service.endswith("StatusWriteService"):
            return getattr(self._writes, method)(request, None)
        raise AssertionError(f"nobody serves {path}")

    def gained(self) -> None:
        self.keeper.handle(ls.BecameWriter(ls.running_workers(self.state), LEASE_MS))

    def lost(self) -> None:
        self.keeper.handle(ls.StoppedWriting())

    def _pulse(self) -> None:
        """Relay the writer's table to the replicas it can reach."""
        self.after(ls.PULSE_MS, self._pulse)
        if not self.keeper.table.writing:
            return
        leases, sent_ms = self.keeper.table.leases(), self.now_ms
        for other in self.log.replicas:
            if isinstance(other, StatusReplica) and other is not self and other.alive:
                self.world.network.carry(
                    self.name, other, lambda other=other, leases=leases, at=sent_ms: other.relayed(leases, at)
                )

    def relayed(self, leases: list[ls.Lease], sent_ms: int) -> None:
        """Handle the writer's table, with ends of leases by our own clock."""
        mine = (
            ls.Lease(one.worker_id, one.incarnation, one.expires_ms - sent_ms + self.now_ms, one.live) for one in leases
        )
        self.keeper.handle(ls.Relayed(tuple(mine)))

    # --- watches

    def accept(self, path: str, request: Any, stream: Stream) -> None:
        resume = revisions.from_proto(request.resume)
        if resume is None:
            for stored in self.state.statuses():
                put = wire.status_to(stored, self.revision, self.keeper.table)
                stream.send(stream.far, read_pb.WatchStatusesResponse(status_put=put))
            complete = read_pb.StatusSnapshotComplete()
            stream.send(
                stream.far,
                read_pb.WatchStatusesResponse(meta=revisions.meta(self.revision), snapshot_complete=complete),
            )
            self._tell_leases(stream)
        else:
            position = self.position_of(resume)
            if position is None:
                stream.close(stream.far, RevisionInFuture("this replica is not there yet"))
                return
            self._tell_leases(stream)
            for entry in self.log.entries[position : self.index]:
                self._tell(stream, entry)
        self._lease_watchers.append(stream)
        self.watch(stream, lambda entry: self._tell(stream, entry))

    def publish(self) -> None:
        self._lease_watchers = [stream for stream in self._lease_watchers if stream.far.open]
        for stream in self._lease_watchers:
            self._tell_leases(stream)

    def _tell_leases(self, stream: Stream) -> None:
        if self.keeper.table.known:
            table = wire.leases_to([_shown(lease) for lease in self.keeper.table.leases()])
            stream.send(stream.far, read_pb.WatchStatusesResponse(leases=table))

    def _tell(self, stream: Stream, entry: Entry) -> None:
        if not entry.made:
            entry.made = True
            for change in entry.changes:
                match change:
                    case StatusPut(stored=stored):
                        put = wire.status_to(stored, entry.revision, self.keeper.table)
                        entry.messages.append(read_pb.WatchStatusesResponse(status_put=put))
                    case StatusGone(previous=previous):
                        gone = status_pb2.Status(connector=previous.status.connector, task=previous.task)
                        entry.messages.append(read_pb.WatchStatusesResponse(status_deleted=gone))
                    case _:
                        pass  # the herder does not use topic statuses
            if entry.messages:
                entry.messages[-1].meta.CopyFrom(revisions.meta(entry.revision))
        for message in entry.messages:
            stream.send(stream.far, message)


def _shown(lease: ls.Lease) -> ShownLease:
    return ShownLease(lease.worker_id, lease.incarnation, lease.live, lease.expires_ms)
