"""Plugins of a worker: discovery, loading and calls; plugins of a folder run in processes of their own.

Owns validation of configs, and the creation of task configs and plans. Invariant: an author's code never blocks the
event loop.
"""

from __future__ import annotations

from herdmesh.worker.effects.plugins.connectors import (
    ConnectorHost,
)
from herdmesh.worker.effects.plugins.plugins import (
    Plugins,
    discover,
)
from herdmesh.worker.effects.plugins.task_configs import (
    planned_task_configs,
)
from herdmesh.worker.effects.plugins.validation import (
    validate,
)

__all__ = [
    "ConnectorHost",
    "Plugins",
    "discover",
    "planned_task_configs",
    "validate",
]
