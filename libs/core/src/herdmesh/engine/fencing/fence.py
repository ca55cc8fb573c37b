"""Fence of a task: its transactional producer.

Owns taking over, and committing under the fence. Does not know the committed data.

Invariant: after `take_over` every earlier owner of the transactional id gets TaskFenced at its next commit, and so does
this one after another take-over. An action that cannot be undone requires a commit that succeeded before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi import waits
from herdmesh.engine.librdkafka import RETRY_TIMEOUT_S, Unacknowledged, clients, retried
from herdmesh.engine.runtime import ClientConfig, RunSpec, TaskFailed, TaskFenced, is_fenced, kafka, progress_ticks
from herdmesh.kafka.broker_reachability import Contact
from herdmesh.kafka.call_timeout import CallHangs, bounded
from herdmesh.kafka.checked_producer import CheckedProducer
from herdmesh.kafka.transaction_errors import transaction_trouble
from herdmesh.kafka.transaction_offsets import send_offsets
from herdmesh.kafka.transient import may_be_repeated

CALL_TIMEOUT_S = 2.0
"""Timeout of one call of a transaction; it is repeated until RETRY_TIMEOUT_S. Short, because a repeated call looks up
the brokers again, and the call before may not have noticed that they are back.
"""
_CLOSE_TIMEOUT_S = 3.0
_TURN_S = 0.2
TRANSACTIONS_TOPIC = "__transaction_state"
"""The topic that every producer with transactions may query."""

_log = logging.getLogger(__name__)


class Fence:
    """One producer with one transactional id; one transaction at a time."""

    def __init__(
        self,
        producer: CheckedProducer,
        transactional_id: str,
        contact: Contact | None = None,
        waits_for: str = "Kafka",
    ) -> None:
        """`contact`: for the producer of a run, which may last; None = the fence is needed only briefly. `waits_for`:
        the name of the cluster in waits.
        """
        self.producer = producer
        self.waits_for = waits_for
        self._transactional_id = transactional_id
        self._contact = contact
        self._in_transaction = False
        self._hangs = False

    @property
    def in_transaction(self) -> bool:
        """True between `begin` and `commit`."""
        return self._in_transaction

    def take_over(self) -> None:
        """Fence every earlier owner and end its open transaction: its commits are then visible, or never will be.

        Raises:
            TaskFenced: another owner took over at the same moment.
            TaskFailed: RETRIABLE when the broker does not answer in time.
        """
        self._until_done(lambda: connect(self.producer, self.raise_lost), "connecting")
        self._until_done(self._watched(lambda: self.producer.init_transactions(CALL_TIMEOUT_S)), "taking over")
        self.producer.poll(0)  # deliver its log lines of the take-over before anything else

    def begin(self) -> None:
        """Open a transaction. Raises TaskFenced."""
        self._until_done(self.producer.begin_transaction, "beginning a transaction")
        self._in_transaction = True

    def commit(self, sends_to: Collection[str] = ()) -> None:
        """Commit the open transaction: the records produced in it are acknowledged and visible.

        Args:
            sends_to: the topics of its records, named in the task's status while no broker acknowledges them.

        Raises:
            TaskFenced: another owner took over; nothing of the transaction is visible.
            TaskFailed: RETRIABLE: it did not commit, or the outcome is unknown; the next owner will see it. Also when
                the client only inferred an acknowledgement (`clients.raise_guess`): the commit was not sent then.
        """
        self._until_done(partial(self._settle, sends_to), "sending")
        self._until_done(self._watched(lambda: self.producer.commit_transaction(CALL_TIMEOUT_S)), "committing")
        self._in_transaction = False

    def abort(self) -> None:
        """Abort the open transaction once all its records have reached the broker. Raises as `commit`."""
        # waits: the sending call reports the wait
        self._until_done(lambda: self.producer.flush(CALL_TIMEOUT_S), "sending")
        self._until_done(self._watched(lambda: self.producer.abort_transaction(CALL_TIMEOUT_S)), "aborting")
        self._in_transaction = False
        self.producer.poll(0)
        self.producer.forget_guess()

    def commit_offsets(self, offsets: list[TopicPartition], group: Any) -> None:
        """Commit a consumer group's offsets, with their metadata, in one transaction of their own.

        Args:
            group: `Consumer.consumer_group_metadata()`.

        Raises:
            TaskFenced: another owner took over; the offsets are not committed.
            TaskFailed: as `commit`.
        """
        self.begin()
        self._until_done(
            self._watched(lambda: send_offsets(self.producer, offsets, group, CALL_TIMEOUT_S)),
            "committing offsets",
        )
        self.commit()

    @property
    def is_in_doubt(self) -> bool:
        """Like `Contact.is_in_doubt`, for its producer."""
        return self._contact is not None and self._contact.is_in_doubt

    def is_lost(self) -> bool:
        """True when the producer has forgotten its brokers (`Contact`), which takes some seconds to determine. Costs
        nothing while it has them.
        """
        return self._contact is not None and self._contact.is_lost(self.producer)

    def raise_lost(self) -> None:
        """Call it at each turn of a wait for the producer. Raises KafkaException, an outage, when the producer has lost
        its brokers: requests without a reply may have taken effect or not.
        """
        if self.is_lost():
            raise clients.forgotten()

    def raise_fatal(self, error: KafkaException) -> None:
        """Raise the cause of an error of `produce` that is only "fatal", as after an error that the client received in
        the background; transaction calls name the cause. Returns for every other error.

        Raises:
            TaskFenced: another owner took over.
            KafkaException: any other fatal error of the producer.
        """
        if error.args[0].code() == KafkaError._FATAL:
            self._until_done(lambda: self.producer.abort_transaction(CALL_TIMEOUT_S), "going on")

    def trouble(self) -> KafkaError | None:
        """The error because of which the open transaction must be aborted, which calls of `produce` do not report. None
        = no error. Raises TaskFenced when that is the reason.
        """
        if not self._in_transaction:
            return None
        cause = transaction_trouble(self.producer)
        if cause is not None and is_fenced(cause):
            raise self._fenced(cause)
        return cause

    def close(self) -> None:
        """Release the producer, within a second (or five, when a call hangs): abort the open transaction, so that
        readers need not wait for the next owner to do it, and drop queued records. Never raises: a fenced producer
        fails at every call, even in cleaning up, and that would hide why the run ended.
        """
        if self._hangs:  # every further call would hang too
            return
        if self._in_transaction:
            try:
                bounded(lambda: self.producer.abort_transaction(1.0), _CLOSE_TIMEOUT_S)
            except CallHangs:
                _log.info("the open transaction of %s is left to the next owner: no response", self._transactional_id)
                return
            except KafkaException as error:
                _log.info("the open transaction of %s is left to the next owner: %s", self._transactional_id, error)
        try:
            self.producer.purge()
            self.producer.poll(0)
        except KafkaException as error:
            _log.info("the producer of %s is abandoned: %s", self._transactional_id, error)

    def _settle(self, sends_to: Collection[str]) -> None:
        """Wait until each record is acknowledged, or the transaction cannot be committed any more; the commit then
        fails with the reason.

        Raises:
            TaskFenced: another owner took over.
            TaskFailed: RETRIABLE, when they are not acknowledged in time, or as `clients.raise_guess`.
            KafkaException: as `raise_lost`.
        """
        deadline = time.monotonic() + RETRY_TIMEOUT_S
        with Unacknowledged(self.producer, self.waits_for, sends_to) as left:
            while self.producer.flush(_TURN_S):  # waits: reported by `left`
                if self.trouble() is not None:  # queued records stay in the queue then
                    return
                progress_ticks.moved()
                self.raise_lost()
                left.note()
                if time.monotonic() >= deadline:
                    text = f"records are not acknowledged after {RETRY_TIMEOUT_S:g} s; they are sent again"
                    raise TaskFailed(text, ErrorClass.RETRIABLE)
        clients.raise_guess(self.producer)

    def _until_done(self, call: Callable[[], Any], doing: str) -> None:
        """Repeat a transaction call while its error is retriable (librdkafka's rule).

        A transaction that the broker wants aborted is not retried here: the run ends and the next one starts at the
        committed offsets. In particular INVALID_PRODUCER_ID_MAPPING must not be healed by a new id from inside: that
        would fence a rightful owner.
        """
        deadline = time.monotonic() + RETRY_TIMEOUT_S
        with waits.Standing() as standing:
            while True:
                try:
                    call()
                    return
                except KafkaException as error:
                    cause: KafkaError = error.args[0]
                    if is_fenced(cause):
                        raise self._fenced(cause) from error
                    if may_be_repeated(cause) and time.monotonic() < deadline:
                        progress_ticks.moved()
                        standing.goes_on(self.waits_for, f"{doing}: {cause.str()}", tried=True)
                        self.raise_lost()
                        continue
                    if may_be_repeated(cause) or cause.txn_requires_abort():
                        raise TaskFailed(f"{doing} did not succeed: {cause.str()}", ErrorClass.RETRIABLE) from error
                    raise

    def _fenced(self, cause: KafkaError) -> TaskFenced:
        return TaskFenced(f"another owner has taken over {self._transactional_id}: {cause.str()}")

    def _watched(self, call: Callable[[], Any]) -> Callable[[], None]:
        """Wrap a call so that it is abandoned when it hangs. The run ends then, and its next owner fences the abandoned
        call.

        The call raises:
            TaskFailed: UNREACHABLE, when it hangs: its outcome is unknown.
            KafkaException: the call's own error.
        """

        def watched() -> None:
            try:
                bounded(call)
            except CallHangs:
                self._hangs = True
                raise TaskFailed(
                    f"a call to Kafka for {self._transactional_id} does not return, as when its broker stops in the "
                    "middle of it; whether it took effect is unknown",
                    ErrorClass.UNREACHABLE,
                ) from None

        return watched


def held(
    spec: RunSpec,
    overrides: ClientConfig,
    on_failure: Callable[[KafkaError, Message], object] | None = None,
    *,
    reports: bool = False,
) -> Fence:
    """The fence of a run, with a producer from `clients.producer`."""
    contact = clients.contact(spec, overrides, TRANSACTIONS_TOPIC)
    producer = clients.producer(spec, overrides, on_failure, reports=reports, on_error=contact.note)
    return Fence(producer, spec.transactional_id, contact, kafka(spec.bootstrap_servers))


def connect(producer: Producer, between: Callable[[], None] = clients.nothing) -> None:
    """Establish a connection first: a client that looks for its coordinator without one retries only after 500 ms (one
    take-over in three, measured). A connection to a bootstrap address (broker id -1) is closed once its broker is
    known. The request is for the topic that the take-over itself needs; its result is not used. `between`: called
    before each retry.

    Raises:
        KafkaException: no broker answers for RETRY_TIMEOUT_S, or refuses; also errors of `between`.
    """
    for _ in range(3):
        # Only errors of transaction calls have the flag that they may be repeated.
        answer = retried(lambda: producer.list_topics(TRANSACTIONS_TOPIC, CALL_TIMEOUT_S), between=between)
        if answer.orig_broker_id >= 0:
            return
