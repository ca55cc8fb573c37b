"""Redaction of a config for the audit topic: all values are kept but secrets.

Owns the replacement. `herdmesh.connect.config.secret_values` decides what a secret is: a value that is wrongly redacted
must be given again at a restore; a value that is wrongly kept has leaked.

Invariant: a redacted value leaves no trace, neither its length nor a digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from herdmesh.connect.config import is_secret
from herdmesh.connect.topics import Properties

REDACTED = "[redacted]"


def redacted(config: Properties) -> dict[str, Any]:
    """`config` with each secret replaced by REDACTED; null stays null."""
    return {name: REDACTED if is_secret(name, value) else value for name, value in config.items()}


def redacted_names(config: Properties) -> Sequence[str]:
    """The properties of a redacted config whose values were replaced, sorted."""
    return sorted(name for name, value in config.items() if value == REDACTED)
