"""Commands to workers that do not concern the run of a unit, as data: each gets exactly one reply, or none.

Owns the vocabulary only. Every command may be sent twice: to the same worker or, when that one is lost, to another. A
command does not change which units the worker holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from herdmesh.session.model import OffsetEntry, Properties
from herdmesh.topicstore.contract import Revision


@dataclass(frozen=True, slots=True)
class FenceTasks:
    """Initialise the transactional ids of tasks 0 to task_count - 1."""

    connector: str
    task_count: int


@dataclass(frozen=True, slots=True)
class ValidateOnWorker:
    """Validate a config and return all its violations; with `verdict_only`, without the fields that have none."""

    config: Properties
    verdict_only: bool = False


@dataclass(frozen=True, slots=True)
class DescribePlugin:
    """The fields of a plugin's config definition."""

    class_name: str


@dataclass(frozen=True, slots=True)
class ListLoggers:
    """Return the levels of a logger and its children. Empty = all loggers."""

    logger: str


@dataclass(frozen=True, slots=True)
class SetLogger:
    """Change the level of a logger and its children, once: the worker remembers the `revision` of a level that is set
    for the cluster (None = for this worker alone) and the `request_id` of the caller (empty = not known).
    """

    logger: str
    level: str
    revision: Revision | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class AlterOffsets:
    """Change offsets, all or none, of a connector that does not run.

    Write `offsets`, or delete all (`reset`), or go back to a time (`rewind_to_ms`, epoch milliseconds; forward only
    with `allow_forward`). The connector has no tasks at `revision` (None = there is no config topic), or does not exist
    (`incarnation` empty). A write that does not begin within `timeout_ms` of the command must not begin.

    `prepare`: return the records to write; the config store writes them together with the connector, which does not
    exist yet. A worker that keeps offsets in a local file writes them there itself.
    """

    connector: str
    config: Properties
    offsets: tuple[OffsetEntry, ...] = ()
    revision: Revision | None = None
    incarnation: str = ""
    reset: bool = False
    rewind_to_ms: int | None = None
    dry_run: bool = False
    allow_forward: bool = False
    prepare: bool = False
    timeout_ms: int = field(kw_only=True)

    @property
    def config_offset(self) -> int | None:
        """The leader's position in the config topic; None without a revision."""
        return self.revision.next_offsets[0] if self.revision is not None and self.revision.next_offsets else None


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """Return all offsets of a connector in any state."""

    connector: str
    config: Properties


@dataclass(frozen=True, slots=True)
class PlanTaskConfigs:
    """Return the task configs that a separate instance of the connector creates from a config."""

    config: Properties
    tasks_max: int


@dataclass(frozen=True, slots=True)
class SetDraining:
    """Accept no more units, or accept them again, and state it in every later hello: the leader moves the held
    units."""

    draining: bool


@dataclass(frozen=True, slots=True)
class ListDeadLettersOnWorker:
    """Return a page of dead letters of a connector with that config; `wire` is the caller's request, undecoded."""

    config: Properties
    wire: object


@dataclass(frozen=True, slots=True)
class ReplayOnWorker:
    """Replay dead letters of a connector with that config; `wire` is the caller's request, undecoded."""

    config: Properties
    wire: object


WorkerCommand = (
    FenceTasks
    | ValidateOnWorker
    | DescribePlugin
    | ListLoggers
    | SetLogger
    | AlterOffsets
    | ReadOffsets
    | PlanTaskConfigs
    | SetDraining
    | ListDeadLettersOnWorker
    | ReplayOnWorker
)
