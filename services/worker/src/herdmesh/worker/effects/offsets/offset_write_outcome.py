"""Outcome of a change of offsets: done, not done, or unknown.

Owns that distinction. A failure before the write changed nothing. A failure during the write leaves the outcome
unknown, unless Kafka refuses the write or reports a newer owner, and no other part of the write may be done.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaException

from herdmesh.connect.error_class import ErrorClass
from herdmesh.engine.fencing import Fence
from herdmesh.engine.runtime import TaskFailed, error_class, message_of


class OutcomeUnknown(TaskFailed):
    """The outcome of the offset change is unknown: read the offsets, or repeat the request."""


def taking_over(fence: Fence, deadline_s: float) -> None:
    """Take over the transactional id. Raises TaskFailed when the caller's deadline has passed, as it may have sent the
    request to another worker.
    """
    fence.take_over()
    refuse_late(deadline_s, "Kafka")


def refuse_late(deadline_s: float, who: str, outcome: str = "nothing was written") -> None:
    """Raise TaskFailed when the caller's deadline has passed. `who` caused the delay, `outcome` is its consequence."""
    if time.monotonic() > deadline_s:
        raise TaskFailed(
            f"{who} answered too late; {outcome}: repeat the request with a longer deadline",
            ErrorClass.RETRIABLE,
        )


@dataclass
class WriteProgress:
    """Completed (or possibly completed) parts of a write, in words; "" = none."""

    already: str = ""


@contextmanager
def writing() -> Generator[WriteProgress]:
    """Context of a write. Raises OutcomeUnknown for an error that may be transient, and for any error once a part may
    be done; other errors, which refuse the write, pass unchanged.
    """
    progress = WriteProgress()
    try:
        yield progress
    except Exception as error:
        found = error_class(error)
        if progress.already:
            raise OutcomeUnknown(f"{progress.already}, and then: {message_of(error)}", found) from error
        if isinstance(error, TaskFailed | KafkaException) and found in (ErrorClass.RETRIABLE, ErrorClass.UNREACHABLE):
            raise OutcomeUnknown(message_of(error), found) from error
        raise
