"""Load on a mesh from processes of its own: workers that only use the protocol, watchers, and callers of lists.

    python -m bench.scale.load workers HERDER STATUS_STORE COUNT
    python -m bench.scale.load watch HERDER COUNT
    python -m bench.scale.load list HERDER CALLERS SECONDS

Each prints one JSON line after its measurement, and then keeps its connections open until its standard input closes, so
that the other side can be measured meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack

import grpc.aio

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import config_messages_pb2 as pb
from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceStub
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as status_write_pb
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError
from tests.support.session_worker import Key, SessionWorker

_PUTS_MAX = 100


class BatchingWorker(SessionWorker):
    """A worker that writes its statuses in batches, as a real one does, and not one by one."""

    def __init__(self, worker_id: str, herder: str, status_store: str) -> None:
        super().__init__(worker_id, herder, status_store)
        self._puts: list[status_write_pb.StatusPut] = []
        self._flushing: asyncio.Task[None] | None = None

    async def _status(self, key: Key, state: common.RunState.ValueType, generation: int) -> None:
        status = status_pb2.Status(
            connector=key[0],
            task=key[1],
            state=state,
            worker_id=self.identity.worker_id,
            worker_incarnation=self.identity.incarnation,
            generation=generation,
        )
        self._puts.append(status_write_pb.StatusPut(status=status, mode=status_write_pb.PUT_MODE_PUT))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        while self._puts:
            puts, self._puts = self._puts[:_PUTS_MAX], self._puts[_PUTS_MAX:]
            request = status_write_pb.PutStatusesRequest(request_id=uuid.uuid4().hex, writer=self.identity, puts=puts)
            try:
                await self._statuses.PutStatuses(request, timeout=30)
            except HerdmeshError as error:
                print(f"statuses of {len(puts)} units are lost: {error}", file=sys.stderr)


async def _workers(herder: str, status_store: str, count: int) -> None:
    async with AsyncExitStack() as stack:
        for number in range(count):
            await stack.enter_async_context(BatchingWorker(f"w{number}:1", herder, status_store))
        await _hold({"workers": count})


async def _watch(herder: str, count: int) -> None:
    took_s: list[float] = []
    connectors: set[int] = set()
    broken: list[str] = []
    complete = asyncio.Event()

    channels = [connect(herder) for _ in range(count)]
    for channel in channels:  # one after the other: a backlog of connections is not part of the measurement
        await channel.channel_ready()
    begun_s = time.monotonic()
    request = pb.WatchConnectorsRequest()

    async def one(channel: grpc.aio.Channel) -> None:
        seen = 0
        try:
            async for event in ConnectorServiceStub(channel).WatchConnectors(request):
                seen += len(event.snapshot_part.connectors)
                if event.HasField("snapshot_complete"):
                    took_s.append(time.monotonic() - begun_s)
                    connectors.add(seen)
                    if len(took_s) == count:
                        complete.set()
        except HerdmeshError as error:
            broken.append(str(error))
            complete.set()
        finally:
            await channel.close()

    watches = [asyncio.create_task(one(channel)) for channel in channels]
    await complete.wait()
    await _hold({"took_s": sorted(took_s), "connectors": sorted(connectors), "broken": broken[:3]})
    for watch in watches:
        watch.cancel()
    await asyncio.gather(*watches, return_exceptions=True)


async def _list(herder: str, callers: int, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    took_s: list[float] = []

    async def one() -> None:
        channel = connect(herder)
        request = pb.ListConnectorsRequest(view=pb.CONNECTOR_VIEW_STATUS)
        # The response stays bytes: decoding by the caller is not part of the measurement.
        call = channel.unary_unary(
            "/herdmesh.api.herder.v1.ConnectorService/ListConnectors",
            request_serializer=pb.ListConnectorsRequest.SerializeToString,
            response_deserializer=bytes,
        )
        while time.monotonic() < end_s:
            begun_s = time.monotonic()
            await call(request, timeout=30)
            took_s.append(time.monotonic() - begun_s)
        await channel.close()

    await asyncio.gather(*(one() for _ in range(callers)))
    took_s.sort()
    await _hold({"per_s": len(took_s) / seconds, "p50_s": _at(took_s, 0.5), "p99_s": _at(took_s, 0.99)})


def _at(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


async def _hold(said: object) -> None:
    """Print the result, and wait until standard input closes."""
    print(json.dumps(said), flush=True)
    await asyncio.to_thread(sys.stdin.read)


def main(arguments: Sequence[str]) -> None:
    """Run one kind of load."""
    match arguments:
        case ["workers", herder, status_store, count]:
            asyncio.run(_workers(herder, status_store, int(count)))
        case ["watch", herder, count]:
            asyncio.run(_watch(herder, int(count)))
        case ["list", herder, callers, seconds]:
            asyncio.run(_list(herder, int(callers), float(seconds)))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
