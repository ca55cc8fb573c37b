"""Campaign for leadership: the stream of heartbeats to the config store, and the epochs and leases that it grants.

Owns the campaign stream: one heartbeat a second, reconnects, and the end of our lease by our own clock. Decides
nothing: it posts the store's events to the loop.

A leader that needs more generations requests them in an extra heartbeat, at once, and in each later heartbeat until
the store grants some. Repeating the request is safe: the store answers the next one with the block already reserved,
and reserves no more.

The lease is counted from the sending of a heartbeat that was surely sent no later than the one the store answered, so
that this herder never believes in it longer than the store does:
1. answers come in the order of heartbeats, but the store does not answer a heartbeat while nobody leads;
2. so after a grant only the newest heartbeat is taken as possibly unanswered. Each later answer is counted from the
   oldest unmatched heartbeat: the right one, or one too early, never one too late;
3. the store cuts the lease of a leader whose stream broke to `RETURN_MS`, and this module does the same as soon as it
   sees the break. Only a break that the store alone sees lets the herder believe longer, until the lease itself ends:
   the store refuses the epoch on all later requests.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, assert_never

import structlog

from herdmesh.api.configstore.v1 import leadership_service_pb2 as pb
from herdmesh.api.configstore.v1.leadership_service_pb2_grpc import LeadershipServiceStub
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.instructions import Campaigning, RenewEpoch, ReserveGenerations
from herdmesh.herder.wire.stores import leader_token
from herdmesh.herder.wire.values import monotonic_ms
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError

if TYPE_CHECKING:
    import grpc.aio

    from herdmesh.api.configstore.v1.leadership_service_pb2_grpc import LeadershipServiceAsyncStub

LEADERSHIP_SERVICE: Final = "herdmesh.api.configstore.v1.LeadershipService"
HEARTBEAT_S: Final = 1.0
#: subtracted from every lease, for clock drift and scheduling delays.
LEASE_MARGIN_MS: Final = 300
#: Rest of a lease after its stream broke; the config store's election has the same number.
RETURN_MS: Final = 2_000
RETRY_S_MAX: Final = 0.5
RESIGN_S: Final = 1.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class _Stream:
    """Sending side of one campaign stream. `wake` means that a heartbeat is due now or, with `over`, that the stream
    ended.
    """

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.over = False


class Campaign:
    """Candidacy of one herder. `post` hands events to the loop."""

    def __init__(self, config_store: str, herder_id: str, address: str, post: Callable[[Any], Awaitable[None]]) -> None:
        health = LEADERSHIP_SERVICE if "," in config_store else ""
        self._channel: grpc.aio.Channel = connect(config_store, health)
        self._stub: LeadershipServiceAsyncStub = LeadershipServiceStub(self._channel)
        self._herder_id = herder_id
        self._address = address
        self._post = post
        self._held_epoch: int | None = None
        self._sent_ms: deque[int] = deque(maxlen=16)
        self._newest_ms = 0
        self._renewing = asyncio.Event()
        #: the generation limit that the store is to raise; 0 = no request.
        self._reserve_above = 0
        self._stream = _Stream()

    def carry_out(self, wanted: Campaigning) -> None:
        """Carry out an instruction about the held epoch; ignore one about another epoch.

        RenewEpoch: campaign on a new stream, without the epoch when it is given up, else with it in `held`.
        ReserveGenerations: request generations until the store grants some.
        """
        if self._held_epoch != wanted.epoch:
            return
        match wanted:
            case RenewEpoch(abandon=abandon):
                if abandon:
                    self._held_epoch, self._reserve_above = None, 0
                self._renewing.set()
            case ReserveGenerations(above=above):
                self._reserve_above = above
                self._stream.wake.set()
            case _:
                assert_never(wanted)

    async def run(self) -> None:
        """Campaign until cancelled."""
        while True:
            self._renewing.clear()
            campaigning = asyncio.create_task(self._campaign_once())
            renewing = asyncio.create_task(self._renewing.wait())
            try:
                await asyncio.wait([campaigning, renewing], return_when=asyncio.FIRST_COMPLETED)
                if campaigning.done():
                    campaigning.result()  # a bug here must end the process, not only the candidacy
            finally:
                for task in (campaigning, renewing):
                    task.cancel()
                await asyncio.gather(campaigning, renewing, return_exceptions=True)
            if not self._renewing.is_set():
                await asyncio.sleep(random.uniform(RETRY_S_MAX / 5, RETRY_S_MAX))

    async def resign(self) -> None:
        """Resign the held epoch, so that another herder need not wait for the lease; bounded."""
        if self._held_epoch is None:
            return
        request = pb.ResignRequest(leader=leader_token(self._held_epoch, self._herder_id))
        try:
            await self._stub.Resign(request, timeout=RESIGN_S)
        except HerdmeshError as error:
            _log.info("not_resigned", error=str(error))

    async def close(self) -> None:
        """Close the channel. Call it after `run` was cancelled."""
        await self._channel.close()

    async def _campaign_once(self) -> None:
        """Campaign on one stream until it breaks."""
        self._sent_ms.clear()
        stream = self._stream = _Stream()
        try:
            async for response in self._stub.Campaign(self._heartbeats(stream)):
                await self._take(response)
        except HerdmeshError as error:
            _log.info("campaign_broke", error=f"{error.reason}: {error.message}")
            await self._broke()
        finally:
            stream.over = True
            stream.wake.set()  # gRPC never ends the request side when the call itself has failed

    async def _broke(self) -> None:
        await self._post(ev.LeaseShortened(monotonic_ms() + RETURN_MS - LEASE_MARGIN_MS))

    async def _heartbeats(self, stream: _Stream) -> AsyncIterator[pb.CampaignRequest]:
        yield self._first()
        while True:
            try:
                await asyncio.wait_for(stream.wake.wait(), HEARTBEAT_S)
            except TimeoutError:
                pass  # normal: a second has passed and the stream lives
            stream.wake.clear()
            if stream.over:
                return
            yield self._heartbeat()

    def _first(self) -> pb.CampaignRequest:
        first = self._heartbeat()
        if self._held_epoch is not None:
            first.held.CopyFrom(leader_token(self._held_epoch, self._herder_id))
        return first

    def _heartbeat(self) -> pb.CampaignRequest:
        self._newest_ms = monotonic_ms()
        self._sent_ms.append(self._newest_ms)
        return pb.CampaignRequest(herder_id=self._herder_id, address=self._address, reserve_above=self._reserve_above)

    def _on_limit(self, limit: int) -> None:
        if limit > self._reserve_above:
            self._reserve_above = 0

    async def _take(self, response: pb.CampaignResponse) -> None:
        match response.WhichOneof("event"):
            case "granted":
                leadership = response.granted.leadership
                self._held_epoch = leadership.epoch
                self._on_limit(leadership.generation_limit)
                newest_ms = self._newest_ms  # may be answered already, as a follower's heartbeats are
                self._sent_ms.clear()
                self._sent_ms.append(newest_ms)
                until_ms = newest_ms + response.granted.lease.ToMilliseconds() - LEASE_MARGIN_MS
                granted = ev.LeadershipGranted(
                    leadership.epoch,
                    leadership.generation_first,
                    leadership.generation_limit,
                    until_ms,
                    leadership.leader_id,
                    leadership.leader_address,
                )
                _log.info("leadership_granted", epoch=leadership.epoch)
                await self._post(granted)
            case "heartbeat":
                sent_ms = self._sent_ms.popleft() if self._sent_ms else monotonic_ms() - int(HEARTBEAT_S * 1000)
                until_ms = sent_ms + response.heartbeat.lease.ToMilliseconds() - LEASE_MARGIN_MS
                await self._post(ev.LeaseExtended(until_ms))
            case "reserved":
                leadership = response.reserved.leadership
                self._on_limit(leadership.generation_limit)
                await self._post(ev.GenerationsReserved(leadership.epoch, leadership.generation_limit))
            case "following":
                if self._sent_ms:
                    self._sent_ms.popleft()
                leadership = response.following.leadership
                self._held_epoch, self._reserve_above = None, 0
                await self._post(
                    ev.LeadershipFollowing(leadership.leader_id, leadership.leader_address, leadership.epoch)
                )
            case "lost":
                _log.info("leadership_lost", reason=response.lost.reason)
                self._held_epoch, self._reserve_above = None, 0
                await self._post(ev.LeadershipLost(response.lost.reason))
            case None:
                pass  # an event of a newer release
