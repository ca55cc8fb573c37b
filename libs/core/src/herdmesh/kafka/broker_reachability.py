"""Detection of a client that has forgotten all its brokers and will never reach its cluster again.

A broker that is shutting down leaves itself out of the metadata of its last moments. When the connection to the last
broker breaks before librdkafka has read such metadata, the client forgets every broker, stops looking for others, and
stays unreachable: it sends no request, reports no error, and no setting wakes it (librdkafka 2.12 to 2.16, issue
5301; observed in a store that served stale reads, docs/internals/bugs.md). The only cure is another client.
Owns the distinction between such a client and one whose cluster is down; the caller creates the other client.

Invariant: a client is abandoned only while something accepts connections at a broker's address.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

from confluent_kafka import KafkaError, KafkaException

LOOK_PAUSE_S = 1.0
"""Time that a client has to find a broker by itself: after all brokers were lost, and between two checks."""
_ASK_S = 1.0
_CONNECT_S = 1.0
_PORT = 9092
"""librdkafka's default for an address without a port."""


class MetadataClient(Protocol):
    """Any Kafka client, as far as metadata requests go."""

    def list_topics(self, topic: str, timeout: float) -> object: ...


class Contact:
    """Reachability of the brokers for one client. Use it in the thread that polls the client."""

    def __init__(self, bootstrap_servers: str, topic: str, on_error: Callable[[KafkaError], None]) -> None:
        """`topic`: a topic whose metadata the client may request. `on_error` receives every error, too."""
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._on_error = on_error
        self._look_s: float | None = None

    def note(self, error: KafkaError) -> None:
        """The client's error callback."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._look_s is None:  # pyright: ignore[reportPrivateUsage]
            self._look_s = time.monotonic() + LOOK_PAUSE_S
        self._on_error(error)

    def doubt(self) -> None:
        """Make the next check immediate, because a request got no reply and no error explains it. A client whose last
        metadata named no broker may have forgotten its brokers without reporting that all are down.
        """
        if self._look_s is None:
            self._look_s = time.monotonic()

    @property
    def is_in_doubt(self) -> bool:
        """True since all brokers were lost, or a request got no reply, until the next metadata reply. Meanwhile a
        request may take its whole timeout.
        """
        return self._look_s is not None

    def is_lost(self, client: MetadataClient) -> bool:
        """True when the client, which is in doubt, gets no reply while a broker accepts connections. Sends a request at
        most once a second, which blocks for up to three, and none after a reply: call it as often as you like.
        """
        if self._look_s is None or time.monotonic() < self._look_s:
            return False
        if self._answers(client):
            return False
        # Repeat the request: the broker may have come back at the end of the first.
        return accepts(self._bootstrap_servers) and not self._answers(client)

    def _answers(self, client: MetadataClient) -> bool:
        try:
            client.list_topics(self._topic, _ASK_S)
        except KafkaException:
            self._look_s = time.monotonic() + LOOK_PAUSE_S
            return False
        self._look_s = None
        return True


def accepts(bootstrap_servers: str) -> bool:
    """True when one of the brokers `host:port,...` accepts a connection. Blocks for a second per address at most."""
    for address in bootstrap_servers.split(","):
        with contextlib.suppress(OSError, ValueError):
            found = urlsplit("//" + address.strip().rpartition("://")[2])
            socket.create_connection((found.hostname or "", found.port or _PORT), _CONNECT_S).close()
            return True
    return False
