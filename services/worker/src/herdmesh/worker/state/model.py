"""The words of the worker's state: units, assignments, failures. Plain values, equal when their contents are.

Owns no behaviour beyond comparing. The wire's messages say the same; `herdmesh.worker.wire` translates both ways.
Invariant: every value here is immutable, so events, instructions and state may share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.waits import Wait
from herdmesh.engine.runtime import Properties

Config = Properties


@unique
class RunState(StrEnum):
    """State of a unit as its status says; names are those of the proto's `RunState`."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


@unique
class TargetState(StrEnum):
    """What the user asked for."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


@unique
class Phase(StrEnum):
    """What a task does now. Legal moves:

    NEW -> QUEUED, PAUSED; QUEUED -> STARTING, PAUSED; STARTING -> RUNNING, STOPPING, and where a run's end leads;
    RUNNING -> STOPPING; a run's end -> IDLE, QUEUED, PAUSED, FAILED, WAITING or gone; IDLE, WAITING, PAUSED -> QUEUED.
    """

    NEW = "NEW"
    QUEUED = "QUEUED"  # wants a run, waits for a slot
    STARTING = "STARTING"  # a run was submitted and has not said hello
    RUNNING = "RUNNING"  # the record loop runs
    STOPPING = "STOPPING"  # the run was told to stop
    IDLE = "IDLE"  # no run; the watcher of idle tasks wakes it
    WAITING = "WAITING"  # no run; the last one was lost, or took more than its rate limit: the next starts later
    PAUSED = "PAUSED"
    FAILED = "FAILED"


@unique
class PutMode(StrEnum):
    """Rule of a status write (docs/reference/connect/status-topic.md, section 4)."""

    PUT = "PUT"
    PUT_SAFE = "PUT_SAFE"


@dataclass(frozen=True, slots=True, order=True)
class UnitId:
    """A connector (task None) or one of its tasks: what a herder assigns."""

    connector: str
    task: int | None = None

    def __str__(self) -> str:
        """As log lines carry it: `[connector|worker]` for the connector itself, `[connector|task-0]` for a task."""
        return f"[{self.connector}|worker]" if self.task is None else f"[{self.connector}|task-{self.task}]"


@dataclass(frozen=True, slots=True)
class Assignment:
    """Exactly what was started. Equal assignments are adopted; of two, the higher `order` wins."""

    epoch: int
    generation: int
    incarnation: str = ""
    config_revision: tuple[str, tuple[int, ...]] = ("", ())
    task_digest: str = ""

    @property
    def order(self) -> tuple[int, int]:
        """(epoch, generation): the highest wins a double claim."""
        return (self.epoch, self.generation)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a unit is FAILED. `message` is one line and never empty."""

    message: str
    trace: str = ""
    error_class: ErrorClass = ErrorClass.UNKNOWN


@dataclass(frozen=True, slots=True)
class Condition:
    """What a status says besides its state: the leader's words, which the worker only carries, or the worker's own."""

    type: str
    message: str
    since_ms: int = 0
    wait: Wait | None = None
    """Of a condition WAITING, part by part."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What a task was started with. `task_count` is the size of its set; partitions are divided by it."""

    connector_config: Config
    task_config: Config
    task_count: int


@dataclass(frozen=True, slots=True)
class ConnectorSpec:
    """What a connector was started with."""

    config: Config
    tasks_max: int


@dataclass(frozen=True, slots=True)
class Holding:
    """One unit as hello reports it."""

    unit: UnitId
    assignment: Assignment
    state: RunState
    failure: Failure | None
    stopping: bool
    """It is on its way out: no leader can adopt it, and its end will be reported."""
