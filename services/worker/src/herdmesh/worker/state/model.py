"""Values of the worker's state: units, assignments, failures; equal when their contents are.

Owns no behaviour. `herdmesh.session.model` has the values that herder and worker share. Invariant: every value here is
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
    """Phase of a task. Legal transitions:

    NEW -> QUEUED, PAUSED; QUEUED -> STARTING, PAUSED; STARTING -> RUNNING, STOPPING, and where a run's end leads;
    RUNNING -> STOPPING; a run's end -> IDLE, QUEUED, PAUSED, FAILED, WAITING or gone; IDLE, WAITING, PAUSED -> QUEUED.
    """

    NEW = "NEW"
    QUEUED = "QUEUED"  # wants a run, waits for a slot
    STARTING = "STARTING"  # a run was submitted and has not sent hello
    RUNNING = "RUNNING"  # the record loop runs
    STOPPING = "STOPPING"  # the run has a stop command
    IDLE = "IDLE"  # no run; the idle watch wakes it
    WAITING = "WAITING"  # no run; the last one was lost, or exceeded its rate limit: the next starts later
    PAUSED = "PAUSED"
    FAILED = "FAILED"


@unique
class PutMode(StrEnum):
    """Rule of a status write (docs/reference/connect/status-topic.md, section 4)."""

    PUT = "PUT"
    PUT_SAFE = "PUT_SAFE"


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """Configs of a task's start. `task_count` is the size of its set, by which partitions are divided."""

    connector_config: Config
    task_config: Config
    task_count: int

    @classmethod
    def of(cls, start: StartUnit) -> Self:
        """The spec of a start of a task."""
        return cls(texts(start.connector_config), texts(start.task_config or {}), max(1, start.task_count))


@dataclass(frozen=True, slots=True)
class ConnectorSpec:
    """Config of a connector's start."""

    config: Config
    tasks_max: int

    @classmethod
    def of(cls, start: StartUnit) -> Self:
        """The spec of a start of a connector."""
        return cls(texts(start.connector_config), start.tasks_max)
