"""A producer that detects lost acknowledgements: records that the client reports as delivered, but no broker
acknowledged.

librdkafka numbers the records of an idempotent producer, and assumes that a broker accepts no batch before it has the
one before. So when a batch is refused for the moment and a later one that was under way is accepted, the client reports
both as delivered ("implicitly acked"). But a broker that does not know this producer in the partition yet accepts any
number (KIP-360): a new topic whose partition is not there yet, or a leader that has just moved, refuses the first batch
and takes the second. Then the first is lost: reported as delivered, and in a transaction that commits (librdkafka 2.16;
confluent-kafka-go issue 921; docs/internals/bugs.md). The client says so in one line of its debug log and nowhere else:
without a delivery report per record there is no other sign, with one it is a record without an offset.

Owns the detection of that log line. The consequence, that nothing may be committed on behalf of these records, is the
caller's. Invariant: once `flush` has returned 0 and `poll` was called after it, an implicit acknowledgement of anything
produced before is known.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Producer

from herdmesh.kafka.callback_exceptions import pending

_CATEGORY: Final = "eos"
"""Of the debug log: some twenty lines a transaction, one a partition, none a record."""
_GUESSED: Final = "IMPLICITACK"
_LATELY_S: Final = 5.0
"""A client is throttled in turns; between two of them it is throttled all the same."""


class CheckedProducer(Producer):
    """An idempotent producer, transactional or not."""

    def __init__(self, config: Mapping[str, Any], *, logger: logging.Logger) -> None:
        """Debug lines are for `logger` only where the config asks for some. Raises KafkaException for a setting the
        client refuses."""
        asked = str(config.get("debug", ""))
        self._heard = _Heard(logger, passes_debug=bool(asked))
        #: the last broker that told this client to wait, and until when.
        self._throttled = "", 0.0
        given = {**config, "debug": f"{asked},{_CATEGORY}" if asked else _CATEGORY, "throttle_cb": self._note_throttle}
        super().__init__(given, logger=self._heard)

    @property
    def guess(self) -> str | None:
        """The client's words of records that it took for acknowledged by an answer to others. They may be there, as
        after an answer that was late, or not. None = it did not."""
        return self._heard.guess

    @property
    def throttled_by(self) -> str:
        """The broker that has this client wait for a quota, or did a few seconds ago; "" = none. Known once the client
        is polled."""
        broker, until_s = self._throttled
        return broker if time.monotonic() < until_s + _LATELY_S else ""

    def _note_throttle(self, event: Any) -> None:
        to_raise = pending("".isascii)
        self._throttled = str(event.broker_name), time.monotonic() + float(event.throttle_time)
        if to_raise is not None:
            raise to_raise

    def forget_guess(self) -> None:
        """The transaction that the records were of is aborted."""
        self._heard.guess = None


class _Heard:
    """What the client takes for a logger."""

    def __init__(self, logger: logging.Logger, *, passes_debug: bool) -> None:
        self._logger = logger
        self._passes_debug = passes_debug
        self.guess: str | None = None

    def log(self, level: int, text: str, facility: str, client: str, line: str) -> None:
        to_raise = pending(line.isascii)
        if facility == _GUESSED and self.guess is None:
            self.guess = line.partition("]: ")[2].partition(": ")[2] or line  # without its thread and its broker
        if level > logging.DEBUG or self._passes_debug:
            self._logger.log(level, text, facility, client, line)
        if to_raise is not None:
            raise to_raise
