"""Client of the status store: status writes and the lease.

Owns the statuses that are not written yet. Invariants:

- At most one request is in progress. Each has a higher `sequence` than those before it, so that an older status of a
  unit never overwrites a newer one, also when the call of the older one timed out.
- RUNNING statuses are delayed shortly to share a transaction, since the leader has them already; others are written at
  once.
- Of two waiting writes of one unit only the later is kept. While the store is unreachable, the number of waiting writes
  is bounded by the number of held units.
- A status that the store rejects as invalid delays no other.
- No caller waits for a write.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from herdmesh.api.common.v1 import identity_pb2
from herdmesh.api.statusstore.v1 import status_pb2, status_write_service_pb2, status_write_service_pb2_grpc
from herdmesh.rpc import commit_scopes
from herdmesh.rpc.client import connect
from herdmesh.rpc.enums import WireEnum, name_of
from herdmesh.rpc.errors import HerdmeshError, RequestInvalid
from herdmesh.session import wire as session_wire
from herdmesh.session.model import RunState, UnitId
from herdmesh.worker import wire
from herdmesh.worker.effects.runs import RunSpecs
from herdmesh.worker.state.events import StatusStale
from herdmesh.worker.state.instructions import WriteStatus
from herdmesh.worker.state.model import PutMode

_BATCH_MAX: Final = 500
#: A connector and its tasks become RUNNING, and have committed, within about this time of each other.
_GATHER_S: Final = 0.1
_CALL_TIMEOUT_S: Final = 5.0
_LEASE_INTERVAL_S: Final = 1.5
_BACKOFF_S_MAX: Final = 0.5
_MODES: Final = WireEnum(status_write_service_pb2.PutMode, PutMode)
_SERVICE: Final = "herdmesh.api.statusstore.v1.StatusWriteService"
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class StatusClient:
    """Writes statuses and keeps the lease until closed."""

    def __init__(
        self,
        addresses: str,
        worker: identity_pb2.WorkerIdentity,
        specs: RunSpecs,
        emit: Callable[[StatusStale], Awaitable[None]],
    ) -> None:
        self._worker = worker
        self._specs = specs
        self._emit = emit
        several = "," in addresses
        self._channel = connect(addresses, _SERVICE if several else "")
        self._stub = status_write_service_pb2_grpc.StatusWriteServiceStub(self._channel)
        self._waiting: dict[UnitId, WriteStatus] = {}
        self._sequence = 0
        self._something_waits = asyncio.Event()
        self._something_is_urgent = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> list[asyncio.Task[None]]:
        """Start writing and keep the lease. Returns the tasks that must not end before `close`."""
        self._tasks = [
            asyncio.create_task(self._write_all(), name="status writes"),
            asyncio.create_task(self._keep_lease(), name="lease"),
        ]
        return self._tasks

    def write(self, instruction: WriteStatus) -> None:
        """Queue a write; an unwritten earlier status of the unit is discarded."""
        self._waiting.pop(instruction.unit, None)
        self._waiting[instruction.unit] = instruction
        if instruction.state is not RunState.RUNNING:
            self._something_is_urgent.set()
        self._idle.clear()
        self._something_waits.set()

    async def close(self, flush_s: float) -> None:
        """Write the queued statuses and end the lease, within about `flush_s`."""
        self._something_is_urgent.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(flush_s):
                await self._idle.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._heartbeat(leaving=True, timeout_s=min(flush_s, 1.0))
        except HerdmeshError as error:
            _log.info("lease_not_ended", error=str(error))
        await self._channel.close()

    # --- statuses

    async def _write_all(self) -> None:
        backoff_s = 0.0
        batch_max = _BATCH_MAX
        while True:
            if not self._waiting:
                self._idle.set()
                self._something_waits.clear()
                await self._something_waits.wait()
                batch_max = _BATCH_MAX
            if len(self._waiting) < batch_max == _BATCH_MAX:
                await self._gather()
            batch = [self._waiting.pop(unit) for unit in list(self._waiting)[:batch_max]]
            try:
                await self._put(batch)
                backoff_s = 0.0
            except RequestInvalid as error:
                if len(batch) == 1:
                    _log.error("status_invalid", unit=str(batch[0].unit), state=batch[0].state, error=str(error))
                    continue
                # One of them is invalid: send them one by one, so that only that one is discarded.
                batch_max = 1
                self._waiting = {one.unit: one for one in batch} | self._waiting
            except HerdmeshError as error:
                # Back into the queue, in front, unless a newer status of the unit waits by now.
                self._waiting = {one.unit: one for one in batch} | self._waiting
                if backoff_s == 0.0:
                    _log.warning("status_store_unreachable", error=str(error), waiting=len(self._waiting))
                backoff_s = min(max(0.05, backoff_s * 2), _BACKOFF_S_MAX)
                await asyncio.sleep(random.uniform(backoff_s / 2, backoff_s))

    async def _gather(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GATHER_S):
                await self._something_is_urgent.wait()
        self._something_is_urgent.clear()

    async def _put(self, batch: list[WriteStatus]) -> None:
        puts = [
            status_write_service_pb2.StatusPut(status=self._status(one), mode=_MODES.to_wire(one.mode)) for one in batch
        ]
        self._sequence += 1
        request = status_write_service_pb2.PutStatusesRequest(writer=self._worker, puts=puts, sequence=self._sequence)
        response = await self._stub.PutStatuses(request, timeout=_CALL_TIMEOUT_S)
        for one, outcome in zip(batch, response.outcomes, strict=True):
            if outcome.result == status_write_service_pb2.PUT_RESULT_STALE_GENERATION:
                _log.warning("status_stale", unit=one.unit.log_context, generation=one.generation)
                await self._emit(StatusStale(one.unit, one.generation))
            elif outcome.result != status_write_service_pb2.PUT_RESULT_APPLIED:
                name = name_of(status_write_service_pb2.PutResult, outcome.result)
                _log.info("status_refused", unit=one.unit.log_context, state=one.state, result=name)

    def _status(self, one: WriteStatus) -> status_pb2.Status:
        return status_pb2.Status(
            connector=one.unit.connector,
            task=one.unit.task,
            state=session_wire.RUN_STATES.to_wire(one.state),
            trace=wire.trace_to(one.failure),
            worker_id=self._worker.worker_id,
            generation=one.generation,
            version=self._specs.version(one.config),
            commit_scope=commit_scopes.to_proto(one.commit_scope),
            worker_incarnation=self._worker.incarnation,
            conditions=map(session_wire.condition_to, one.conditions),
        )

    # --- lease

    async def _keep_lease(self) -> None:
        away = False
        while True:
            try:
                await self._heartbeat(leaving=False, timeout_s=_LEASE_INTERVAL_S)
                away = False
            except HerdmeshError as error:
                if not away:
                    _log.warning("lease_not_renewed", error=str(error))
                away = True
                await asyncio.sleep(_BACKOFF_S_MAX)
                continue
            await asyncio.sleep(_LEASE_INTERVAL_S)

    async def _heartbeat(self, *, leaving: bool, timeout_s: float) -> None:
        request = status_write_service_pb2.HeartbeatRequest(worker=self._worker, leaving=leaving)
        await self._stub.Heartbeat(request, timeout=timeout_s)
