"""Process of the herder: wiring only.

Order of start: server (NOT_SERVING, and every call refused, until this herder leads), loop, watches, campaign. Order
of stop, each stage bounded: NOT_SERVING; resign (another herder leads at once); stop leading (workers keep their tasks
and dial another herder, callers are sent to it, writes under way end); end the loop; end the calls; close the channels.
"""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Any

import structlog

from herdmesh.api.herder.v1.connector_service_pb2_grpc import add_ConnectorServiceServicer_to_server
from herdmesh.api.herder.v1.worker_session_service_pb2_grpc import add_WorkerSessionServiceServicer_to_server
from herdmesh.herder.effects.campaign import Campaign
from herdmesh.herder.effects.cluster_id import ClusterId
from herdmesh.herder.effects.topic_tracking import TopicTracking
from herdmesh.herder.effects.topics import Topics
from herdmesh.herder.effects.watches import ConfigWatch, StatusWatch
from herdmesh.herder.effects.writes import StoreWrites
from herdmesh.herder.errors import PartEnded
from herdmesh.herder.loop import HerderLoop
from herdmesh.herder.metrics import HerderMetrics
from herdmesh.herder.service import CONNECTOR_SERVICE, SESSION_SERVICE, ConnectorServicer, WorkerSessionServicer
from herdmesh.herder.settings import HerderSettings
from herdmesh.herder.state import Herder
from herdmesh.rpc.errors import NotLeader
from herdmesh.rpc.process import run
from herdmesh.rpc.server import Server, ServiceRegistration

_DRAIN_S = 1.0
#: Thresholds of the garbage collector: new objects before a pass over the young ones, young passes before a middle
#: pass, middle passes before a full pass. The passes stop the process for about 1 ms, 10 ms and, at 1,000 connectors,
#: 50 to 70 ms. A full pass therefore comes after ten million new objects at the earliest. It cannot be switched off:
#: errors with their tracebacks and futures of ended streams form cycles and would pile up for ever.
_COLLECT_AFTER = (10_000, 10, 100)
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


async def serve(
    settings: HerderSettings, stop: asyncio.Event, on_listening: Callable[[int], None] = lambda _: None
) -> None:
    """Serve until `stop` is set; `on_listening` gets the port.

    Raises OSError when the port is taken, and the error of any part that must not end.
    """
    herder_id = uuid.uuid4().hex
    role_changed = asyncio.Event()
    metrics = HerderMetrics() if settings.metrics else None
    loop = HerderLoop(Herder(settings.rules(herder_id)), role_changed.set, metrics)
    topics = Topics(
        settings.status_store,
        enabled=settings.topic_tracking_enable,
        resettable=settings.topic_tracking_allow_reset,
    )
    tracking = TopicTracking(
        topics, lambda name: loop.herder.connector(name) is not None, enabled=settings.topic_tracking_enable
    )
    cluster_id = ClusterId(settings.config_store)
    release = version("herdmesh-herder")
    connectors = ConnectorServicer(loop, topics, tracking, cluster_id, settings.request_timeout_ms, release)
    sessions = WorkerSessionServicer(loop, tracking)
    server = Server(
        settings.listen,
        [
            ServiceRegistration(connectors, add_ConnectorServiceServicer_to_server, CONNECTOR_SERVICE),
            ServiceRegistration(sessions, add_WorkerSessionServiceServicer_to_server, SESSION_SERVICE),
        ],
        metrics=settings.metrics,
        ready=lambda _: _readiness(loop.herder),
    )

    async def follow_roles() -> None:
        while True:
            await role_changed.wait()
            role_changed.clear()
            await server.set_all_serving(loop.herder.refusal is None)

    port = await server.start()
    on_listening(port)
    address = settings.address(port)
    campaign = Campaign(settings.config_store, herder_id, address, loop.post)
    writes = StoreWrites(settings.config_store, settings.status_store, herder_id, loop.post, campaign.carry_out)
    watches = (ConfigWatch(settings.config_store, loop.post), StatusWatch(settings.status_store, loop.post))
    loop.connect(writes)
    parts: list[Coroutine[Any, Any, None]] = [loop.run(), follow_roles(), campaign.run(), tracking.run()]
    tasks = [asyncio.create_task(part) for part in (*parts, *(watch.run() for watch in watches))]
    fetching_id = asyncio.create_task(cluster_id.run())  # ends by itself
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
                raise PartEnded("a part of the herder ended by itself")
    finally:
        await server.set_all_serving(False)
        await campaign.resign()
        await loop.stop_leading(_DRAIN_S)
        stopped.cancel()
        for task in (*tasks, fetching_id):
            task.cancel()
        await asyncio.gather(*tasks, fetching_id, return_exceptions=True)
        await server.stop(_DRAIN_S)
        await writes.close()
        for part in (campaign, topics, cluster_id, *watches):
            await part.close()


def _readiness(herder: Herder) -> tuple[bool, str]:
    """Ready while this herder leads, or is a standby that knows the leader: callers and workers are sent there."""
    refusal = herder.refusal
    if refusal is None:
        return True, "this herder leads"
    if isinstance(refusal, NotLeader):
        return True, f"this herder is a standby; {refusal.leader_address} leads"
    return False, str(refusal)


def _collect_seldom() -> None:
    """Keep the garbage collector's pauses out of most steps of the state. Objects that are imported by now are never
    examined again, and the state's objects form no cycles, so that a full pass would find little.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


def main() -> None:
    """Entry point of `python -m herdmesh.herder` and `herdmesh-herder`."""

    async def collect_seldom_and_serve(settings: HerderSettings, stop: asyncio.Event) -> None:
        _collect_seldom()
        await serve(settings, stop)

    run("herdmesh.herder", HerderSettings.load, collect_seldom_and_serve)


if __name__ == "__main__":
    main()
