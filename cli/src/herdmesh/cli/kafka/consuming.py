"""Records read from topics, for `herd consume`.

Owns the consumer: it joins no group and commits nothing, so that it changes nothing for anybody else.

Invariant: without `follow` the reading ends at the ends that the partitions had when it began, also while others write.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import (
    OFFSET_INVALID,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from herdmesh.cli.kafka.access import KafkaAccess
from herdmesh.cli.kafka.admin import SILENT, ClientErrors
from herdmesh.cli.kafka.failures import error_of, failure, login_failed, unreachable
from herdmesh.cli.kafka.start import Span
from herdmesh.connect.model import ConnectRecord, Header
from herdmesh.kafka.logins import ready
from herdmesh.kafka.transient import TRANSIENT

_BATCH_RECORDS: Final = 500
_POLL_S: Final = 0.2
#: Time without a record and without an end of a partition after which a command that does not follow fails.
_SILENCE_S: Final = 30.0


class TopicConsumer:
    """The consumer of one command."""

    def __init__(self, access: KafkaAccess, spans: Mapping[tuple[str, int], Span], *, uncommitted: bool) -> None:
        self._access, self._spans = access, dict(spans)
        self._errors = ClientErrors()
        config = {
            **access.client_config("consumer"),
            "group.id": "herd-consume",  # the client needs one; it is never joined
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # retention may delete the first records meanwhile
            "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
            "error_cb": self._errors,
        }
        try:
            self._consumer: Any = Consumer(ready(config), logger=SILENT)
        except KafkaException as error:
            raise failure(error_of(error), access, "the client cannot be created") from None

    def batches(self, *, follow: bool) -> Iterator[list[ConnectRecord]]:
        """Records as bytes, as they come. Raises CommandError."""
        open_ends = {one: span.end for one, span in self._spans.items() if follow or span.start < span.end}
        if not open_ends:
            return
        self._consumer.assign([TopicPartition(*one, self._spans[one].start) for one in open_ends])
        moved_s = time.monotonic()
        while open_ends:
            batch: list[ConnectRecord] = []
            done: set[tuple[str, int]] = set()
            for message in self._consumer.consume(_BATCH_RECORDS, _POLL_S):
                place = message.topic(), message.partition()
                error = message.error()
                if error is not None:
                    if self._is_end(error) and not follow:
                        done.add(place)
                    continue
                offset = message.offset()
                if not follow and offset >= open_ends.get(place, 0) - 1:
                    done.add(place)
                if follow or offset < open_ends.get(place, 0):
                    batch.append(_record(message))
            if batch or done:
                moved_s = time.monotonic()
            if batch:
                yield batch
            ended = done & open_ends.keys()
            for place in ended:
                del open_ends[place]
            if ended and open_ends:
                self._consumer.incremental_unassign([TopicPartition(*one) for one in ended])
            self._check(moved_s, follow=follow)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _is_end(self, error: KafkaError) -> bool:
        """True for the end of a partition. Raises CommandError for an error that a retry does not cure."""
        if error.code() == KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]
            return True
        if error.code() in TRANSIENT or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return False  # the client looks for the coordinator of its group, which is never joined
        raise failure(error, self._access, "reading")

    def _check(self, moved_s: float, *, follow: bool) -> None:
        if self._errors.login:
            raise login_failed(self._access, self._errors.login)
        if not follow and time.monotonic() - moved_s > _SILENCE_S:
            raise unreachable(self._access, self._errors.last or f"no record came for {_SILENCE_S:g} s")


def _record(message: Any) -> ConnectRecord:
    kind, timestamp_ms = message.timestamp()
    offset = message.offset()
    return ConnectRecord(
        message.topic(),
        message.partition(),
        message.key(),
        message.value(),
        None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        [Header(name, value) for name, value in message.headers() or ()],
        offset=None if offset == OFFSET_INVALID else offset,
    )
