"""The values of a session: units, assignments, states, failures. Immutable and equal when their contents are.

Owns no behaviour beyond comparing and naming. Herder and worker share these classes, so that no two translations
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

#: A config. What a foreign writer stored may have values that are no text; `rpc.properties.texts` makes texts of them.
Properties = Mapping[str, PropertyValue]


@unique
class RunState(StrEnum):
    """State of a unit as its status says; names are those of the contract's `RunState`."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"
    DESTROYED = "DESTROYED"


@unique
class TargetState(StrEnum):
    """What the user asked for; names are those of the contract's `TargetState`."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class UnitId(NamedTuple):
    """A connector (task None) or one of its tasks: what is assigned to workers. A tuple, because thousands are keys."""

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
        """As log lines carry it, in Connect's form: `[connector|worker]`, `[connector|task-0]`."""
        return f"[{self.connector}|worker]" if self.task is None else f"[{self.connector}|task-{self.task}]"


@dataclass(frozen=True, slots=True)
class Assignment:
    """Exactly what was started. Equal assignments are adopted; of two claims to one unit the higher `order` wins.

    `task_digest` is the herder's to choose and opaque to workers: task set generation, then the config store's digest,
    because a task of an older set must never pass for one of a newer, even when its own config is equal (it may be
    divided by another task count). Empty for a connector.
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
    """Why a unit is FAILED. `message` is one line and never empty."""

    message: str
    trace: str = ""
    error_class: ErrorClass = ErrorClass.UNKNOWN


@dataclass(frozen=True, slots=True)
class Condition:
    """Adds to a state what a human wants to know. `since_ms` is a moment of the holder's clock, None = unknown: epoch
    milliseconds in a worker and on the wire, the monotonic clock's in a herder."""

    type: str
    message: str = ""
    since_ms: int | None = None
    wait: Wait | None = None
    """Of type WAITING, part by part, with epoch times."""


@dataclass(frozen=True, slots=True)
class Holding:
    """One unit as a worker's hello reports it. State UNASSIGNED means: accepted, not yet started. `stopping` = on its
    way out, whatever its state: no leader can adopt it, and its end will be reported."""

    unit: UnitId
    assignment: Assignment
    state: RunState
    failure: Failure | None = None
    stopping: bool = False


class OffsetEntry(NamedTuple):
    """The offset of one partition, in the JSON forms of KIP-875. `offset_json` None = forget it."""

    partition_json: str
    offset_json: str | None = None
