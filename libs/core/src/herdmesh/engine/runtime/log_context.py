"""Log context of a run, in Connect's form: `[connector|task-0]`, and `[connector|task-0|offsets]` about offsets.

Owns the two forms. The process that executes a run gives all its lines the first, as field `unit`; the engine sets the
second where it applies. Invariant: it costs nothing per record: it is set per commit, or per read of offsets.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from structlog.contextvars import bound_contextvars

from herdmesh.engine.runtime.contract import RunSpec


def unit_of(spec: RunSpec) -> str:
    """`[connector|task-0]`."""
    return f"[{spec.connector}|task-{spec.task}]"


def offsets_of(spec: RunSpec) -> AbstractContextManager[object]:
    """Set the context for log lines of this thread about the task's offsets."""
    return bound_contextvars(unit=f"[{spec.connector}|task-{spec.task}|offsets]")
