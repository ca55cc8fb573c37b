"""SIGTERM to a herder and to the stores while their peers are frozen, or listen and never hang up: each ends
within its bounds all the same, with exit code 0, and every waiting caller gets an answer.

Stores keep everything in memory, so that the measurement is of the stop's own steps. Stops that hand something over are
in `test_leadership.py` (herder), `test_replicas.py` (stores) and `test_graceful_stop.py` (worker).
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from herdmesh.api.configstore.v1 import config_read_service_pb2
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import connector_service_pb2_grpc
from herdmesh.api.herder.v1 import lifecycle_messages_pb2 as lifecycle
from herdmesh.api.statusstore.v1 import status_read_service_pb2
from herdmesh.rpc.errors import HerdmeshError, Unavailable, WriteOutcomeUnknown
from herdmesh.rpc.request_ids import new_request_id
from tests.support.configstore_process import ConfigStoreProcess
from tests.support.statusstore_process import StatusStoreProcess
from tests.support.store_process import StoreProcess
from tests.support.waiting import timed

#: Every stage of a stop has a bound of its own (1 s, 2 s); together they come to less than 10 s on an idle machine.
#: Three times that on a busy machine.
STOP_S_MAX = 30.0


class Herder(StoreProcess):
    """`python -m herdmesh.herder` on a free port."""

    module = "herdmesh.herder"
    read_service = write_service = "herdmesh.api.herder.v1.ConnectorService"

    def stub(self, channel: grpc.aio.Channel) -> None:
        self.connectors = connector_service_pb2_grpc.ConnectorServiceStub(channel)


@asynccontextmanager
async def _listening(watch: AsyncIterable[Any]) -> AsyncGenerator[asyncio.Task[HerdmeshError | None]]:
    """A watch that is read to its end: the error that ended it."""
    begun = asyncio.Event()

    async def listen() -> HerdmeshError | None:
        try:
            async for _ in watch:
                begun.set()
        except HerdmeshError as error:
            return error
        return None

    task = asyncio.create_task(listen())
    try:
        await asyncio.wait_for(begun.wait(), 20)
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _stopped(process: StoreProcess) -> float:
    """Seconds from SIGTERM to the end."""
    begun_s = time.monotonic()
    process.signal(signal.SIGTERM)
    async with asyncio.timeout(STOP_S_MAX):
        assert await process.ended() == 0
    return time.monotonic() - begun_s


@timed
@pytest.mark.timed
@pytest.mark.timeout(120)
async def test_frozen_or_listening_peers_do_not_delay_the_end_of_a_herder_or_store(tmp_path: Path) -> None:
    config = ConfigStoreProcess("127.0.0.1:1", "configs", tmp_path / "config.log", more=["--memory"])
    status = StatusStoreProcess("127.0.0.1:1", "status", tmp_path / "status.log", more=["--memory"])
    made: list[StoreProcess] = [config, status]
    try:
        await asyncio.gather(config.start(), status.start())
        addresses = [f"--config-store={config.address}", f"--status-store={status.address}"]
        herder, other = (Herder(addresses, tmp_path / f"herder-{number}.log") for number in (1, 2))
        made += [herder, other]
        await herder.start()
        await asyncio.gather(herder.until_writing(), other.start())
        watches = (
            herder.connectors.WatchConnectors(messages.WatchConnectorsRequest()),
            config.read.Watch(config_read_service_pb2.WatchRequest()),
            status.read.WatchStatuses(status_read_service_pb2.WatchStatusesRequest()),
        )
        async with _listening(watches[0]) as told, _listening(watches[1]), _listening(watches[2]):
            for store in (config, status):
                store.signal(signal.SIGSTOP)
            pause = lifecycle.PauseConnectorRequest(name="a", request_id=new_request_id())
            call = asyncio.ensure_future(herder.connectors.PauseConnector(pause, timeout=60))
            herder_s = await _stopped(herder)
            with pytest.raises((Unavailable, WriteOutcomeUnknown)):
                await call
            assert isinstance(await told, Unavailable), "the next leader is to be watched"
            for store in (config, status):
                store.signal(signal.SIGCONT)
            other.signal(signal.SIGSTOP)  # its campaign and its watches are open, and it never hangs up
            stores_s = await asyncio.gather(_stopped(config), _stopped(status))
        print(f"herder ended after {herder_s:.2f} s, config store and status store after {stores_s}")
    finally:
        for process in reversed(made):
            await process.kill()
