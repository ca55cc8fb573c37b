"""Requests of a sink task about its consumer: where to read from, which partitions to pause, and when to commit.

Owns the interface that an author sees (Java: `SinkTaskContext`, docs/reference/connect/data-model.md, section 3.4). The
loop seeks and commits (`herdmesh.engine.sink.task_requests`).

Invariant: optional, and free of cost for a task that requests nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NoReturn, Protocol

PartitionId = tuple[str, int]
"""Topic and partition number, as they were read: a batch's `original_topic` and `partition`."""


class SinkReading(Protocol):
    """For any thread; each call returns at once, and is heeded before the loop next reads. What was read by then is put
    first.

    The loop does not go to rest while partitions are paused. What a run was asked for ends with it: the next begins
    with what is committed, and pauses nothing.
    """

    def assignment(self) -> frozenset[PartitionId]:
        """The partitions the task owns: from `open` to `close` of each."""
        ...

    def seek(self, offsets: Mapping[PartitionId, int]) -> None:
        """Continue reading from these offsets (Java: `offset`). No commit goes beyond them after the call; the first
        one after it goes back to them.

        Raises:
            ConnectError: the task does not own a partition, or commits its own offsets (`StagingSinkTask`,
                `LedgerSinkTask`): earlier records would be written again.
            ValueError: an offset below 0.
        """
        ...

    def pause(self, partitions: Iterable[PartitionId]) -> None:
        """Read nothing of these until `resume`. Raises ConnectError for a partition that the task does not own."""
        ...

    def resume(self, partitions: Iterable[PartitionId]) -> None:
        """Read them again; nothing for one that is not paused. Raises as `pause`."""
        ...

    def request_commit(self) -> None:
        """Commit at the next opportunity, not at the next flush interval."""
        ...

    def retry_after(self, delay_ms: int) -> None:
        """When to give the task a batch again that it refuses with RetriableError, instead of what the loop would wait
        (Java: `timeout`). Holds for one refusal. Raises ValueError for less than 0."""
        ...


class _NoReading:
    """Of a context that no loop reads for: in a test of a task alone."""

    def assignment(self) -> frozenset[PartitionId]:
        """None is owned."""
        return frozenset()

    def seek(self, offsets: Mapping[PartitionId, int]) -> None:
        """Refused."""
        _refuse()

    def pause(self, partitions: Iterable[PartitionId]) -> None:
        """Refused."""
        _refuse()

    def resume(self, partitions: Iterable[PartitionId]) -> None:
        """Refused."""
        _refuse()

    def request_commit(self) -> None:
        """Refused."""
        _refuse()

    def retry_after(self, delay_ms: int) -> None:
        """Refused."""
        _refuse()


def _refuse() -> NoReturn:
    raise RuntimeError("this context has no loop that reads for the task")


NO_READING: Final[SinkReading] = _NoReading()
