"""The check whether a producer's open transaction can still be committed, which no call of `produce` reports.

Owns the query of the client. The consequence is the caller's. Invariant: the query changes nothing.
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
