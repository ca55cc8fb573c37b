"""Restarts, asked for (KIP-745) and by ourselves.

Owns which units a restart takes and the one self-made restart of this release: a task that reports FAILED because it
was fenced, though by our knowledge it owns its id, is restarted once a minute at most, after a second, so that a fence
that hit the rightful owner heals. Every other failure stays with its trace until somebody asks for a restart, the
config changes, or the unit moves, as in Connect.

Invariant: a restart keeps a unit on its worker.
"""

from __future__ import annotations

from herdmesh.herder.state import holds, views
from herdmesh.herder.state.mesh import Mesh
from herdmesh.herder.state.model import ErrorClass, RunState
from herdmesh.herder.state.records import Connector, Unit
from herdmesh.herder.state.requests import RestartItem

FENCED_BACKOFF_MS = 1_000
FENCED_PAUSE_MS = 60_000


def restart_connector(
    mesh: Mesh, connector: Connector, include_tasks: bool, only_failed: bool
) -> tuple[RestartItem, ...]:
    """Restart what KIP-745 says and tell for each unit whether it is; a unit already RESTARTING counts as restarted."""
    items: list[RestartItem] = []
    for unit in [connector.unit(None), *connector.tasks()]:
        state = views.unit_view(mesh, connector, unit).state
        chosen = (unit.id.task is None or include_tasks) and (not only_failed or state is RunState.FAILED)
        restarted = chosen or state is RunState.RESTARTING
        items.append(RestartItem(unit.id.task, RunState.RESTARTING if restarted else state, restarted))
        if chosen:
            restart_unit(mesh, connector, unit)
    return tuple(items)


def restart_unit(mesh: Mesh, connector: Connector, unit: Unit, reason: str = "a restart was asked for") -> None:
    """Stop, acknowledge, start, on the same worker. Of a unit that nobody holds only the backoff is lifted."""
    unit.not_before_ms = 0
    if unit.hold is not None:
        unit.restarting = True
        holds.stop(mesh, connector, unit, reason, destination=unit.hold.worker_id)
    mesh.touch(connector.name)


def failed(mesh: Mesh, connector: Connector, unit: Unit) -> None:
    """A unit reported FAILED."""
    failure = unit.hold.failure if unit.hold is not None else None
    if failure is None or failure.error_class is not ErrorClass.FENCED:
        return
    if unit.fenced_restart_ms is not None and mesh.now - unit.fenced_restart_ms < FENCED_PAUSE_MS:
        return
    unit.fenced_restart_ms = mesh.now
    restart_unit(mesh, connector, unit, "it was fenced though it is the owner")
    unit.not_before_ms = mesh.now + FENCED_BACKOFF_MS
    mesh.wake(connector.name, unit.not_before_ms)
