"""Plugins of a worker: found, loaded and asked, in processes of their own where they come from a folder.

Owns validation of configs, generation of task configs and plans. Invariant: an author's code never blocks the event
loop.
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
