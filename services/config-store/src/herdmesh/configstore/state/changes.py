"""The events of a config store watch, one type per kind.

Owns the event types. Owns no rule: `connector` and `config` say which record leads to which change.

Invariant: a change carries immutable values, so that a watcher may keep it for as long as it likes.
"""

from __future__ import annotations

from dataclasses import dataclass

from herdmesh.configstore.state.connector import ChangeKind, ConnectorState
from herdmesh.connect.topics import LoggerRecord, RestartRecord, SessionKeyRecord


@dataclass(frozen=True, slots=True)
class ConnectorChanged:
    """One record changed what is stored under one name.

    `kinds` are the listeners Connect would have called (docs/reference/connect/config-topic.md, section 4); empty when
    Connect calls none although what is stored changed, for example a target state of a connector without config.
    `before`/`after` are None when nothing is stored under the name.
    """

    name: str
    kinds: tuple[ChangeKind, ...]
    before: ConnectorState | None
    after: ConnectorState | None


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads the herders. Generations below `generation_limit` are spent by this epoch or one before it; the newest
    block reserved, of this epoch in any case, begins at `generation_first`."""

    epoch: int
    leader_id: str
    leader_address: str
    generation_first: int
    generation_limit: int


@dataclass(frozen=True, slots=True)
class LeadershipChanged:
    """An epoch record was read: a new epoch, or more generations for the one in force."""

    leadership: Leadership


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """A restart record was read; meant for those who watch now, never part of a snapshot."""

    request: RestartRecord


@dataclass(frozen=True, slots=True)
class SessionKeyChanged:
    """A session key was read; `revision` is the offset after its record."""

    key: SessionKeyRecord
    revision: int


@dataclass(frozen=True, slots=True)
class LoggerLevelChanged:
    """A logger level was read; `revision` is the offset after its record. A snapshot has the newest of each logger."""

    level: LoggerRecord
    revision: int


Change = ConnectorChanged | LeadershipChanged | RestartRequested | SessionKeyChanged | LoggerLevelChanged


@dataclass(frozen=True, slots=True)
class UndecodableRecord:
    """A record that no rule could read. `key` is UTF-8 with replacements."""

    topic: str
    offset: int
    key: str
    reason: str
