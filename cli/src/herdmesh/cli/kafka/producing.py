"""Records written to a topic, each with the broker's confirmation.

Owns the producer of `herd produce`. Invariant: a record counts as delivered only when the broker's acknowledgement
named its offset; every other record is reported with the place it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from herdmesh.cli.display.views import Json
from herdmesh.cli.errors import EXIT_CODES, CommandError
from herdmesh.cli.kafka.access import KafkaAccess
from herdmesh.cli.kafka.admin import SILENT, ClientErrors, KafkaAdmin
from herdmesh.cli.kafka.failures import error_of, failure
from herdmesh.cli.kafka.given_records import Outgoing
from herdmesh.cli.kafka.topics import known
from herdmesh.kafka.checked_producer import CheckedProducer
from herdmesh.kafka.logins import ready

#: Time in which a record must be acknowledged, retries included.
DELIVERY_S: Final = 30.0
_QUEUED_MAX: Final = 100_000
_POLL_S: Final = 0.1
_FAILURES_KEPT: Final = 20
_INVALID_RECORD: Final = (KafkaError.INVALID_RECORD,)


@dataclass(slots=True)
class Delivery:
    """The result of a command: counts, and the offsets of the records in each partition."""

    topic: str
    sent: int = 0
    delivered: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Source and cause of the first records that were not delivered."""
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    """First and last offset by partition."""

    @property
    def undelivered(self) -> int:
        """Number of records without a confirmation."""
        return self.sent - self.delivered

    def document(self) -> Json:
        """The result for programs."""
        return {
            "topic": self.topic,
            "delivered": self.delivered,
            "not_delivered": self.undelivered,
            "partitions": [
                {"partition": number, "first_offset": first, "last_offset": last}
                for number, (first, last) in sorted(self.offsets.items())
            ],
        }


class TopicProducer:
    """The producer of one command for one topic."""

    def __init__(self, access: KafkaAccess, topic: str, timeout_s: float = DELIVERY_S) -> None:
        """Raises CommandError when the topic is missing or the cluster is unreachable."""
        self._access, self._timeout_s = access, timeout_s
        self._partitions = len(known(KafkaAdmin(access), [topic])[topic].partitions)
        self.delivery = Delivery(topic)
        config = {
            "linger.ms": 5,
            "compression.type": "lz4",
            **access.client_config("producer"),
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": _QUEUED_MAX,
            "message.timeout.ms": int(timeout_s * 1_000),
            "error_cb": ClientErrors(),
        }
        try:
            self._producer: Any = CheckedProducer(ready(config), logger=SILENT)
        except KafkaException as error:
            raise failure(error_of(error), access, "the client cannot be created") from None

    def send(self, records: Iterable[Outgoing]) -> None:
        """Queue records; waits while the queue is full. Raises CommandError for a partition that does not exist."""
        for record in records:
            if record.partition is not None and not 0 <= record.partition < self._partitions:
                text = f"{record.source}: topic {self.delivery.topic} has no partition {record.partition}"
                fix = f"It has {self._partitions}, numbered from 0; without a partition the key decides."
                raise CommandError("REQUEST_INVALID", text, fix, EXIT_CODES["REQUEST_INVALID"])
            self._queue(record)
        self._producer.poll(0)

    def finish(self) -> Delivery:
        """Wait for all confirmations."""
        self._producer.flush(self._timeout_s + 1.0)
        return self.delivery

    def _queue(self, record: Outgoing) -> None:
        more: dict[str, Any] = {}
        if record.partition is not None:
            more["partition"] = record.partition
        if record.timestamp_ms is not None:
            more["timestamp"] = record.timestamp_ms
        if record.headers:
            more["headers"] = list(record.headers)
        self.delivery.sent += 1
        report: Callable[[KafkaError | None, Any], None] = partial(self._delivered, record.source)
        while True:
            try:
                self._producer.produce(self.delivery.topic, record.value, key=record.key, on_delivery=report, **more)
            except BufferError:
                self._producer.poll(_POLL_S)
            except KafkaException as error:  # refused by the client: too large
                self._note(record.source, error_of(error).str())
                return
            else:
                return

    def _delivered(self, source: str, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            hint = "; a compacted topic takes no record without a key" if error.code() in _INVALID_RECORD else ""
            self._note(source, error.str() + hint)
            return
        offset: int | None = message.offset()
        if offset is None or offset < 0:  # inferred from another record's acknowledgement (docs/internals/bugs.md)
            self._note(source, "the broker's acknowledgement was lost, the record may be missing")
            return
        self.delivery.delivered += 1
        first, last = self.delivery.offsets.get(message.partition(), (offset, offset))
        self.delivery.offsets[message.partition()] = min(first, offset), max(last, offset)

    def _note(self, source: str, cause: str) -> None:
        if len(self.delivery.failures) < _FAILURES_KEPT:
            self.delivery.failures.append((source, cause))
