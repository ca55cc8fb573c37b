"""A producer that detects lost acknowledgements: records that the client reports as delivered, but no broker
acknowledged.

librdkafka numbers the records of an idempotent producer, and assumes that a broker accepts no batch before the
preceding one. So when a batch is rejected with a retriable error and a later one in flight is accepted, the client
reports both as delivered ("implicitly acked"). But a broker that does not know this producer in the partition yet
accepts any number (KIP-360): a new topic whose partition does not exist yet, or a leader that has just moved, rejects
the first batch and accepts the second. Then the first is lost: reported as delivered, and in a transaction that commits
(librdkafka 2.16; confluent-kafka-go issue 921; docs/internals/bugs.md). The client reports it in one line of its debug
log and nowhere else. Without a delivery report per record there is no other sign; with one the sign is a record without
an offset.

Owns the detection of that log line. The caller must act on it: it must not commit anything on behalf of these records.
Invariant: once `flush` has returned 0 and `poll` was called after it, an implicit acknowledgement of any earlier record
is known.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Producer

from herdmesh.kafka.callback_exceptions import pending

_CATEGORY: Final = "eos"
"""Category of the debug log: some twenty lines a transaction, one a partition, none a record."""
_GUESSED: Final = "IMPLICITACK"
_LATELY_S: Final = 5.0
"""Throttling comes in intervals; a client counts as throttled for this long after one."""


class CheckedProducer(Producer):
    """An idempotent producer, transactional or not."""

    def __init__(self, config: Mapping[str, Any], *, logger: logging.Logger) -> None:
        """`logger` gets debug lines only if the config requests some. Raises KafkaException for a setting that the
        client rejects.
        """
        asked = str(config.get("debug", ""))
        self._heard = _Heard(logger, passes_debug=bool(asked))
        #: the last broker that throttled this client, and the end of that interval.
        self._throttled = "", 0.0
        given = {**config, "debug": f"{asked},{_CATEGORY}" if asked else _CATEGORY, "throttle_cb": self._note_throttle}
        super().__init__(given, logger=self._heard)

    @property
    def guess(self) -> str | None:
        """The client's log line about records that it inferred to be acknowledged from the acknowledgement of others.
        They may be in the topic (if only the reply was late) or not. None = there is no such line.
        """
        return self._heard.guess

    @property
    def throttled_by(self) -> str:
        """The broker that throttles this client by a quota, or did a few seconds ago; "" = none. Updated when the
        client is polled.
        """
        broker, until_s = self._throttled
        return broker if time.monotonic() < until_s + _LATELY_S else ""

    def _note_throttle(self, event: Any) -> None:
        to_raise = pending("".isascii)
        self._throttled = str(event.broker_name), time.monotonic() + float(event.throttle_time)
        if to_raise is not None:
            raise to_raise

    def forget_guess(self) -> None:
        """Reset `guess`, because the transaction of those records is aborted."""
        self._heard.guess = None


class _Heard:
    """The object that the client uses as its logger."""

    def __init__(self, logger: logging.Logger, *, passes_debug: bool) -> None:
        self._logger = logger
        self._passes_debug = passes_debug
        self.guess: str | None = None

    def log(self, level: int, text: str, facility: str, client: str, line: str) -> None:
        to_raise = pending(line.isascii)
        if facility == _GUESSED and self.guess is None:
            self.guess = line.partition("]: ")[2].partition(": ")[2] or line  # without the thread and the broker
        if level > logging.DEBUG or self._passes_debug:
            self._logger.log(level, text, facility, client, line)
        if to_raise is not None:
            raise to_raise
