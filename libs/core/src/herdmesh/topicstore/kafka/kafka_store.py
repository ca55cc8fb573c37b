"""The Kafka engine: a `TopicStore` over a topic of a real broker.

Owns the assembly of reader, election, writer and admin client into a `Log`. Their work is in `reader`, `election`,
`writer` and `topics`; the rules of a store are in `core`. No call here blocks the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic

from herdmesh.topicstore.contract import ChangeT, StateT, StoredRecord
from herdmesh.topicstore.core import MayWrite, TopicStoreCore, always
from herdmesh.topicstore.errors import NotAuthorized, TopicMisconfigured, TopicRecreated
from herdmesh.topicstore.kafka.audit import AuditReader
from herdmesh.topicstore.kafka.client_calls import CallThread, post
from herdmesh.topicstore.kafka.election import Election
from herdmesh.topicstore.kafka.hanging_transaction import decided
from herdmesh.topicstore.kafka.reader import KafkaReader
from herdmesh.topicstore.kafka.topics import Shard, TopicAdmin
from herdmesh.topicstore.kafka.writer import Writer
from herdmesh.topicstore.log import (
    FRAMING_BYTES,
    CommitBesideRefused,
    CommitNotSent,
    CommitRefused,
    LogBlocked,
    LogEvents,
    LogIdentity,
    LogPlace,
    LogUnavailable,
    Positions,
    Transaction,
)
from herdmesh.topicstore.settings import StoreTuning, TopicSettings
from herdmesh.topicstore.stages import OnStage, failpoints_of

_logger = logging.getLogger(__name__)
_DECISIONS: Mapping[bool | None, str] = {True: "to commit", False: "to abort", None: "decision unknown"}


def _names(shards: Sequence[Shard]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in shards)


class KafkaLog:
    """`Log` over Kafka."""

    def __init__(self, settings: TopicSettings, on_stage: OnStage) -> None:
        self._settings = settings
        self._shards: list[Shard] = [(settings.topic, partition) for partition in range(settings.partitions)]
        if settings.audit_topic is not None:
            self._shards.append((settings.audit_topic, 0))
        self._admin = TopicAdmin(settings)
        self._writer = Writer(settings, self._shards, on_stage)
        self._writer_thread = CallThread(f"{settings.client_id_base}-writer")
        self._election = Election(settings)
        self._audit = AuditReader(settings)
        self._beginnings: Positions = ()
        self._reader: KafkaReader | None = None
        self._events: LogEvents | None = None

    @property
    def settings(self) -> TopicSettings:
        return self._settings

    async def open(self) -> LogIdentity:
        store_id, self._beginnings = await self._admin.open_topics(self._shards)
        settings = self._settings
        lag_ms = await self._admin.min_compaction_lag_ms()
        max_bytes = await self._admin.max_message_bytes()
        self._writer.message_bytes_max = max_bytes
        return LogIdentity(
            store_id,
            settings.topic,
            settings.partitions,
            settings.audit_topic,
            lag_ms,
            max_bytes - FRAMING_BYTES,
            await self._admin.cluster_id(),
        )

    async def check(self) -> NotAuthorized | None:
        return await self._admin.check()

    def read(self, events: LogEvents) -> None:
        self._events = events
        self._reader = KafkaReader(self._settings, self._shards, self._beginnings)
        self._reader.start(events)

    def join_election(self) -> None:
        assert self._events is not None
        self._election.join(self._events)

    async def leave_election(self) -> None:
        await self._election.leave()

    async def end(self) -> Positions:
        return await self._admin.offsets(self._shards, first=False)

    async def prove_ownership(self) -> bool:
        return await self._election.prove()

    async def take_over(self) -> None:
        await self._writer_thread.call(self._writer.take_over)
        if hanging := await self._admin.unstable(self._shards):
            await self._writer_thread.call(lambda: self._end_what_hangs(hanging))
            if others := await self._admin.unstable(self._shards):
                # Nobody could read a commit behind that transaction, so it could neither be acknowledged nor be denied.
                raise LogBlocked(
                    f"another program to end its transaction, which is open in {_names(others)}",
                    f"end that program, or find the transaction with {self._tool('describe-producers', others[0])} and"
                    f" end it with {self._tool('abort', others[0])} --start-offset OFFSET; one whose program is gone is"
                    " ended by Kafka after its transaction.timeout.ms",
                )

    def _tool(self, command: str, shard: Shard) -> str:
        return (
            f"kafka-transactions.sh --bootstrap-server {self._settings.bootstrap_servers} {command}"
            f" --topic {shard[0]} --partition {shard[1]}"
        )

    def _end_what_hangs(self, shards: Sequence[Shard]) -> None:
        """End hanging transactions in `shards`. A transaction that is open after a take-over either hangs or belongs to
        another program, which this does not affect. Raises `LogUnavailable`.
        """
        known = decided(self._settings, shards)
        _logger.warning(
            "a transaction is open in %s: if it is one of %r whose marker the broker lost (it died at that moment, "
            "docs/internals/bugs.md), it is ended now",
            ", ".join(f"{topic}-{partition} ({_DECISIONS[known[topic, partition]]})" for topic, partition in shards),
            self._settings.transactional_id,
        )  # fmt: skip
        # If the decision is unknown, commit. After an abort, a part that is visible elsewhere, such as an audit record,
        # would be taken as proof of a write that does not exist.
        self._writer.finish({shard: commit is not False for shard, commit in known.items()})
        self._writer.take_over()

    async def commit(self, transaction: Transaction, placed: Callable[[Sequence[LogPlace]], None]) -> None:
        loop = asyncio.get_running_loop()

        def told(places: Sequence[LogPlace]) -> None:
            # Queued before the commit request, and so before the reader can queue any of these records.
            post(loop, lambda: placed(places))

        try:
            await self._writer_thread.call(lambda: self._writer.commit(transaction, told))
        except CommitBesideRefused:
            raise  # the error has its reason, and the store's own topics are not affected
        except CommitNotSent:
            # The producer's error after a refusal ("purged in queue") explains nothing: check the topics.
            if (cause := await self._refusal()) is not None:
                raise CommitRefused(cause) from None
            raise

    async def _refusal(self) -> NotAuthorized | TopicRecreated | None:
        try:
            return await self._admin.check()
        except (NotAuthorized, TopicRecreated) as cause:
            return cause
        except (LogUnavailable, TopicMisconfigured):
            return None

    async def read_audit(self, offsets: Sequence[int]) -> list[StoredRecord]:
        return await self._audit.read(offsets)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def release(self) -> None:
        await self._writer_thread.call(self._writer.release)

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.stop()
        await self._writer_thread.call(self._writer.release)  # destroying a client takes time: not on the event loop
        self._writer_thread.stop()
        self._audit.close()
        self._admin.close()


class KafkaTopicStore(TopicStoreCore[StateT, ChangeT], Generic[StateT, ChangeT]):
    """`TopicStore` in Kafka. All replicas of one store have equal settings, except `client_id_base`."""

    def __init__(
        self,
        settings: TopicSettings,
        initial: StateT,
        *,
        may_write: MayWrite = always,
        tuning: StoreTuning | None = None,
        on_stage: OnStage | None = None,
    ) -> None:
        """`on_stage` replaces the failpoints."""
        on_stage = on_stage or failpoints_of(settings.topic)
        super().__init__(KafkaLog(settings, on_stage), initial, may_write, tuning or StoreTuning(), on_stage)
