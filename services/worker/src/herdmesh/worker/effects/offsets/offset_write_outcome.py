"""Outcome of a change of offsets: done, not done, or unknown.

Owns that difference: what fails before the write changed nothing, what fails within it leaves the outcome open, unless
Kafka refuses the write, or says that somebody else came first, and no other part of it may be done already.
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


class OutcomeUncertain(TaskFailed):
    """Whether the offsets were changed is not known: look at them, or repeat the request."""


def taking_over(fence: Fence, given_up_s: float) -> None:
    """Take the id over. Raises TaskFailed when whoever asked has given up meanwhile, and may have gone on."""
    fence.take_over()
    refuse_late(given_up_s, "Kafka")


def refuse_late(given_up_s: float, who: str, outcome: str = "nothing was written") -> None:
    """Raise TaskFailed when whoever asked has given up meanwhile. `who` was waited for, `outcome` is what it means."""
    if time.monotonic() > given_up_s:
        raise TaskFailed(
            f"{who} answered too late; {outcome}: ask with a longer deadline where that takes so long",
            ErrorClass.RETRIABLE,
        )


@dataclass
class Progress:
    """Of a write of several parts: what of it is done, or may be, in words; "" = nothing."""

    already: str = ""


@contextmanager
def writing() -> Generator[Progress]:
    """Around the write. Raises OutcomeUncertain for what may go away by itself, and for anything once a part may be
    done; else what refuses the write as it is."""
    progress = Progress()
    try:
        yield progress
    except Exception as error:
        found = error_class(error)
        if progress.already:
            raise OutcomeUncertain(f"{progress.already}, and then: {message_of(error)}", found) from error
        if isinstance(error, TaskFailed | KafkaException) and found in (ErrorClass.RETRIABLE, ErrorClass.UNREACHABLE):
            raise OutcomeUncertain(message_of(error), found) from error
        raise
