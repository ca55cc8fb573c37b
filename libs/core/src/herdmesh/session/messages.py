"""What a leading herder tells a worker. Each message is data, sent under the leader's epoch.

Owns the vocabulary only. The contract says the same (`herder.v1.SessionResponse`); `herdmesh.session.wire` translates.
"""

from __future__ import annotations

from dataclasses import dataclass

from herdmesh.connect.topics import CommitScope
from herdmesh.session.model import Assignment, Condition, Properties, TargetState, UnitId
from herdmesh.session.questions import Question
from herdmesh.topicstore.contract import Revision


@dataclass(frozen=True, slots=True)
class Welcome:
    """Answers hello. Whatever the worker holds and is not in `adopted` it must give up."""

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
    """What of the config store was applied when this was decided: the set is in force there. None for a connector."""
    conditions: tuple[Condition, ...] = ()
    """What every status of this assignment is to carry, so that no write of the worker loses it."""
    traceparent: str = ""
    """W3C trace context of the call that this comes of; empty = of none."""

    @property
    def config_offset(self) -> int | None:
        """The offset of the config topic at which the task's set was in force; None without a revision."""
        return self.revision.next_offsets[0] if self.revision is not None and self.revision.next_offsets else None


@dataclass(frozen=True, slots=True)
class StopUnit:
    """Stop a unit and give it up; answered by a report of UNASSIGNED."""

    unit: UnitId
    assignment: Assignment
    reason: str


@dataclass(frozen=True, slots=True)
class SetUnitTarget:
    """Pause, resume or (a connector) stop in place."""

    unit: UnitId
    target: TargetState


@dataclass(frozen=True, slots=True)
class GenerateTaskConfigs:
    """Ask a held connector for its task configs."""

    connector: str
    assignment: Assignment
    tasks_max: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a question; answered by a reply with the same `command_id`, or not at all where it is empty."""

    command_id: str
    question: Question


@dataclass(frozen=True, slots=True)
class SetRate:
    """So much each task of the connector may take of its rate limits, per second; 0 = there is no such limit."""

    connector: str
    records_per_second: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The herder lives."""


@dataclass(frozen=True, slots=True)
class Released:
    """Everything was moved; the worker may go."""


Message = Welcome | StartUnit | StopUnit | SetUnitTarget | GenerateTaskConfigs | SetRate | Ask | Heartbeat | Released
