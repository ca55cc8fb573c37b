"""Requests of a sink task to its loop (pause, seek, commit), until the loop carries them out
(`connect.spi.sink_requests`).

Owns the requests, and the set of paused partitions. Has no Kafka client: the loop moves its consumer
(`sink_assignment`) and commits (`sink_commits`).

Invariant: any thread may make requests; only the loop's thread takes them, each once, in the order of their calls. A
request about a partition that was released meanwhile is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConnectError
from herdmesh.connect.spi import PartitionId, SinkTask, StagingSinkTask
from herdmesh.engine.runtime import TaskFailed
from herdmesh.engine.sink.ledger import LedgerSinkTask


@dataclass(slots=True)
class Wishes:
    """The requests since the loop last took them."""

    seeks: dict[PartitionId, int] = field(default_factory=dict[PartitionId, int])
    pauses: dict[PartitionId, bool] = field(default_factory=dict[PartitionId, bool])
    """True = pause, False = resume."""


class SinkTaskRequests:
    """The requests of one run. The task's side is `SinkReading`; the rest is for the loop."""

    def __init__(self, task: SinkTask) -> None:
        """Raises TaskFailed: FATAL, for a task with a `pre_commit` that is never called."""
        self._owner = position_owner(task)
        if self._owner and type(task).pre_commit is not SinkTask.pre_commit:
            raise TaskFailed(
                f"{type(task).__name__} has a pre_commit, which is never called for a {self._owner}: the records that "
                "it stages or writes are committed; extend SinkTask, or remove pre_commit",
                ErrorClass.FATAL,
            )
        self._lock = Lock()
        self._assigned = frozenset[PartitionId]()
        self._wishes = Wishes()
        self._retry_after_ms: int | None = None
        self.asks = False
        """There are requests to take. Read without the lock, once per turn of the loop."""
        self.wants_commit = False
        self.paused: set[PartitionId] = set()
        """The partitions that are paused in the consumer; only the loop changes it."""

    # --- the task's side

    def assignment(self) -> frozenset[PartitionId]:
        """See `SinkReading`."""
        return self._assigned

    def seek(self, offsets: Mapping[PartitionId, int]) -> None:
        """See `SinkReading`."""
        if self._owner:
            raise ConnectError(
                f"a {self._owner} cannot seek: it was given these records before, and would write them again; alter "
                "the offsets while the connector is stopped"
            )
        if wrong := {partition: offset for partition, offset in offsets.items() if offset < 0}:
            raise ValueError(f"offsets must be 0 or more: {wrong}")
        with self._lock:
            self._refuse_foreign(offsets)
            self._wishes.seeks.update(offsets)
            self.asks = True

    def pause(self, partitions: Iterable[PartitionId]) -> None:
        """See `SinkReading`."""
        self._pause(partitions, is_pause=True)

    def resume(self, partitions: Iterable[PartitionId]) -> None:
        """See `SinkReading`."""
        self._pause(partitions, is_pause=False)

    def request_commit(self) -> None:
        """See `SinkReading`."""
        self.wants_commit = True

    def retry_after(self, delay_ms: int) -> None:
        """See `SinkReading`."""
        if delay_ms < 0:
            raise ValueError(f"a delay must be 0 ms or more, not {delay_ms}")
        self._retry_after_ms = delay_ms

    def _pause(self, partitions: Iterable[PartitionId], *, is_pause: bool) -> None:
        named = list(partitions)
        with self._lock:
            self._refuse_foreign(named)
            self._wishes.pauses.update(dict.fromkeys(named, is_pause))
            self.asks = True

    def _refuse_foreign(self, partitions: Iterable[PartitionId]) -> None:
        foreign = sorted(set(partitions) - self._assigned)
        if foreign:
            shown = ", ".join(f"{topic}-{number}" for topic, number in foreign)
            raise ConnectError(f"the task does not own {shown}; open names the partitions that it owns")

    # --- the loop's side

    def assign(self, partitions: Iterable[PartitionId]) -> None:
        """Set the task's partitions."""
        with self._lock:
            self._assigned = frozenset(partitions)
            self.paused &= self._assigned

    def take(self) -> Wishes:
        """Take the requests about partitions that the task still has."""
        with self._lock:
            found, self._wishes, self.asks = self._wishes, Wishes(), False
            found.seeks = {one: offset for one, offset in found.seeks.items() if one in self._assigned}
            found.pauses = {one: is_pause for one, is_pause in found.pauses.items() if one in self._assigned}
        return found

    def take_retry_after_ms(self) -> int | None:
        """Take the delay before the retry of a batch that the task just refused; None = the task set none."""
        found, self._retry_after_ms = self._retry_after_ms, None
        return found


def position_owner(task: SinkTask) -> str:
    """The class of a task whose own writes determine the committed offsets; "" = the loop determines them."""
    if isinstance(task, StagingSinkTask):
        return StagingSinkTask.__name__
    return LedgerSinkTask.__name__ if isinstance(task, LedgerSinkTask) else ""
