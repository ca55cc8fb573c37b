"""Metrics of a worker's connectors, and of the worker itself.

Owns these values. Invariant: every attribute that another thread reads is one value, replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from herdmesh.connect.spi import Wait
from herdmesh.session.model import RunState


@dataclass(slots=True)
class ConnectorMeter:
    """A connector whose instance is on this worker."""

    name: str
    class_name: str = "unknown"
    type: str = "unknown"
    version: str = "unknown"
    state: RunState = RunState.UNASSIGNED
    generation: int = -1
    wait: Wait | None = None


@dataclass(frozen=True, slots=True)
class StateCount:
    """Counts of a connector's tasks on this worker, by their state in lower case."""

    connector: str
    by_state: Mapping[str, int]


@dataclass(slots=True)
class Startups:
    """Counts of starts: as in Connect, a success at the first RUNNING, a failure when the unit fails before."""

    attempts: int = 0
    successes: int = 0
    failures: int = 0


@dataclass(slots=True)
class WorkerMeter:
    """The worker itself."""

    version: str
    begun_ms: int
    slots: int
    connectors: int = 0
    tasks: int = 0
    runs: int = 0
    tasks_waiting_for_slot: int = 0
    connector_startups: Startups = field(default_factory=Startups)
    task_startups: Startups = field(default_factory=Startups)
