"""Lookup of the outcome of a hanging transaction: one that was decided, but whose marker Kafka lost (ADR 0006).

A broker that dies between deciding a transaction and writing its marker may drop the marker when it comes back. The
partition then keeps the transaction open: nothing behind it can be read, and a transaction over two topics may be
visible in only one of them. Only a marker of the same producer id ends it; the writer writes that marker
(`Writer.finish`).

Owns the query, with a client of the store, and the meaning of its failures. Invariant: the result "unknown, not
authorized" is returned only where a retry would not help.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from herdmesh.connect.topics import transaction_topic
from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.logins import ready
from herdmesh.kafka.transaction_outcomes import DecisionsNotRead, decisions
from herdmesh.topicstore.kafka.access import REFUSALS
from herdmesh.topicstore.kafka.client_calls import client_logger, on_client_error
from herdmesh.topicstore.kafka.topics import Shard, kafka_error
from herdmesh.topicstore.log import LogBlocked, LogUnavailable
from herdmesh.topicstore.settings import TopicSettings

_logger = logging.getLogger(__name__)
_READ_S = 10.0

#: librdkafka's local error codes for a broker that did not answer.
_NO_ANSWER = frozenset(
    {KafkaError._TRANSPORT, KafkaError._TIMED_OUT}  # pyright: ignore[reportPrivateUsage]  # librdkafka's local codes
)


def decided(settings: TopicSettings, shards: Iterable[Shard]) -> Mapping[Shard, bool | None]:
    """Return the decision per shard: True = commit, False = abort, None = cannot be known (the login may not read the
    transaction topic, or the topic no longer has the entry).

    Blocks for up to 20 s. Raises `LogBlocked` (not known yet) or `LogUnavailable` (no answer from the broker) when a
    retry may help.
    """
    known: dict[Shard, bool | None] = dict.fromkeys(shards)
    consumer = _open(settings)
    try:
        known.update(decisions(consumer, settings.transactional_id, known, limit_s=_READ_S))
    except (KafkaException, DecisionsNotRead) as failure:
        error = kafka_error(failure)
        if error is not None and error.code() in _NO_ANSWER:
            raise LogUnavailable(f"cannot read {transaction_topic.NAME}: {failure}") from failure
        if error is None or error.code() not in REFUSALS:
            raise LogBlocked(
                f"to learn how an earlier transaction of this store was decided ({failure})",
                f"check that the topic {transaction_topic.NAME} can be read: its leader must be up",
            ) from failure
        _logger.warning(
            "no permission to read how a transaction of %r was decided: %s", settings.transactional_id, failure
        )
    finally:
        consumer.close()
    return known


def _open(settings: TopicSettings) -> Consumer:
    configs: dict[str, Any] = {
        **settings.client_configs,
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": f"{settings.client_id_base}-hanging",
        "group.id": f"{settings.client_id_base}-hanging-unused",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        **NO_AUTO_CREATION,
        "error_cb": on_client_error,
    }
    return Consumer(ready(configs), logger=client_logger)
