"""How large a test is: small in `make test`, full in `make soak`.

Owns the one switch, the environment variable HERDMESH_SOAK. Invariant: a size is the only thing it changes, what a test
checks is the same in both; a test that runs in the soak alone says why.
"""

from __future__ import annotations

import os

import pytest

SOAKING = os.environ.get("HERDMESH_SOAK", "") == "1"


def soak_or(small: int, full: int) -> int:
    """`full` under `make soak`, else `small`."""
    return full if SOAKING else small


def soak_only(why: str) -> pytest.MarkDecorator:
    """Leave a test to `make soak`; `why` says what `make test` has in its place, or what it costs."""
    return pytest.mark.skipif(not SOAKING, reason=f"{why}: make soak")
