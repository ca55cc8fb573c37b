"""Fencing: initialising a task's transactional id, so that every earlier owner's next write fails.

Owns no state: the fence lives in Kafka. Librdkafka has no fenceProducers, so each id is initialised by a producer of
its own, a few at a time, in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Producer

from herdmesh.connect.error_class import ErrorClass
from herdmesh.engine.fencing import connect
from herdmesh.engine.librdkafka import RECONNECT, opened
from herdmesh.engine.runtime import TaskFailed
from herdmesh.kafka.call_timeout import HANG_TIMEOUT_S, CallHangs, bounded
from herdmesh.worker.threads import in_thread

_AT_A_TIME: Final = 4
_INIT_TIMEOUT_S: Final = 30.0


async def fence(bootstrap_servers: str, access: Mapping[str, str], transactional_ids: list[str]) -> None:
    """Return when every id is initialised. Tries all; raises the error of the first that failed: KafkaException, or
    TaskFailed when a call does not return.

    `access`: credentials and encryption, in librdkafka's settings.
    """
    limit = asyncio.Semaphore(_AT_A_TIME)

    async def one(transactional_id: str) -> None:
        async with limit:
            await in_thread(
                f"fence {transactional_id}", lambda: _initialise(bootstrap_servers, access, transactional_id)
            )

    results = await asyncio.gather(*(one(item) for item in transactional_ids), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _initialise(bootstrap_servers: str, access: Mapping[str, str], transactional_id: str) -> None:
    producer = opened(
        Producer,
        "producer",
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": transactional_id,
            "client.id": f"fence-{transactional_id}",
            **RECONNECT,
            **access,
        },
    )
    connect(producer)
    # While a commit of the old owner is in progress, the coordinator answers CONCURRENT_TRANSACTIONS for a moment.
    # librdkafka retries that itself, so an error raised here is final.
    try:
        bounded(lambda: producer.init_transactions(_INIT_TIMEOUT_S), _INIT_TIMEOUT_S + HANG_TIMEOUT_S)
    except CallHangs:
        raise TaskFailed(
            f"fencing {transactional_id}: the call to Kafka does not return, as when its broker stops in the middle of "
            "it",
            ErrorClass.UNREACHABLE,
        ) from None
