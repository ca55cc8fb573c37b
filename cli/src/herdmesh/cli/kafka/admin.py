"""An admin client for one command, and its metadata of the cluster.

Owns the connection: a refused address or a refused login ends the command at once, with its cause, and not after the
client's timeout.

Invariant: every call blocks for `timeout_s` at most, and raises CommandError only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from herdmesh.cli.errors import CommandError
from herdmesh.cli.kafka.access import KafkaAccess
from herdmesh.cli.kafka.failures import LOGIN, UNREACHABLE, error_of, failure, login_failed, unreachable
from herdmesh.kafka.broker_reachability import accepts
from herdmesh.kafka.listed_offsets import list_offsets
from herdmesh.kafka.logins import ready

T = TypeVar("T")
TIMEOUT_S: Final = 10.0
_ATTEMPT_S: Final = 1.0
#: librdkafka's own log lines would mix with the command's output; errors come by callbacks.
SILENT: Final = logging.getLogger("herdmesh.cli.kafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


class ClientErrors:
    """The error callback of a client: keeps the error that explains why it cannot connect."""

    def __init__(self) -> None:
        self.login = ""
        self.last = ""

    def __call__(self, error: KafkaError) -> None:
        if error.code() in LOGIN:
            self.login = error.str()
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:  # pyright: ignore[reportPrivateUsage]  # follows the cause
            self.last = error.str()


class KafkaAdmin:
    """Admin calls of one command."""

    def __init__(self, access: KafkaAccess, timeout_s: float = TIMEOUT_S) -> None:
        """Raises CommandError when no broker accepts a connection."""
        self.access, self.timeout_s = access, timeout_s
        self._errors = ClientErrors()
        config = {**access.client_config("admin"), "error_cb": self._errors}
        if not accepts(access.bootstrap_servers):
            raise unreachable(access, "no broker accepts a connection")
        try:
            # its futures and results carry no types
            self.client: Any = AdminClient(ready(config), logger=SILENT)
        except KafkaException as error:
            raise failure(error_of(error), access, "the client cannot be created") from None

    def metadata(self, topic: str | None = None) -> Any:
        """`ClusterMetadata` of all topics, or of one, which is not created."""
        deadline_s = time.monotonic() + self.timeout_s
        while True:
            try:
                return self.client.list_topics(*(() if topic is None else (topic,)), timeout=_ATTEMPT_S)
            except KafkaException as error:
                self.client.poll(0)  # runs the error callback
                if self._errors.login:
                    raise login_failed(self.access, self._errors.login) from None
                found = error_of(error)
                if found.code() not in UNREACHABLE:
                    raise failure(found, self.access, "metadata") from None
                if time.monotonic() > deadline_s:
                    raise unreachable(self.access, self._errors.last or found.str()) from None

    def result(self, future: Future[T], doing: str) -> T:
        """Wait for one result."""
        try:
            return future.result(self.timeout_s + _ATTEMPT_S)
        except KafkaException as error:
            raise failure(error_of(error), self.access, doing) from None
        except TimeoutError:
            raise unreachable(self.access, f"{doing}: no answer in {self.timeout_s:g} s") from None

    def offsets(
        self, wanted: Mapping[tuple[str, int], Any], topics: Any, *, committed: bool = False
    ) -> dict[tuple[str, int], int | None]:
        """The offset that each partition's `OffsetSpec` names; None for a partition without a leader. An offset below 0
        means that no record is as late as the requested time.

        Args:
            topics: recent metadata of these topics.
            committed: the end is the last stable offset.
        """
        if not wanted:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        futures = list_offsets(
            self.client,
            {TopicPartition(*one): spec for one, spec in wanted.items()},
            timeout_s=self.timeout_s,
            isolation_level=level,
            known=topics,
        )
        found: dict[tuple[str, int], int | None] = {}
        for key, future in futures.items():
            try:
                found[key.topic, key.partition] = int(self.result(future, f"offsets of {key.topic}").offset)
            except CommandError as error:
                if error.reason in ("UNREACHABLE", "UNAUTHORIZED", "LOGIN_FAILED"):
                    raise
                found[key.topic, key.partition] = None
        return found


def partitions_of(topics: Any, names: Iterable[str]) -> list[tuple[str, int]]:
    """(topic, partition) of these topics' metadata, in order."""
    return [(name, number) for name in names for number in sorted(topics[name].partitions)]
