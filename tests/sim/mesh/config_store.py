"""The config store's replicas: the real rules, servicer and election, over the simulated log.

Owns the streams: watches, and the campaigns of herders as `configstore.effects.campaigns` runs them.
"""

from __future__ import annotations

import itertools
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from herdmesh.api.configstore.v1 import config_read_service_pb2 as read_pb
from herdmesh.api.configstore.v1 import leadership_service_pb2 as leader_pb
from herdmesh.configstore.service import wire
from herdmesh.configstore.service.leadership import LeadershipServicer
from herdmesh.configstore.service.write import ConfigWriteServicer
from herdmesh.configstore.state import election as el
from herdmesh.configstore.state.changes import LeadershipChanged, SessionKeyChanged
from herdmesh.configstore.state.config import ConfigState
from herdmesh.configstore.state.writes import plan_block, plan_epoch
from herdmesh.rpc import revisions
from herdmesh.rpc.errors import HerdmeshError, NotWriter, RevisionInFuture
from herdmesh.topicstore.contract import WriteDecision
from tests.sim.mesh.clients import REFUSALS
from tests.sim.mesh.log import Entry, Log, Replica
from tests.sim.mesh.network import Stream
from tests.sim.mesh.scheduler import Pump

if TYPE_CHECKING:
    from tests.sim.mesh.world import World

AUDIT = "audit"
TICK_MS = 250


class ConfigReplica(Replica):
    """One process of the config store."""

    def __init__(self, name: str, world: World, log: Log) -> None:
        super().__init__(name, world, log)
        self._fresh = itertools.count(1)
        self._begin_service()

    def _begin_service(self) -> None:
        store = cast("Any", self)
        self._writes = ConfigWriteServicer(store, AUDIT, lambda: self.wall_ms, self._fresh_id)
        self._leadership = LeadershipServicer(store, cast("Any", None))
        self._election = el.Election()
        self._sessions: dict[int, Stream] = {}
        self._numbers = itertools.count(1)

    def begin(self) -> None:
        super().begin()
        self._begin_service()
        self.after(TICK_MS, self._tick)

    async def _noted(self, request_id: str, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await work
        except HerdmeshError as error:
            if error.reason in REFUSALS:
                self.world.checker.refused.add(request_id)
            raise

    def _fresh_id(self) -> str:
        return f"{self.name}-{next(self._fresh)}"

    def serve(self, path: str, request: Any) -> Coroutine[Any, Any, Any]:
        service, _, method = path.rpartition("/")
        if service.endswith("ConfigWriteService"):
            return self._noted(request.options.request_id, getattr(self._writes, method)(request, None))
        raise AssertionError(f"nobody serves {path}")

    # --- watches

    def accept(self, path: str, request: Any, stream: Stream) -> None:
        resume = revisions.from_proto(request.resume)
        if resume is None:
            for message in self._snapshot():
                stream.send(stream.far, message)
        else:
            position = self.position_of(resume)
            if position is None:
                stream.close(stream.far, RevisionInFuture("this replica is not there yet"))
                return
            for entry in self.log.entries[position : self.index]:
                _tell(stream, entry)
        self.watch(stream, lambda entry: _tell(stream, entry))

    def _snapshot(self) -> list[Any]:
        state: ConfigState = self.state
        store_id = self.revision.store_id
        found = [wire.snapshot_part(connector, store_id) for connector in state.stored()]
        if state.leadership is not None:
            found.append(wire.change(LeadershipChanged(state.leadership), store_id))
        if state.session_key is not None:
            found.append(wire.change(SessionKeyChanged(state.session_key, state.session_key_revision), store_id))
        found += [wire.change(level, store_id) for level in state.logger_levels.values()]
        complete = read_pb.WatchResponse(
            meta=revisions.meta(self.revision), snapshot_complete=read_pb.SnapshotComplete()
        )
        return [*found, complete]

    # --- leadership, as effects.campaigns

    def campaign(self, request: leader_pb.CampaignRequest, stream: Stream) -> None:
        """Handle a herder's opened campaign stream."""
        if not request.herder_id:
            return
        held = wire.leader_token(request.held) if request.HasField("held") else None
        session = next(self._numbers)
        self._sessions[session] = stream
        stream.far.heard = lambda again: self._elect(el.HeartbeatReceived(session, again.reserve_above))
        stream.far.over = lambda _: self._left(session)
        self._elect(el.CandidateJoined(session, request.herder_id, request.address, held))

    async def resign(self, request: leader_pb.ResignRequest) -> leader_pb.ResignResponse:
        if not self._election.writer:
            raise NotWriter("this replica does not run the election")
        self._elect(el.Resigned(wire.leader_token(request.leader)))
        return leader_pb.ResignResponse()

    def gained(self) -> None:
        self._elect(el.WriterGained(self.state.leadership))

    def lost(self) -> None:
        self._elect(el.WriterLost())

    def _tick(self) -> None:
        self._elect(el.Tick())
        self.after(TICK_MS, self._tick)

    def _left(self, session: int) -> None:
        if self._sessions.pop(session, None) is not None:
            self._elect(el.CandidateLeft(session))

    def _elect(self, event: el.Event) -> None:
        for instruction in self._election.handle(event, self.now_ms):
            stream = self._sessions.get(instruction.session)
            match instruction:
                case el.WriteEpoch():
                    self._write_epoch(instruction)
                case el.WriteBlock():
                    self._write_block(instruction)
                case el.EndSession(session=session, not_writer=not_writer):
                    self._sessions.pop(session, None)
                    if stream is not None:
                        stream.close(stream.far, NotWriter("not the writer") if not_writer else None)
                    if not not_writer:
                        self._elect(el.CandidateLeft(session))
                case _:
                    if stream is not None:
                        response = self._leadership._response(instruction)  # pyright: ignore[reportPrivateUsage]
                        stream.send(stream.far, response)

    def _write_epoch(self, wanted: el.WriteEpoch) -> None:
        def decide(state: ConfigState) -> WriteDecision[Any]:
            records = plan_epoch(state, wanted.leader_id, wanted.leader_address)
            return WriteDecision(records, lambda after, _: after.leadership)

        def ended(leadership: Any, error: HerdmeshError | None) -> None:
            if error is not None:
                self._elect(el.EpochNotWritten(wanted.session))
            else:
                self._elect(el.EpochWritten(wanted.session, leadership))

        self.after(self.world.rng.randint(2, 30), lambda: Pump(self.write(decide), ended))

    def _write_block(self, wanted: el.WriteBlock) -> None:
        def decide(state: ConfigState) -> WriteDecision[Any]:
            return WriteDecision(plan_block(state, wanted.leader, wanted.above), lambda after, _: after.leadership)

        def ended(leadership: Any, error: HerdmeshError | None) -> None:
            self._elect(el.BlockNotWritten() if error is not None else el.BlockWritten(leadership))

        self.after(self.world.rng.randint(2, 30), lambda: Pump(self.write(decide), ended))


def _tell(stream: Stream, entry: Entry) -> None:
    if not entry.made:
        entry.made = True
        store_id = entry.revision.store_id
        for change in entry.changes:
            entry.messages.append(wire.change(change, store_id))
        if entry.messages:
            entry.messages[-1].meta.CopyFrom(revisions.meta(entry.revision))
    for message in entry.messages:
        stream.send(stream.far, message)
