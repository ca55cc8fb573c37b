"""Questions to workers, besides running a unit, as data: each is answered by exactly one reply, or by none.

Owns the vocabulary only. Every question may be asked twice: of the same worker or, when that one goes, of another. An
answer changes nothing of what the worker holds.
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
    """Everything wrong with a config."""

    config: Properties


@dataclass(frozen=True, slots=True)
class DescribePlugin:
    """The fields of a plugin's config definition."""

    class_name: str


@dataclass(frozen=True, slots=True)
class ListLoggers:
    """The levels of a logger and its children. Empty = of all."""

    logger: str


@dataclass(frozen=True, slots=True)
class SetLogger:
    """Change the level of a logger and its children, once: the worker remembers the `revision` of a level for the
    cluster (None = of this worker alone) and the `request_id` of the caller (empty = not known)."""

    logger: str
    level: str
    revision: Revision | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class AlterOffsets:
    """Change offsets, all or none, of a connector that does not run.

    Write `offsets`, or forget all (`reset`), or go back to a time (`rewind_to_ms`, epoch milliseconds; forward only
    with `allow_forward`). The connector has no tasks at `revision` (None = there is no config topic), or is not there
    (`incarnation` empty). A write that does not begin within `timeout_ms` of the question must not begin.

    `prepare`: answer what is to be written, and the config store writes it with the connector, which is not there; a
    worker that keeps offsets in a file of its own writes it there.
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
        """How far the leader had read the config topic; None without a revision."""
        return self.revision.next_offsets[0] if self.revision is not None and self.revision.next_offsets else None


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """All offsets of a connector, whatever it does."""

    connector: str
    config: Properties


@dataclass(frozen=True, slots=True)
class PlanTaskConfigs:
    """The task configs that an instance of its own makes of a config."""

    config: Properties
    tasks_max: int


@dataclass(frozen=True, slots=True)
class SetDraining:
    """Want no work, or work again, and say so in every later hello: the leader moves what is held."""

    draining: bool


@dataclass(frozen=True, slots=True)
class AskDeadLetters:
    """A page of the dead letters of a connector of that config; `wire` is the caller's request, unopened."""

    config: Properties
    wire: object


@dataclass(frozen=True, slots=True)
class AskReplay:
    """Put dead letters of a connector of that config back; `wire` is the caller's request, unopened."""

    config: Properties
    wire: object


Question = (
    FenceTasks
    | ValidateOnWorker
    | DescribePlugin
    | ListLoggers
    | SetLogger
    | AlterOffsets
    | ReadOffsets
    | PlanTaskConfigs
    | SetDraining
    | AskDeadLetters
    | AskReplay
)
