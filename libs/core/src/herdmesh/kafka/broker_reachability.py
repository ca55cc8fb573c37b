"""Detection of a client that has forgotten all its brokers and will never reach its cluster again.

A broker that is told to stop leaves itself out of the metadata of its last moments. When the connection to the last
broker breaks before librdkafka has looked at such metadata, the client forgets every broker, stops the search for
others, and stays deaf: it sends no request, reports no error, and no setting wakes it (librdkafka 2.12 to 2.16, issue
5301; seen in a store that served what it had read before, docs/internals/bugs.md). The only cure is another client.
Owns telling such a client from one whose cluster is down; making the other client is the caller's.

Invariant: a client is only abandoned when something accepts connections where a broker is expected.
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
"""So long after all brokers were lost, and between two looks, a client has to find one by itself."""
_ASK_S = 1.0
_CONNECT_S = 1.0
_PORT = 9092
"""librdkafka's, where an address names none."""


class MetadataClient(Protocol):
    """Any of the clients."""

    def list_topics(self, topic: str, timeout: float) -> object: ...


class Contact:
    """One client's. Used from the thread that polls the client."""

    def __init__(self, bootstrap_servers: str, topic: str, on_error: Callable[[KafkaError], None]) -> None:
        """`topic`: one that may be asked for. `on_error` is told every error, too."""
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
        """What was sent is not answered, and no error says why: have the next look be at once. A client whose last
        answer named no broker may be deaf without ever having told that all are down."""
        if self._look_s is None:
            self._look_s = time.monotonic()

    @property
    def is_in_doubt(self) -> bool:
        """True since all brokers were lost, or something was not answered, until the client had an answer: a question
        may take all its time."""
        return self._look_s is not None

    def is_lost(self, client: MetadataClient) -> bool:
        """True when the client, which is in doubt, gets no answer where a broker takes connections. Asks
        once a second, which takes some three, and nothing once it had an answer: call it as often as you like."""
        if self._look_s is None or time.monotonic() < self._look_s:
            return False
        if self._answers(client):
            return False
        # Asked again: the broker may have come back at the end of the first.
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
    """True when one of the brokers `host:port,...` takes a connection. Blocks for a second per address at most."""
    for address in bootstrap_servers.split(","):
        with contextlib.suppress(OSError, ValueError):
            found = urlsplit("//" + address.strip().rpartition("://")[2])
            socket.create_connection((found.hostname or "", found.port or _PORT), _CONNECT_S).close()
            return True
    return False
