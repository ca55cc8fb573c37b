"""The health of a replica: the one condition for the operator, in one line with the fix.

Owns `StoreCondition` (the names of proto `common.v1.StoreCondition`), the mapping from errors to conditions, and the
record in which the parts of a store note errors that stop them. Owns no reaction to an error: that is the core's
affair.

Invariant: if several parts have an error, the part that is first in `Part` is shown, because it explains the others.
Each change is logged once, and `since_ms` is when the condition (not its wording) began.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from herdmesh.topicstore.errors import (
    BrokerUnreachable,
    ForeignWriter,
    NotAuthorized,
    StoreClosed,
    TakeOverBlocked,
    TopicMisconfigured,
    TopicRecreated,
    TopicStoreError,
    WriterFenced,
)

_logger = logging.getLogger(__name__)


class StoreCondition(Enum):
    """The condition of a store, for an operator. The names are those of the proto."""

    HEALTHY = "HEALTHY"
    BROKER_UNREACHABLE = "BROKER_UNREACHABLE"
    CLEANUP_POLICY_WRONG = "CLEANUP_POLICY_WRONG"
    PARTITION_COUNT_WRONG = "PARTITION_COUNT_WRONG"
    NOT_AUTHORIZED = "NOT_AUTHORIZED"
    TOPIC_RECREATED = "TOPIC_RECREATED"
    FOREIGN_WRITER = "FOREIGN_WRITER"
    FENCED = "FENCED"
    TAKE_OVER_BLOCKED = "TAKE_OVER_BLOCKED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """A condition, one line for the operator with the fix (empty when HEALTHY), and when it began (epoch ms)."""

    condition: StoreCondition
    message: str
    since_ms: int


class Part(Enum):
    """A part of a store that can have an error. The part whose error explains most comes first."""

    CLOSED = "closed"
    START = "start"
    TOPIC = "topic"
    ELECTION = "election"
    WRITING = "writing"


def condition_of(error: TopicStoreError) -> StoreCondition:
    """The condition for an error."""
    if isinstance(error, TopicMisconfigured):
        policy = error.setting == "cleanup.policy"
        return StoreCondition.CLEANUP_POLICY_WRONG if policy else StoreCondition.PARTITION_COUNT_WRONG
    conditions: dict[type[TopicStoreError], StoreCondition] = {
        BrokerUnreachable: StoreCondition.BROKER_UNREACHABLE,
        NotAuthorized: StoreCondition.NOT_AUTHORIZED,
        TopicRecreated: StoreCondition.TOPIC_RECREATED,
        ForeignWriter: StoreCondition.FOREIGN_WRITER,
        WriterFenced: StoreCondition.FENCED,
        TakeOverBlocked: StoreCondition.TAKE_OVER_BLOCKED,
    }
    return conditions.get(type(error), StoreCondition.FAILED)


class HealthBook:
    """The current error of each part. `now_ms` is epoch milliseconds."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._errors: dict[Part, TopicStoreError] = {}
        self._health = StoreHealth(StoreCondition.HEALTHY, "", now_ms())

    @property
    def health(self) -> StoreHealth:
        return self._health

    def trouble(self, part: Part) -> TopicStoreError | None:
        """The error noted last for `part`."""
        return self._errors.get(part)

    def note(self, part: Part, error: TopicStoreError | None) -> None:
        """Note that `part` does not work because of `error`; None = it works."""
        if error is None:
            self._errors.pop(part, None)
        else:
            self._errors[part] = error
        first = next((self._errors[one] for one in Part if one in self._errors), None)
        condition = StoreCondition.HEALTHY if first is None else condition_of(first)
        message = "" if first is None else _line(first)
        before = self._health
        if (condition, message) == (before.condition, before.message):
            return
        since_ms = before.since_ms if condition is before.condition else self._now_ms()
        self._health = StoreHealth(condition, message, since_ms)
        if condition is StoreCondition.HEALTHY:
            _logger.info("healthy again, after %s", before.condition.value)
        else:
            _logger.error("%s: %s", condition.value, message)


def _line(error: TopicStoreError) -> str:
    """One line with the error and its fix."""
    text = str(error)
    if isinstance(error, WriterFenced):
        text = (
            f"this writer was cut off ({error.reason}) and takes over again after a pause; if that repeats, another"
            " process uses its transactional id: look for a Java leader, or a store of another set-up, with the same"
            " group.id"
        )
    elif isinstance(error, TopicRecreated):
        text = error.reason
    elif isinstance(error, StoreClosed):
        text = f"{error.reason}; this store ends and must be started again; see its log"
    return " ".join(text.split())
