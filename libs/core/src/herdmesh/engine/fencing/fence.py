"""Fence of a task: its transactional producer.

Owns taking over, and committing under the fence. Does not know what is committed.

Invariant: after `take_over` every earlier owner of the transactional id gets TaskFenced at its next commit, and so does
this one once somebody else has taken over. Nothing that cannot be undone may be done without a commit that succeeded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
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
"""One call of a transaction; it is repeated until RETRY_TIMEOUT_S. Short, because a repeated call looks at the brokers
anew, and the one before may not have noticed that they are back."""
_CLOSE_TIMEOUT_S = 3.0
_TURN_S = 0.2
TRANSACTIONS_TOPIC = "__transaction_state"
"""What every producer may ask for that takes part in transactions."""

_log = logging.getLogger(__name__)


class Fence:
    """One producer with one transactional id; one transaction at a time."""

    sends_to: Callable[[], Iterable[str]] = tuple
    """The topics of the records of the open transaction, as far as its owner says."""

    def __init__(
        self,
        producer: CheckedProducer,
        transactional_id: str,
        contact: Contact | None = None,
        waits_for: str = "Kafka",
    ) -> None:
        """`contact`: of the producer of a run, which may last; None = it is needed for a moment. `waits_for`: the
        cluster as waits name it."""
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
        """Fence every earlier owner and finish what it left open: its commits are then visible, or will never be.

        Raises:
            TaskFenced: somebody else took over at the same moment.
            TaskFailed: RETRIABLE when the broker does not answer in time.
        """
        self._until_done(lambda: connect(self.producer, self.raise_lost), "connecting")
        self._until_done(self._watched(lambda: self.producer.init_transactions(CALL_TIMEOUT_S)), "taking over")
        self.producer.poll(0)  # what it has to log of this, before anything else

    def begin(self) -> None:
        """Open a transaction. Raises TaskFenced."""
        self._until_done(self.producer.begin_transaction, "beginning a transaction")
        self._in_transaction = True

    def commit(self) -> None:
        """Commit the open transaction: the records produced in it are acknowledged and visible.

        Raises:
            TaskFenced: another owner took over; nothing of the transaction is visible.
            TaskFailed: RETRIABLE: it did not commit, or the broker does not say; the next owner will see which. So when
                the client only guesses that a record is acknowledged (`clients.raise_guess`): it was not asked to.
        """
        self._until_done(self._settle, "sending")
        self._until_done(self._watched(lambda: self.producer.commit_transaction(CALL_TIMEOUT_S)), "committing")
        self._in_transaction = False

    def abort(self) -> None:
        """Abort the open transaction once all that was produced in it is at the broker. Raises as `commit`."""
        # waits: who sends has said it
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
        """As `Contact.is_in_doubt`, of its producer."""
        return self._contact is not None and self._contact.is_in_doubt

    def is_lost(self) -> bool:
        """True when the producer has forgotten its brokers (`Contact`), which takes some seconds to find out. Costs
        nothing while it has them."""
        return self._contact is not None and self._contact.is_lost(self.producer)

    def raise_lost(self) -> None:
        """To be called at each turn of a waiting for the producer. Raises KafkaException, an outage, when it is lost:
        what was asked of it and not answered may have taken effect or not."""
        if self.is_lost():
            raise clients.forgotten()

    def raise_fatal(self, error: KafkaException) -> None:
        """Raise what stands behind an error of `produce` that only says "fatal", as it does once the client has heard
        of it in the background; calls of a transaction name it. Returns for every other error.

        Raises:
            TaskFenced: another owner took over.
            KafkaException: what else the producer died of.
        """
        if error.args[0].code() == KafkaError._FATAL:
            self._until_done(lambda: self.producer.abort_transaction(CALL_TIMEOUT_S), "going on")

    def trouble(self) -> KafkaError | None:
        """Why the open transaction can only be aborted, which calls of `produce` do not say. None = it need not be.
        Raises TaskFenced when that is why."""
        if not self._in_transaction:
            return None
        cause = transaction_trouble(self.producer)
        if cause is not None and is_fenced(cause):
            raise self._fenced(cause)
        return cause

    def close(self) -> None:
        """Give the producer up, within a second (or five, when a call hangs): abort what is open, so that readers need
        not wait for the next owner to do it, and drop what is queued. Never raises: a producer that was fenced says so
        at every call, also at those that clean up, and would hide why the run ended."""
        if self._hangs:  # so would every further call of it
            return
        if self._in_transaction:
            try:
                bounded(lambda: self.producer.abort_transaction(1.0), _CLOSE_TIMEOUT_S)
            except CallHangs:
                _log.info("the open transaction of %s is left to the next owner: no answer", self._transactional_id)
                return
            except KafkaException as error:
                _log.info("the open transaction of %s is left to the next owner: %s", self._transactional_id, error)
        try:
            self.producer.purge()
            self.producer.poll(0)
        except KafkaException as error:
            _log.info("the producer of %s is abandoned: %s", self._transactional_id, error)

    def _settle(self) -> None:
        """Return once each record is acknowledged, or the transaction can no more be committed, which the commit says.

        Raises:
            TaskFenced: another owner took over.
            TaskFailed: RETRIABLE, when nobody acknowledges them, or as `clients.raise_guess`.
            KafkaException: as `raise_lost`.
        """
        deadline = time.monotonic() + RETRY_TIMEOUT_S
        with Unacknowledged(self.producer, self.waits_for, self.sends_to) as left:
            while self.producer.flush(_TURN_S):  # waits: `left` says for what
                if self.trouble() is not None:  # what is queued stays there
                    return
                progress_ticks.moved()
                self.raise_lost()
                left.note()
                if time.monotonic() >= deadline:
                    text = f"records are not acknowledged after {RETRY_TIMEOUT_S:g} s; they are sent again"
                    raise TaskFailed(text, ErrorClass.RETRIABLE)
        clients.raise_guess(self.producer)

    def _until_done(self, call: Callable[[], Any], doing: str) -> None:
        """Calls of a transaction may be repeated as they are while their error is retriable (librdkafka's rule).

        A transaction the broker wants aborted is not repeated here: the run ends and the next one starts from what is
        committed. In particular INVALID_PRODUCER_ID_MAPPING must not be healed by a new id from inside: that would
        fence a rightful owner.
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
        """The call, given up when it hangs. A run ends then, and its next owner fences what the call may still do.

        The call raises:
            TaskFailed: UNREACHABLE, when it hangs: whether it took effect is not known.
            KafkaException: as it does.
        """

        def watched() -> None:
            try:
                bounded(call)
            except CallHangs:
                self._hangs = True
                raise TaskFailed(
                    f"a call to Kafka for {self._transactional_id} does not return, as when its broker leaves in the "
                    "middle of it; whether it took effect is not known here",
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
    """The fence of a run, whose producer is made as by `clients.producer`."""
    contact = clients.contact(spec, overrides, TRANSACTIONS_TOPIC)
    producer = clients.producer(spec, overrides, on_failure, reports=reports, on_error=contact.note)
    return Fence(producer, spec.transactional_id, contact, kafka(spec.bootstrap_servers))


def connect(producer: Producer, between: Callable[[], None] = clients.nothing) -> None:
    """Have a connection first: asked for its coordinator without one, the client looks again only after 500 ms (one
    take-over in three, measured). A bootstrap address answers as broker -1 and is dropped once its broker is known.
    The topic asked about is the one that the take-over itself needs; the answer does not matter. `between`: called
    before it is asked again.

    Raises:
        KafkaException: no broker answers for RETRY_TIMEOUT_S, or refuses; what `between` raises.
    """
    for _ in range(3):
        # Only answers of transactions say of themselves that they may be repeated.
        answer = retried(lambda: producer.list_topics(TRANSACTIONS_TOPIC, CALL_TIMEOUT_S), between=between)
        if answer.orig_broker_id >= 0:
            return
