"""Which process is killed when: twenty kills drawn from a seed.

Owns the draw, not the doing (`tests.chaos.harm` does). Invariant: the same seed gives the same kills; each role of a
mesh is among them, and the first kill is an aimed one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.chaos.faults import Fault, Way
from tests.support.sizes import soak_or

KILLS = 20
AIMED = "worker, aimed"
"""A worker, while every path is held between its write and its commit; the runs that are held die with it."""
_ROLES = (
    *["worker"] * soak_or(3, 4),  # with those that are aimed a quarter or more: they move the data
    *["leader"] * 4,
    *["follower"] * soak_or(3, 2),
    *["config-store"] * soak_or(4, 3),
    *["status-store"] * 3,
    *["broker"] * soak_or(1, 2),  # everything waits for it: a quarter of the whole run was one of them
    AIMED,
)


def kills(seed: int) -> Sequence[tuple[str, Fault]]:
    """The roles and what to do, in order: the leading herder is a `leader`, the other a `follower`."""
    draw = random.Random(seed)
    roles = [AIMED, *draw.sample(_ROLES, len(_ROLES))]
    assert len(roles) == KILLS
    targets = ["worker" if role == AIMED else role for role in roles]
    return [
        (role, Fault(Way.KILL, target, draw.random(), 0.0, 0.0)) for role, target in zip(roles, targets, strict=True)
    ]
