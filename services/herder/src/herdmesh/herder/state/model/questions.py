"""Questions to workers, besides running a unit, as data: each is answered by exactly one reply, or by none.

Owns the vocabulary only. Does not own which worker is asked, and which one next (`commands.py`). Every question may be
asked twice: of the same worker or, when that one goes, of another.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from herdmesh.herder.state.model.values import OffsetEntry, Properties
from herdmesh.topicstore.contract import Revision


@dataclass(frozen=True, slots=True)
class FenceTasks:
    """Initialise the ids of tasks 0 to task_count - 1."""

    connector: str
    task_count: int


@dataclass(frozen=True, slots=True)
class ValidateOnWorker:
    """Validate a config."""

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
    cluster (None = one of its own) and the `request_id` of the caller (empty = not known)."""

    logger: str
    level: str
    revision: Revision | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class AlterOffsets:
    """Change offsets, all or none, of the connector that has no tasks at `revision`, or (`incarnation` empty) is not
    there: write `offsets`, or forget all, or go back to a time (epoch milliseconds; forward only when allowed). A write
    that does not begin within `timeout_ms` is not to begin. `prepare`: answer what is to be written, and the config
    store writes it with the connector; a worker that keeps offsets in a file of its own writes it there."""

    connector: str
    config: Properties
    offsets: tuple[OffsetEntry, ...]
    revision: Revision | None
    incarnation: str = ""
    reset: bool = False
    rewind_to_ms: int | None = None
    dry_run: bool = False
    allow_forward: bool = False
    prepare: bool = False
    timeout_ms: int = field(kw_only=True)


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
    """Want no work, or work again, and say so in every later hello."""

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
