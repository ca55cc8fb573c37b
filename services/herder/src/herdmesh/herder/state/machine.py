"""The herder's state machine: `handle(event, now) -> [Instruction]`, and views.

Owns the dispatch of events and the order of work within one event; the concepts stand in their own files.

Invariants: the only mutator is `handle`. No clock, no randomness, no I/O: the same events at the same times give the
same instructions. Each event ends with everything settled that can be settled now, unless so much changed at once that
one step would hold up everybody: then `unsettled` is true, and any event, `Settle` at the latest, goes on with it.
Nothing gets a place before every connector has been looked at.
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
from herdmesh.herder.state.memory import Mesh, Role
from herdmesh.herder.state.model import Plugin, RefusedPlugin, Rules
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.instructions import Instruction, RenewEpoch, Reply
from herdmesh.herder.state.units import balance, lifecycle, placement
from herdmesh.herder.state.views import views
from herdmesh.herder.state.workers import plugin_catalog
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.topicstore.contract import Revision

#: connectors looked at in one step: what many changes at once leave over is done in the next ones.
SETTLE_MAX = 150
#: a tick that comes this much late means that this process stood still, and heard nobody meanwhile.
STALL_MS = 1_000


class Herder:
    """One herder: follower or leader. `now` is milliseconds of one clock that never goes back."""

    def __init__(self, rules: Rules) -> None:
        self._mesh = Mesh(rules)
        self._tick_ms: int | None = None
        self._was_adopting = False
        self._was_gathering = False

    def handle(self, event: ev.Event, now: int) -> list[Instruction]:
        """Take in one event. Returns what is to be done, in order."""
        mesh = self._mesh
        mesh.now = max(mesh.now, now)
        if self._tick_ms is None:
            self._tick_ms = mesh.now
        if isinstance(event, ev.LeaseExtended):
            mesh.lease_until_ms = max(mesh.lease_until_ms, event.until_ms)
        elif isinstance(event, ev.LeaseShortened):
            mesh.lease_until_ms = min(mesh.lease_until_ms, event.until_ms)
        if mesh.role is not Role.FOLLOWING and mesh.now >= mesh.lease_until_ms:
            mesh.out.append(RenewEpoch(mesh.epoch, give_up=False))
            leadership_changes.step_down(mesh, "the config store did not confirm its leadership in time")
        self._dispatch(event)
        self._settle()
        return mesh.flush()

    # --- reading

    @property
    def unsettled(self) -> bool:
        """True when there is more to do at once: hand in `Settle` if nothing else comes."""
        mesh = self._mesh
        return mesh.role is Role.LEADING and bool(
            mesh.dirty or mesh.dirty_later or mesh.place_again or mesh.place_names
        )

    @property
    def refusal(self) -> HerdmeshError | None:
        """Why this herder answers nobody now; None when it leads."""
        return leadership_queries.refusal(self._mesh)

    @property
    def config_revision(self) -> Revision | None:
        """Where the config watch stands."""
        return self._mesh.config_revision

    def connector(self, name: str) -> views.ConnectorView | None:
        """One connector; None when there is none."""
        return views.connector_view(self._mesh, name)

    def name_of(self, given: str) -> str:
        """The name of the connector that a request means (`connector_names.given_name`). Raises RequestInvalid."""
        return given_name(self._mesh, given)

    def has_connector(self, name: str) -> bool:
        """True when there is a connector of that name."""
        entry = self._mesh.entries.get(name)
        return entry is not None and entry.has_config

    def connector_names(self) -> list[str]:
        """All connectors, sorted."""
        return views.names(self._mesh)

    def worker(self, worker_id: str) -> views.WorkerView | None:
        """One worker, also one that drained and left since; None when it is gone for another reason."""
        return views.worker_view(self._mesh, worker_id)

    def workers(self) -> tuple[views.WorkerView, ...]:
        """All workers, sorted by id."""
        return views.worker_views(self._mesh)

    def cluster(self) -> views.ClusterView:
        """Who leads; works on followers too."""
        return views.cluster_view(self._mesh)

    def plugins(self) -> list[Plugin]:
        """The plugins of the connected workers, sorted by class."""
        return plugin_catalog.plugins(self._mesh)

    def refused_plugins(self) -> list[tuple[RefusedPlugin, list[str]]]:
        """What connected workers found and cannot use, each with the workers that say so."""
        return plugin_catalog.refused_plugins(self._mesh)

    # --- events

    def _dispatch(self, event: ev.Event) -> None:
        mesh = self._mesh
        match event:
            case ev.Tick():
                self._tick()
            case ev.LeadershipGranted():
                leadership_changes.granted(mesh, event)
            case ev.GenerationsReserved():
                leadership_changes.reserved(mesh, event)
            case ev.LeadershipFollowing():
                leadership_changes.following(mesh, event)
            case ev.LeadershipLost():
                leadership_changes.step_down(mesh, event.reason)
            case ev.LeaseExtended() | ev.LeaseShortened():
                pass  # taken in before the check of the lease
            case ev.Settle():
                pass  # every event settles
            case (
                ev.ConfigSnapshot()
                | ev.ConfigChanged()
                | ev.ConfigProgress()
                | ev.EpochRecorded()
                | ev.RestartRecorded()
                | ev.SessionKeyRecorded()
                | ev.LoggerRecorded()
            ):
                config_events.handle(mesh, event)
            case ev.StatusSnapshot() | ev.StatusPut() | ev.StatusDeleted() | ev.LeasesChanged():
                status_events.handle(mesh, event)
            case ev.RequestReceived():
                refused = leadership_queries.refusal(mesh)
                if refused is None:
                    calls.begin(mesh, event)
                else:
                    mesh.out.append(Reply(event.call, refused))
            case ev.RequestCancelled():
                calls.cancel(mesh, event.call)
            case ev.WriteDone() | ev.WriteFailed():
                write_results.handle(mesh, event)
            case (
                ev.WorkerHello()
                | ev.WorkerHeartbeat()
                | ev.UnitReported()
                | ev.TaskConfigsMade()
                | ev.CommandReplied()
                | ev.WorkerLeft()
                | ev.PluginsTold()
                | ev.StreamBroken()
            ):
                self._worker(event)
            case _:
                assert_never(event)

    def _worker(self, event: ev.Event) -> None:
        mesh = self._mesh
        match event:
            case ev.WorkerHello():
                worker_sessions.hello(mesh, event)
            case ev.WorkerHeartbeat():
                worker_sessions.heartbeat(mesh, event)
            case ev.UnitReported():
                worker_sessions.reported(mesh, event)
            case ev.TaskConfigsMade():
                worker_sessions.task_configs(mesh, event)
            case ev.CommandReplied():
                worker_sessions.replied(mesh, event)
            case ev.WorkerLeft():
                worker_sessions.leaving(mesh, event)
            case ev.PluginsTold():
                plugin_catalog.folders_changed(mesh, event)
            case ev.StreamBroken():
                worker_sessions.broken(mesh, event)
            case _:
                raise AssertionError(f"nobody handles {event}")

    def _tick(self) -> None:
        mesh = self._mesh
        late = mesh.now - (self._tick_ms or mesh.now)
        self._tick_ms = mesh.now
        config_events.unpark(mesh)
        calls.expire(mesh)
        hedged_commands.tick(mesh)
        if mesh.role is not Role.LEADING:
            return
        leadership_changes.give_up_used_up(mesh)
        if mesh.role is not Role.LEADING:
            return
        worker_sessions.tick(mesh, late if late >= STALL_MS else 0)
        session_keys.rotate_if_due(mesh)
        mesh.touch_due()
        balance.tick(mesh)

    def _settle(self) -> None:
        """Look at the connectors that something happened to, at most `SETTLE_MAX`, and when none is left, place. A
        reign may end in between."""
        mesh = self._mesh
        adopting = mesh.role is Role.LEADING and leadership_queries.adopting(mesh)
        if self._was_adopting and not adopting and mesh.role is Role.LEADING:
            mesh.place_again = True
            for name in mesh.connectors:
                mesh.touch(name)
        self._was_adopting = adopting
        gathering = adopting and leadership_queries.gathering(mesh)
        mesh.place_again = mesh.place_again or (self._was_gathering and not gathering)
        self._was_gathering = gathering
        left = SETTLE_MAX
        mesh.touch_deferred()
        while left > 0 and self.unsettled:
            names = sorted(mesh.dirty)[:left]
            left -= max(1, len(names))
            for name, tasks in [(name, mesh.dirty.pop(name)) for name in names]:
                connector = mesh.connectors.get(name)
                if connector is not None and mesh.role is Role.LEADING:
                    lifecycle.settle(mesh, connector, tasks)
            if mesh.dirty or mesh.role is not Role.LEADING:
                continue
            if mesh.dirty_later:
                break  # nothing gets a place before everything was looked at
            if mesh.place_again:
                mesh.place_again = False
                mesh.place_names.clear()
                placement.place(mesh)
            elif mesh.place_names:
                names, mesh.place_names = mesh.place_names, set()
                placement.place_some(mesh, names)
            if mesh.place_again or mesh.place_names:
                break  # it has done what one step may
        if mesh.role is Role.LEADING:
            worker_sessions.release_leavers(mesh)
