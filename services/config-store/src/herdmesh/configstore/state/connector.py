"""The fold of one connector's records by Connect's rules (docs/reference/connect/config-topic.md, section 4).

Owns `ConnectorState` and the fold of every record kind that names a connector, except the manifest (`manifest`). Knows
no other connector, no topic and no wire format.

The result of Connect's rules depends on compaction: compaction can leave a config that was written after its task set
behind the commit record; then the commit finds no connector and ignores the tasks (KAFKA-17719). Therefore
`task_records` keeps the latest record of each task, whatever the result of Connect's rules: a later manifest can name
it by its digest and put it back in force.

Invariant: values are immutable; a fold returns a new state and never raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from herdmesh.connect.topics import (
    CommitRecord,
    ConnectorRecord,
    Properties,
    TargetState,
    TargetStateRecord,
    TaskConfigRecord,
    TaskCountRecord,
    Tombstone,
    task_config_digest,
)

#: The kinds of tombstone that have a meaning (`records.Tombstone.kind`); `encode` writes the first two.
CONNECTOR_TOMBSTONE = "connector"
TARGET_STATE_TOMBSTONE = "target-state"
MANIFEST_TOMBSTONE = "herdmesh-connector"


class ChangeKind(Enum):
    """The listener of Connect that a record would have called; MANIFEST is ours."""

    CONFIG_UPDATED = "config_updated"
    CONFIG_REMOVED = "config_removed"
    TARGET_STATE = "target_state"
    TASKS_COMMITTED = "tasks_committed"
    TASK_COUNT = "task_count"
    MANIFEST = "manifest"


class TaskConfig:
    """A task's config with its digest. Two with equal properties are equal."""

    __slots__ = ("_digest", "properties")

    def __init__(self, properties: Properties) -> None:
        self.properties: Final = properties
        self._digest = ""

    @property
    def digest(self) -> str:
        """`task_config_digest`, computed at the first use: a replay reads many more configs than it compares."""
        if not self._digest:
            self._digest = task_config_digest(self.properties)
        return self._digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskConfig) and self.properties == other.properties

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # as for every value with a mapping inside

    def __repr__(self) -> str:
        return f"TaskConfig({self.properties!r})"


class ConnectorState(msgspec.Struct, frozen=True, gc=False):
    """The folded state of one connector name. Revisions are the offset after the object's own record, 0 = none.

    A msgspec struct, because a fold creates one per record; it has no reference cycle.
    """

    name: str
    config: Properties | None = None
    config_revision: int = 0
    target_state: TargetState | None = None
    target_state_revision: int = 0
    #: Committed configs by task number; numbers at or above `task_count` are left over from a larger set.
    task_configs: Mapping[int, TaskConfig] = {}
    #: Task configs read since the last commit, not in force yet. None = none since start or removal; Connect
    #: distinguishes that from empty.
    deferred: Mapping[int, TaskConfig] | None = None
    #: The task count of the last commit; None = no commit. Foreign counts can be negative.
    task_count: int | None = None
    tasks_revision: int = 0
    inconsistent: bool = False
    applied_config: Properties | None = None
    #: Number of task sets put in force: Connect's generation plus one; 0 = none.
    task_config_generation: int = 0
    task_count_record: int | None = None
    pending_fencing: bool = False
    #: The incarnation of the manifest in force; "" = none.
    incarnation: str = ""
    #: By task number, -1 = the connector itself: a restart was requested for all runs below this generation.
    restarts: Mapping[int, int] = {}
    #: True if Connect's records of this name follow the last valid manifest, or there is no manifest.
    foreign: bool = False
    #: The latest record of each task number, in force or not.
    task_records: Mapping[int, TaskConfig] = {}
    #: Offset of the latest commit record and of the latest task count record; -1 = none.
    commit_offset: int = -1
    fencing_offset: int = -1
    #: Task count of the latest commit, even of one that was ignored.
    commit_tasks: int = 0
    #: The state by Connect's rules alone, where it differs; None = the same as this state. Only a manifest makes it
    #: differ (`manifest.read`), and Connect's next record is folded into it.
    connects: ConnectorState | None = None

    @property
    def tasks(self) -> tuple[TaskConfig, ...]:
        """The task set in force, task number = position; empty when inconsistent."""
        if self.inconsistent or self.task_count is None:
            return ()
        return tuple(self.task_configs[task] for task in range(self.task_count) if task in self.task_configs)

    @property
    def is_stored(self) -> bool:
        """False when nothing that a caller could read is left under this name."""
        return (
            self.config is not None
            or self.target_state is not None
            or bool(self.task_count)
            or self.task_count_record is not None
        )

    @property
    def is_remembered(self) -> bool:
        """False when the state equals that of an unknown name. Connect keeps marks of deleted connectors
        (docs/reference/connect/config-topic.md, section 4.9).
        """
        return self.is_stored or self.pending_fencing or self.inconsistent or self.task_config_generation > 0

    def looks_like(self, other: ConnectorState) -> bool:
        """True when a reader of the store cannot distinguish the two states."""
        return _visible(self) == _visible(other)


def _visible(state: ConnectorState) -> tuple[Any, ...]:
    # Tuples compare their items by identity first, so unchanged configs and task sets cost nothing.
    return (
        state.config,
        state.config_revision,
        state.target_state,
        state.target_state_revision,
        state.task_configs,
        state.task_count,
        state.tasks_revision,
        state.inconsistent,
        state.applied_config,
        state.task_config_generation,
        state.task_count_record,
        state.pending_fencing,
        state.incarnation,
        state.restarts,
        state.foreign,
    )


Folded = tuple[ConnectorState, tuple[ChangeKind, ...]]


def fold(state: ConnectorState, record: object, offset: int) -> Folded:
    """Fold one decoded record of this connector, other than a manifest. Kinds that name no connector change nothing."""
    folder = _FOLDERS.get(type(record))
    if folder is None:
        return state, ()
    before = state.connects or state
    after, kinds = folder(before, record, offset)
    return (state, ()) if after is before else (after, kinds)


def removed(state: ConnectorState) -> ConnectorState:
    """The state after Connect's removal of a connector (docs/reference/connect/config-topic.md, section 4.9). It keeps
    the target state, the inconsistent mark, the task count record, the generation and the pending fencing.
    """
    return replace(
        state,
        config=None,
        config_revision=0,
        task_configs={},
        deferred=None,
        task_count=None,
        tasks_revision=0,
        applied_config=None,
        incarnation="",
        restarts={},
        connects=None if state.connects is None else removed(state.connects),
    )


def uncommitted_dropped(state: ConnectorState) -> ConnectorState:
    """The state after a commit of a connector without config, readable or not. Connect then removes a connector that
    does not exist, which clears its uncommitted tasks (docs/reference/connect/config-topic.md, section 4.4, step 1).
    Callers see no change.
    """
    if state.connects is not None:
        return replace(state, connects=uncommitted_dropped(state.connects))
    return state if state.config is not None else replace(state, deferred=None)


def _fold_config(state: ConnectorState, record: ConnectorRecord, offset: int) -> Folded:
    after = replace(
        state,
        config=record.properties,
        config_revision=offset + 1,
        target_state=state.target_state or TargetState.STARTED,
        foreign=True,
    )
    return after, (ChangeKind.CONFIG_UPDATED,)


def _fold_tombstone(state: ConnectorState, record: Tombstone, _offset: int) -> Folded:
    if record.kind == CONNECTOR_TOMBSTONE:
        return replace(removed(state), foreign=True), (ChangeKind.CONFIG_REMOVED,)
    if record.kind == TARGET_STATE_TOMBSTONE:
        # A connector always has a target state; Connect calls no listener for this change
        # (docs/reference/connect/config-topic.md, section 4.1).
        target_state = None if state.config is None else TargetState.STARTED
        return replace(state, target_state=target_state, target_state_revision=0, foreign=True), ()
    if record.kind == MANIFEST_TOMBSTONE:
        return replace(state, incarnation="", foreign=True), ()
    return state, ()


def _fold_target_state(state: ConnectorState, record: TargetStateRecord, offset: int) -> Folded:
    after = replace(state, target_state=record.state, target_state_revision=offset + 1, foreign=True)
    told = state.config is not None and state.target_state is not record.state
    return after, (ChangeKind.TARGET_STATE,) if told else ()


def _fold_task(state: ConnectorState, record: TaskConfigRecord, _offset: int) -> Folded:
    task = {record.task: TaskConfig(record.properties)}
    after = replace(
        state, deferred={**(state.deferred or {}), **task}, task_records={**state.task_records, **task}, foreign=True
    )
    return after, ()


def _fold_commit(state: ConnectorState, record: CommitRecord, offset: int) -> Folded:
    state = replace(state, commit_offset=offset, commit_tasks=record.tasks, foreign=True)
    if state.config is None:
        return uncommitted_dropped(state), ()
    # range() of a negative count is empty, so a negative count is complete, as in Connect; all() stops at the first
    # gap.
    deferred = state.deferred
    if all(task in (deferred or {}) for task in range(record.tasks)):
        state = replace(state, inconsistent=False, applied_config=state.config)
        if deferred is not None:
            state = replace(
                state,
                task_configs={**state.task_configs, **deferred},
                task_config_generation=state.task_config_generation + 1,
            )
    else:
        state = replace(state, inconsistent=True)
    after = replace(
        state,
        deferred=None if deferred is None else {},
        task_count=record.tasks,
        tasks_revision=offset + 1,
        pending_fencing=True,
    )
    return after, (ChangeKind.TASKS_COMMITTED,)


def _fold_task_count(state: ConnectorState, record: TaskCountRecord, offset: int) -> Folded:
    after = replace(
        state, task_count_record=record.task_count, pending_fencing=False, fencing_offset=offset, foreign=True
    )
    return after, (ChangeKind.TASK_COUNT,)


_FOLDERS: dict[type, Callable[[ConnectorState, Any, int], Folded]] = {
    ConnectorRecord: _fold_config,
    Tombstone: _fold_tombstone,
    TargetStateRecord: _fold_target_state,
    TaskConfigRecord: _fold_task,
    CommitRecord: _fold_commit,
    TaskCountRecord: _fold_task_count,
}
