"""What the leading herder may ask a worker besides running units, as data. Each is answered by one reply of the
effects, without passing through the state again: an answer changes nothing of what is held.

Owns the vocabulary only. The wire's commands say the same; `herdmesh.worker.wire` translates.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from herdmesh.topicstore.contract import Revision
from herdmesh.worker.state.model import Config


@dataclass(frozen=True, slots=True)
class FenceIds:
    """Initialise the transactional ids of tasks 0 to task_count - 1."""

    connector: str
    task_count: int


@dataclass(frozen=True, slots=True)
class ValidateConfig:
    """Everything wrong with a config."""

    config: Config


@dataclass(frozen=True, slots=True)
class DescribePlugin:
    """The fields of a plugin's config definition."""

    class_name: str


@dataclass(frozen=True, slots=True)
class ListLoggers:
    """Levels of a logger and its children. Empty = of all."""

    logger: str


@dataclass(frozen=True, slots=True)
class SetLogger:
    """Change the level of a logger and its children, once: see `state.levels`."""

    logger: str
    level: str
    revision: Revision | None = None
    """Of a level for the cluster. None = one of this worker alone."""
    request_id: str = ""
    """Of the caller who set it. Empty = not known."""


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """All offsets of a connector, whatever it does."""

    connector: str
    config: Config


@dataclass(frozen=True, slots=True)
class AlterOffsets:
    """Change the offsets of a connector that does not run, all or none: to `offsets` (pairs of partition and offset in
    the JSON forms of KIP-875, an offset of None forgets the partition's), or forget all, or go back to a time."""

    connector: str
    config: Config
    offsets: tuple[tuple[str, str | None], ...] = ()
    config_offset: int | None = None
    """How far the leader had read the config topic when it found that the connector has no tasks, or is not there;
    None = there is no topic."""
    incarnation: str = ""
    """Of the connector that has no tasks. Empty = there is no such connector."""
    reset: bool = False
    rewind_to_ms: int | None = None
    """Epoch milliseconds. None = no rewind."""
    dry_run: bool = False
    allow_forward: bool = False
    """Whether a rewind may move a partition forward."""
    prepare: bool = False
    """Take over as for the change, and tell what is to be written instead of writing it: whoever asks has it written
    together with the connector, which is not there. Where offsets are in the worker's file it is the change itself."""
    timeout_ms: int = field(kw_only=True)
    """How long whoever asks waits for the write to begin, from when the worker is asked."""


@dataclass(frozen=True, slots=True)
class PlanTaskConfigs:
    """The task configs that an instance of its own makes of a config."""

    config: Config
    tasks_max: int


@dataclass(frozen=True, slots=True)
class ListDeadLetters:
    """A page of the dead letters of a connector; `wire` is the caller's request."""

    config: Config
    wire: object


@dataclass(frozen=True, slots=True)
class ReplayDeadLetters:
    """Put dead letters of a connector back; `wire` is the caller's request."""

    config: Config
    wire: object


Question = (
    FenceIds
    | ValidateConfig
    | DescribePlugin
    | ListLoggers
    | SetLogger
    | ReadOffsets
    | AlterOffsets
    | PlanTaskConfigs
    | ListDeadLetters
    | ReplayDeadLetters
)
