"""The events of a config store watch, one type per kind.

Owns the event types. Owns no rule: `connector` and `config` decide which record leads to which change.

Invariant: a change carries immutable values, so a watcher may keep it for any time.
"""

from __future__ import annotations

from dataclasses import dataclass

from herdmesh.configstore.state.connector import ChangeKind, ConnectorState
from herdmesh.connect.topics import LoggerRecord, RestartRecord, SessionKeyRecord


@dataclass(frozen=True, slots=True)
class ConnectorChanged:
    """A change of the records stored under one name, made by one record.

    `kinds` are the listeners Connect would have called (docs/reference/connect/config-topic.md, section 4); empty when
    Connect calls none although the stored state changed, for example a target state of a connector without config.
    `before`/`after` are None when nothing is stored under the name.
    """

    name: str
    kinds: tuple[ChangeKind, ...]
    before: ConnectorState | None
    after: ConnectorState | None


@dataclass(frozen=True, slots=True)
class Leadership:
    """The leadership of one herder. Generations below `generation_limit` are used up by this epoch or an earlier one;
    the newest reserved block, always of this epoch, begins at `generation_first`.
    """

    epoch: int
    leader_id: str
    leader_address: str
    generation_first: int
    generation_limit: int


@dataclass(frozen=True, slots=True)
class LeadershipChanged:
    """The event of an epoch record: a new epoch, or more generations for the current one."""

    leadership: Leadership


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """The event of a restart record. Only current watchers get it; it is never part of a snapshot."""

    request: RestartRecord


@dataclass(frozen=True, slots=True)
class SessionKeyChanged:
    """The event of a session key record; `revision` is the offset after the record."""

    key: SessionKeyRecord
    revision: int


@dataclass(frozen=True, slots=True)
class LoggerLevelChanged:
    """The event of a logger level record; `revision` is the offset after the record. A snapshot has the newest level of
    each logger.
    """

    level: LoggerRecord
    revision: int


Change = ConnectorChanged | LeadershipChanged | RestartRequested | SessionKeyChanged | LoggerLevelChanged


@dataclass(frozen=True, slots=True)
class UndecodableRecord:
    """A record that could not be decoded. `key` is UTF-8 with replacements."""

    topic: str
    offset: int
    key: str
    reason: str
