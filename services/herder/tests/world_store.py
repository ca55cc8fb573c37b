"""The config store of the herder's test world: its rules, as far as a herder sees them.

Owns entries, revisions and who may write what. Invariant: every change is one revision.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from herdmesh.herder.state import instructions as ins
from herdmesh.herder.state.model import ConnectorEntry, SessionKey
from herdmesh.rpc.errors import ConnectorExists, ConnectorNotFound, RevisionMismatch, StaleEpoch
from herdmesh.topicstore.contract import Revision


def revision(offset: int) -> Revision:
    return Revision("store", (offset,))


class ConfigStore:
    """The config store's rules, as far as a herder sees them."""

    def __init__(self) -> None:
        self.entries: dict[str, ConnectorEntry] = {}
        self.offset = 0
        self.epoch = 0
        self.incarnations = itertools.count(1)
        self.commits: list[str] = []
        self.counts: list[tuple[str, int]] = []
        #: algorithm, size in bytes and time of every session key.
        self.keys: list[tuple[str, int, int]] = []

    def next(self) -> Revision:
        self.offset += 1
        return revision(self.offset)

    def put_session_key(self, wanted: ins.RotateSessionKey, now_ms: int) -> None:
        """Keep a key's facts. Raises as the store does."""
        self._leads(wanted.epoch)
        self.keys.append((wanted.algorithm, wanted.size_bytes, now_ms))
        self.next()

    def session_key(self, now_ms: int) -> SessionKey | None:
        """The key stored last, as told now."""
        if not self.keys:
            return None
        algorithm, size_bytes, made_ms = self.keys[-1]
        return SessionKey(algorithm, size_bytes, now_ms - made_ms)

    def write(self, wanted: ins.Write) -> tuple[list[str], bool]:
        """Apply; returns the changed names and whether a connector was created. Raises as the store does."""
        assert not isinstance(wanted, ins.RotateSessionKey | ins.DeleteStatuses), "not written here"
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
                    task_set_generation=before.task_set_generation,
                )
            case ins.PutTarget():
                self._exists(before)
                self.entries[before.name] = replace(before, target=wanted.target, target_revision=self.next())
            case ins.CommitTasks():
                self._leads(wanted.epoch)
                self._exists(before)
                if wanted.config_revision != before.config_revision:
                    raise RevisionMismatch("", "the config moved on")
                self.commits.append(before.name)
                self.entries[before.name] = replace(
                    before,
                    tasks=wanted.tasks,
                    task_digests=tuple(f"digest-{sorted(task.items())}" for task in wanted.tasks),
                    task_count=len(wanted.tasks),
                    inconsistent=False,
                    applied_config=before.config,
                    task_set_generation=before.task_set_generation + 1,
                    pending_fencing=True,
                )
            case ins.PutTaskCount():
                self._leads(wanted.epoch)
                self.counts.append((before.name, wanted.task_count))
                self.entries[before.name] = replace(before, task_count_record=wanted.task_count, pending_fencing=False)
        self.next()
        return [wanted.connector], False

    def _put_config(self, wanted: ins.PutConfig, before: ConnectorEntry) -> tuple[list[str], bool]:
        created = not before.has_config
        if wanted.must_not_exist and not created:
            raise ConnectorExists(before.name)
        if wanted.must_exist and created:
            raise ConnectorNotFound(before.name)
        expected = wanted.options.expected_revision
        if expected is not None and expected != before.config_revision:
            raise RevisionMismatch("", "expected another config")
        incarnation = f"life-{next(self.incarnations)}" if created else before.incarnation
        after = replace(before, has_config=True, config=wanted.config, config_revision=self.next())
        if wanted.initial_target is not None:
            after = replace(after, target=wanted.initial_target, target_revision=after.config_revision)
        self.entries[before.name] = replace(after, incarnation=incarnation)
        return [before.name], created

    def _exists(self, entry: ConnectorEntry) -> None:
        if not entry.has_config:
            raise ConnectorNotFound(entry.name)

    def _leads(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise StaleEpoch(f"epoch {epoch} is over")
