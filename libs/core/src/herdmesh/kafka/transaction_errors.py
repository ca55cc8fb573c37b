"""The check whether a producer's open transaction can still be committed, which no call of `produce` reports.

Owns the query of the client. Reacting is the caller's task. Invariant: the query changes nothing.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, Producer


def transaction_trouble(producer: Producer) -> KafkaError | None:
    """Return the error because of which the open transaction must be aborted, or its producer discarded; None = no
    error. Call it only with an open transaction, because it would begin one otherwise.
    """
    try:
        producer.begin_transaction()  # changes nothing: a transaction is open
    except KafkaException as refusal:
        error: KafkaError = refusal.args[0]
        return error if error.txn_requires_abort() or error.fatal() else None
    return None
