"""Outcomes of the transactions of an id, read from the transaction coordinator's own log (ADR 0006).

A broker that dies between deciding a transaction and writing its marker may drop the marker when it comes back. The
owner of the id then ends the open transaction according to its recorded decision, and this module reads that decision.
Owns the reading; `connect.transaction_topic` decodes the records. Reacting is the caller's task.

Invariant: the result is the last decision that names a partition; a later one would have ended the hanging transaction
there. So nothing is returned before everything was read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from herdmesh.connect.topics import transaction_topic
from herdmesh.kafka.transient import is_transient

_CALL_S = 5.0
_BATCH_RECORDS_MAX = 10_000
_POLL_S = 0.1

#: Topic and partition.
Shard = tuple[str, int]


class DecisionsNotRead(Exception):
    """The end of the coordinator's log was not reached in time, although the broker returned its offset."""


def decisions(
    consumer: Consumer,
    transactional_id: str,
    shards: Collection[Shard],
    *,
    limit_s: float,
    moved: Callable[[], object] = lambda: None,
) -> dict[Shard, bool]:
    """Return True = commit, False = abort, for those of `shards` that a decision names. Blocks for up to `limit_s` and
    two calls of 5 s. The consumer must have end-of-partition events; its assignment is replaced.

    Args:
        transactional_id: one that the caller has initialised.
        moved: called at each turn of the wait.

    Raises:
        DecisionsNotRead: not known yet; a retry may help.
        KafkaException: the broker refuses, does not answer, or does not know the end yet (LEADER_NOT_AVAILABLE).
    """
    topic = consumer.list_topics(transaction_topic.NAME, _CALL_S).topics[transaction_topic.NAME]
    if topic.error is not None:
        raise KafkaException(topic.error)
    number = transaction_topic.java_partition(transactional_id, len(topic.partitions))
    log, name = TopicPartition(transaction_topic.NAME, number, OFFSET_BEGINNING), f"{transaction_topic.NAME}-{number}"
    # Other producers write to this partition, so an end-of-partition event may never come.
    _, end = consumer.get_watermark_offsets(log, timeout=_CALL_S)
    if (
        end <= 0
    ):  # a broker that has just started may return no offset; the log has at least the initialisation of the id
        raise KafkaException(
            KafkaError(KafkaError.LEADER_NOT_AVAILABLE, f"the broker does not know the end of {name} yet")
        )
    consumer.assign([log])
    found, position = dict[Shard, bool](), 0
    deadline_s = time.monotonic() + limit_s
    while position < end:
        if time.monotonic() >= deadline_s:
            raise DecisionsNotRead(
                f"the decisions of transactional id {transactional_id!r} in {name} could not be read in {limit_s:g} s"
            )
        moved()
        for message in consumer.consume(_BATCH_RECORDS_MAX, _POLL_S):
            error = message.error()
            if error is None:
                decision = transaction_topic.decode(transactional_id, message.key(), message.value())
                if decision is not None:
                    found.update(dict.fromkeys(decision.partitions.intersection(shards), decision.commit))
                position = max(position, (message.offset() or 0) + 1)
            elif error.code() == KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]  # librdkafka's local code
                position = end
            elif not is_transient(error):
                raise KafkaException(error)
    return found
