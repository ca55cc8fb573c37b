"""Classes of failures: what the restart policy does with a failed task or connector.

Owns the words only, for whoever raises a failure (engine, connectors), carries it (worker) or judges it (herder).
"""

from __future__ import annotations

from enum import StrEnum, unique


@unique
class ErrorClass(StrEnum):
    """What the restart policy does with a failure; names are those of the contract's `ErrorClass`."""

    RETRIABLE = "RETRIABLE"
    FATAL = "FATAL"
    BAD_CONFIG = "BAD_CONFIG"
    UNKNOWN = "UNKNOWN"
    FENCED = "FENCED"
    DATA_LOSS = "DATA_LOSS"
    UNREACHABLE = "UNREACHABLE"
