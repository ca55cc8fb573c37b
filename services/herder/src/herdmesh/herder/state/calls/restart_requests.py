"""Requested restarts (KIP-745, docs/reference/connect/herder.md, section 4.4): from the request to a state that every
leader enforces.

Owns which units a request restarts, its answer, and the effect of a recorded request. Does not own how a unit is
restarted (`restarts.py`).

A restart is not a message to workers but a state to reach: the leader decides which units are meant, and the config
store keeps with the connector the lowest generation under which they may run. A unit of a lower generation was started
before the request, and any leader restarts it (`lifecycle.reconcile`). So a leader that dies after its answer loses no
restart, one that reads the request twice restarts once, and the store answers a retry under the same request id with
the first outcome.

Connect's own record is written beside it where Connect writes one. As in Connect, that record alone also restarts: then
a Java tool wrote it. For a restart by Herdmesh that record comes first, and the entry after it has no further effect,
because every unit started from then on has a higher generation.

Invariant: requests add up. A second request that arrives while the first is pending takes nothing from it, and a unit
that is being stopped for the first is started once for both.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

from herdmesh.herder.state.calls.config_writes import StoreWrite
from herdmesh.herder.state.calls.connector_names import given_name
from herdmesh.herder.state.memory import (
    Call,
    Connector,
    HerderMemory,
    StoreViews,
)
from herdmesh.herder.state.model import ConnectorEntry
from herdmesh.herder.state.model.events import RestartRecorded
from herdmesh.herder.state.model.instructions import RequestRestart
from herdmesh.herder.state.model.requests import (
    Answer,
    RestartConnector,
    Restarting,
    RestartItem,
    RestartTask,
    WriteOptions,
)
from herdmesh.herder.state.units import restarts
from herdmesh.herder.state.views import views
from herdmesh.rpc.errors import ConnectorNotFound, StatusNotFound, TaskNotFound
from herdmesh.session.model import RunState, UnitId


@dataclass(frozen=True)
class _RestartHandler(StoreWrite):
    """Common steps of restarts of a connector and of a task."""

    request: RestartConnector | RestartTask

    @abstractmethod
    def items(self, memory: HerderMemory, connector: Connector, entry: ConnectorEntry) -> tuple[RestartItem, ...]:
        """The units that the request restarts. Raises the error to refuse it with."""

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Plan the restart and write it. Raises ConnectorNotFound, TaskNotFound, or StatusNotFound for a plan of a
        connector without a status.
        """
        call.name = given_name(memory.stores, self.request.name)
        self.write_when_free(memory, call)
        return None

    def instruction(self, memory: HerderMemory, call: Call, op: int, options: WriteOptions) -> RequestRestart:
        items = self._wanted(memory, call.name) if call.refusal is None else ()
        return RequestRestart(op, call.name, options, items, memory.leadership.next_generation, memory.leadership.epoch)

    def outcome(self, memory: HerderMemory, call: Call) -> Answer | None:
        return Restarting(call.restarted)

    def _wanted(self, memory: HerderMemory, name: str) -> tuple[RestartItem, ...]:
        connector = memory.inventory.connectors.get(name)
        entry = connector.stored if connector is not None else None
        if connector is None or entry is None:
            raise ConnectorNotFound(name)
        return self.items(memory, connector, entry)


@dataclass(frozen=True)
class RestartConnectorHandler(_RestartHandler):
    """Restarts of a connector, with or without its tasks."""

    request: RestartConnector

    def items(self, memory: HerderMemory, connector: Connector, entry: ConnectorEntry) -> tuple[RestartItem, ...]:
        request = self.request
        if (request.include_tasks or request.only_failed) and not _has_status(memory.stores, connector):
            raise StatusNotFound(connector.name)
        return planned(memory, connector, request.include_tasks, request.only_failed)

    def instruction(self, memory: HerderMemory, call: Call, op: int, options: WriteOptions) -> RequestRestart:
        asked = super().instruction(memory, call, op, options)
        return replace(asked, include_tasks=self.request.include_tasks, only_failed=self.request.only_failed)


@dataclass(frozen=True)
class RestartTaskHandler(_RestartHandler):
    """Restarts of one task."""

    request: RestartTask

    def items(self, memory: HerderMemory, connector: Connector, entry: ConnectorEntry) -> tuple[RestartItem, ...]:
        task = self.request.task
        if not 0 <= task < len(entry.tasks):
            raise TaskNotFound(connector.name, task)
        worker_id = views.unit_view(memory, connector, connector.unit(task)).worker_id
        return (RestartItem(task, RunState.RESTARTING, True, worker_id),)

    def instruction(self, memory: HerderMemory, call: Call, op: int, options: WriteOptions) -> RequestRestart:
        return replace(super().instruction(memory, call, op, options), task=self.request.task)


def planned(
    memory: HerderMemory, connector: Connector, include_tasks: bool, only_failed: bool
) -> tuple[RestartItem, ...]:
    """The units that KIP-745 restarts, the connector first; a unit already RESTARTING counts as restarted."""
    items: list[RestartItem] = []
    for unit in [connector.unit(None), *connector.tasks()]:
        view = views.unit_view(memory, connector, unit)
        state = view.state
        chosen = (unit.id.task is None or include_tasks) and (not only_failed or state is RunState.FAILED)
        restarted = chosen or state is RunState.RESTARTING
        items.append(RestartItem(unit.id.task, RunState.RESTARTING if restarted else state, restarted, view.worker_id))
    return tuple(items)


def recorded(memory: HerderMemory, event: RestartRecorded) -> None:
    """Connect's record of a restart was read."""
    connector = memory.inventory.connectors.get(event.connector)
    if connector is None or connector.stored is None:
        return
    for item in planned(memory, connector, event.include_tasks, event.only_failed):
        if item.restarted:
            restarts.restart_unit(memory, connector, connector.unit(item.task))


def taken_in(memory: HerderMemory, connector: Connector, before: Mapping[int | None, int]) -> None:
    """The connector's entry changed: end the wait of unheld units that are to restart."""
    entry = connector.stored
    if entry is None:
        return
    for task, generation in entry.restarts.items():
        unit = connector.units.get(task)
        if unit is not None and unit.placement is None and generation > before.get(task, 0):
            restarts.restart_unit(memory, connector, unit)


def _has_status(stores: StoreViews, connector: Connector) -> bool:
    unit = connector.unit(None)
    return stores.status_of(UnitId(connector.name)) is not None or any(
        hold.state is not None for hold in unit.placements()
    )
