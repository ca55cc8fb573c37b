"""A herder's process: the real state, campaign, watches and writes over the simulated network.

Re-implements the parts that need an event loop in the product: `loop.HerderLoop` (events in, instructions out, ticks),
`Campaign.run` (heartbeats, reconnects), `_Watch.run` and `StoreWrites._write` (retries within 20 s). All messages and
their handling are the product's own code.

Invariant: as in the product, one event at a time, and a session's end reaches the state once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from herdmesh.herder.effects.campaign import Campaign
from herdmesh.herder.effects.watches import ConfigWatch, StatusWatch
from herdmesh.herder.effects.writes import WRITE_S_MAX, StoreWrites
from herdmesh.herder.state import Herder
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import Answer as CallAnswer
from herdmesh.herder.state.model.requests import Request, WriteOptions
from herdmesh.herder.wire import session as wire
from herdmesh.herder.wire import stores as store_wire
from herdmesh.rpc import revisions
from herdmesh.rpc.client import RETRIABLE
from herdmesh.rpc.errors import (
    HerdmeshError,
    RevisionCompacted,
    RevisionForeign,
    RevisionInFuture,
    Timeout,
    WriteOutcomeUnknown,
)
from tests.sim.mesh.config_store import ConfigReplica
from tests.sim.mesh.network import Stream
from tests.sim.mesh.node import Node
from tests.sim.mesh.scheduler import Pump

if TYPE_CHECKING:
    from tests.sim.mesh.world import World

HEARTBEAT_MS = 1_000
_TICK = ev.Tick()
_RETRIED = (*RETRIABLE, WriteOutcomeUnknown)
_LIST_AGAIN = (RevisionCompacted, RevisionInFuture, RevisionForeign)


class HerderProcess(Node):
    """One herder replica."""

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, world)
        self.address = name
        self.herder_id = ""

    def begin(self) -> None:
        """Start the process."""
        self.start()
        self.take(self.life, self._wire)

    @property
    def leads(self) -> bool:
        return self.alive and self.herder.refusal is None

    def _wire(self) -> None:
        self.herder_id = f"{self.name}-{self.life}"
        self.herder = Herder(self.world.rules(self.herder_id))
        self.sessions: dict[int, Stream] = {}
        self._calls: dict[int, Callable[[CallAnswer | HerdmeshError], None]] = {}
        self._numbers = itertools.count(1)
        self._campaign = Campaign("config", self.herder_id, self.address, self._post)
        self._standing: Stream | None = None
        #: writes in flight: a write may be applied after its caller stopped waiting.
        self.writing: set[int] = set()
        self._writes = StoreWrites("config", "status", self.herder_id, self._post, self._carry_on)
        self._watches = (ConfigWatch("config", self._post), StatusWatch("status", self._post))
        for watch in self._watches:
            self._follow(watch)
        self._stand()
        self._tick()

    async def _post(self, event: Any) -> None:
        self.handle(event)

    # --- loop.HerderLoop

    def handle(self, event: ev.Event) -> None:
        """Handle one event; its instructions are executed at once."""
        self.world.checker.handed(self, event)
        for instruction in self.herder.handle(event, self.now_ms):
            self._carry_out(instruction)

    def _carry_out(self, instruction: ins.Instruction) -> None:
        match instruction:
            case ins.Send():
                self._send(instruction)
            case ins.CloseSession(session=session, error=error):
                stream = self.sessions.get(session)
                if stream is not None:
                    stream.close(stream.far, error)
                    self.after(0, lambda: self._over(session))
            case ins.Reply(call=call, answer=answer):
                reply = self._calls.pop(call, None)
                if reply is not None:
                    reply(answer)
            case ins.ViewsChanged() | ins.RoleChanged():
                pass
            case ins.RenewEpoch() | ins.ReserveGenerations():
                self._writes.campaign(instruction)
            case _:
                self._write(instruction)

    def _send(self, sent: ins.Send) -> None:
        stream = self.sessions.get(sent.session)
        if stream is None:
            return
        self.world.checker.sent(self, sent, stream)
        stream.send(stream.far, wire.response(sent))

    def _tick(self) -> None:
        self.handle(_TICK)
        self.after(self.world.tick_ms, self._tick)

    def call(
        self,
        request: Request,
        options: WriteOptions,
        timeout_ms: int,
        reply: Callable[[CallAnswer | HerdmeshError], None],
    ) -> int:
        """Handle a call to this herder."""
        number = next(self._numbers)
        self._calls[number] = reply
        self.handle(ev.RequestReceived(number, request, options, self.now_ms + timeout_ms))
        return number

    def cancel(self, number: int) -> None:
        """Handle a caller's hang-up."""
        if self._calls.pop(number, None) is not None:
            self.handle(ev.RequestCancelled(number))

    # --- service.sessions

    def session_opened(self, stream: Stream) -> None:
        """Handle a worker's dial-in."""
        refusal = self.herder.refusal
        if refusal is not None:
            stream.close(stream.far, refusal)
            return
        number = next(self._numbers)
        self.sessions[number] = stream

        def receive(request: Any) -> None:
            event = wire.event(number, request)
            if event is not None:
                self.handle(event)

        stream.far.heard = receive
        stream.far.over = lambda _: self._over(number)

    def _over(self, number: int) -> None:
        if self.sessions.pop(number, None) is not None:
            self.handle(ev.StreamBroken(number))

    def session_of(self, stream: Stream) -> bool:
        """True while this herder listens to the stream."""
        return stream.far.open and any(stream is open_one for open_one in self.sessions.values())

    # --- effects.campaign

    def _carry_on(self, wanted: ins.Campaigning) -> None:
        held = self._campaign._held_epoch  # pyright: ignore[reportPrivateUsage]
        self._campaign.carry_out(wanted)
        if held != wanted.epoch or self._standing is None:
            return
        if isinstance(wanted, ins.ReserveGenerations):
            request = self._campaign._heartbeat()  # pyright: ignore[reportPrivateUsage]
            self._standing.send(self._standing.near, request)
        else:
            standing, self._standing = self._standing, None
            standing.near.over = lambda _: None
            standing.close(standing.near)
            self.after(0, self._stand)

    def _stand(self) -> None:
        """Run one campaign stream, until it breaks."""
        campaign = self._campaign
        campaign._sent_ms.clear()  # pyright: ignore[reportPrivateUsage]
        target = self.world.route(self, "config", "LeadershipService", None)
        if not isinstance(target, ConfigReplica):
            self.after(self.world.rng.randint(100, 500), self._stand)
            return
        stream = self._standing = Stream(self.world.network, self, target)
        stream.far.heard = lambda request: target.campaign(request, stream)
        stream.near.heard = lambda response: _pump(
            campaign._take(response),  # pyright: ignore[reportPrivateUsage]
            _ended,
        )
        stream.near.over = lambda _: self._stand_again(stream)
        stream.send(stream.near, campaign._first())  # pyright: ignore[reportPrivateUsage]
        self.after(HEARTBEAT_MS, lambda: self._heartbeat(stream))

    def _heartbeat(self, stream: Stream) -> None:
        if self._standing is not stream:
            return
        stream.send(stream.near, self._campaign._heartbeat())  # pyright: ignore[reportPrivateUsage]
        self.after(HEARTBEAT_MS, lambda: self._heartbeat(stream))

    def _stand_again(self, stream: Stream) -> None:
        if self._standing is stream:
            self._standing = None
            Pump(self._campaign._broke(), _ended)  # pyright: ignore[reportPrivateUsage]
            self.after(self.world.rng.randint(100, 500), self._stand)

    # --- effects.watches

    def _follow(self, watch: ConfigWatch | StatusWatch) -> None:
        def ended(_: object, error: HerdmeshError | None) -> None:
            if isinstance(error, _LIST_AGAIN):
                watch._resume = None  # pyright: ignore[reportPrivateUsage]
            self.after(self.world.rng.randint(100, 500), lambda: self._follow(watch))

        Pump(watch._follow(), ended)  # pyright: ignore[reportPrivateUsage]

    # --- effects.writes

    def _write(self, wanted: Any) -> None:
        """As `StoreWrites._write`: repeat the same request while the outcome is unknown, for 20 s."""
        options = getattr(wanted, "options", None)
        request_id = options.request_id if isinstance(options, WriteOptions) and options.request_id else ""
        request_id = request_id or f"{self.herder_id}-{next(self._numbers)}"
        send = self._writes._sender(wanted, request_id)  # pyright: ignore[reportPrivateUsage]
        deadline_ms = self.now_ms + WRITE_S_MAX * 1000
        state = {"over": False, "backoff": 25}
        last: list[HerdmeshError] = []

        def finish(event: ev.WriteDone | ev.WriteFailed) -> None:
            if not state["over"]:
                state["over"] = True
                self.writing.discard(wanted.op)
                self.handle(event)

        def attempt() -> None:
            if state["over"]:
                return

            async def once() -> Any:
                return await send()

            Pump(once(), ended)

        def ended(response: Any, error: HerdmeshError | None) -> None:
            if error is None:
                finish(self._done(wanted, response))
            elif isinstance(error, _RETRIED):
                last[:] = [error]
                wait_ms = self.world.rng.randint(state["backoff"] // 2, state["backoff"])
                if self.now_ms + wait_ms >= deadline_ms:
                    finish(ev.WriteFailed(wanted.op, error))
                    return
                state["backoff"] = min(500, state["backoff"] * 2)
                self.after(wait_ms, attempt)
            else:
                finish(ev.WriteFailed(wanted.op, error))

        def too_late() -> None:
            finish(ev.WriteFailed(wanted.op, last[0] if last else Timeout("waiting for the first answer")))

        self.writing.add(wanted.op)
        self.after(WRITE_S_MAX * 1000, too_late)
        # A write begins in a task of its own.
        self.after(0, attempt)

    def _done(self, wanted: Any, response: Any) -> ev.WriteDone:
        revision = None
        if response.DESCRIPTOR.file.package.startswith("herdmesh.api.configstore"):
            revision = revisions.from_proto(response.meta.revision)
        offsets = store_wire.offsets_recorded(response) if isinstance(wanted, ins.RecordOffsets) else None
        created = isinstance(wanted, ins.PutConfig) and response.created
        unchanged = isinstance(wanted, ins.PutConfig) and response.unchanged
        return ev.WriteDone(wanted.op, revision, created, offsets=offsets, unchanged=unchanged)


def _pump(coroutine: Coroutine[Any, Any, None], ended: Callable[[Any, HerdmeshError | None], object]) -> None:
    Pump(coroutine, ended)


def _ended(_: object, error: HerdmeshError | None) -> None:
    if error is not None:
        raise error
