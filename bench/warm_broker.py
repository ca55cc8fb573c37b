"""Broker of the control plane's benches: started, warmed, with the topic that all their connectors read.

Owns the broker from its start to its stop; knows neither cluster. Invariant: what is measured first does not pay for
the compiling of the broker's JVM.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.herder.figures import TOPIC, Sizes, warm, write_one
from herdmesh.devstack.broker import Broker


@asynccontextmanager
async def warm_broker(folder: Path, sizes: Sizes) -> AsyncGenerator[Broker]:
    """A broker with its data in `folder`, warmed by the clients of `sizes`; it stops at the end of the block."""
    broker = Broker(folder, port=0)
    await broker.start()
    try:
        admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
            await asyncio.to_thread(future.result)
        await asyncio.to_thread(write_one, broker.bootstrap)
        print("warming the broker", flush=True)
        await asyncio.to_thread(warm, broker.bootstrap, sizes)
        yield broker
    finally:
        await broker.stop()
