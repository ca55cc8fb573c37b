"""Clients of a store: writers and readers of registers, watchers, herders that lead. They record their answers.

Owns the behaviour of a client: which replica it calls, what it retries with the same request id, when it stops. A
client relies only on answers, and the checkers get nothing of it but `History`.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from herdmesh.api.common.v1 import identity_pb2
from herdmesh.api.configstore.v1 import config_write_service_pb2, leadership_service_pb2
from herdmesh.rpc import properties
from herdmesh.rpc.errors import (
    HerdmeshError,
    NotWriter,
    QueueFull,
    RevisionCompacted,
    RevisionForeign,
    RevisionInFuture,
    ShuttingDown,
    StoreReplaying,
    Timeout,
    Unreachable,
    WatchOverflow,
    WriteOutcomeUnknown,
    WriterFenced,
)
from tests.support.config_register import CONTEXT, ConfigServer
from tests.support.history import History, Kind, Listing, Operation, Outcome, Read, Told, WatchLog
from tests.support.store_checks import FOREIGN_PREFIX, Granted

AnswerT = TypeVar("AnswerT")
KEYS = ("c0", "c1", "c2")
FOREIGN_KEY = f"{FOREIGN_PREFIX}0"
_NOT_APPLIED = (NotWriter, WriterFenced, StoreReplaying, ShuttingDown, QueueFull)
_UNKNOWN = (Unreachable, Timeout, WriteOutcomeUnknown)
_ATTEMPTS_MAX = 6
_WEIGHTS = {Kind.PUT: 3, Kind.CREATE: 2, Kind.UPDATE: 3, Kind.DELETE: 2}


@dataclass(slots=True)
class _Known:
    """The last value and revision a client saw under a key."""

    value: str
    revision: Any


class ClientWorld(Protocol):
    """Environment of the clients: a simulated cluster, or processes on a real broker."""

    #: The register: `ConfigRegister`, or one like it.
    side: Any
    rng: random.Random
    history: History
    replicas: Sequence[str]
    #: Possible timeouts of one call, chosen anew for each.
    timeouts_s: Sequence[float]
    #: Clients send no more requests.
    over: bool

    def now_s(self) -> float: ...

    def note(self, text: str) -> None: ...

    async def pause(self, seconds: float) -> None:
        """The time a user takes between two requests, or less when the run ends."""
        ...

    async def call(
        self, name: str, call: Callable[[Any], Coroutine[Any, Any, AnswerT]], timeout_s: float
    ) -> tuple[AnswerT, str]:
        """A unary call to a replica, and the life of it that answered. Raises `HerdmeshError`."""
        ...

    def stream(self, name: str, call: Callable[[Any], AsyncGenerator[AnswerT, None]]) -> AsyncIterator[AnswerT]:
        """A streaming call. Raises `HerdmeshError`."""
        ...


class Client:
    """One caller, one call at a time."""

    def __init__(self, world: ClientWorld, name: str, operations: int) -> None:
        self.name = name
        self.finished = 0
        self._world = world
        self._rng = random.Random(world.rng.random())
        self._operations = operations
        self._known: dict[str, _Known] = {}
        self._replica = self._rng.choice(self._world.replicas)
        self._highest: tuple[int, ...] | None = None
        self._requests = 0

    async def run(self) -> None:
        while self.finished < self._operations and not self._world.over:
            await self._world.pause(self._rng.choice((0.0, 0.001, 0.05, 0.2, 0.8)))
            if self._rng.random() < 0.55:
                await self.write()
            else:
                await self.read(linearizable=self._rng.random() < 0.5)
            self.finished += 1

    # Writing.

    async def write(self) -> Operation:
        """One write of any kind, with its retries; the operation holds the outcome."""
        rng = self._rng
        key = rng.choice(KEYS)
        kinds = self._world.side.kinds
        kind = rng.choices(kinds, weights=[_WEIGHTS[one] for one in kinds])[0]
        gone = kind is Kind.DELETE or (Kind.DELETE not in kinds and kind is Kind.PUT and rng.random() < 0.25)
        known = self._known.get(key)
        erases = gone and kind is Kind.PUT
        compares = known is not None and kind is not Kind.CREATE and not erases and rng.random() < 0.7
        self._requests += 1
        number = f"{self.name}-{self._requests}"
        operation = self._world.history.invoke(
            self.name,
            key,
            kind,
            value=None if gone else number,
            expected=known.value if known is not None and compares else None,
            request_id=f"r-{number}" if self._world.side.has_requests and rng.random() < 0.9 else "",
        )
        await self._try(operation, known.revision if known is not None and compares else None)
        self._world.note(str(operation))
        return operation

    async def _try(self, operation: Operation, expected: Any) -> None:
        world, history, side = self._world, self._world.history, self._world.side
        unknown = False
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            operation.attempts = attempt
            begun = world.now_s()
            try:
                answer, operation.replica = await world.call(
                    self._replica,
                    lambda server: side.write(server, operation, expected),
                    self._rng.choice(world.timeouts_s),
                )
            except _NOT_APPLIED as error:
                operation.detail = error.reason
            except _UNKNOWN as error:
                operation.detail = error.reason
                unknown = True
                if not operation.request_id or self._rng.random() < 0.2:
                    break
            except HerdmeshError as error:
                if not side.refused(operation, error):
                    raise
                if unknown and not side.refusal_is_final:
                    break
                operation.invoked = begun
                history.finish(operation, Outcome.REFUSED, detail=error.reason)
                return
            else:
                shown = side.told(operation, answer)
                history.finish(operation, Outcome.OK)
                self._learn(operation, shown, begun)
                return
            if not unknown and self._rng.random() < 0.15:
                break
            self._replica = self._rng.choice(self._world.replicas)
            await self._world.pause(self._rng.uniform(0.05, 1.0))
        history.finish(operation, Outcome.UNKNOWN if unknown else Outcome.NOT_APPLIED, detail=operation.detail)

    def _learn(self, operation: Operation, shown: dict[str, tuple[str, Any]] | None, begun: float) -> None:
        """Learn the key's value from an answer: the first shows its own write, a retry's the current value."""
        if operation.revision is not None:
            self._saw((operation.revision,))
        self._known.pop(operation.key, None)
        if shown is None:
            return
        for key, (value, revision) in shown.items():
            self._known[key] = _Known(value, revision)
        read = self._world.history.invoke(self.name, operation.key, Kind.READ)
        read.invoked = begun
        read.seen = shown[operation.key][0] if operation.key in shown else None
        self._world.history.finish(read, Outcome.OK, detail="told by a write's answer")

    # Reading.

    async def read(self, *, linearizable: bool, replica: str = "") -> bool:
        """One snapshot; False when it failed."""
        world, rng = self._world, self._rng
        demanded = self._highest if rng.random() < 0.4 else None
        begun = world.now_s()
        target = replica or (self._replica if rng.random() < 0.5 else rng.choice(self._world.replicas))
        try:
            answer, label = await world.call(
                target, lambda server: world.side.read(server, demanded, linearizable), world.timeouts_s[-1]
            )
        except (*_NOT_APPLIED, *_UNKNOWN, RevisionInFuture):
            return False
        read = Read(self.name, label, begun, world.now_s(), answer.revision, answer.values, demanded, linearizable)
        world.history.reads.append(read)
        self._saw(answer.revision)
        for key in KEYS:
            if key in answer.values:
                self._known[key] = _Known(answer.values[key], answer.own[key])
            else:
                self._known.pop(key, None)
            if linearizable:
                operation = world.history.invoke(self.name, key, Kind.READ)
                operation.invoked = begun
                operation.seen = answer.values.get(key)
                operation.replica = label
                world.history.finish(operation, Outcome.OK, detail=f"at {answer.revision} by {label}")
        world.note(f"{self.name} read {label} at {answer.revision} linearizable={linearizable}")
        return True

    def _saw(self, revision: tuple[int, ...]) -> None:
        if len(revision) == self._world.side.partitions:
            self._highest = revision if self._highest is None else tuple(map(max, self._highest, revision))


class Watcher:
    """Follows the store across replicas, resuming at the last revision it got."""

    def __init__(self, world: ClientWorld, name: str, *, slow: bool) -> None:
        self.log = WatchLog(name)
        world.history.watches.append(self.log)
        self._world = world
        self._rng = random.Random(world.rng.random())
        self._slow = slow

    @property
    def last(self) -> tuple[int, ...] | None:
        return self.log.listings[-1].last if self.log.listings else None

    async def run(self) -> None:
        resume: tuple[int, ...] | None = None
        while True:
            try:
                await self._follow(self._rng.choice(self._world.replicas), resume)
            except WatchOverflow:
                self.log.cut_off += 1
            except (RevisionCompacted, RevisionInFuture, RevisionForeign):
                resume = None
                await self._world.pause(0.1)
                continue
            except (*_NOT_APPLIED, *_UNKNOWN):
                pass
            await self._world.pause(0.1)
            resume = self.last
            self.log.resumed += resume is not None

    async def _follow(self, replica: str, resume: tuple[int, ...] | None) -> None:
        side = self._world.side
        until_s = self._world.now_s() + self._rng.choice((2.0, 10.0, 1000.0))
        async for change in self._world.stream(replica, lambda server: side.watch(server, resume)):
            if change.snapshot is not None:
                self.log.listings.append(Listing(change.revision, dict(change.snapshot), change.revision))
                continue
            listing = self.log.listings[-1]
            if change.key is not None:
                listing.changes.append(Told(change.key, change.value, change.revision))
            listing.last = change.revision
            if self._slow and self._rng.random() < 0.3:
                await self._world.pause(0.7)
            if self._world.now_s() > until_s:
                return  # it hangs up and resumes elsewhere


class Herder:
    """Campaigns, and while it believes that it leads writes task sets under its epoch; sometimes a little longer."""

    def __init__(self, world: ClientWorld, name: str) -> None:
        self.granted: list[Granted] = []
        self._world = world
        self._name = name
        self._rng = random.Random(world.rng.random())
        self._token: identity_pb2.LeaderToken | None = None
        self._writes = 0

    async def run(self) -> None:
        while not self._world.over:
            try:
                await self._campaign(self._rng.choice(self._world.replicas))
            except HerdmeshError:
                pass  # not the writer, or ended
            await self._world.pause(self._rng.uniform(0.1, 1.0))

    async def _campaign(self, replica: str) -> None:
        requests = self._requests()
        until_s = self._world.now_s() + self._rng.choice((3.0, 20.0, 1000.0))
        async for reply in self._world.stream(replica, lambda server: server.leadership.Campaign(requests, CONTEXT)):
            if reply.HasField("granted"):
                leadership = reply.granted.leadership
                self._token = identity_pb2.LeaderToken(epoch=leadership.epoch, leader_id=self._name)
                self.granted.append(
                    Granted(
                        leadership.epoch, leadership.leader_id, leadership.generation_first, leadership.generation_limit
                    )
                )
                self._world.note(f"{self._name} leads epoch {leadership.epoch}")
            elif reply.HasField("lost") and self._rng.random() < 0.5:
                self._token = None
            if self._world.now_s() > until_s:
                return

    async def _requests(self) -> AsyncIterator[leadership_service_pb2.CampaignRequest]:
        while True:
            yield leadership_service_pb2.CampaignRequest(herder_id=self._name, address=self._name, held=self._token)
            await self._world.pause(1.0)

    async def lead(self) -> None:
        """Write under the epoch last granted, whether it is still valid or not."""
        while not self._world.over:
            await self._world.pause(self._rng.uniform(0.2, 1.5))
            if self._token is None:
                continue
            self._writes += 1
            try:
                await self._world.call(self._rng.choice(self._world.replicas), self._commit_tasks(self._token), 5.0)
            except HerdmeshError:
                pass  # refused, or of unknown outcome: the log is judged

    def _commit_tasks(self, token: identity_pb2.LeaderToken) -> Callable[[ConfigServer], Coroutine[Any, Any, object]]:
        task = {"v": f"{self._name}-{self._writes}", "epoch": str(token.epoch)}
        request = config_write_service_pb2.CommitTaskConfigsRequest(
            options=config_write_service_pb2.WriteOptions(leader=token),
            connector=self._rng.choice(KEYS),
            tasks=[properties.to_proto(task)],
        )
        return lambda server: server.write.CommitTaskConfigs(request, CONTEXT)
