"""Waits of a record loop between its calls: a rate limit, and an unreachable Kafka.

Owns the names of both. A call within the loop reports its own wait (`connect.waits`).

Invariant: a loop without waits costs two comparisons a turn.
"""

from __future__ import annotations

from herdmesh.connect.spi import waits
from herdmesh.engine.runtime.settings import SinkSettings


class LoopWaits:
    """The waits of one run, from the loop's thread."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._kafka = kafka(bootstrap_servers)
        self._limit = waits.Standing()
        self._broker = waits.Standing()

    def note(self, limit_s: float, *, kafka_away: bool) -> None:
        """Called once a turn. `limit_s`: how long the rate limit blocks the task; 0 = it does not."""
        if limit_s > 0:
            message = "the task reached its limit of herdmesh.rate.*, and continues by itself"
            self._limit.goes_on("its rate limit", message, next_try_s=limit_s)
        else:
            self._limit.over()
        if kafka_away:
            self._broker.goes_on(self._kafka, "no broker responds; the task continues by itself once one does")
        else:
            self._broker.over()


def no_topic(settings: SinkSettings) -> tuple[str, str]:
    """The target and reason of the wait of a sink without any existing topic."""
    if settings.topics_regex is not None:
        return "a topic", "no topic that topics.regex matches exists; it reads one as soon as it does"
    named = ", ".join(settings.topics)
    return f"topic {named}", "it does not exist; it is read as soon as it does (topics)"


def kafka(bootstrap_servers: str) -> str:
    """The name of a cluster in waits."""
    return f"Kafka {bootstrap_servers}"
