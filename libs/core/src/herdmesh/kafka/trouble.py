"""Whether the open transaction of a producer can still be committed, which no call of `produce` says.

Owns asking the client. What follows is the caller's. Invariant: asking changes nothing.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, Producer


def transaction_trouble(producer: Producer) -> KafkaError | None:
    """Why the open transaction can only be aborted, or its producer only be thrown away; None = neither. Means nothing
    where none is open, for it begins one then."""
    try:
        producer.begin_transaction()  # changes nothing: one is open
    except KafkaException as refusal:
        error: KafkaError = refusal.args[0]
        return error if error.txn_requires_abort() or error.fatal() else None
    return None
