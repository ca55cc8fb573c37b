"""The stages of a write, in order; at each of them a fault test can stop or kill the writer.

Owns their names and the default of `on_stage`: the failpoints of `herdmesh.failpoints`, with the store's topic as
owner. They are looked up again at every stage, so that a running store can be armed. Each stage states whether the log
or the event loop reaches it; `writes` and the two logs do.

`on_stage` is called before the step it names, in the event loop's thread or the writer's, and must not raise or await.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum

from herdmesh import failpoints


class WriteStage(Enum):
    """A moment in the life of one transaction."""

    #: Its records are decided, none is produced yet. Log.
    BEFORE_SEND = "before-send"
    #: The broker has acknowledged every record and the side writes; the engine does not know their places yet. Log.
    AFTER_SEND = "after-send"
    #: The engine knows the places; right before the commit request. Log.
    BEFORE_COMMIT = "before-commit"
    #: The commit was confirmed; the engine does not know it yet. Log. The reader may be faster than the confirmation.
    AFTER_COMMIT = "after-commit"
    #: This replica's reader has all its records, none is applied. Loop.
    BEFORE_READ_BACK = "before-read-back"
    #: Its first write is applied, no caller has an answer. Loop.
    BEFORE_ANSWER = "before-answer"


OnStage = Callable[[WriteStage], None]


def failpoints_of(topic: str) -> OnStage:
    """The default `on_stage` of a store on `topic`. Raises ValueError when HERDMESH_FAILPOINTS names an unknown
    stage."""
    if not os.environ.get(failpoints.VARIABLE):
        return _nothing
    points = failpoints.Failpoints([stage.value for stage in WriteStage])
    points.arm(topic)

    def on_stage(stage: WriteStage) -> None:
        points.rearm_if_changed()
        points.hit(stage.value)

    return on_stage


def _nothing(_: WriteStage) -> None:
    """Do nothing: no fault test runs."""
