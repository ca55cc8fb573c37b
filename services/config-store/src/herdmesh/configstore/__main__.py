"""The config store's process: wiring only.

Order of start: the server (NOT_SERVING, but health and `GetStoreStatus` answer), then the store (replays the topic,
joins the election, and retries until the cause of a failed start is fixed), then the roles. Order of stop: NOT_SERVING
and the campaigns ended; then the store (finishes its transaction, leaves the election) and the server's calls. A store
that closes itself ends the process; its supervisor starts it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from herdmesh.api.configstore.v1.config_read_service_pb2_grpc import add_ConfigReadServiceServicer_to_server
from herdmesh.api.configstore.v1.config_write_service_pb2_grpc import add_ConfigWriteServiceServicer_to_server
from herdmesh.api.configstore.v1.leadership_service_pb2_grpc import add_LeadershipServiceServicer_to_server
from herdmesh.configstore.effects.campaigns import Campaigns
from herdmesh.configstore.effects.stores import fresh_id, monotonic_ms, open_store, wall_clock_ms
from herdmesh.configstore.service.leadership import LeadershipServicer
from herdmesh.configstore.service.read import ConfigReadServicer
from herdmesh.configstore.service.roles import LEADERSHIP_SERVICE, READ_SERVICE, WRITE_SERVICE, follow_roles
from herdmesh.configstore.service.write import ConfigWriteServicer
from herdmesh.configstore.settings import ConfigStoreSettings
from herdmesh.kafka.librdkafka import unsupported
from herdmesh.rpc.process import run
from herdmesh.rpc.server import Server, ServiceRegistration
from herdmesh.topicstore import start_when_possible, store_readiness

_DRAIN_S = 1.0
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


async def serve(
    settings: ConfigStoreSettings, stop: asyncio.Event, on_listening: Callable[[int], None] = lambda _: None
) -> None:
    """Serve until `stop` is set or the store closes itself; calls `on_listening` with the port.

    Raises the error that ended the store, or RuntimeError.
    """
    store = open_store(settings)
    campaigns = Campaigns(store, monotonic_ms)
    write_servicer = ConfigWriteServicer(store, settings.audit_topic, wall_clock_ms, fresh_id)
    server = Server(
        settings.listen,
        [
            ServiceRegistration(ConfigReadServicer(store), add_ConfigReadServiceServicer_to_server, READ_SERVICE),
            ServiceRegistration(write_servicer, add_ConfigWriteServiceServicer_to_server, WRITE_SERVICE),
            ServiceRegistration(
                LeadershipServicer(store, campaigns), add_LeadershipServiceServicer_to_server, LEADERSHIP_SERVICE
            ),
        ],
        metrics=settings.metrics,
        ready=lambda serving: store_readiness(store, serving),
    )
    on_listening(await server.start())
    background: list[asyncio.Task[object]] = []
    try:
        starting = asyncio.create_task(start_when_possible(store))
        stopped = asyncio.create_task(stop.wait())
        background = [starting, stopped]
        await asyncio.wait(background, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            return
        await starting
        election = asyncio.create_task(campaigns.run())
        roles = asyncio.create_task(follow_roles(store, campaigns, server.set_serving))
        background = [stopped, election, roles]
        await asyncio.wait(background, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            raise RuntimeError(f"the store closed itself: {store.health.condition.name}: {store.health.message}")
    finally:
        await server.set_all_serving(False)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        # At the same time: closing the store ends the watches for which the server would otherwise wait.
        await asyncio.gather(server.stop(_DRAIN_S), store.close())


def main() -> None:
    """Entry point of `python -m herdmesh.configstore` and `herdmesh-config-store`."""

    async def warn_and_serve(settings: ConfigStoreSettings, stop: asyncio.Event) -> None:
        if why := unsupported():
            lacking = "initial offsets of a group whose name is not printable ASCII are refused"
            _log.warning("client_unsupported", message=f"Kafka client: {why}", lacking=lacking)
        await serve(settings, stop)

    run("herdmesh.configstore", ConfigStoreSettings.load, warn_and_serve)


if __name__ == "__main__":
    main()
