"""Requests of a sink task about its consumer: offsets to read from, partitions to pause, and commits.

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
    """Consumer requests of a sink task. Callable from any thread; each call returns at once, and the loop applies the
    request before it next reads. Records read before that are put first.

    A run does not end as idle while partitions are paused. Requests end with their run: the next run begins at the
    committed offsets and with no paused partition.
    """

    def assignment(self) -> frozenset[PartitionId]:
        """The partitions that the task owns: each from its `open` to its `close`."""
        ...

    def seek(self, offsets: Mapping[PartitionId, int]) -> None:
        """Continue reading from these offsets (Java: `offset`). After the call no commit goes beyond them; the first
        commit after it goes back to them.

        Raises:
            ConnectError: the task does not own a partition, or commits its own offsets (`StagingSinkTask`,
                `LedgerSinkTask`) and would write earlier records again.
            ValueError: an offset below 0.
        """
        ...

    def pause(self, partitions: Iterable[PartitionId]) -> None:
        """Stop reading these partitions until `resume`. Raises ConnectError for a partition that the task does not
        own."""
        ...

    def resume(self, partitions: Iterable[PartitionId]) -> None:
        """Continue reading these partitions; no effect for a partition that is not paused. Raises ConnectError for a
        partition that the task does not own.
        """
        ...

    def request_commit(self) -> None:
        """Commit at the next opportunity, not at the next flush interval."""
        ...

    def retry_after(self, delay_ms: int) -> None:
        """Set the delay after which the loop calls `put` again with a batch that the task refused with RetriableError,
        in place of the loop's own backoff (Java: `timeout`). Valid for one refusal. Raises ValueError for less than 0.
        """
        ...


class _NoReading:
    """Placeholder in a context without a record loop, as in a test of a task alone."""

    def assignment(self) -> frozenset[PartitionId]:
        """Returns no partition."""
        return frozenset()

    def seek(self, offsets: Mapping[PartitionId, int]) -> None:
        """Raises RuntimeError."""
        _refuse()

    def pause(self, partitions: Iterable[PartitionId]) -> None:
        """Raises RuntimeError."""
        _refuse()

    def resume(self, partitions: Iterable[PartitionId]) -> None:
        """Raises RuntimeError."""
        _refuse()

    def request_commit(self) -> None:
        """Raises RuntimeError."""
        _refuse()

    def retry_after(self, delay_ms: int) -> None:
        """Raises RuntimeError."""
        _refuse()


def _refuse() -> NoReturn:
    raise RuntimeError("this context has no loop that reads for the task")


NO_READING: Final[SinkReading] = _NoReading()
