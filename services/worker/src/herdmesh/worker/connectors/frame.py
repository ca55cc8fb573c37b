"""What several of our connectors are made of, beside what the SDK gives to all.

Owns four parts: a connector whose config one function reads (`ReadConnector`), settings that nobody knows
(`unknown_settings`), the thread that looks again for what a connector deals out (`Lookout`), and looks at a source that
serve for a while (`KeptSigns`). Knows no source.

Invariant: what validation lets pass, `start` takes, because the same function reads it.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

from herdmesh.connect.config import FieldViolation
from herdmesh.connect.connector import Config, Connector, ConnectorContext, ConnectorKind
from herdmesh.connect.connector_keys import COMMON, HERDMESH, SINK, SOURCE
from herdmesh.connect.errors import ConfigError, ConnectError

SIGN_KEPT_S = 0.5
"""How long a look at a source serves at least; the worker asks four times a second."""
_SIGNS_MAX = 1_000
#: What all connectors have below these.
_OF_ALL = ("transforms.", "predicates.", "key.converter", "value.converter", "header.converter", "errors.",
           "consumer.override.", "producer.override.", "admin.override.", "herdmesh.")  # fmt: skip
_SHARED_PREFIXES = {ConnectorKind.SINK: _OF_ALL, ConnectorKind.SOURCE: (*_OF_ALL, "topic.creation.")}
_log = logging.getLogger(__name__)
S = TypeVar("S")
Found = TypeVar("Found")


class ReadConnector(Connector, Generic[S]):
    """A connector whose config is read by one function. Stands before `SourceConnector` or `SinkConnector`."""

    settings: S
    """What `start` has read."""

    @classmethod
    @abstractmethod
    def read(cls, config: Config) -> S:
        """Read a config, of the connector or of a task. Raises ConfigError whose field is the key."""

    def validate(self, config: Config) -> Sequence[ConfigError]:
        try:
            self.read(config)
        except ConfigError as error:
            return [error]
        return ()

    def start(self, config: Config) -> None:
        self.settings = self.read(config)
        super().start(config)

    def asked_of(self, config: Config, question: Callable[[S], bool]) -> bool | None:
        """What only a config can say of a connector that is not started; None = it cannot be read."""
        try:
            return question(self.read(config))
        except ConfigError:
            return None


def unknown_settings(config: Config, own: Collection[str], kind: ConnectorKind) -> list[FieldViolation]:
    """A warning for each key that is neither among the connector's own nor one of all connectors of its kind."""
    of_kind = SOURCE if kind is ConnectorKind.SOURCE else SINK
    known = {*COMMON.keys, *of_kind.keys, *HERDMESH.keys, *own, "name"}
    return [
        FieldViolation(name, f"{name} has no effect: this connector has no such setting", "is it misspelt?")
        for name in config
        if name not in known and not name.startswith(_SHARED_PREFIXES[kind])
    ]


class Lookout(Generic[Found]):
    """Looks at once, and then, where a worker runs the connector, again and again until it is closed; has the connector
    asked for task configs when something else is found."""

    found: Sequence[Found]
    """What the last look found."""

    def __init__(
        self,
        what: str,
        look: Callable[[], Sequence[Found]],
        every_s: float | None,
        context: ConnectorContext | None,
    ) -> None:
        """Raises what the first look raises.

        Args:
            what: it looks for; for the log.
            every_s: None = once is enough.
        """
        self._what, self._look = what, look
        self._over = threading.Event()
        self.found = look()
        if context is not None and every_s is not None:
            again = threading.Thread(target=self._watch, args=(every_s, context), name=f"look for {what}", daemon=True)
            again.start()

    def close(self) -> None:
        """Look no more. Does not wait for a look that is under way."""
        self._over.set()

    def _watch(self, every_s: float, context: ConnectorContext) -> None:
        while not self._over.wait(every_s):
            try:
                found = self._look()
            except Exception as error:  # noqa: BLE001 - it would end this thread, and nobody would look any more
                is_odd = not isinstance(error, ConnectError)
                _log.warning("%s are looked for again later: %s", self._what, error, exc_info=is_odd)
                continue
            if found != self.found:
                _log.info("there are %d %s now, %d before", len(found), self._what, len(self.found))
                self.found = found
                context.request_task_reconfiguration()


class KeptSigns:
    """The last look at what each task reads, in this process; a connector is made anew for each question."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[tuple[str, str | None], ...], tuple[float, str]] = OrderedDict()

    def of(self, task_config: Config, look: Callable[[], str], kept_s: float = SIGN_KEPT_S) -> str:
        """The sign of a task's config, at most so old. Raises what `look` raises."""
        key = tuple(sorted(task_config.items()))
        with self._lock:
            looked_s, sign = self._kept.get(key, (0.0, ""))
        if sign and time.monotonic() - looked_s < kept_s:
            return sign
        looked_s = time.monotonic()
        sign = look()
        with self._lock:
            self._kept[key] = looked_s, sign
            self._kept.move_to_end(key)
            if len(self._kept) > _SIGNS_MAX:
                self._kept.popitem(last=False)
        return sign
