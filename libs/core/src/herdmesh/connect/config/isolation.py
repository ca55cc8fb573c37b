"""Isolation of a connector's runs: the key and its values.

Owns their names. Does not own what they mean: the worker chooses the process of a run (`effects.runs`).
"""

from __future__ import annotations

from collections.abc import Mapping

ISOLATION = "herdmesh.isolation"
SHARED = "shared"
"""A process may execute one run after another, of connectors that allow it (ADR 0021)."""
PROCESS = "process"
"""Each run has a new process."""
APPLICATION = "application"
"""Each run has a new process, under a Spark application of the connector's own."""


def isolation_of(config: Mapping[str, str | None]) -> str:
    """The isolation that a valid config asks for."""
    return (config.get(ISOLATION) or "").strip() or SHARED
