"""What several of our connectors are made of, beside what the SDK gives to all.

Owns five parts: a connector whose config one function reads (`ReadConnector`), settings that do nothing
(`warned_settings`), a thread for what is to be done again and again (`Repeated`), looking for what a connector deals
out (`Lookout`), and looks at a source that serve for a while (`KeptSigns`). Knows no source.

Invariant: what validation lets pass, `start` takes, because the same function reads it.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

from herdmesh.connect.connector import Connector, ConnectorKind
from herdmesh.connect.connector_keys import COMMON, HERDMESH, SINK, SOURCE
from herdmesh.connect.waits import Standing, Waits, entered
from herdmesh.sdk import Config, ConfigError, ConnectError, ConnectorContext, FieldViolation, RetriableError
from herdmesh.worker.connectors.known_keys import unread

SIGN_KEPT_S = 0.5
"""How long a look at a source serves at least; the worker asks four times a second."""
_SIGNS_MAX = 1_000
#: What all connectors have below these.
_OF_ALL = ("transforms.", "predicates.", "key.converter", "value.converter", "header.converter", "errors.",
           "producer.override.", "admin.override.", "herdmesh.")  # fmt: skip
"""What is not read below these, `connect.unknown_keys` says."""
_SHARED_PREFIXES = {
    ConnectorKind.SINK: (*_OF_ALL, "consumer.override."),
    ConnectorKind.SOURCE: (*_OF_ALL, "topic.creation."),
}
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
        found = list(self.not_built(config))
        fields = {one.field for one in found}
        try:
            self.read({key: value for key, value in config.items() if key not in fields})
        except ConfigError as error:
            found.append(error)
        return found

    def start(self, config: Config) -> None:
        self.settings = self.read(config)
        super().start(config)

    def asked_of(self, config: Config, question: Callable[[S], bool]) -> bool | None:
        """What only a config can say of a connector that is not started; None = it cannot be read."""
        try:
            return question(self.read(config))
        except ConfigError:
            return None


def warned_settings(
    config: Config,
    own: Collection[str],
    kind: ConnectorKind,
    without_effect: Mapping[str, tuple[str, tuple[str, ...]]] | None = None,
    prefixes: tuple[str, ...] = (),
    *,
    java: str = "",
    here: Callable[[str, str], str | None] = lambda _key, _value: None,
    foreign: Callable[[str], str | None] = lambda _key: None,
) -> list[FieldViolation]:
    """A warning for each key that does nothing: those that are told why, and those that nobody knows.

    Args:
        own: keys of the connector, and of its tasks.
        without_effect: other connectors' keys: why, and the values that ask for nothing else.
        prefixes: of keys of the connector's own.
        java: the definition of `known_keys` whose Java connector it stands for.
        here: why a key, with its value, has no effect in this config; "" = it has, None = as without this.
        foreign: why a key that is not known has no effect; None = `known_keys` says.
    """
    of_kind = SOURCE if kind is ConnectorKind.SOURCE else SINK
    known = {*COMMON.keys, *of_kind.keys, *HERDMESH.keys, *own, "name"}
    found: list[FieldViolation] = []
    for name, value in config.items():
        text = (value or "").strip()
        if without_effect and name in without_effect:
            why, same = without_effect[name]
            if text not in same:
                found.append(no_effect(name, why))
        elif (why := here(name, text)) is not None:
            if why:
                found.append(no_effect(name, why))
        elif name not in known and not name.startswith((*_SHARED_PREFIXES[kind], *prefixes)):
            why = foreign(name)
            found.append(unread(name, java, known) if why is None else no_effect(name, why))
    return found


def no_effect(key: str, why: str, fix: str = "leave it out") -> FieldViolation:
    """A warning."""
    return FieldViolation(key, f"{key} has no effect: {why}", fix)


class Repeated:
    """Does something every so often, in a thread of its own, until it is closed. What that raises is logged, and waited
    for until it is done again."""

    def __init__(
        self,
        doing: str,
        action: Callable[[], None],
        every_s: float,
        *,
        at_once: bool = False,
        waits: Waits | None = None,
    ) -> None:
        """`doing`: what it is, for the log. `at_once`: not only after the first interval. `waits`: the connector's."""
        self._doing, self._action, self._every_s = doing, action, every_s
        self._waits = waits or Waits()
        self._over = threading.Event()
        threading.Thread(target=self._go, args=(at_once,), name=doing, daemon=True).start()

    def close(self) -> None:
        """Do it no more. Does not wait for what is under way."""
        self._over.set()

    def _go(self, at_once: bool) -> None:
        with entered(self._waits), Standing() as fails:
            while at_once or not self._over.wait(self._every_s):  # waits: for its time, or what `fails` says
                at_once = False
                try:
                    self._action()
                except Exception as error:  # noqa: BLE001 - it would end this thread, and nobody would do it any more
                    is_odd = not isinstance(error, ConnectError)
                    _log.warning("%s is tried again later: %s", self._doing, error, exc_info=is_odd)
                    waits_for = error.waits_for if isinstance(error, RetriableError) else ""
                    message = f"{self._doing} failed: {error}"
                    fails.goes_on(waits_for or self._doing, message, tried=True, next_try_s=self._every_s)
                else:
                    fails.over()


class Lookout(Generic[Found]):
    """Looks at once, and then, where a worker runs the connector, again and again until it is closed; has the connector
    asked for task configs when something else is found. That nothing is there is a wait of the connector."""

    found: Sequence[Found]
    """What the last look found."""

    def __init__(
        self,
        what: str,
        look: Callable[[], Sequence[Found]],
        every_s: float | None,
        context: ConnectorContext | None,
        *,
        nothing: str = "",
    ) -> None:
        """Raises what the first look raises.

        Args:
            what: it looks for; for the log.
            every_s: None = once is enough.
            nothing: the settings by which it chooses, for who asks why nothing is found.
        """
        self._what, self._look, self._context = what, look, context
        self._nothing, self._every_s = nothing, every_s
        self._again: Repeated | None = None
        self._finds_nothing = Standing(None if context is None else context.waits)
        self.found = look()
        if context is not None and every_s is not None:
            self._note()
            self._again = Repeated(f"looking for {what}", self._look_again, every_s, waits=context.waits)

    def close(self) -> None:
        """Look no more. Does not wait for a look that is under way."""
        self._finds_nothing.over()
        if self._again is not None:
            self._again.close()

    def _look_again(self) -> None:
        found = self._look()
        if found != self.found:
            _log.info("there are %d %s now, %d before", len(found), self._what, len(self.found))
            self.found = found
            if self._context is not None:
                self._context.request_task_reconfiguration()
        self._note()

    def _note(self) -> None:
        if self.found:
            self._finds_nothing.over()
            return
        message = f"nothing is found, so there are no tasks: see {self._nothing}"
        self._finds_nothing.goes_on(self._what, message, next_try_s=self._every_s)


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
