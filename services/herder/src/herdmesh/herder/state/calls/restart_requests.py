"""Restarts that somebody asks for (KIP-745, reference/herder.md 4.4): from the request to what every leader keeps to.

Owns which units a request takes, what its caller is told, and how a recorded request takes effect. How a unit is
restarted is `restarts.py`'s.

A restart is not a message to workers but a state to reach: the leader decides which units are meant, and the config
store keeps with the connector from which generation on they are to run. What runs below it was started before it was
asked for, and is restarted by whoever leads (`lifecycle.settle`): a leader that dies after its answer loses none, one
that hears of it twice does it once, and a retry under the same request id is told by the store what the first was.

Connect's own record is written beside it where Connect writes one. As in Connect, that record alone also restarts: then
a Java tool wrote it. Of a restart of ours it comes first and finds nothing to do after it, because whatever starts from
then on has a generation above.

Invariant: requests add up. One that comes while another is still pending takes nothing from it, and a unit that is
being stopped for the first is started once for both.
"""

from __future__ import annotations

from collections.abc import Mapping

from herdmesh.herder.state.memory import Connector, Mesh
from herdmesh.herder.state.model import RunState, UnitId
from herdmesh.herder.state.model.events import RestartRecorded
from herdmesh.herder.state.model.requests import RestartConnector, RestartItem, RestartTask
from herdmesh.herder.state.units import restarts
from herdmesh.herder.state.views import views
from herdmesh.rpc.errors import ConnectorNotFound, StatusNotFound, TaskNotFound


def wanted(mesh: Mesh, name: str, request: RestartConnector | RestartTask) -> tuple[RestartItem, ...]:
    """What a request restarts.

    Raises ConnectorNotFound, TaskNotFound, or StatusNotFound for a plan of a connector that has no status yet.
    """
    connector = mesh.connectors.get(name)
    entry = connector.stored if connector is not None else None
    if connector is None or entry is None:
        raise ConnectorNotFound(name)
    if isinstance(request, RestartTask):
        if not 0 <= request.task < len(entry.tasks):
            raise TaskNotFound(name, request.task)
        worker_id = views.unit_view(mesh, connector, connector.unit(request.task)).worker_id
        return (RestartItem(request.task, RunState.RESTARTING, True, worker_id),)
    if (request.include_tasks or request.only_failed) and not _has_status(mesh, connector):
        raise StatusNotFound(name)
    return planned(mesh, connector, request.include_tasks, request.only_failed)


def planned(mesh: Mesh, connector: Connector, include_tasks: bool, only_failed: bool) -> tuple[RestartItem, ...]:
    """What KIP-745 restarts, the connector first; a unit already RESTARTING counts as restarted."""
    items: list[RestartItem] = []
    for unit in [connector.unit(None), *connector.tasks()]:
        view = views.unit_view(mesh, connector, unit)
        state = view.state
        chosen = (unit.id.task is None or include_tasks) and (not only_failed or state is RunState.FAILED)
        restarted = chosen or state is RunState.RESTARTING
        items.append(RestartItem(unit.id.task, RunState.RESTARTING if restarted else state, restarted, view.worker_id))
    return tuple(items)


def recorded(mesh: Mesh, event: RestartRecorded) -> None:
    """Connect's record of a restart was read."""
    connector = mesh.connectors.get(event.connector)
    if connector is None or connector.stored is None:
        return
    for item in planned(mesh, connector, event.include_tasks, event.only_failed):
        if item.restarted:
            restarts.restart_unit(mesh, connector, connector.unit(item.task))


def taken_in(mesh: Mesh, connector: Connector, before: Mapping[int | None, int]) -> None:
    """The connector's entry changed: units that nobody holds are not to wait any longer if they are to restart."""
    entry = connector.stored
    if entry is None:
        return
    for task, generation in entry.restarts.items():
        unit = connector.units.get(task)
        if unit is not None and unit.hold is None and generation > before.get(task, 0):
            restarts.restart_unit(mesh, connector, unit)


def _has_status(mesh: Mesh, connector: Connector) -> bool:
    unit = connector.unit(None)
    return mesh.status_of(UnitId(connector.name)) is not None or any(hold.state is not None for hold in unit.holds())
