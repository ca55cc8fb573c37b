"""The values of a session: units, assignments, states, failures. Immutable, and equal when their contents are equal.

Owns no behaviour except comparison and names. Herder and worker share these classes, so that no two translations
differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import NamedTuple

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi import Wait
from herdmesh.rpc.properties import PropertyValue
from herdmesh.topicstore.contract import Revision

#: A config. A config written by another program may have values that are not text; `rpc.properties.texts` converts
#: them.
Properties = Mapping[str, PropertyValue]


@unique
class RunState(StrEnum):
    """State of a unit in its status; names are those of the contract's `RunState`."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"
    DESTROYED = "DESTROYED"


@unique
class TargetState(StrEnum):
    """The state that the user wants; names are those of the contract's `TargetState`."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class UnitId(NamedTuple):
    """A connector (task None) or one of its tasks: the unit of assignment. A tuple, because thousands are keys."""

    connector: str
    task: int | None = None

    @property
    def order(self) -> tuple[str, int]:
        """Sort key: by connector, the connector itself before its tasks."""
        return (self.connector, -1 if self.task is None else self.task)

    def __str__(self) -> str:
        return self.connector if self.task is None else f"{self.connector}-{self.task}"

    @property
    def log_context(self) -> str:
        """The unit in log lines, in Connect's form: `[connector|worker]`, `[connector|task-0]`."""
        return f"[{self.connector}|worker]" if self.task is None else f"[{self.connector}|task-{self.task}]"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The identity of a started unit. A leader adopts equal assignments; of two assignments of one unit the higher
    `order` wins.

    The herder chooses `task_digest`, and workers do not interpret it: task set version, then the config store's digest.
    A task of an older set must never count as one of a newer set, even if its own config is equal, because the work may
    be divided by another task count. Empty for a connector.
    """

    epoch: int
    generation: int
    incarnation: str = ""
    config_revision: Revision | None = None
    task_digest: str = ""

    @property
    def order(self) -> tuple[int, int]:
        """(epoch, generation)."""
        return (self.epoch, self.generation)


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a unit is FAILED. `message` is one line and never empty."""

    message: str
    trace: str = ""
    error_class: ErrorClass = ErrorClass.UNKNOWN


@dataclass(frozen=True, slots=True)
class Condition:
    """Information for the operator in addition to a state. `since_ms` is by the clock of the process that has it, None
    = unknown: epoch milliseconds in a worker and on the wire, the monotonic clock in a herder.
    """

    type: str
    message: str = ""
    since_ms: int | None = None
    wait: Wait | None = None
    """The parts of a wait, with epoch times, for type WAITING."""


@dataclass(frozen=True, slots=True)
class HeldUnit:
    """One held unit in a worker's hello. State UNASSIGNED = accepted, not yet started. `stopping` = the unit is being
    stopped, in any state: no leader can adopt it, and its end will be reported.
    """

    unit: UnitId
    assignment: Assignment
    state: RunState
    failure: Failure | None = None
    stopping: bool = False


class SlotUse(NamedTuple):
    """Slots of a worker that runs have, and tasks that wait for a free one."""

    used: int
    waiting: int


class OffsetEntry(NamedTuple):
    """The offset of one partition, in the JSON forms of KIP-875. `offset_json` None = delete the offset."""

    partition_json: str
    offset_json: str | None = None
