"""The record loop of a source task.

Owns one run: take over, read where the last run left off, poll, transform and convert, produce, commit, end.

Records and their offsets always share a transaction (ADR 0003): the fence is a transactional producer anyway, so a
stale owner's records never become visible, and nothing is sent twice to readers of committed records.

In standalone mode the offsets are not in Kafka but in the worker's file: they are stored there once the transaction
of their records is committed, so that a crash between the two sends records again and never loses one.

Invariant: an offset is in the offsets topic exactly when every record before it is in its topic; an offset is in the
file only when every record before it is in its topic.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from herdmesh.connect.chain import SourceChain
from herdmesh.connect.connector import SourceBatch, SourceTask, SourceTaskContext
from herdmesh.connect.data import Batch
from herdmesh.connect.errors import RecordError
from herdmesh.engine import claims, clients, failpoints, source_offsets
from herdmesh.engine.beyond import Beyond
from herdmesh.engine.contract import PRODUCED_MAX, Progress, RunEnd, RunLink, RunOutcome, RunSpec
from herdmesh.engine.control import Control
from herdmesh.engine.errors import TaskFailed, TaskFenced
from herdmesh.engine.failure import classify_kafka
from herdmesh.engine.fence import Fence
from herdmesh.engine.hung_offsets import OffsetsFinisher
from herdmesh.engine.meter import Limit, Meter
from herdmesh.engine.settings import SourceSettings, offsets_topic_settings

WAIT_S = 0.1
"""How long an idle loop waits before it polls, and looks at commands, again."""
_QUEUE_PAUSE_S = 0.05
_OFFSETS_TOPIC_CONFIG = {"cleanup.policy": "compact"}


class DeliveryFailures:
    """The first message Kafka did not take: why a transaction cannot commit."""

    def __init__(self) -> None:
        self._first: tuple[KafkaError, str | None] | None = None

    def add(self, error: KafkaError, message: Message) -> None:
        """Remember it. Messages purged because the run ends are nobody's fault."""
        if self._first is None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self._first = error, message.topic()

    def raise_first(self) -> None:
        """Raise TaskFailed when there was one."""
        if self._first is not None:
            error, topic = self._first
            raise TaskFailed(f"Kafka refused a record for topic {topic}: {error.str()}", classify_kafka(error)) from (
                KafkaException(error)
            )


class SourceLoop:
    """One run of one source task. Used once, from one thread."""

    def __init__(
        self,
        spec: RunSpec,
        settings: SourceSettings,
        link: RunLink,
        *,
        task: SourceTask,
        chain: SourceChain,
        fence: Fence,
        failures: DeliveryFailures,
        admin: AdminClient,
    ) -> None:
        now_s = time.monotonic()
        self._spec = spec
        self._settings = settings
        self._link = link
        self._task = task
        self._chain = chain
        self._fence = fence
        self._failures = failures
        self._admin = admin
        self._meter = Meter(now_s)
        self._limit = Limit()
        self._control = Control(link, self._limit, now_s)
        self._offsets = source_offsets.SourceOffsets(spec.connector)
        self._pending: dict[bytes, bytes | None] = {}
        self._topics: set[str] = set()
        #: records by topic: of the open transaction, and committed.
        self._sent: Counter[str] = Counter()
        self._produced: Counter[str] = Counter()
        self._has_committed = spec.has_committed
        self._config_offset: int | None = None
        self._commit_time_ms: int | None = None
        self._began_s = now_s
        self._record_s = now_s

    def run(self) -> RunOutcome:
        """Take over and move records until there is a reason to end.

        Raises:
            TaskFailed: with its class; TaskFenced when another owner took over.
            RecordError: a record that cannot be transformed or converted; everything before it is committed.
        """
        self._fence.take_over()
        claim = claims.ask(self._spec, self._admin)
        self._offsets = self._read_offsets()
        self._config_offset = claim.verify()
        self._task.start(
            self._spec.task_config,
            SourceTaskContext(
                connector=self._spec.connector,
                task=self._spec.task,
                task_count=self._spec.task_count,
                run_id=self._spec.run_id,
                committed_offset=self._offsets.committed_offset,
            ),
        )
        self._link.progress(self.progress())  # the first word of a task that owns its id and started
        try:
            reason = self._loop()
        except RecordError:
            self._commit()
            raise
        self._commit()
        wake_after_ms = self._task.wake_after_ms() if reason is RunEnd.QUIET else 0
        return RunOutcome(reason, self.progress(), wake_after_ms)

    def progress(self) -> Progress:
        """How far the run is."""
        return Progress(
            records_in=self._meter.records_in,
            records_out=self._meter.records_out,
            records_dropped=self._meter.records_dropped,
            records_per_second=self._meter.rate(time.monotonic()),
            commit_time_ms=self._commit_time_ms,
            has_committed=self._has_committed,
            produced=tuple(sorted(self._produced.items())),
            config_offset=self._config_offset,
        )

    def _read_offsets(self) -> source_offsets.SourceOffsets:
        if self._spec.source_offsets is not None:
            offsets = source_offsets.SourceOffsets(self._spec.connector)
            for key, value in self._spec.source_offsets.items():
                offsets.apply(key, value)
            return offsets
        topic = self._settings.offsets_topic
        partitions, replication_factor = offsets_topic_settings(self._spec)
        source_offsets.ensure_topic(self._admin, topic, partitions, replication_factor, _OFFSETS_TOPIC_CONFIG)
        group = f"connect-{self._spec.connector}"
        access = self._settings.offsets_consumer
        consumer = clients.consumer(self._spec, group, access)
        unstable = partial(clients.consumer, self._spec, group, access, isolation_level="read_uncommitted")
        try:
            beyond = Beyond(topic, self._spec.connector, self._admin, unstable)
            hung = OffsetsFinisher(topic, self._spec.connector, self._spec.transactional_id, self._fence, unstable)
            return source_offsets.read(consumer, topic, self._spec.connector, beyond, hung)
        finally:
            consumer.close()

    def _loop(self) -> RunEnd:
        while True:
            now_s = time.monotonic()
            end = self._control.wish(now_s)
            if end is not None:
                return end
            batch = self._task.poll() if self._limit.wait_s(now_s) == 0 else None
            now_s = time.monotonic()
            if batch is not None and len(batch):
                self._record_s = now_s
                self._send(batch)
                self._limit.took(len(batch), now_s)
            else:
                self._commit()
                if not self._spec.continuous and now_s - self._record_s >= self._spec.linger_ms / 1000:
                    return RunEnd.QUIET
                time.sleep(min(WAIT_S, self._limit.wait_s(now_s) or WAIT_S))
            if self._fence.in_transaction and now_s - self._began_s >= self._settings.transaction_interval_ms / 1000:
                self._commit()
            if self._meter.report_due(now_s):
                self._link.progress(self.progress())

    def _send(self, batch: SourceBatch) -> None:
        """Convert a batch and produce it in the open transaction."""
        made = self._chain.run(
            Batch(
                batch.topic, batch.partition, batch.keys, batch.values, timestamps_ms=batch.timestamps_ms,
                key_schema=batch.key_schema, value_schema=batch.value_schema, headers=batch.headers,
            )
        )  # fmt: skip
        for raw in made:
            if raw.topic not in self._topics:
                self._ensure_topic(raw.topic)
        if not self._fence.in_transaction:
            self._fence.begin()
            self._began_s = time.monotonic()
        failpoints.hit("before-write")
        for raw in made:
            _produce(self._fence.producer, raw)
            self._sent[raw.topic] += len(raw.values)
        key, value = self._offsets.record(batch.source_partition, batch.source_offset)
        self._pending[key] = value
        self._meter.count(len(batch), sum(len(raw.values) for raw in made), time.monotonic())
        failpoints.hit("after-write")

    def _ensure_topic(self, topic: str) -> None:
        settings = self._settings
        if settings.topic_creation:
            source_offsets.ensure_topic(
                self._admin, topic, settings.topic_partitions, settings.topic_replication_factor, settings.topic_config
            )
        self._topics.add(topic)

    def _commit(self) -> None:
        """Commit the records produced so far together with their offsets."""
        if not self._fence.in_transaction:
            return
        if self._spec.source_offsets is None:
            offsets = [{"key": key, "value": value} for key, value in self._pending.items()]
            _produce_all(self._fence.producer, self._settings.offsets_topic, offsets)
        try:
            self._fence.commit()
        except TaskFenced:
            raise
        except (TaskFailed, KafkaException):
            self._failures.raise_first()  # says more than the transaction's own error
            raise
        if self._spec.source_offsets is not None:
            self._link.store_offsets(self._pending)
        self._pending.clear()
        for topic, count in self._sent.items():
            if topic in self._produced or len(self._produced) < PRODUCED_MAX:
                self._produced[topic] += count
        self._sent.clear()
        self._has_committed = True
        self._commit_time_ms = time.time_ns() // 1_000_000
        failpoints.hit("after-offset-commit")
        self._task.commit()
        self._link.progress(self.progress())


def _produce(producer: Producer, batch: Batch) -> None:
    """Queue the records of a converted batch."""
    keys: Sequence[Any] = batch.keys or (None,) * len(batch.values)
    if any(batch.headers) or any(time_ms is not None for time_ms in batch.timestamps_ms):
        _produce_each(producer, batch, keys)
        return
    messages: list[dict[str, Any]]
    if batch.keys:
        messages = [{"value": value, "key": key} for value, key in zip(batch.values, keys, strict=True)]
    else:
        messages = [{"value": value} for value in batch.values]
    _produce_all(producer, batch.topic, messages, batch.partition)


def _produce_all(producer: Producer, topic: str, messages: list[dict[str, Any]], partition: int | None = None) -> None:
    """Queue messages, waiting for room when the client's queue is full.

    Raises:
        KafkaException: a message Kafka will never take (too large, for example).
    """
    to: Mapping[str, Any] = {} if partition is None else {"partition": partition}
    while messages:
        queued = producer.produce_batch(topic, messages, **to)
        producer.poll(0)
        if queued == len(messages):
            return
        refused = [message for message in messages if "_error" in message]
        for message in refused:
            error: KafkaError = message.pop("_error")
            if error.code() != KafkaError._QUEUE_FULL:
                raise KafkaException(error)
        producer.poll(_QUEUE_PAUSE_S)
        messages = refused


def _produce_each(producer: Producer, batch: Batch, keys: Sequence[Any]) -> None:
    """As `_produce_all`, for records with times or headers: `produce_batch` of confluent-kafka 2.16 knows neither."""
    to: Mapping[str, Any] = {} if batch.partition is None else {"partition": batch.partition}
    count = len(batch.values)
    times, headers = batch.timestamps_ms or (None,) * count, batch.headers or ((),) * count
    for key, value, time_ms, header in zip(keys, batch.values, times, headers, strict=True):
        with_them: dict[str, Any] = {} if time_ms is None else {"timestamp": time_ms}
        if header:
            with_them["headers"] = header
        while True:
            try:
                producer.produce(batch.topic, value, key, **to, **with_them)
                break
            except BufferError:
                producer.poll(_QUEUE_PAUSE_S)
    producer.poll(0)
