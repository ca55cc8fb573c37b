"""Store views part of a herder's memory: its copies of the config store and the status store, from the watches.

Owns the copies and their revision. Does not own the reaction to a change (`handlers.config_events`,
`handlers.status_events`).

Invariant: nothing here is a decision of this herder. It outlives the epoch: a follower keeps reading, for the time when
it leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from herdmesh.herder.state.model import ClusterLevel, ConnectorEntry, Lease, StatusEntry
from herdmesh.session.model import UnitId
from herdmesh.topicstore.contract import Revision

#: Cluster-wide logger levels that are kept.
LEVELS_MAX = 1_000
_NO_STATUSES: Mapping[int | None, StatusEntry] = {}


class StoreViews:
    """Store copies of one herder."""

    def __init__(self) -> None:
        self._entries: dict[str, ConnectorEntry] = {}
        #: by connector, its entry in the config store.
        self.entries: Mapping[str, ConnectorEntry] = self._entries
        self._config_revision: Revision | None = None
        self._epoch_seen = 0
        self._logger_levels: dict[str, ClusterLevel] = {}
        #: entries that look like a foreign writer's, and since when: see `config_events.FOREIGN_SETTLE_MS`.
        self._parked: dict[str, tuple[ConnectorEntry, int]] = {}
        self._statuses: dict[str, dict[int | None, StatusEntry]] = {}
        #: by connector and task (None = the connector itself), the statuses of the status store.
        self.statuses: Mapping[str, Mapping[int | None, StatusEntry]] = self._statuses
        self._statuses_known = False
        self._leases: dict[str, Lease] = {}
        self._leases_known = False

    # --- config store

    def configured(self, name: str) -> ConnectorEntry | None:
        """The entry of a connector that has a config; None when there is no such connector."""
        entry = self._entries.get(name)
        return entry if entry is not None and entry.has_config else None

    def set_entry(self, name: str, entry: ConnectorEntry | None) -> None:
        """Store the entry of a connector; None = the config store has nothing of it any more."""
        self._parked.pop(name, None)
        if entry is None:
            self._entries.pop(name, None)
        else:
            self._entries[name] = entry

    def park(self, entry: ConnectorEntry, since_ms: int) -> None:
        """Set an entry aside that looks like a foreign writer's."""
        self._parked[entry.name] = (entry, since_ms)

    def parked_until(self, since_ms: int) -> list[ConnectorEntry]:
        """The entries that were set aside at that time or before."""
        return [entry for entry, parked_ms in self._parked.values() if parked_ms <= since_ms]

    @property
    def has_parked(self) -> bool:
        """True while an entry is set aside."""
        return bool(self._parked)

    @property
    def config_revision(self) -> Revision | None:
        """The position of the config watch; None = it has brought nothing."""
        return self._config_revision

    def set_revision(self, revision: Revision) -> None:
        """The config watch has reached `revision`."""
        self._config_revision = revision

    def applied(self, revision: Revision | None) -> bool:
        """True when the config watch has reached `revision`."""
        if revision is None:
            return True
        return self._config_revision is not None and self._config_revision.includes(revision)

    @property
    def epoch_seen(self) -> int:
        """The newest epoch of the config topic."""
        return self._epoch_seen

    def set_epoch(self, epoch: int) -> None:
        """The config topic has a record of this epoch."""
        self._epoch_seen = epoch

    @property
    def logger_levels(self) -> Mapping[str, ClusterLevel]:
        """Cluster-wide logger levels, in the order they were set."""
        return self._logger_levels

    @property
    def newest_logger_level(self) -> ClusterLevel | None:
        """The level that was set last; None = none was set."""
        return next(reversed(self._logger_levels.values()), None)

    def set_logger_level(self, level: ClusterLevel) -> None:
        """A cluster-wide level was set, later than all known ones."""
        self._logger_levels.pop(level.logger, None)
        self._logger_levels[level.logger] = level
        while len(self._logger_levels) > LEVELS_MAX:
            del self._logger_levels[next(iter(self._logger_levels))]

    # --- status store

    def statuses_of(self, connector: str) -> Mapping[int | None, StatusEntry]:
        """The statuses of a connector and its tasks."""
        return self._statuses.get(connector, _NO_STATUSES)

    def status_of(self, unit: UnitId) -> StatusEntry | None:
        """The status of one unit; None = the store has none."""
        return self._statuses.get(unit.connector, _NO_STATUSES).get(unit.task)

    def replace_statuses(self, statuses: Iterable[StatusEntry]) -> set[str]:
        """The status watch has read everything. Returns the connectors that have statuses, or had."""
        names = set(self._statuses)
        self._statuses.clear()
        for status in statuses:
            self._statuses.setdefault(status.unit.connector, {})[status.unit.task] = status
        self._statuses_known = True
        return names | set(self._statuses)

    def put_status(self, status: StatusEntry) -> StatusEntry | None:
        """The status of a unit changed. Returns the previous one."""
        of_connector = self._statuses.setdefault(status.unit.connector, {})
        before, of_connector[status.unit.task] = of_connector.get(status.unit.task), status
        return before

    def delete_status(self, unit: UnitId) -> StatusEntry | None:
        """The status of a unit was deleted. Returns the previous one."""
        of_connector = self._statuses.get(unit.connector, {})
        before = of_connector.pop(unit.task, None)
        if not of_connector:
            self._statuses.pop(unit.connector, None)
        return before

    @property
    def leases(self) -> Mapping[str, Lease]:
        """Leases of the status store, by worker."""
        return self._leases

    def set_leases(self, leases: Iterable[Lease]) -> bool:
        """The status store's leases changed. True when they were unknown before."""
        self._leases = {lease.worker_id: lease for lease in leases}
        first, self._leases_known = not self._leases_known, True
        return first

    def lease_lives(self, worker_id: str, incarnation: str) -> bool:
        """True when the lease of that incarnation is live (of any incarnation when `incarnation` is unknown)."""
        lease = self._leases.get(worker_id)
        return lease is not None and lease.live and incarnation in ("", lease.incarnation)

    @property
    def leases_known(self) -> bool:
        """True once the status store's leases were read."""
        return self._leases_known

    @property
    def status_store_read(self) -> bool:
        """True once statuses and leases were read: before, a unit may run on a worker without our knowledge."""
        return self._statuses_known and self._leases_known

    @property
    def statuses_known(self) -> bool:
        """True once the statuses were read."""
        return self._statuses_known
