"""The writer election: the owner of the topic's last partition in a consumer group writes.

Owns a group member with its thread. It reads no records (its partitions are paused) and decides nothing about safety;
the fence does. It only makes take-over quick: a member that leaves is replaced within a heartbeat, a member without
heartbeats within the session timeout. Invariant: `on_owner` is called from the thread that serves the group, in order,
and only for the current member.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from herdmesh.kafka.broker_reachability import Contact
from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.logins import ready
from herdmesh.topicstore.errors import StoreClosed
from herdmesh.topicstore.kafka.access import REFUSALS, Need, refused
from herdmesh.topicstore.kafka.client_calls import client_logger, close, on_client_error, post
from herdmesh.topicstore.log import LogEvents, LogUnavailable
from herdmesh.topicstore.settings import TopicSettings

_logger = logging.getLogger(__name__)
_POLL_S = 0.05
_PROOF_TIMEOUT_S = 5.0


class Election:
    """Membership of one replica. All methods run on the event loop."""

    def __init__(self, settings: TopicSettings) -> None:
        self._settings = settings
        # When a member joins, the assignor moves the lowest partition numbers first (librdkafka 2.x). So the owner of
        # the last partition stays its owner, and a starting replica does not become the writer in its place.
        self._token = settings.partitions - 1
        self._stop = threading.Event()
        self._stopped: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._member = 0
        """Number of the current member; callbacks of earlier members are ignored."""
        self._owner = False
        self._proofs = 0
        self._proof: asyncio.Future[bool] | None = None
        self._proof_wanted: int | None = None  # written by the loop, read by the thread; a lost race costs one poll

    def join(self, events: LogEvents) -> None:
        """Become a member of the group; calls of `on_owner` follow."""
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        threading.Thread(
            target=self._run, args=(events,), name=f"{self._settings.client_id_base}-election", daemon=True
        ).start()

    async def leave(self) -> None:
        """Leave the group at once, without waiting for the session timeout. The caller bounds the time."""
        self._stop.set()
        if self._stopped is not None:
            await self._stopped.wait()

    async def prove(self) -> bool:
        """Verify with the coordinator that this member is in the group's current generation. The proof is a commit of
        an offset that nobody reads: the coordinator rejects members of earlier generations. If it accepts, our
        remembered assignment is current too.
        """
        self._proofs += 1
        number = self._proofs
        self._proof = asyncio.get_running_loop().create_future()
        self._proof_wanted = number
        try:
            async with asyncio.timeout(_PROOF_TIMEOUT_S):
                return await self._proof
        except TimeoutError:
            raise LogUnavailable("the election group's coordinator did not answer") from None

    def _run(self, events: LogEvents) -> None:
        try:
            while not self._stop.is_set():
                contact = Contact(self._settings.bootstrap_servers, self._settings.topic, on_client_error)
                consumer = self._open(events, contact)
                is_lost = False
                try:
                    is_lost = self._serve(consumer, contact, events)
                finally:
                    self._member += 1
                    close(consumer, is_lost=is_lost)
        except Exception as error:  # the supervisor of this thread: no error may end it without a log line
            _logger.exception("the election failed")
            fault = StoreClosed(f"the election failed: {error}")
            self._tell(lambda: events.on_fault(fault))
        finally:
            stopped = self._stopped
            assert stopped is not None
            self._tell(stopped.set)

    def _serve(self, consumer: Consumer, contact: Contact, events: LogEvents) -> bool:
        """Poll until `leave` is called (return False) or the client has forgotten its brokers (return True). In the
        second case the group has removed the member.
        """
        while not self._stop.is_set():
            if contact.is_lost(consumer):
                _logger.warning(
                    "the election continues with a new member, because the old one's client lost its brokers"
                )
                self._set_owner(events, False)
                return True
            message = consumer.poll(_POLL_S)
            if message is not None and (error := message.error()) is not None:
                self._note(error, events)
            self._ask(consumer)
        return False

    def _open(self, events: LogEvents, contact: Contact) -> Consumer:
        settings = self._settings
        member = self._member

        def gained(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            if member == self._member:
                self._tell(lambda: events.on_election_refused(None))
            consumer.incremental_assign([TopicPartition(p.topic, p.partition, OFFSET_END) for p in partitions])
            if partitions:
                consumer.pause(partitions)
            if member == self._member and any(p.partition == self._token for p in partitions):
                self._set_owner(events, True)

        def lost(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            if member == self._member and any(p.partition == self._token for p in partitions):
                self._set_owner(events, False)
            consumer.incremental_unassign(partitions)

        def committed(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
            for partition in partitions if member == self._member else ():
                self._answer(partition.offset, error is None and partition.error is None and self._owner)

        configs: dict[str, Any] = {
            "reconnect.backoff.max.ms": 500,
            **settings.client_configs,
            "bootstrap.servers": settings.bootstrap_servers,
            "client.id": f"{settings.client_id_base}-election",
            "group.id": settings.election_group,
            "session.timeout.ms": settings.session_timeout_ms,
            "heartbeat.interval.ms": settings.heartbeat_interval_ms,
            # A joining member takes as few partitions as possible from the others, so the writer stays the writer.
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "on_commit": committed,
            **NO_AUTO_CREATION,
            "error_cb": contact.note,
        }

        consumer = Consumer(ready(configs), logger=client_logger)
        consumer.subscribe([settings.topic], on_assign=gained, on_revoke=lost, on_lost=lost)
        return consumer

    def _note(self, error: KafkaError, events: LogEvents) -> None:
        """Log a client error, or report it when it denies permission. The client itself retries in both cases."""
        if error.code() not in REFUSALS:
            _logger.warning("writer election: transient error, continuing: %s", error)
            return
        settings = self._settings
        of_group = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        need, name = (Need.JOIN_GROUP, settings.election_group) if of_group else (Need.DESCRIBE_TOPIC, settings.topic)
        refusal = refused(need, name, settings)
        self._tell(lambda: events.on_election_refused(refusal))

    def _set_owner(self, events: LogEvents, owned: bool) -> None:
        self._owner = owned
        self._tell(lambda: events.on_owner(owned))

    def _ask(self, consumer: Consumer) -> None:
        number, self._proof_wanted = self._proof_wanted, None
        if number is None:
            return
        if not self._owner:
            self._answer(number, False)
            return
        try:
            # The number comes back with the reply, so that a late reply is not taken for the reply to a newer request.
            consumer.commit(offsets=[TopicPartition(self._settings.topic, self._token, number)], asynchronous=True)
        except KafkaException as failure:
            _logger.warning("cannot query the election group's coordinator: %s", failure)
            self._answer(number, False)

    def _answer(self, number: int, proved: bool) -> None:
        def answer() -> None:
            if number == self._proofs and self._proof is not None and not self._proof.done():
                self._proof.set_result(proved)

        self._tell(answer)

    def _tell(self, callback: Callable[[], object]) -> None:
        assert self._loop is not None
        post(self._loop, callback)
