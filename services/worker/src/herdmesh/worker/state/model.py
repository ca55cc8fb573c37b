"""Values of the worker's state: units, assignments, failures; equal when their contents are.

Owns no behaviour. What herder and worker both say is in `herdmesh.session.model`. Invariant: every value here is
immutable, so events, instructions and state may share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Self

from herdmesh.engine.runtime import Properties
from herdmesh.rpc.properties import texts
from herdmesh.session.messages import StartUnit

Config = Properties


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


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What a task was started with. `task_count` is the size of its set; partitions are divided by it."""

    connector_config: Config
    task_config: Config
    task_count: int

    @classmethod
    def of(cls, start: StartUnit) -> Self:
        """The spec of a start of a task."""
        return cls(texts(start.connector_config), texts(start.task_config or {}), max(1, start.task_count))


@dataclass(frozen=True, slots=True)
class ConnectorSpec:
    """What a connector was started with."""

    config: Config
    tasks_max: int

    @classmethod
    def of(cls, start: StartUnit) -> Self:
        """The spec of a start of a connector."""
        return cls(texts(start.connector_config), start.tasks_max)
