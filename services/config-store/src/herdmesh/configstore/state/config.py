"""The state of the whole config topic, folded from its records; the topic store replays, copies and watches it.

Owns `ConfigState`: dispatch of each record to the rules of its kind, leadership, session key, request outcomes,
positions of the history, and the list of undecodable records. The rules of one connector are in `connector` and
`manifest`.

Invariant: an undecodable record changes nothing but the count and the list of such records. (One exception is
Connect's: an unreadable commit for a name without config clears that name's uncommitted tasks,
docs/reference/connect/config-topic.md, section 4.4.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from herdmesh.configstore.state import manifest, offset_changes
from herdmesh.configstore.state.changes import (
    Change,
    ConnectorChanged,
    Leadership,
    LeadershipChanged,
    LoggerLevelChanged,
    RestartRequested,
    SessionKeyChanged,
    UndecodableRecord,
)
from herdmesh.configstore.state.connector import ChangeKind, ConnectorState, fold, uncommitted_dropped
from herdmesh.configstore.state.history import HistoryIndex, HistoryPosition
from herdmesh.configstore.state.requests import RequestLog
from herdmesh.connect.errors import DataError
from herdmesh.connect.json_text import jackson
from herdmesh.connect.topics import (
    CommitRecord,
    ConnectorRecord,
    EpochRecord,
    LoggerRecord,
    ManifestRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskConfigRecord,
    TaskCountRecord,
    Tombstone,
    Undecodable,
    Unknown,
    audit_topic,
    config_topic,
    key_text,
)
from herdmesh.topicstore.contract import KEEP_ALIVE_KEY, StoredRecord
from herdmesh.topicstore.layered import Layered

#: Size of a block of generations (docs/design/stores.md, section 5): reserved with a new epoch, and for a leader whose
#: block is almost used up.
GENERATIONS_PER_BLOCK = 1_000
LOGGERS_MAX = 1_000

_UNDECODABLE_MAX = 100
_UNKNOWN_KEY = "unknown kind of key"
_OLD_EPOCH = "the epoch is not higher than the one before, and adds no generations to it"
_NO_GENERATIONS = "the block of generations is not one of 32-bit numbers"
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Refused:
    """The undecodable records so far: their count, and the latest of them."""

    count: int = 0
    latest: tuple[UndecodableRecord, ...] = ()

    def and_record(self, record: StoredRecord, reason: str) -> Refused:
        """A copy with one more undecodable record."""
        entry = UndecodableRecord(record.topic, record.offset, key_text(record.key or b""), reason)
        return Refused(self.count + 1, (*self.latest, entry)[-_UNDECODABLE_MAX:])


class ConfigState:
    """`topicstore.StoreState` of the config topic. `audit_topic` names the topic whose records are request outcomes."""

    def __init__(self, audit_topic: str | None = None) -> None:
        self._audit_topic = audit_topic
        self._connectors: Layered[str, ConnectorState] = Layered()
        self.leadership: Leadership | None = None
        self.session_key: SessionKeyRecord | None = None
        self.session_key_revision = 0
        #: levels for the whole cluster by logger, the oldest setting first, which is the order in which they apply.
        self.logger_levels: Mapping[str, LoggerLevelChanged] = {}
        self.requests = RequestLog()
        #: offset changes that are the last entry of their connector in the audit topic, by connector.
        self.offsets_begun: Mapping[str, offset_changes.Begun] = {}
        self.history = HistoryIndex()
        self.refused = Refused()

    def connector(self, name: str) -> ConnectorState:
        """The state of the connector `name`; an empty state for a name without records."""
        return self._connectors.get(name) or ConnectorState(name)

    def stored(self) -> Sequence[ConnectorState]:
        """The states of every name under which something is stored, sorted."""
        return [state for _, state in sorted(self._connectors.items()) if state.is_stored]

    @property
    def connectors(self) -> Mapping[str, ConnectorState]:
        """Connectors that have a config, as Connect lists them."""
        return {name: state for name, state in self._connectors.items() if state.config is not None}

    @property
    def connector_count(self) -> int:
        """Number of names with folded state."""
        return len(self._connectors)

    @property
    def undecodable_count(self) -> int:
        """Number of undecodable records so far."""
        return self.refused.count

    def copy(self) -> ConfigState:
        """An independent, shallow copy: all values are immutable. Costs the same with any number of connectors."""
        copied = ConfigState(self._audit_topic)
        copied._connectors = self._connectors.copy()
        copied.leadership = self.leadership
        copied.session_key = self.session_key
        copied.session_key_revision = self.session_key_revision
        copied.logger_levels = self.logger_levels
        copied.requests = self.requests.copy()
        copied.offsets_begun = self.offsets_begun
        copied.history = self.history.copy()
        copied.refused = self.refused
        return copied

    def apply(self, record: StoredRecord) -> Sequence[Change]:
        """Fold one record in; see `StoreState.apply`."""
        if record.key == KEEP_ALIVE_KEY:
            return ()
        if record.topic == self._audit_topic:
            return self._apply_audit(record)
        decoded = config_topic.decode(record.key, record.value)
        match decoded:
            case Undecodable():
                return self._apply_undecodable(record, decoded)
            case Unknown():
                return self._refuse(record, _UNKNOWN_KEY)
            case RestartRecord():
                return [RestartRequested(decoded)]
            case LoggerRecord():
                return self._apply_logger(LoggerLevelChanged(decoded, record.offset + 1))
            case SessionKeyRecord():
                self.session_key = decoded
                self.session_key_revision = record.offset + 1
                return [SessionKeyChanged(decoded, self.session_key_revision)]
            case EpochRecord():
                return self._apply_epoch(record, decoded)
            case ManifestRecord():
                before = self.connector(decoded.connector)
                return self._replace(before, manifest.read(before, decoded), (ChangeKind.MANIFEST,))
            case (
                ConnectorRecord()
                | TargetStateRecord()
                | TaskConfigRecord()
                | CommitRecord()
                | TaskCountRecord()
                | Tombstone()
            ):
                before = self.connector(decoded.connector)
                return self._replace(before, *fold(before, decoded, record.offset))
            case _:
                assert_never(decoded)

    def _replace(
        self, before: ConnectorState, after: ConnectorState, kinds: tuple[ChangeKind, ...]
    ) -> Sequence[Change]:
        self._connectors[after.name] = after
        if not kinds and after.looks_like(before):
            return ()
        if not before.is_stored and not after.is_stored and ChangeKind.CONFIG_REMOVED not in kinds:
            return ()
        return [
            ConnectorChanged(
                after.name, kinds, before if before.is_stored else None, after if after.is_stored else None
            )
        ]

    def _apply_epoch(self, record: StoredRecord, epoch: EpochRecord) -> Sequence[Change]:
        current = self.leadership
        if current is not None and epoch.epoch <= current.epoch and not _extends(current, epoch):
            return self._refuse(record, _OLD_EPOCH)
        spent = 0 if current is None else current.generation_limit
        if not spent + GENERATIONS_PER_BLOCK <= epoch.next_generation <= _INT32_MAX:
            return self._refuse(record, _NO_GENERATIONS)
        self.leadership = leadership_of(epoch)
        return [LeadershipChanged(self.leadership)]

    def _apply_logger(self, change: LoggerLevelChanged) -> Sequence[Change]:
        logger = change.level.namespace
        levels = {name: other for name, other in self.logger_levels.items() if name != logger}
        # Levels of the oldest loggers beyond the limit are dropped; only current watchers received them. Nobody sets so
        # many.
        kept = list(levels.items())[-(LOGGERS_MAX - 1) :]
        self.logger_levels = {**dict(kept), logger: change}
        return [change]

    def _apply_audit(self, record: StoredRecord) -> Sequence[Change]:
        decoded = audit_topic.decode(record.key, record.value)
        if isinstance(decoded, Undecodable):
            return self._refuse(record, decoded.reason)
        self.requests.add(decoded, record.timestamp_ms)
        revision = _offset_of(decoded.revision)
        self.offsets_begun = offset_changes.begun_after(self.offsets_begun, decoded, revision)
        if decoded.connector and not offset_changes.ends(decoded):
            self.history.add(decoded.connector, HistoryPosition(record.offset, revision))
        return ()

    def _apply_undecodable(self, record: StoredRecord, found: Undecodable) -> Sequence[Change]:
        self._refuse(record, found.reason)
        before = self.connector(found.connector)
        if found.kind == "commit" and _is_json(record.value):
            return self._replace(before, uncommitted_dropped(before), ())
        return ()

    def _refuse(self, record: StoredRecord, reason: str) -> Sequence[Change]:
        self.refused = self.refused.and_record(record, reason)
        return ()


def _extends(current: Leadership, epoch: EpochRecord) -> bool:
    """True for a record that gives the leader of the current epoch one more block."""
    return (epoch.epoch, epoch.leader_id) == (current.epoch, current.leader_id)


def leadership_of(epoch: EpochRecord) -> Leadership:
    """The leadership of an epoch record, which names the end of its newest block of generations."""
    return Leadership(
        epoch.epoch,
        epoch.leader_id,
        epoch.leader_address,
        epoch.next_generation - GENERATIONS_PER_BLOCK,
        epoch.next_generation,
    )


def next_epoch(current: Leadership | None, leader_id: str, leader_address: str) -> EpochRecord:
    """The epoch after `current`, with a block of unused generations: the first block ever begins at 1."""
    epoch = 1 if current is None else current.epoch + 1
    first = 1 if current is None else current.generation_limit
    return EpochRecord(epoch, leader_id, leader_address, first + GENERATIONS_PER_BLOCK)


def next_block(current: Leadership) -> EpochRecord:
    """The current epoch with one more block of generations, which follows its last block."""
    limit = current.generation_limit + GENERATIONS_PER_BLOCK
    return EpochRecord(current.epoch, current.leader_id, current.leader_address, limit)


def _offset_of(revision: str) -> int:
    """The offset in the text of a revision of the config topic, which has one partition; 0 when the text has none."""
    offset = revision.rpartition("@")[2]
    return int(offset) if offset.isdecimal() else 0


def _is_json(value: bytes | None) -> bool:
    # Connect ignores a record whose bytes are not JSON before it checks the key.
    try:
        jackson.loads(value)
    except DataError:
        return False
    return True
