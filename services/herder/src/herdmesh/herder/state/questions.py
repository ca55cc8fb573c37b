"""What a herder may ask a worker besides running a unit, as data: each is answered by exactly one reply, or by nobody.

Owns the vocabulary only; who is asked, and again of whom, is decided in `commands.py`. Every question may be asked
twice: of the same worker or, when that one goes, of another.
"""

from __future__ import annotations

from dataclasses import dataclass

from herdmesh.herder.state.model import OffsetEntry, Properties
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
    """Change the level of a logger and its children."""

    logger: str
    level: str


@dataclass(frozen=True, slots=True)
class AlterOffsets:
    """Write offsets of a connector that is not there, at `revision`: all or none."""

    connector: str
    config: Properties
    offsets: tuple[OffsetEntry, ...]
    revision: Revision | None


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
    | PlanTaskConfigs
    | SetDraining
    | AskDeadLetters
    | AskReplay
)
