"""RPC of `ConnectorService` that changes many connectors in one call.

Owns the order of a batch: every config is validated once, then the changes are written side by side; and its bounds.
Owns no rule about a change: each is carried out as its own RPC would carry it out, with the verdict of its validation.

Why side by side: the config store commits concurrent writes in one transaction, and a connector that exists starts its
tasks, which compete with the rest of the batch for the processors.

Invariants: a change that is begun has an outcome, also after a stop; a change without one, at the end of the stream,
was not begun. A caller who does not read the outcomes stops the batch, and occupies a bounded amount of memory.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import grpc.aio

from herdmesh.api.herder.v1 import batch_messages_pb2 as batch_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as pb
from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.herder.service.offsets import OffsetRpcs
from herdmesh.herder.state.model import Validation
from herdmesh.herder.state.model import requests as rq
from herdmesh.rpc import properties, status
from herdmesh.rpc.errors import HerdmeshError, InvalidConfig, RequestInvalid

CHANGES_MAX: Final = 10_000
"""Changes of one batch."""
BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of one batch, which the herder keeps in memory."""
CHECKS_AT_ONCE: Final = 16
"""Validations under way. They take processor time of one worker, so more at once are not faster."""
WRITES_AT_ONCE: Final = 256
"""Writes under way: with so many, the config store's transactions are large enough."""

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Change: TypeAlias = pb.CreateConnectorRequest | pb.UpdateConnectorRequest | pb.DeleteConnectorRequest


@dataclass(slots=True)
class _Batch:
    """The changes of one call, and the outcomes that the caller has not read yet."""

    changes: Sequence[_Change]
    begin: batch_pb.BeginChanges
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    outcomes: asyncio.Queue[batch_pb.ChangeConnectorsResponse | None] = field(
        default_factory=lambda: asyncio.Queue(WRITES_AT_ONCE)
    )
    verdicts: dict[int, Validation] = field(default_factory=dict[int, Validation])
    refused: set[int] = field(default_factory=set[int])


class BatchRpcs(OffsetRpcs):
    """Mixin of the public service that changes many connectors."""

    async def ChangeConnectors(
        self, request_iterator: AsyncIterator[batch_pb.ChangeConnectorsRequest], context: _Context
    ) -> AsyncIterator[batch_pb.ChangeConnectorsResponse]:
        self._must_lead(rq.UpdateConnector)
        batch = await _received(request_iterator)
        reading = asyncio.create_task(_read_stop(request_iterator, batch.stopped))
        working = asyncio.create_task(self._carry_out(batch, context))
        try:
            while (outcome := await batch.outcomes.get()) is not None:
                yield outcome
            await working
        finally:
            for task in (reading, working):
                task.cancel()
            await asyncio.gather(reading, working, return_exceptions=True)

    async def _carry_out(self, batch: _Batch, context: _Context) -> None:
        """Carry out the batch, and end its outcomes, also after a bug."""
        try:
            await self._validate_and_write(batch, context)
        except Exception:
            await batch.outcomes.put(None)
            raise
        await batch.outcomes.put(None)

    async def _validate_and_write(self, batch: _Batch, context: _Context) -> None:
        numbers = range(len(batch.changes))
        checked = [one for one in numbers if not isinstance(batch.changes[one], pb.DeleteConnectorRequest)]
        await _side_by_side(checked, CHECKS_AT_ONCE, batch.stopped, lambda one: self._check(batch, one, context))
        if batch.begin.validate_only or (batch.refused and not batch.begin.keep_going):
            return
        valid = [one for one in numbers if one not in batch.refused]
        await _side_by_side(valid, WRITES_AT_ONCE, batch.stopped, lambda one: self._write(batch, one, context))

    async def _check(self, batch: _Batch, number: int, context: _Context) -> None:
        """Have a worker validate the config of a change."""
        change = batch.changes[number]
        assert not isinstance(change, pb.DeleteConnectorRequest)
        warnings: Sequence[worker_service_pb2.ConfigWarning] = ()
        try:
            wanted = rq.ValidateConfig(properties.from_proto(change.config), change.name)
            verdict = (await self._call(wanted, rq.Validated, "", None, context)).validation
            assert isinstance(verdict.wire, worker_service_pb2.ConfigValidation)
            warnings = verdict.wire.warnings
            if verdict.violations:
                raise InvalidConfig(verdict.violations)
        except HerdmeshError as error:
            batch.refused.add(number)
            await self._tell(batch, number, failure=_failure(error, warnings))
            return
        # The whole result has the definition of every key; of a batch of thousands, only the warnings are kept.
        batch.verdicts[number] = Validation(wire=worker_service_pb2.ConfigValidation(warnings=warnings))
        await self._tell(batch, number, checked=batch_pb.ChangeChecked(warnings=warnings))

    async def _write(self, batch: _Batch, number: int, context: _Context) -> None:
        change = batch.changes[number]
        try:
            match change:
                case pb.CreateConnectorRequest():
                    created = await self._create(change, context, batch.verdicts[number])
                    await self._tell(batch, number, created=created)
                case pb.UpdateConnectorRequest():
                    updated = await self._update(change, context, batch.verdicts[number])
                    await self._tell(batch, number, updated=updated)
                case _:
                    wanted, expected = rq.DeleteConnector(change.name), change.expected_revision
                    await self._call(wanted, rq.Written, change.request_id, expected, context)
                    await self._tell(batch, number, deleted=pb.DeleteConnectorResponse(meta=self._meta()))
        except HerdmeshError as error:
            await self._tell(batch, number, failure=_failure(error))

    async def _tell(self, batch: _Batch, number: int, **outcome: Any) -> None:
        response = batch_pb.ChangeConnectorsResponse(meta=self._meta(), number=number, **outcome)
        await batch.outcomes.put(response)

    @abstractmethod
    async def _create(
        self, request: pb.CreateConnectorRequest, context: _Context, verdict: Validation | None
    ) -> pb.CreateConnectorResponse:
        """Create a connector; without a worker's verdict on its config, have a worker validate it."""

    @abstractmethod
    async def _update(
        self, request: pb.UpdateConnectorRequest, context: _Context, verdict: Validation | None
    ) -> pb.UpdateConnectorResponse:
        """Update a connector, as `_create`."""


async def _received(requests: AsyncIterator[batch_pb.ChangeConnectorsRequest]) -> _Batch:
    """The batch, up to its begin. Raises RequestInvalid for one that is too large or malformed."""
    changes: list[_Change] = []
    names: set[str] = set()
    size_bytes = 0
    async for request in requests:
        part = request.WhichOneof("part")
        if part == "begin":
            return _Batch(changes, request.begin)
        if part != "changes":
            raise RequestInvalid("a batch has its changes first, then begin", "part")
        size_bytes += request.ByteSize()
        if size_bytes > BATCH_BYTES_MAX or len(changes) + len(request.changes.changes) > CHANGES_MAX:
            text = f"a batch has at most {CHANGES_MAX} changes and {BATCH_BYTES_MAX} bytes: send several"
            raise RequestInvalid(text, "changes")
        for one in request.changes.changes:
            change = _change_of(one)
            if change.name and change.name in names:
                raise RequestInvalid(f"connector {change.name} has two changes in this batch", "changes")
            names.add(change.name)
            changes.append(change)
    raise RequestInvalid("the batch ended without begin; nothing was changed", "part")


def _change_of(one: batch_pb.ConnectorChange) -> _Change:
    match one.WhichOneof("change"):
        case "create":
            return one.create
        case "update":
            return one.update
        case "delete":
            return one.delete
        case _:
            raise RequestInvalid("a change is empty, or of a kind that this release does not know", "changes")


async def _read_stop(requests: AsyncIterator[batch_pb.ChangeConnectorsRequest], stopped: asyncio.Event) -> None:
    """Set `stopped` when the caller sends stop."""
    async for request in requests:
        if request.WhichOneof("part") == "stop":
            stopped.set()


async def _side_by_side(
    numbers: Sequence[int], at_once: int, stopped: asyncio.Event, work: Callable[[int], Awaitable[None]]
) -> None:
    """Do the work for each number in order, so many at once; begin no more once stopped."""
    left = iter(numbers)

    async def serve() -> None:
        for number in left:
            if stopped.is_set():
                return
            await work(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(numbers))):
            group.create_task(serve())


def _failure(error: HerdmeshError, warnings: Sequence[worker_service_pb2.ConfigWarning] = ()) -> batch_pb.ChangeFailure:
    return batch_pb.ChangeFailure(status=status.details(error), warnings=warnings)
