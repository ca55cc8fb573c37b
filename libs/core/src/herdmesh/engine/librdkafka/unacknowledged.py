"""Diagnosis of records that no broker acknowledges, shown in the status of the waiting task.

Owns the interpretation of the cluster's metadata; requests it only once a wait is long enough to be shown, and seldom.
Ends no wait.

Invariant: the waiting thread is delayed by `_ANSWER_S` at most, and nothing is raised.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from types import TracebackType
from typing import Any, Final

from confluent_kafka import KafkaException

from herdmesh.connect.spi import waits
from herdmesh.kafka.checked_producer import CheckedProducer

_ANSWER_S: Final = 1.0
_AGAIN_S: Final = 5.0
_NAMED_MAX: Final = 3
"""Maximum number of topics or partitions named in one message."""


class Unacknowledged:
    """Diagnosis for one producer; a context manager around each wait.

    `topics`: the topics of the records it waits for.
    """

    def __init__(self, producer: CheckedProducer, waits_for: str, topics: Collection[str]) -> None:
        self._producer, self._waits_for, self._topics = producer, waits_for, topics
        self._standing = waits.Standing()
        self._ask_at_s = 0.0
        self._why = ""

    def __enter__(self) -> Unacknowledged:
        self._why, self._ask_at_s = "", time.monotonic() + waits.SHOWN_AFTER_S - _ANSWER_S
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._standing.over()

    def note(self) -> None:
        """Report that the wait continues. Call it a few times a second."""
        if time.monotonic() >= self._ask_at_s:
            self._why, again_s = self._asked()
            self._ask_at_s = time.monotonic() + again_s
        count = len(self._producer)
        what = f"{count} {'record is' if count == 1 else 'records are'} not acknowledged"
        self._standing.goes_on(self._waits_for, f"{what}: {self._why}" if self._why else what)

    def _asked(self) -> tuple[str, float]:
        """The reason, and the seconds until the next check."""
        if broker := self._producer.throttled_by:
            why_not = f"broker {broker} throttles this client, by a quota (producer_byte_rate, request_percentage)"
            return why_not, _AGAIN_S
        # Request all topics, because a request about one may create it.
        try:
            found: Any = self._producer.list_topics(timeout=_ANSWER_S)
        except KafkaException as error:
            # The request may have gone to the unreachable broker.
            return f"no broker returns metadata ({error.args[0].str()})", _ANSWER_S
        return why(found, self._topics), _AGAIN_S


def why(metadata: Any, topics: Iterable[str]) -> str:
    """The obstacle for records to these topics, by the cluster's metadata; "" = the metadata shows none."""
    gone, headless, short = list[str](), list[str](), list[str]()
    for topic in sorted(set(topics)):
        found = metadata.topics.get(topic)
        if found is None or found.error is not None:
            gone.append(topic)
            continue
        for number, one in sorted(found.partitions.items()):
            if one.leader < 0:
                headless.append(f"{topic}-{number}")
            elif len(one.isrs) < len(one.replicas):
                short.append(f"{topic}-{number} ({len(one.isrs)} of {len(one.replicas)})")
    said: list[str] = []
    if gone:
        said.append(f"missing topics: {_named(gone)}")
    if headless:
        said.append(f"no leader of {_named(headless)}: a broker is down")
    if short:
        # A broker requires no more in-sync replicas than there are (KIP-966), so a topic with one replica is not
        # affected.
        said.append(f"too few replicas may be in sync for min.insync.replicas: {_named(short)}")
    return "; ".join(said)


def _named(found: list[str]) -> str:
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    return ", ".join(found[:_NAMED_MAX]) + more
