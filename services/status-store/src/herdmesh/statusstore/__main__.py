"""The status store's process: `python -m herdmesh.statusstore`. Wiring only.

When the topic store cannot start, the process stays, reports the cause (health, `GetStoreStatus`) and retries until the
cause is fixed. A store that closes itself ends the process; its supervisor starts it again.

Invariant: the stop is staged and bounded: no new calls (health reports it), running calls end, and the store leaves the
election at once so that another replica takes over without waiting for a timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from herdmesh.api.statusstore.v1.status_read_service_pb2_grpc import add_StatusReadServiceServicer_to_server
from herdmesh.api.statusstore.v1.status_write_service_pb2_grpc import add_StatusWriteServiceServicer_to_server
from herdmesh.rpc.process import run
from herdmesh.rpc.server import Server, ServiceRegistration
from herdmesh.statusstore.effects.leases import LeaseKeeper
from herdmesh.statusstore.effects.relay import WRITE_SERVICE, LeaseRelay
from herdmesh.statusstore.effects.requests import Requests
from herdmesh.statusstore.effects.role import READ_SERVICE, follow_role
from herdmesh.statusstore.effects.store import Store, make_store
from herdmesh.statusstore.service.reads import StatusReadService
from herdmesh.statusstore.service.writes import StatusWriteService
from herdmesh.statusstore.settings import StatusStoreSettings
from herdmesh.topicstore import start_when_possible, store_readiness

STOP_GRACE_S: Final = 1.0


def make_server(settings: StatusStoreSettings, store: Store, keeper: LeaseKeeper, requests: Requests) -> Server:
    """The server with both services over one store, not started."""
    return Server(
        settings.listen,
        [
            ServiceRegistration(
                StatusReadService(store, keeper), add_StatusReadServiceServicer_to_server, READ_SERVICE
            ),
            ServiceRegistration(
                StatusWriteService(store, keeper, requests, settings.lease_ms),
                add_StatusWriteServiceServicer_to_server,
                WRITE_SERVICE,
            ),
        ],
        metrics=settings.metrics,
        ready=lambda serving: store_readiness(store, serving),
    )


async def serve(
    stop: asyncio.Event,
    settings: StatusStoreSettings,
    store: Store,
    on_listening: Callable[[int], None] = lambda _: None,
) -> None:
    """Serve until `stop` is set; calls `on_listening` with the port. Raises `StoreGone` when the store closes itself,
    and the errors of its start.
    """
    keeper, requests = LeaseKeeper(), Requests()
    relay = LeaseRelay(settings.peers, keeper)
    server = make_server(settings, store, keeper, requests)
    on_listening(await server.start())
    following: asyncio.Task[None] | None = None
    stopping = asyncio.ensure_future(stop.wait())
    starting = asyncio.ensure_future(start_when_possible(store))
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            following = asyncio.ensure_future(follow_role(store, server, keeper, relay, requests, settings.lease_ms))
            await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
    finally:
        tasks: list[asyncio.Future[Any]] = [task for task in (following, stopping, starting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # At the same time: closing the store and the leases ends the watches, so the server need not wait for its grace
        # period.
        keeper.close()
        await asyncio.gather(server.stop(STOP_GRACE_S), store.close(), relay.stop())


def main() -> None:
    """Console script `herdmesh-status-store`."""

    async def on_its_store(settings: StatusStoreSettings, stop: asyncio.Event) -> None:
        await serve(stop, settings, make_store(settings))

    run("herdmesh.statusstore", StatusStoreSettings.load, on_its_store)


if __name__ == "__main__":
    main()
