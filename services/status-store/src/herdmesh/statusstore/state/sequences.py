"""The order in which each writer process sent its requests: an abandoned request must not overwrite a later one.

Owns, per writer process and status, the sequence of the latest request decided. Connect orders the puts of one key in
the process that sends them (docs/reference/connect/status-topic.md, section 4.1: `entry.sequence`). Ours come by RPC: a
call that its caller abandoned can still be in flight, or wait here to be decided again, when the caller's next call is
decided. Across a fail-over the fence has the same effect: the old writer cannot commit any pending write.

Invariant: for one process and status, no put is admitted after one of a later request. Only this process's memory is
needed, and it is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: Maximum number of writer processes, and of statuses of each, that are kept; the least recently used are discarded
#: first.
WRITERS_KEPT: Final = 10_000
KEYS_KEPT: Final = 10_000

Key = tuple[str, int | None]


class Sequences:
    """The latest sequences; one instance per process that may write."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str], dict[Key, int]] = {}

    def late(self, worker_id: str, incarnation: str, sequence: int, keys: Iterable[Key]) -> frozenset[Key]:
        """Those of `keys` for which a later request was decided before; this request counts as decided for the others.
        May be called again for one request; the result then includes decisions made since.
        """
        if sequence <= 0:
            return frozenset()
        writer = (worker_id, incarnation)
        latest = self._latest.pop(writer, {})
        self._latest[writer] = latest
        late: set[Key] = set()
        for key in keys:
            if latest.get(key, 0) > sequence:
                late.add(key)
            else:
                latest.pop(key, None)
                latest[key] = sequence
        while len(latest) > KEYS_KEPT:
            del latest[next(iter(latest))]
        while len(self._latest) > WRITERS_KEPT:
            del self._latest[next(iter(self._latest))]
        return frozenset(late)
