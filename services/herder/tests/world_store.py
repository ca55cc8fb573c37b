"""Config store of the herder's test world: its rules, as far as a herder sees them.

Owns entries, revisions and the check of epochs. Invariant: every change is one revision.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import cast

from herdmesh.herder.state.model import ClusterLevel, ConnectorEntry, SessionKey
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import OffsetsRecorded, RestartItem, WriteOptions
from herdmesh.rpc.errors import (
    ConnectorExists,
    ConnectorNotFound,
    OffsetsRefused,
    RequestIdExpired,
    RequestIdUnknown,
    RequestInvalid,
    RevisionMismatch,
    StaleEpoch,
)
from herdmesh.session.model import OffsetEntry
from herdmesh.topicstore.contract import Revision


def revision(offset: int) -> Revision:
    return Revision("store", (offset,))


@dataclass(frozen=True)
class Outcome:
    """Effect of a write: names of changed entries, the flags of a restart record, and the rest of its response."""

    names: tuple[str, ...] = ()
    created: bool = False
    restarted: tuple[RestartItem, ...] = ()
    record: tuple[bool, bool] | None = None
    offsets: OffsetsRecorded | None = None
    unchanged: bool = False


def _asked(wanted: ins.Write) -> object:
    """The part of a write that distinguishes a retry from another request."""
    match wanted:
        case ins.PutConfig():
            return (wanted.connector, wanted.config if wanted.patch is None else wanted.patch, wanted.initial_target)
        case ins.PutTarget():
            return (wanted.connector, wanted.target)
        case ins.RequestRestart():
            return (wanted.connector, wanted.include_tasks, wanted.only_failed, wanted.task)
        case ins.RecordDrain():
            return (wanted.worker_id, wanted.draining)
        case ins.RecordOffsets():
            return (wanted.connector, wanted.change)
        case _:
            return (type(wanted), getattr(wanted, "connector", ""))


class ConfigStore:
    """Rules of the config store, as far as a herder sees them."""

    def __init__(self) -> None:
        self.entries: dict[str, ConnectorEntry] = {}
        self.offset = 0
        self.epoch = 0
        self.incarnations = itertools.count(1)
        #: request ids of the writes that changed something, in order.
        self.applied: list[str] = []
        #: request ids that have expired, known or not.
        self.expired: set[str] = set()
        #: by request id: the request, and its first outcome.
        self.outcomes: dict[str, tuple[object, Outcome]] = {}
        self.commits: list[str] = []
        self.counts: list[tuple[str, int]] = []
        #: algorithm, size in bytes and time of every session key.
        self.keys: list[tuple[str, int, int]] = []
        self.loggers: dict[str, ClusterLevel] = {}
        #: changes of offsets after which nothing else was done to their connectors: request ids by connector.
        self.begun: dict[str, str] = {}
        #: every change of offsets that was begun, in order.
        self.beginnings: list[ins.RecordOffsets] = []
        #: offsets written, by connector, in order.
        self.offsets: dict[str, list[tuple[OffsetEntry, ...]]] = {}
        #: Kafka's error for offsets that come with a connector.
        self.offsets_refused = ""

    def put_logger(self, logger: str, level: str, request_id: str = "") -> ClusterLevel | None:
        """Store a level for the whole cluster, the newest last. None when the request was applied before."""
        if request_id in self.applied:
            return None
        if request_id:
            self.applied.append(request_id)
        self.loggers.pop(logger, None)
        self.loggers[logger] = ClusterLevel(logger, level, self.next())
        return self.loggers[logger]

    def next(self) -> Revision:
        self.offset += 1
        return revision(self.offset)

    def put_session_key(self, wanted: ins.RotateSessionKey, now_ms: int) -> None:
        """Store a key's kind and time. Raises as the store does."""
        self._leads(wanted.epoch)
        self.keys.append((wanted.algorithm, wanted.size_bytes, now_ms))
        self.next()

    def session_key(self, now_ms: int) -> SessionKey | None:
        """The key stored last, with its age now."""
        if not self.keys:
            return None
        algorithm, size_bytes, made_ms = self.keys[-1]
        return SessionKey(algorithm, size_bytes, now_ms - made_ms)

    def write(self, wanted: ins.Write) -> Outcome:
        """Apply once per request id. Raises as the store does."""
        options = getattr(wanted, "options", WriteOptions())
        if isinstance(wanted, ins.RecordOffsets) and not wanted.ended and not options.retry_only:
            self._leads(wanted.epoch)
        first = self.outcomes.get(options.request_id) if options.request_id else None
        if first is not None and first[0] != _asked(wanted):
            raise RequestInvalid("a retry must repeat its request")
        if options.request_id in self.expired:
            raise RequestIdExpired("the id is older than 24 h")
        if first is not None and not self._ends(wanted, first[1]):
            known = first[1].offsets
            if known is not None:
                overtaken = not known.ended and self.begun.get(getattr(wanted, "connector", "")) != options.request_id
                known = replace(known, repeated=True, overtaken=overtaken)
            return replace(first[1], names=(), record=None, offsets=known)
        if options.retry_only:
            raise RequestIdUnknown("nothing was applied under this id")
        outcome = self._apply(wanted)
        if outcome.unchanged:
            return outcome
        self.applied.append(options.request_id)
        if options.request_id:
            self.outcomes[options.request_id] = (_asked(wanted), outcome)
        return outcome

    def _ends(self, wanted: ins.Write, first: Outcome) -> bool:
        """True for the end of a change of offsets whose beginning is recorded."""
        ends = isinstance(wanted, ins.RecordOffsets) and wanted.ended and not wanted.options.retry_only
        return ends and first.offsets is not None and not first.offsets.ended

    def _record_offsets(self, wanted: ins.RecordOffsets) -> Outcome:
        if wanted.ended:
            self.begun.pop(wanted.connector, None)
        else:
            self._exists(self.entries.get(wanted.connector, ConnectorEntry(wanted.connector, has_config=False)))
            self.begun[wanted.connector] = wanted.options.request_id
            self.beginnings.append(wanted)
            self.next()
        return Outcome(
            () if wanted.ended else (wanted.connector,), offsets=OffsetsRecorded(wanted.ended, wanted.response)
        )

    def _apply(self, wanted: ins.Write) -> Outcome:
        assert not isinstance(wanted, ins.RotateSessionKey | ins.DeleteStatuses | ins.PutStatus | ins.PutLogger), (
            "not written here"
        )
        if isinstance(wanted, ins.RecordDrain):
            return Outcome()
        if isinstance(wanted, ins.RecordOffsets):
            return self._record_offsets(wanted)
        if not isinstance(wanted, ins.PutTaskCount):
            self.begun.pop(wanted.connector, None)
        before = self.entries.get(wanted.connector, ConnectorEntry(wanted.connector, has_config=False))
        match wanted:
            case ins.PutConfig():
                return self._put_config(wanted, before)
            case ins.DeleteConfig():
                self._exists(before)
                self.entries[before.name] = ConnectorEntry(
                    before.name,
                    has_config=False,
                    task_count_record=before.task_count_record,
                    task_set_version=before.task_set_version,
                )
            case ins.PutTarget():
                self._exists(before)
                self.entries[before.name] = replace(before, target=wanted.target, target_revision=self.next())
            case ins.RequestRestart():
                return self._restart(wanted, before)
            case ins.CommitTasks():
                self._leads(wanted.epoch)
                self._exists(before)
                if wanted.config_revision != before.config_revision:
                    raise RevisionMismatch("", "the config moved on")
                counted = wanted.fenced_generation is not None
                if counted and wanted.fenced_generation != before.task_set_version:
                    raise RevisionMismatch("", "another task set is in force")
                if counted:
                    self.counts.append((before.name, len(wanted.tasks)))
                self.commits.append(before.name)
                self.entries[before.name] = replace(
                    before,
                    tasks=wanted.tasks,
                    task_digests=tuple(f"digest-{sorted(task.items())}" for task in wanted.tasks),
                    task_count=len(wanted.tasks),
                    inconsistent=False,
                    applied_config=before.config,
                    task_set_version=before.task_set_version + 1,
                    pending_fencing=not counted,
                    task_count_record=len(wanted.tasks) if counted else before.task_count_record,
                )
            case ins.PutTaskCount():
                self._leads(wanted.epoch)
                self.counts.append((before.name, wanted.task_count))
                self.entries[before.name] = replace(before, task_count_record=wanted.task_count, pending_fencing=False)
        self.next()
        return Outcome((wanted.connector,))

    def _restart(self, wanted: ins.RequestRestart, before: ConnectorEntry) -> Outcome:
        self._leads(wanted.epoch)
        self._exists(before)
        floors = {item.task: wanted.generation for item in wanted.items if item.restarted}
        self.entries[before.name] = replace(before, restarts={**before.restarts, **floors})
        self.next()
        flags = (wanted.include_tasks, wanted.only_failed)
        record = flags if wanted.task is None and any(flags) else None
        return Outcome((before.name,), restarted=wanted.items, record=record)

    def _put_config(self, wanted: ins.PutConfig, before: ConnectorEntry) -> Outcome:
        created = not before.has_config
        if wanted.must_not_exist and not created:
            raise ConnectorExists(before.name)
        if wanted.must_exist and created:
            raise ConnectorNotFound(before.name)
        expected = wanted.options.expected_revision
        if expected is not None and expected != before.config_revision:
            raise RevisionMismatch("", "expected another config")
        if wanted.only_if_changed and before.has_config and before.config == wanted.config:
            return Outcome(unchanged=True)
        if wanted.initial_offsets is not None:
            if self.offsets_refused:
                raise OffsetsRefused(before.name, self.offsets_refused)
            offsets = cast("tuple[OffsetEntry, ...]", wanted.initial_offsets)
            self.offsets.setdefault(before.name, []).append(offsets)
        incarnation = f"life-{next(self.incarnations)}" if created else before.incarnation
        after = replace(before, has_config=True, config=wanted.config, config_revision=self.next())
        if wanted.initial_target is not None:
            after = replace(after, target=wanted.initial_target, target_revision=after.config_revision)
        self.entries[before.name] = replace(after, incarnation=incarnation)
        return Outcome((before.name,), created)

    def _exists(self, entry: ConnectorEntry) -> None:
        if not entry.has_config:
            raise ConnectorNotFound(entry.name)

    def _leads(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise StaleEpoch(f"epoch {epoch} is over")
