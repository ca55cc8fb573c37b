"""Log levels of this process's loggers, under Java's level names, as Connect's admin API has them.

Owns the mapping of levels, and when each logger's level was changed by us (docs/reference/connect/rest-api.md, section
6). The levels themselves are Python's `logging`, through which structlog and the clients of gRPC and Kafka write. Runs
are processes of their own: they get the changed levels when they start. Spark's JVM has its own loggers, which are not
included.

Invariant: a level that was set here stays until it is set again or the process ends; a command that the leader repeats
is executed once (`state.levels`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from herdmesh.api.herder.v1 import admin_messages_pb2
from herdmesh.session.worker_commands import SetLogger
from herdmesh.topicstore.contract import Revision
from herdmesh.worker.state.levels import Levels

ROOT: Final = "root"
_LEVELS: Final = {
    "ALL": 1,
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}


class Loggers:
    """The loggers of this process; use from one thread."""

    def __init__(self) -> None:
        self._modified_ms: dict[str, int] = {}
        self._levels = Levels()

    @property
    def revision(self) -> Revision | None:
        """Revision of the newest level for the cluster that this process received."""
        return self._levels.revision

    def carry_out(self, question: SetLogger) -> list[admin_messages_pb2.LoggerEntry]:
        """Set a level by command of the leader, unless that was done before; returns the loggers it changed then,
        sorted. Raises ValueError for a level unknown to Java, ConfigError for a request id that was used for another
        level.
        """
        before = self._levels.changed_before(question)
        if before is not None:
            return [admin_messages_pb2.LoggerEntry(logger=name, level=question.level) for name in before]
        try:
            changed = self.set_level(question.logger, question.level)
        except ValueError:
            self._levels.carried_out(question, ())  # permanently invalid: the leader need not repeat it
            raise
        self._levels.carried_out(question, [entry.logger for entry in changed])
        return changed

    def listed(self, prefix: str) -> list[admin_messages_pb2.LoggerEntry]:
        """Loggers, sorted by name. Empty prefix: the root and every logger with a level of its own; otherwise every
        existing logger whose name starts with it (no dot boundary, as in Connect), with the level in force.
        """
        if not prefix:
            found = {name: one for name, one in _existing() if one.level or name == ROOT}
        else:
            found = dict(_under(prefix))
        return [self._entry(name, found[name]) for name in sorted(found)]

    def set_level(self, logger: str, level: str) -> list[admin_messages_pb2.LoggerEntry]:
        """Set the level of every logger whose name starts with `logger` (the root: of all), and create `logger` if it
        does not exist; returns those whose level in force changed, sorted. Raises ValueError for a level unknown to
        Java.
        """
        number = _LEVELS.get(level.upper())
        if number is None:
            raise ValueError(f"invalid log level {level!r}: use one of {', '.join(_LEVELS)}")
        affected = dict(_under(logger))
        if not _is_root(logger):
            affected.setdefault(logger, logging.getLogger(logger))
        before = {name: one.getEffectiveLevel() for name, one in affected.items()}
        now_ms = time.time_ns() // 1_000_000
        for name, one in affected.items():
            one.setLevel(number)
            if before[name] != number:
                self._modified_ms[name] = now_ms
        return [self._entry(name, affected[name]) for name in sorted(affected) if before[name] != number]

    def changed(self) -> Mapping[str, int]:
        """Python's numbers of the levels that were set here."""
        return {name: one.level for name, one in _existing() if name in self._modified_ms}

    def _entry(self, name: str, logger: logging.Logger) -> admin_messages_pb2.LoggerEntry:
        entry = admin_messages_pb2.LoggerEntry(logger=name, level=_name_of(logger.getEffectiveLevel()))
        if name in self._modified_ms:
            entry.modify_time.FromMilliseconds(self._modified_ms[name])
        return entry


@contextmanager
def applied(levels: Mapping[str, int]) -> Generator[None]:
    """Set the levels that were changed in another process, inside this context."""
    loggers = {logging.getLogger(None if name == ROOT else name): number for name, number in levels.items()}
    before = {logger: logger.level for logger in loggers}
    for logger, number in loggers.items():
        logger.setLevel(number)
    try:
        yield
    finally:
        for logger, number in before.items():
            logger.setLevel(number)


def _existing() -> Iterator[tuple[str, logging.Logger]]:
    yield ROOT, logging.getLogger()
    for name, one in logging.Logger.manager.loggerDict.copy().items():
        if isinstance(one, logging.Logger):
            yield name, one


def _under(prefix: str) -> Iterator[tuple[str, logging.Logger]]:
    for name, one in _existing():
        if _is_root(prefix) or (name != ROOT and name.startswith(prefix)):
            yield name, one


def _is_root(name: str) -> bool:
    return name.lower() == ROOT


def _name_of(number: int) -> str:
    """Java's name of a level; for a number between two levels, the more verbose one."""
    return next((name for name, known in reversed(_LEVELS.items()) if known <= number), "ALL")
