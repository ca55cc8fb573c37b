"""State machine of the herder: `handle(event, now) -> [Instruction]`, and views.

Owns the dispatch of events and the order of work within one event. Does not own what each event changes: the rooms
below do (`handlers` first).

Invariants: the only mutator is `handle`. No clock, no randomness, no I/O: the same events at the same times give the
same instructions. Each event ends with all work done that can be done now, unless so much changed at once that one step
would delay heartbeats and callers: then `has_more_to_do` is true, and any event, `Continue` at the latest, continues
the work. No unit is placed before every marked connector was reconciled.
"""

from __future__ import annotations

from typing import assert_never

from herdmesh.herder.state.calls import calls, hedged_commands
from herdmesh.herder.state.calls.connector_names import given_name
from herdmesh.herder.state.handlers import (
    config_events,
    leadership_changes,
    status_events,
    worker_sessions,
    write_results,
)
from herdmesh.herder.state.leadership import leadership_queries, session_keys
from herdmesh.herder.state.memory import (
    HerderRole,
    new_memory,
)
from herdmesh.herder.state.model import Plugin, RefusedPlugin, Rules
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.instructions import Instruction, RenewEpoch, Reply
from herdmesh.herder.state.units import balance, lifecycle, placement
from herdmesh.herder.state.views import counts, views
from herdmesh.herder.state.workers import plugin_catalog
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.topicstore.contract import Revision

#: connectors reconciled in one step; the next steps do the rest.
RECONCILE_MAX = 150
#: a tick that comes this much late means that this process was frozen, and received nothing meanwhile.
STALL_MS = 1_000


class Herder:
    """One herder: follower or leader. `now` is milliseconds of one clock that never goes back."""

    def __init__(self, rules: Rules) -> None:
        self._memory = new_memory(rules)
        self._tick_ms: int | None = None
        self._was_adopting = False
        self._was_gathering = False

    def handle(self, event: ev.Event, now: int) -> list[Instruction]:
        """Handle one event. Returns the instructions, in order."""
        memory = self._memory
        memory.step.begin(now)
        if self._tick_ms is None:
            self._tick_ms = memory.step.now
        if isinstance(event, ev.LeaseExtended):
            memory.leadership.extend_lease(event.until_ms)
        elif isinstance(event, ev.LeaseShortened):
            memory.leadership.shorten_lease(event.until_ms)
        if memory.leadership.is_over:
            memory.step.emit(RenewEpoch(memory.leadership.epoch, abandon=False))
            leadership_changes.step_down(memory, "the config store did not confirm its leadership in time")
        self._dispatch(event)
        self._reconcile()
        memory.agenda.announce_views()
        return memory.step.take_instructions()

    # --- queries

    @property
    def has_more_to_do(self) -> bool:
        """True when there is more work now: pass in `Continue` if no other event comes."""
        memory = self._memory
        return memory.leadership.role is HerderRole.LEADING and not memory.agenda.is_empty

    @property
    def refusal(self) -> HerdmeshError | None:
        """The error with which this herder refuses requests now; None when it leads."""
        return leadership_queries.refusal(self._memory.step, self._memory.leadership)

    @property
    def config_revision(self) -> Revision | None:
        """The position of the config watch."""
        return self._memory.stores.config_revision

    def connector(self, name: str) -> views.ConnectorView | None:
        """One connector; None when it does not exist."""
        return views.connector_view(self._memory, name)

    def name_of(self, given: str) -> str:
        """The name of the connector that a request means (`connector_names.given_name`). Raises RequestInvalid."""
        return given_name(self._memory.stores, given)

    def has_connector(self, name: str) -> bool:
        """True when a connector of that name exists."""
        entry = self._memory.stores.entries.get(name)
        return entry is not None and entry.has_config

    def connector_names(self) -> list[str]:
        """The names of all connectors, sorted."""
        return views.names(self._memory.stores)

    def worker(self, worker_id: str) -> views.WorkerView | None:
        """One worker, also one that drained and left since; None when it is gone for another reason."""
        return views.worker_view(self._memory, worker_id)

    def workers(self) -> tuple[views.WorkerView, ...]:
        """All workers, sorted by id."""
        return views.worker_views(self._memory)

    def cluster(self) -> views.ClusterView:
        """The leader and its counters; works on followers too."""
        return views.cluster_view(self._memory)

    def counts(self) -> counts.MeshCounts | None:
        """Connectors, tasks and workers by state; None when this herder does not lead."""
        return counts.mesh_counts(self._memory) if self.refusal is None else None

    def plugins(self) -> list[Plugin]:
        """The plugins of the connected workers, sorted by class."""
        return plugin_catalog.plugins(self._memory.fleet)

    def refused_plugins(self) -> list[tuple[RefusedPlugin, list[str]]]:
        """Plugins that connected workers found and cannot use, each with the workers that reported it."""
        return plugin_catalog.refused_plugins(self._memory.fleet)

    # --- events

    def _dispatch(self, event: ev.Event) -> None:
        memory = self._memory
        match event:
            case ev.Tick():
                self._tick()
            case ev.LeadershipGranted():
                leadership_changes.granted(memory, event)
            case ev.GenerationsReserved():
                leadership_changes.reserved(memory.agenda, memory.leadership, event)
            case ev.LeadershipFollowing():
                leadership_changes.following(memory, event)
            case ev.LeadershipLost():
                leadership_changes.step_down(memory, event.reason)
            case ev.LeaseExtended() | ev.LeaseShortened():
                pass  # applied before the check of the lease
            case ev.Continue():
                pass  # `_reconcile` follows every event
            case (
                ev.ConfigSnapshot()
                | ev.ConfigChanged()
                | ev.ConfigProgress()
                | ev.EpochRecorded()
                | ev.RestartRecorded()
                | ev.SessionKeyRecorded()
                | ev.LoggerRecorded()
            ):
                config_events.handle(memory, event)
            case ev.StatusSnapshot() | ev.StatusPut() | ev.StatusDeleted() | ev.LeasesChanged():
                status_events.handle(memory, event)
            case ev.RequestReceived():
                refused = leadership_queries.refusal(memory.step, memory.leadership)
                if refused is None:
                    calls.begin(memory, event)
                else:
                    memory.step.emit(Reply(event.call, refused))
            case ev.RequestCancelled():
                calls.cancel(memory.call_table, event.call)
            case ev.WriteDone() | ev.WriteFailed():
                write_results.handle(memory, event)
            case (
                ev.WorkerHello()
                | ev.WorkerHeartbeat()
                | ev.UnitReported()
                | ev.TaskConfigsMade()
                | ev.CommandReplied()
                | ev.WorkerLeft()
                | ev.PluginsChanged()
                | ev.StreamBroken()
            ):
                self._worker(event)
            case _:
                assert_never(event)

    def _worker(self, event: ev.WorkerEvent) -> None:
        memory = self._memory
        match event:
            case ev.WorkerHello():
                worker_sessions.hello(memory, event)
            case ev.WorkerHeartbeat():
                worker_sessions.heartbeat(memory.step, memory.fleet, memory.inventory, event)
            case ev.UnitReported():
                worker_sessions.reported(memory.step, memory.fleet, memory.inventory, event)
            case ev.TaskConfigsMade():
                worker_sessions.task_configs(memory.step, memory.fleet, memory.inventory, event)
            case ev.CommandReplied():
                worker_sessions.replied(memory, event)
            case ev.WorkerLeft():
                worker_sessions.leaving(memory.step, memory.agenda, memory.fleet, event)
            case ev.PluginsChanged():
                plugin_catalog.folders_changed(memory.step, memory.agenda, memory.fleet, event)
            case ev.StreamBroken():
                worker_sessions.broken(memory, event)
            case _:
                assert_never(event)

    def _tick(self) -> None:
        memory = self._memory
        late = memory.step.now - (self._tick_ms or memory.step.now)
        self._tick_ms = memory.step.now
        config_events.unpark(memory)
        calls.expire(memory)
        hedged_commands.tick(memory.step, memory.fleet, memory.call_table)
        if memory.leadership.role is not HerderRole.LEADING:
            return
        leadership_changes.abandon_used_up_epoch(memory)
        if memory.leadership.role is not HerderRole.LEADING:
            return
        worker_sessions.tick(memory, late if late >= STALL_MS else 0)
        session_keys.rotate_if_due(memory)
        memory.agenda.touch_due(memory.inventory.connectors)
        balance.tick(memory)

    def _reconcile(self) -> None:
        """Reconcile marked connectors, at most `RECONCILE_MAX`, and when none is left, place units. The leadership may
        end in between.
        """
        memory = self._memory
        adopting = memory.leadership.role is HerderRole.LEADING and leadership_queries.adopting(memory)
        if self._was_adopting and not adopting and memory.leadership.role is HerderRole.LEADING:
            memory.agenda.place_all()
            for name in memory.inventory.connectors:
                memory.agenda.touch(name)
        self._was_adopting = adopting
        gathering = adopting and leadership_queries.gathering(memory)
        if self._was_gathering and not gathering:
            memory.agenda.place_all()
        self._was_gathering = gathering
        left = RECONCILE_MAX
        memory.agenda.touch_deferred()
        while left > 0 and self.has_more_to_do:
            marked = memory.agenda.take_dirty(left)
            left -= max(1, len(marked))
            for name, tasks in marked:
                connector = memory.inventory.connectors.get(name)
                if connector is not None and memory.leadership.role is HerderRole.LEADING:
                    lifecycle.reconcile(memory, connector, tasks)
            if memory.agenda.has_dirty or memory.leadership.role is not HerderRole.LEADING:
                continue
            if memory.agenda.has_deferred:
                break  # no unit is placed before every marked connector was reconciled
            if memory.agenda.take_place_all():
                placement.place(memory)
            elif names := memory.agenda.take_place_names():
                placement.place_some(memory, names)
            if memory.agenda.has_places_to_find:
                break  # the step has reached its limit
        if memory.leadership.role is HerderRole.LEADING:
            worker_sessions.release_leavers(memory)
