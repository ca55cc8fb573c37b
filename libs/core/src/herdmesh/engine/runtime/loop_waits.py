"""Waits of a record loop between its calls: a rate limit, and a Kafka that does not answer.

Owns the names of both. What a call within the loop waits for is said where it is made (`connect.waits`).

Invariant: a loop that waits for neither costs two comparisons a round.
"""

from __future__ import annotations

from herdmesh.connect.spi import waits
from herdmesh.engine.runtime.settings import SinkSettings


class LoopWaits:
    """Of one run, from the loop's thread."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._kafka = kafka(bootstrap_servers)
        self._limit = waits.Standing()
        self._broker = waits.Standing()

    def note(self, limit_s: float, *, kafka_away: bool) -> None:
        """Once a round. `limit_s`: how long the rate limit lets the task take nothing; 0 = it may take something."""
        if limit_s > 0:
            message = "the task took what herdmesh.rate.* lets it take, and goes on by itself"
            self._limit.goes_on("its rate limit", message, next_try_s=limit_s)
        else:
            self._limit.over()
        if kafka_away:
            self._broker.goes_on(self._kafka, "no broker answers; it goes on by itself once one does")
        else:
            self._broker.over()


def no_topic(settings: SinkSettings) -> tuple[str, str]:
    """What a sink waits for none of whose topics exists, and why."""
    if settings.topics_regex is not None:
        return "a topic", "no topic that topics.regex matches exists; it reads one as soon as it does"
    named = ", ".join(settings.topics)
    return f"topic {named}", "it does not exist; it is read as soon as it does (topics)"


def kafka(bootstrap_servers: str) -> str:
    """A cluster as waits name it."""
    return f"Kafka {bootstrap_servers}"
