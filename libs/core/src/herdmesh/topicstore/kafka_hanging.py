"""How a transaction of the stores' id was decided that Kafka left without its marker (ADR 0006).

A broker that dies between deciding a transaction and writing its marker may drop the marker when it comes back. The
partition then holds the transaction open: nothing behind it can be read, and a transaction of two topics may be visible
in one of them alone. Only a marker of the same producer id ends it; the writer writes that (`Writer.finish`).

Owns the reading of the decision. Invariant: what is answered is the last decision that names the partition; a later one
would have ended what hangs there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from herdmesh.connect import transaction_topic
from herdmesh.topicstore.calls import NO_AUTO_CREATION, client_logger, on_client_error
from herdmesh.topicstore.kafka_access import REFUSALS
from herdmesh.topicstore.kafka_topics import Shard, kafka_error
from herdmesh.topicstore.log import LogUnavailable
from herdmesh.topicstore.settings import TopicSettings

_logger = logging.getLogger(__name__)
_CALL_S = 5.0
_READ_S = 10.0
_BATCH_RECORDS_MAX = 10_000
_POLL_S = 0.1


def decisions(settings: TopicSettings, shards: Iterable[Shard]) -> Mapping[Shard, bool | None]:
    """True = to commit, False = to abort, None = nobody may say: the login may not read it, or the topic has forgotten.

    Blocks for up to 20 s. Raises `LogUnavailable` when the broker does not answer: it can be asked again.
    """
    known: dict[Shard, bool | None] = dict.fromkeys(shards)
    consumer = _open(settings)
    try:
        _read(consumer, settings.transactional_id, known)
    except KafkaException as failure:
        error = kafka_error(failure)
        if error is None or error.code() not in REFUSALS:
            raise LogUnavailable(f"how an earlier transaction was decided is not known yet: {failure}") from failure
        _logger.warning("nobody may say how a transaction of %r was decided: %s", settings.transactional_id, failure)
    finally:
        consumer.close()
    return known


def _read(consumer: Consumer, transactional_id: str, known: dict[Shard, bool | None]) -> None:
    """Fill in `known` once everything was read. Raises `KafkaException`, `LogUnavailable`."""
    topic = consumer.list_topics(transaction_topic.NAME, _CALL_S).topics[transaction_topic.NAME]
    if topic.error is not None:
        raise KafkaException(topic.error)
    number = transaction_topic.java_partition(transactional_id, len(topic.partitions))
    shard = TopicPartition(transaction_topic.NAME, number, OFFSET_BEGINNING)
    # A partition that others go on writing to, as this one, is not told to be at its end.
    _, end = consumer.get_watermark_offsets(shard, timeout=_CALL_S)
    consumer.assign([shard])
    found, position = dict(known), 0
    deadline_s = time.monotonic() + _READ_S
    while position < end and time.monotonic() < deadline_s:
        for message in consumer.consume(_BATCH_RECORDS_MAX, _POLL_S):
            error = message.error()
            if error is None:
                decision = transaction_topic.decode(transactional_id, message.key(), message.value())
                if decision is not None:
                    found.update(dict.fromkeys(decision.partitions & found.keys(), decision.commit))
                position = max(position, (message.offset() or 0) + 1)
            elif error.code() == KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]  # librdkafka's local code
                position = end
            elif not error.retriable():
                raise KafkaException(error)
    if position >= end:
        known.update(found)
        return
    raise LogUnavailable(f"the decisions of {transactional_id!r} could not be read in {_READ_S:g} s")


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
    return Consumer(configs, logger=client_logger)
