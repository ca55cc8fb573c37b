"""Names for topics, groups and connectors, unique in the session. Owns the counter they end with."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

_numbers = itertools.count(1)


def topic_names(test_name: str) -> Callable[..., str]:
    """`names()`, `names("out")`: with the test's own name in it, so that a broker's log shows which test it belongs
    to.
    """
    stem = re.sub(r"[^a-z0-9]+", "-", test_name.lower()).strip("-")[:60]

    def name(purpose: str = "topic") -> str:
        return f"{stem}-{purpose}-{next(_numbers)}"

    return name
