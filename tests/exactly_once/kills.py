"""The order of kills: ten drawn from a seed, twenty in the soak.

Owns the draw, not the execution (`tests.chaos.harm` does). Invariant: the same seed gives the same kills; each role of
a mesh is among them, and the first kill is an aimed one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.chaos.faults import Fault, Way
from tests.support.sizes import soak_or

KILLS = soak_or(10, 20)
AIMED = "worker, aimed"
"""A worker, while every path is held between its write and its commit; the held runs die with it."""
_ROLES = (
    *["worker"] * soak_or(2, 4),  # with the aimed ones more than any other: workers move the data
    *["leader"] * soak_or(1, 4),
    *["follower"] * soak_or(1, 2),
    *["config-store"] * soak_or(2, 3),
    *["status-store"] * soak_or(1, 3),
    *["broker"] * soak_or(1, 2),  # everything waits for it
    AIMED,
)


def kills(seed: int) -> Sequence[tuple[str, Fault]]:
    """The roles and faults, in order: the leading herder is a `leader`, the other a `follower`."""
    draw = random.Random(seed)
    roles = [AIMED, *draw.sample(_ROLES, len(_ROLES))]
    assert len(roles) == KILLS
    targets = ["worker" if role == AIMED else role for role in roles]
    return [
        (role, Fault(Way.KILL, target, draw.random(), 0.0, 0.0)) for role, target in zip(roles, targets, strict=True)
    ]
