"""Sizes of tests: small in `make test`, full in `make soak`.

Owns the one switch, the environment variable HERDMESH_SOAK. Invariant: it changes sizes, and time limits, which are
the promised ones under `make soak`, where nothing else runs; the checks of a test are the same in both.
"""

from __future__ import annotations

import os

SOAKING = os.environ.get("HERDMESH_SOAK", "") == "1"


def soak_or(small: int, full: int) -> int:
    """`full` under `make soak`, else `small`."""
    return full if SOAKING else small
