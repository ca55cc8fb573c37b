"""The network between the processes, with exactly the guarantees of gRPC.

A stream is ordered in each direction and may break at any moment, losing messages in flight. A unary call may be
lost on the way there or back, may be executed twice, and may reach no server. Different calls and streams overtake each
other.
A cut holds everything back until it heals, as TCP does; an end that closes meanwhile never learns of it.

Owns delays, cuts and losses, all from one random number generator, and counts their effects. Knows no message.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from herdmesh.rpc.errors import HerdmeshError, Timeout
from tests.sim.mesh.scheduler import Answer, Deed, Inbox, Process, Pump, Scheduler, unreachable

Pair = frozenset[str]
#: how soon a peer learns that a process has ended, or that a connection broke.
NOTICE_MS = 30

_LATE, _OVERTAKEN, _HELD = "message late", "message overtaken by a later one", "message held back by a cut"
_REQUEST_LOST, _ANSWER_LOST, _DOUBLED = "request lost", "answer lost", "request carried out twice"
_BROKEN = "message lost with its stream"
#: Effects of an unruly network on messages; `Network.harmed` counts each.
HARMS = (_LATE, _OVERTAKEN, _HELD, _REQUEST_LOST, _ANSWER_LOST, _DOUBLED, _BROKEN)


class Network:
    """All links. While `unruly`, delays are wild and calls get lost."""

    def __init__(self, scheduler: Scheduler, rng: random.Random) -> None:
        self.scheduler = scheduler
        self.rng = rng
        self.unruly = True
        self.loss = 0.02
        self.doubled = 0.02
        self.streams: list[Stream] = []
        #: number of messages, and the harm done to them.
        self.carried = 0
        self.harmed: Counter[str] = Counter()
        #: source and target -> arrival time of their last message outside of streams.
        self._last_ms: dict[tuple[str, str], int] = {}
        self._cut: dict[Pair, deque[Deed]] = {}
        self._slow: dict[Pair, int] = {}

    # --- used by faults

    def cut(self, one: str, other: str) -> None:
        self._cut.setdefault(frozenset((one, other)), deque())

    def heal(self, one: str, other: str) -> None:
        """Release the messages that were held back."""
        for deed in self._cut.pop(frozenset((one, other)), ()):
            deed()

    def heal_all(self) -> None:
        for pair in list(self._cut):
            for deed in self._cut.pop(pair, ()):
                deed()
        self._slow.clear()
        self.unruly = False

    @property
    def some_cut(self) -> bool:
        """Whether any link is cut."""
        return bool(self._cut)

    def is_cut(self, one: str, other: str) -> bool:
        return bool(self._cut) and frozenset((one, other)) in self._cut

    def slow(self, one: str, other: str, ms: int) -> None:
        self._slow[frozenset((one, other))] = ms

    # --- carrying

    def delay_ms(self, one: str, other: str) -> int:
        if not self.unruly:
            return 1
        slow_ms = self._slow.get(frozenset((one, other)), 0) if self._slow else 0
        draw = self.rng.random()
        if draw >= 0.95:
            self.harmed[_LATE] += 1
        usual_ms = 0 if draw < 0.5 else int(draw * 6) if draw < 0.95 else int((draw - 0.95) * 6_000)
        return usual_ms + (self.rng.randrange(slow_ms) if slow_ms else 0)

    def carry(self, source: str, target: Process, deed: Deed, end: End | None = None) -> None:
        """Deliver to a process; in order with everything that went to the same end of a stream."""
        held = self._cut.get(frozenset((source, target.name))) if self._cut and source != target.name else None
        self.carried += 1
        if held is not None:
            self.harmed[_HELD] += 1
            held.append(partial(self._arrive, source, target, target.life, deed, end))
            return
        # Same as `_arrive`, which is for held-back messages: nearly everything takes this path.
        scheduler = self.scheduler
        at_ms = scheduler.now + (self.delay_ms(source, target.name) if self.unruly else 1)
        if end is not None:
            if at_ms < end.last_ms:
                at_ms = end.last_ms
            end.last_ms = at_ms
        elif self.unruly:
            self._notice_order(source, target.name, at_ms)
        scheduler.at_process(at_ms, target, target.life, deed)

    def _arrive(self, source: str, target: Process, life: int, deed: Deed, end: End | None) -> None:
        at_ms = self.scheduler.now + self.delay_ms(source, target.name)
        if end is not None:
            at_ms = end.last_ms = max(at_ms, end.last_ms)
        self.scheduler.at_process(at_ms, target, life, deed)

    def _notice_order(self, source: str, target: str, at_ms: int) -> None:
        if at_ms < self._last_ms.get((source, target), 0):
            self.harmed[_OVERTAKEN] += 1
        else:
            self._last_ms[source, target] = at_ms

    def call(
        self,
        caller: Process,
        target: Process | None,
        work: Callable[[], Coroutine[Any, Any, Any]],
        timeout_ms: float | None = None,
    ) -> Answer:
        """A unary call. Ends with the result, with the error of `work`, with Unreachable, with Timeout, or never."""
        answer = Answer()
        life = caller.life

        def tell(result: Any, error: HerdmeshError | None) -> None:
            if (target is not None and not target.alive) or caller.life != life:
                return  # no process is left to answer, or to get the answer: one started since is another
            lost = self.unruly and self.rng.random() < self.loss / 2
            if lost:
                self.harmed[_ANSWER_LOST] += 1
                error = unreachable(target.name if target else "nobody")
            name = target.name if target is not None else caller.name
            self.carry(name, caller, lambda: answer.set(None if error else result, error))

        def fail() -> None:
            self.scheduler.at_process(
                self.scheduler.now + NOTICE_MS,
                caller,
                life,
                lambda: answer.set(error=unreachable(target.name if target else "nobody")),
            )

        if timeout_ms is not None:
            caller.after(timeout_ms, partial(_time_out, answer))
        lost = self.unruly and self.rng.random() < self.loss / 2
        if target is None or not target.alive or lost:
            if target is not None and target.alive:
                self.harmed[_REQUEST_LOST] += 1
            fail()
            return answer
        target.on_death.append(fail)
        self.carry(caller.name, target, lambda: Pump(work(), tell))
        if self.unruly and self.rng.random() < self.doubled:
            self.harmed[_DOUBLED] += 1
            self.carry(caller.name, target, lambda: Pump(work(), lambda result, error: None))
        answer.then(lambda: target.on_death.remove(fail) if fail in target.on_death else None)
        return answer


def _time_out(answer: Answer) -> None:
    if not answer.done:
        answer.set(error=Timeout("no answer in time"))


class End:
    """One end of a stream. `heard(message)` and, once, `over(error)`: the other end closed, or the line broke."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.open = True
        self.last_ms = 0
        self.heard: Callable[[Any], None] = lambda message: None
        self.over: Callable[[HerdmeshError | None], None] = lambda error: None


class Stream:
    """A bidirectional stream; `near` dialled `far`."""

    def __init__(self, network: Network, near: Process, far: Process) -> None:
        self._network = network
        self.near, self.far = End(near), End(far)
        self._broken = False
        network.streams.append(self)
        near.on_death.append(self._near_died)
        far.on_death.append(self._far_died)

    @property
    def whole(self) -> bool:
        """Both ends are open and the line between them is not broken."""
        return self.near.open and self.far.open and not self._broken

    def send(self, end: End, message: Any) -> None:
        """Send from this end to the other."""
        if not end.open or self._broken:
            return
        other = self.far if end is self.near else self.near
        self._network.carry(end.process.name, other.process, partial(self._deliver, other, message), other)

    def close(self, end: End, error: HerdmeshError | None = None) -> None:
        """Close this end; the other learns of it after everything sent before."""
        if not end.open:
            return
        end.open = False
        other = self.far if end is self.near else self.near
        if not self._broken:
            self._network.carry(end.process.name, other.process, partial(self._finish, other, error), other)
        self._forget()

    def snap(self) -> None:
        """Break the line: messages in flight are lost, and both ends are notified."""
        if self._broken:
            return
        self._broken = True
        for end in (self.near, self.far):
            self._notice(end)

    def _near_died(self) -> None:
        self._died(self.near, self.far)

    def _far_died(self) -> None:
        self._died(self.far, self.near)

    def _died(self, dead: End, other: End) -> None:
        dead.open = False
        self._broken = True
        self._notice(other)
        self._forget()

    def _notice(self, end: End) -> None:
        other = (self.far if end is self.near else self.near).process.name
        self._network.carry(other, end.process, partial(self._finish, end, unreachable(other)))

    def _deliver(self, end: End, message: Any) -> None:
        if self._broken:
            self._network.harmed[_BROKEN] += 1
        elif end.open:
            end.heard(message)

    def _finish(self, end: End, error: HerdmeshError | None) -> None:
        if end.open:
            end.open = False
            end.over(error)
        self._forget()

    def _forget(self) -> None:
        if not self.near.open and not self.far.open and self in self._network.streams:
            self._network.streams.remove(self)
            for process, deed in ((self.near.process, self._near_died), (self.far.process, self._far_died)):
                if deed in process.on_death:
                    process.on_death.remove(deed)


class Responses(Inbox):
    """The client's end of a stream on which the client sends only the request."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        stream.near.heard = self.put
        stream.near.over = self.end
