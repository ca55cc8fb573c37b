"""Error classes of failures, which the restart policy uses for a failed task or connector.

Owns the names only, for the code that raises a failure (engine, connectors), passes it on (worker) or decides about it
(herder).
"""

from __future__ import annotations

from enum import StrEnum, unique


@unique
class ErrorClass(StrEnum):
    """Error class of a failure, for the restart policy; names are those of the contract's `ErrorClass`."""

    RETRIABLE = "RETRIABLE"
    FATAL = "FATAL"
    BAD_CONFIG = "BAD_CONFIG"
    UNKNOWN = "UNKNOWN"
    FENCED = "FENCED"
    DATA_LOSS = "DATA_LOSS"
    UNREACHABLE = "UNREACHABLE"
