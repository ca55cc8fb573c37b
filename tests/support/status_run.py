"""Two status stores in a run: workers of rising generations contend for tasks beside the clients.

Owns the parts of a run that only the status store has (the rest is `tests.support.store_runs`), and the behaviour of
such a worker: it sends batches with a sequence, sometimes the next before the last was answered, continues under a
superseded generation, restarts under the same id; the leader reports it gone meanwhile. `tests.support.status_rules`
judges its puts.

Invariant: a worker never sends an abandoned put again under the same value.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from herdmesh.api.common.v1 import connector_pb2, identity_pb2
from herdmesh.api.statusstore.v1 import status_pb2, status_read_service_pb2, status_write_service_pb2
from herdmesh.devstack.broker import Broker
from herdmesh.rpc.errors import HerdmeshError, NotWriter, QueueFull, ShuttingDown, StoreReplaying, WriterFenced
from tests.support.config_register import CONTEXT
from tests.support.history import Kind, Outcome, Read
from tests.support.status_register import StatusRegister, StatusServer, key_of
from tests.support.status_rules import SentPut, judge
from tests.support.statusstore_process import StatusStoreProcess
from tests.support.store_checks import StoreLog, Violation
from tests.support.store_runs import Run, Stubs

_Write = status_write_service_pb2
_NOT_APPLIED = (NotWriter, WriterFenced, StoreReplaying, ShuttingDown, QueueFull)
_WORKERS = 3
_CONTENDED, _TASKS = "contended", 3
_STATES = (
    connector_pb2.RUN_STATE_RUNNING,
    connector_pb2.RUN_STATE_RUNNING,
    connector_pb2.RUN_STATE_PAUSED,
    connector_pb2.RUN_STATE_FAILED,
    connector_pb2.RUN_STATE_UNASSIGNED,
)


@dataclass
class _Server:
    write: Stubs
    read: Stubs


class StatusRun(Run):
    """One run."""

    def __init__(self, broker: Broker, topic: str, folder: Path, seed: int) -> None:
        super().__init__(broker, topic, folder, seed)
        self.side = StatusRegister("")
        self.topics = (topic,)
        self.generations = itertools.count(1)
        self.sent: list[SentPut] = []
        self._workers = [_Worker(self, f"w{number}:1") for number in range(_WORKERS)]

    def _process(
        self, bootstrap: str, log_path: Path, more: Sequence[str], environment: Mapping[str, str]
    ) -> StatusStoreProcess:
        return StatusStoreProcess(bootstrap, self.topic, log_path, more=more, environment=environment)

    def _server(self, store: StatusStoreProcess) -> _Server:
        return _Server(Stubs(store.write), Stubs(store.read))

    async def _store_id(self, store: StatusStoreProcess) -> str:
        return (await store.read.ListStatuses(status_read_service_pb2.ListStatusesRequest())).meta.revision.store_id

    def _writers_besides(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        return [worker.run for worker in self._workers]

    def _judge_besides(self, log: StoreLog) -> Sequence[Violation]:
        self.refused.update(put.refusal for put in self.sent if put.refusal)
        return judge(self.sent, log)


class _Worker:
    """One worker id; its processes come one after the other."""

    def __init__(self, run: StatusRun, worker_id: str) -> None:
        self._run = run
        self._id = worker_id
        self._rng = random.Random(run.rng.random())
        self._processes = itertools.count(1)
        self._requests = itertools.count(1)
        self._replica = self._rng.choice(run.replicas)
        self._start()

    def _start(self) -> None:
        self._incarnation = f"{self._id}-{next(self._processes)}"
        self._generation = next(self._run.generations)
        self._sequence = 0

    async def run(self) -> None:
        run, rng = self._run, self._rng
        while not run.over:
            await run.pause(rng.choice((0.0, 0.05, 0.2, 0.8)))
            if rng.random() < 0.08:
                self._start()
            elif rng.random() < 0.4:
                self._generation = next(run.generations)
            # The next request is in flight before the last is answered, and may overtake it.
            requests = [self._request() for _ in range(rng.choice((1, 1, 2, 3)))]
            rng.shuffle(requests)
            await asyncio.gather(*(self._send(*request) for request in requests))
            if rng.random() < 0.2:
                await self._send(*self._report_gone())

    def _request(self) -> tuple[_Write.PutStatusesRequest, list[SentPut]]:
        self._sequence += 1
        writer = identity_pb2.WorkerIdentity(worker_id=self._id, incarnation=self._incarnation)
        request = _Write.PutStatusesRequest(writer=writer, sequence=self._sequence)
        tasks = self._rng.sample(range(_TASKS), self._rng.choice((1, 2)))
        safe = self._rng.random() < 0.4
        batch = f"{self._id}#{next(self._requests)}"
        sent = [self._put(request, batch, _CONTENDED, task, safe=safe) for task in tasks]
        sent += [self._put(request, batch, f"only-{self._id}", task, alone=True) for task in (0, 1)]
        return request, sent

    def _report_gone(self) -> tuple[_Write.PutStatusesRequest, list[SentPut]]:
        """The leader's write when it counts a worker as gone: UNASSIGNED, safe, in the worker's name."""
        request = _Write.PutStatusesRequest()
        batch = f"{self._id}#{next(self._requests)}"
        generation = self._rng.randint(1, self._generation)
        task = self._rng.randrange(_TASKS)
        return request, [self._put(request, batch, _CONTENDED, task, safe=True, gone_at=generation)]

    def _put(
        self,
        request: _Write.PutStatusesRequest,
        batch: str,
        connector: str,
        task: int,
        *,
        safe: bool = False,
        alone: bool = False,
        gone_at: int | None = None,
    ) -> SentPut:
        """Add one put to the request, and to the record of sent puts."""
        gone = gone_at is not None
        state = connector_pb2.RUN_STATE_UNASSIGNED if gone else self._rng.choice(_STATES)
        key = key_of(connector, task)
        operation = self._run.history.invoke(self._id, key, Kind.PUT, value=f"{batch}-{key}")
        put = SentPut(
            operation,
            batch,
            self._id,
            "" if gone else self._incarnation,
            gone_at if gone_at is not None else self._generation,
            0 if gone else self._sequence,
            safe=safe,
            unassigned=state == connector_pb2.RUN_STATE_UNASSIGNED,
            alone=alone,
        )
        request.puts.add(
            status=status_pb2.Status(
                connector=connector,
                task=task,
                state=state,
                trace=operation.value,
                worker_id=self._id,
                generation=put.generation,
            ),
            mode=_Write.PUT_MODE_PUT_SAFE if safe else _Write.PUT_MODE_PUT,
        )
        self._run.sent.append(put)
        return put

    async def _send(self, request: _Write.PutStatusesRequest, sent: Sequence[SentPut]) -> None:
        history = self._run.history
        try:
            answer, label = await self._run.call(
                self._replica,
                lambda server: server.write.PutStatuses(request, CONTEXT),
                self._rng.choice(self._run.timeouts_s),
            )
        except HerdmeshError as error:
            outcome = Outcome.NOT_APPLIED if isinstance(error, _NOT_APPLIED) else Outcome.UNKNOWN
            for put in sent:
                history.finish(put.operation, outcome, detail=error.reason)
            self._replica = self._rng.choice(self._run.replicas)
            return
        acknowledged = tuple(answer.meta.revision.next_offsets)
        for put, outcome in zip(sent, answer.outcomes, strict=True):
            put.operation.replica = label
            put.acknowledged = acknowledged
            if outcome.result == _Write.PUT_RESULT_APPLIED:
                history.finish(put.operation, Outcome.OK)
            else:
                put.refusal = _Write.PutResult.Name(outcome.result).removeprefix("PUT_RESULT_")
                history.finish(put.operation, Outcome.NOT_APPLIED, detail=put.refusal)
        if self._rng.random() < 0.3:
            await self._read_at(acknowledged)

    async def _read_at(self, demanded: tuple[int, ...]) -> None:
        """Check that an answered write is visible when its revision is demanded, from whichever replica."""
        run, begun = self._run, self._run.now_s()

        def read(server: StatusServer) -> Coroutine[Any, Any, Any]:
            return run.side.read(server, demanded, False)

        try:
            answer, label = await run.call(self._rng.choice(run.replicas), read, run.timeouts_s[-1])
        except HerdmeshError:
            return  # it has ended, is stopped or starting: the next one is read
        run.history.reads.append(Read(self._id, label, begun, run.now_s(), answer.revision, answer.values, demanded))
