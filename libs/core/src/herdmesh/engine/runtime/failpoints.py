"""Failpoints of a run: the points at which a fault test can stop it.

Owns their names and the time of arming: at the start of every run, for its connector, so that a test can arm a worker
that already runs. `herdmesh.failpoints` performs the action. A process executes one run at a time.
"""

from __future__ import annotations

from typing import Final

from herdmesh.failpoints import Failpoints

SOURCE_NAMES: Final = ("before-offset-commit",)
"""For at-least-once sources: their records are acknowledged, and their offsets not committed."""
NAMES: Final = ("before-write", "after-write", "after-offset-commit", "before-publish")
LEDGER_NAMES: Final = ("before-target-commit", "after-target-commit")
"""For tasks that keep a ledger in their target (`engine.sink.ledger`): before and after its commit."""

_points = Failpoints((*NAMES, *LEDGER_NAMES, *SOURCE_NAMES))

#: Called once at the start of a run with its connector.
arm = _points.arm
#: Called at each point with its name.
hit = _points.hit
