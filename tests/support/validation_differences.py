"""Differences from Connect in validation: recorded definitions without a counterpart here, and recorded validations
that are answered differently.

Owns the kinds, by class and by request, and the reasons. Owns no comparison (services/worker's golden tests) and no
page (libs/core/tests/connect/differences.py). The mirror has its own: `mirror_differences`.

Invariant: a definition of a class that is not named here is expected as Java recorded it, and so is an answer to a
request of no kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from tests.support.golden import Line

WORKERS = ("DistributedConfig", "StandaloneConfig")

WITHOUT_COUNTERPART = (
    (
        "Settings of Connect's own workers",
        "ours are settings of four services, for which importance, group, width and order have no meaning. Each of "
        "these is used, or warned of, where a properties file sets it; where a setting of ours has a property's name, "
        "default and kind are compared",
        WORKERS,
    ),
)
"""Title, reason, and classes of the definitions."""


def properties(request: str) -> dict[str, str | None] | None:
    """The request's body as our messages carry it; None = they cannot. Jackson reads numbers and booleans as texts."""
    read: Any = json.loads(request or "null")
    body = cast("dict[str, Any]", read if isinstance(read, dict) else {"": []})
    if any(isinstance(value, (dict, list)) for value in body.values()):
        return None
    return {key: value if value is None or isinstance(value, str) else json.dumps(value) for key, value in body.items()}


def is_no_config(vector: Line) -> bool:
    """Whether the request's body is no map of texts."""
    return properties(vector["request_body"]) is None


def is_null_pointer(vector: Line) -> bool:
    """Whether Java fails with a null pointer."""
    return vector["status"] == 500 and "NullPointerException" in vector["response_body"]["message"]


REQUESTS: tuple[tuple[str, str, Callable[[Line], bool]], ...] = (
    (
        "Requests whose body is not a config",
        "no message of ours can carry one; Connect answers 500 with its JSON library's error text",
        is_no_config,
    ),
    (
        "A version that Connect refuses and then fails on",
        "Java's NullPointerException is a bug of validation alone: the same config is refused by name when the "
        "connector is created, and so it is here",
        is_null_pointer,
    ),
)
"""Title, reason, and predicate for the requests."""
