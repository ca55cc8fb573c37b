"""The writer of a store: one transactional producer, used from one thread.

Owns the producer. After a failed transaction the producer is discarded without an abort: an abort followed by a retry
could fence the rightful owner once the broker has forgotten the id (INVALID_PRODUCER_ID_MAPPING). The open transaction
is ended by the next owner that initialises the id, or by its timeout. The only transaction that is aborted is a sound
one, with all records acknowledged, whose offsets differ from those for which its late values were computed. Invariant:
a commit is requested only after every record was acknowledged. So the offsets are known before any record can be read,
and a commit with a lost reply can be looked up in the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.logins import ready
from herdmesh.kafka.transient import may_be_repeated
from herdmesh.topicstore.contract import KEEP_ALIVE_KEY, KEEP_ALIVE_VALUE
from herdmesh.topicstore.kafka.access import REFUSALS, Need, refused
from herdmesh.topicstore.kafka.client_calls import client_logger, on_client_error
from herdmesh.topicstore.kafka.side_writes import CLIENT_ERRORS, reason_of, require_topics, send_beside
from herdmesh.topicstore.kafka.topics import Shard, kafka_error
from herdmesh.topicstore.log import CommitNotSent, CommitOutcomeUnknown, LogPlace, LogUnavailable, Transaction
from herdmesh.topicstore.settings import MAX_MESSAGE_BYTES_DEFAULT, MURMUR2_RANDOM, TopicSettings
from herdmesh.topicstore.stages import OnStage, WriteStage

_logger = logging.getLogger(__name__)
_CALL_S = 5.0


class Writer:
    """Blocking writer; the caller runs every method in one thread."""

    def __init__(self, settings: TopicSettings, shards: Sequence[Shard], on_stage: OnStage) -> None:
        self._settings = settings
        self._on_stage = on_stage
        self._index = {shard: index for index, shard in enumerate(shards)}
        self._producer: Producer | None = None
        self._ends = [0] * settings.partitions  # offset of the next record in each partition of the own topic
        #: Largest message that the topics accept; set before the first `take_over`.
        self.message_bytes_max = MAX_MESSAGE_BYTES_DEFAULT

    def take_over(self) -> None:
        """Fence every earlier writer and end its transaction. Raises `LogUnavailable`, `NotAuthorized`."""
        self.release()
        producer = self._open()
        deadline_s = time.monotonic() + self._settings.transaction_timeout_ms / 1000
        while True:
            try:
                self._connect(producer)
                producer.init_transactions(_CALL_S)
                break
            except KafkaException as failure:
                error = kafka_error(failure)
                if error is not None and error.code() in REFUSALS:
                    raise refused(Need.USE_TRANSACTIONAL_ID, self._settings.transactional_id, self._settings) from None
                if error is None or not may_be_repeated(error) or time.monotonic() > deadline_s:
                    raise LogUnavailable(f"cannot initialise {self._settings.transactional_id!r}: {failure}") from None
        self._producer = producer

    def commit(self, transaction: Transaction, placed: Callable[[Sequence[LogPlace]], None]) -> None:
        """See `Log.commit`; `placed` is called in this thread."""
        if self._producer is None:
            raise CommitNotSent("the writer was released")
        if transaction.beside is not None:
            require_topics(self._producer, transaction.beside)
        places = self._send(self._producer, transaction)
        if transaction.beside is not None:
            send_beside(self._producer, transaction.beside, self._settings)
        self._on_stage(WriteStage.AFTER_SEND)
        placed(places)
        self._on_stage(WriteStage.BEFORE_COMMIT)
        self._end(self._producer)
        for shard, offset in places:
            if shard < len(self._ends):
                self._ends[shard] = (
                    offset + 2
                )  # the next offset but one: a marker ends the transaction in each partition
        self._on_stage(WriteStage.AFTER_COMMIT)

    def finish(self, hanging: Mapping[Shard, bool]) -> None:
        """End transactions that an earlier producer with our transactional id left open in these partitions. For each
        decision one new transaction is ended alike: committed (True) or aborted (False). Call `take_over` next: it
        waits for the markers.

        Raises `LogUnavailable`.
        """
        producer = self._producer
        if producer is None:
            raise LogUnavailable("the writer was released")
        for commit in sorted(set(hanging.values())):
            try:
                producer.begin_transaction()
                for topic, partition in (shard for shard, decided in hanging.items() if decided is commit):
                    producer.produce(topic, KEEP_ALIVE_VALUE, KEEP_ALIVE_KEY, partition)
                if producer.flush(_CALL_S):  # an abort without sent records would write no marker
                    raise LogUnavailable("cannot end an earlier transaction: a record was not acknowledged in time")
                (producer.commit_transaction if commit else producer.abort_transaction)(_CALL_S)
            except CLIENT_ERRORS as failure:
                raise LogUnavailable(f"cannot end an earlier transaction: {reason_of(failure)}") from failure

    def release(self) -> None:
        """Discard the producer, with its open transaction if there is one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.purge()
            except KafkaException as failure:
                _logger.info("purging a discarded producer: %s", failure)

    def _connect(self, producer: Producer) -> None:
        """Establish a connection first: without one, a client that looks for its coordinator retries only after 500 ms.
        A connection to a bootstrap address (broker id -1) does not count: it is closed as soon as the broker behind it
        is known.
        """
        for _ in range(3):
            if producer.list_topics(self._settings.topic, _CALL_S).orig_broker_id >= 0:
                return

    def _open(self) -> Producer:
        settings = self._settings
        configs: dict[str, Any] = {
            "linger.ms": 0,
            "batch.size": min(1_000_000, self.message_bytes_max),
            "reconnect.backoff.max.ms": 500,
            **settings.client_configs,
            "bootstrap.servers": settings.bootstrap_servers,
            "client.id": f"{settings.client_id_base}-writer",
            "transactional.id": settings.transactional_id,
            "transaction.timeout.ms": settings.transaction_timeout_ms,
            "delivery.timeout.ms": settings.transaction_timeout_ms,
            "acks": "all",
            "message.max.bytes": self.message_bytes_max,
            # Java's partitioner. The client's default would put most keys into other partitions, and one key would have
            # two live records.
            "partitioner": MURMUR2_RANDOM,
            **NO_AUTO_CREATION,
            "error_cb": on_client_error,
        }
        return Producer(ready(configs), logger=client_logger)

    def _send(self, producer: Producer, transaction: Transaction) -> list[LogPlace]:
        try:
            producer.begin_transaction()
            self._on_stage(WriteStage.BEFORE_SEND)
            if transaction.behind:
                as_expected = self._send_at_once(producer, transaction)
                if as_expected is not None:
                    return as_expected
                producer.abort_transaction(_CALL_S)
                producer.begin_transaction()
            places: list[LogPlace | None] = [None] * len(transaction.records)
            first = transaction.first
            self._produce(producer, transaction, first, [transaction.records[index].value for index in first], places)
            if transaction.behind:
                self._produce(producer, transaction, transaction.behind, transaction.values_behind(places), places)
        except CLIENT_ERRORS as failure:
            raise CommitNotSent(f"a record could not be sent: {reason_of(failure)}") from failure
        return [place for place in places if place is not None]

    def _send_at_once(self, producer: Producer, transaction: Transaction) -> list[LogPlace] | None:
        """Send everything at once, which saves a round trip. The late values are computed for the places the records
        get if there is no other writer. Return None when there was one; the transaction is useless then.
        """
        expected = transaction.expected_places(self._ends)
        values = [record.value for record in transaction.records]
        for index, value in zip(transaction.behind, transaction.values_behind(expected), strict=True):
            values[index] = value
        places: list[LogPlace | None] = [None] * len(values)
        self._produce(producer, transaction, range(len(values)), values, places)
        if any(places[index] != expected[index] for index in transaction.first):
            _logger.info("another process wrote to %r in the meantime; sending again", self._settings.topic)
            return None
        return [place for place in places if place is not None]

    def _produce(
        self,
        producer: Producer,
        transaction: Transaction,
        indexes: Sequence[int],
        values: Sequence[bytes | None],
        places: list[LogPlace | None],
    ) -> None:
        """Send these records of `transaction`, wait until all are acknowledged and fill in their places."""
        failures: list[KafkaError] = []

        def delivered(index: int, error: KafkaError | None, message: Message) -> None:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if error is not None:
                failures.append(error)
            elif topic is not None and partition is not None and offset is not None:
                places[index] = (self._index[topic, partition], offset)

        for index, value in zip(indexes, values, strict=True):
            record = transaction.records[index]
            producer.produce(
                record.topic or self._settings.topic,
                value=value,
                key=record.key,
                on_delivery=lambda error, message, index=index: delivered(index, error, message),
            )
        producer.flush(self._settings.transaction_timeout_ms / 1000)
        if failures or any(places[index] is None for index in indexes):
            reason = failures[0].str() if failures else "a record was not acknowledged in time"
            raise CommitNotSent(f"a record could not be written: {reason}")

    def _end(self, producer: Producer) -> None:
        deadline_s = time.monotonic() + self._settings.transaction_timeout_ms / 1000
        while True:
            try:
                producer.commit_transaction(_CALL_S)
                return
            except CLIENT_ERRORS as failure:
                error = kafka_error(failure)
                if error is None or not may_be_repeated(error) or time.monotonic() > deadline_s:
                    raise CommitOutcomeUnknown(f"the commit was not confirmed: {reason_of(failure)}") from failure
