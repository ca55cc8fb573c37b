"""The messages from the leading herder to a worker. Each message is data, sent under the leader's epoch.

Owns the vocabulary only. The contract defines the same messages (`herder.v1.SessionResponse`); `herdmesh.session.wire`
translates.
"""

from __future__ import annotations

from dataclasses import dataclass

from herdmesh.connect.task_counts import NO_COUNTS, TaskCounts
from herdmesh.connect.topics import CommitScope
from herdmesh.session.model import Assignment, Condition, Properties, TargetState, UnitId
from herdmesh.session.worker_commands import WorkerCommand
from herdmesh.topicstore.contract import Revision


@dataclass(frozen=True, slots=True)
class Welcome:
    """Response to hello. The worker must release each held unit that is not in `adopted`."""

    adopted: tuple[UnitId, ...]
    session_timeout_ms: int = 0
    leader_id: str = ""


@dataclass(frozen=True, slots=True)
class StartUnit:
    """Start a unit. For a connector `task_config` is None and `task_count` 0; for a task `tasks_max` is 0."""

    unit: UnitId
    assignment: Assignment
    connector_config: Properties
    task_config: Properties | None
    target: TargetState
    task_count: int
    tasks_max: int
    commit_scope: CommitScope | None = None
    revision: Revision | None = None
    """The revision of the config store that the herder had applied at this decision: the task set is in force there.
    None for a connector.
    """
    conditions: tuple[Condition, ...] = ()
    """Conditions that every status of this assignment must carry, so that no status write of the worker loses them."""
    traceparent: str = ""
    """W3C trace context of the call that caused this message; empty = none."""
    counts: TaskCounts = NO_COUNTS
    """Counts of the task's earlier starts, which its progress continues."""

    @property
    def config_offset(self) -> int | None:
        """The offset of the config topic at which the task's set was in force; None without a revision."""
        return self.revision.next_offsets[0] if self.revision is not None and self.revision.next_offsets else None


@dataclass(frozen=True, slots=True)
class StopUnit:
    """Stop and release a unit. The worker answers with a report of UNASSIGNED."""

    unit: UnitId
    assignment: Assignment
    reason: str


@dataclass(frozen=True, slots=True)
class SetUnitTarget:
    """Pause or resume a unit, or stop a connector in place."""

    unit: UnitId
    target: TargetState


@dataclass(frozen=True, slots=True)
class RequestTaskConfigs:
    """Request the task configs of a connector that the worker holds."""

    connector: str
    assignment: Assignment
    tasks_max: int


@dataclass(frozen=True, slots=True)
class SendCommand:
    """A command. The worker sends a reply with the same `command_id`, or none if it is empty."""

    command_id: str
    command: WorkerCommand


@dataclass(frozen=True, slots=True)
class SetRate:
    """The share of the connector's rate limits that each of its tasks gets, per second; 0 = an equal part."""

    connector: str
    records_per_second: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat of the herder."""


@dataclass(frozen=True, slots=True)
class Released:
    """All units were moved to other workers; the worker may exit."""


Message = (
    Welcome | StartUnit | StopUnit | SetUnitTarget | RequestTaskConfigs | SetRate | SendCommand | Heartbeat | Released
)
