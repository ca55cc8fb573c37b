"""Requests of concurrent clients to a store, and the answers: the record that the checkers judge.

Owns `Operation` and the recorder. Knows no store: a key is a connector, a value is the text of one write, unique in a
history, so a reader of a value knows which write it belongs to. `None` as a value is absence.

Invariant: an operation that was called is in the history, whatever happened to it; until its answer is known it counts
as UNKNOWN, which may take effect at any later time or never.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """Kind of a request. A write may also demand a value (`Operation.expected`), which is compare-and-set."""

    PUT = "put"  # value None: erase any value
    CREATE = "create"  # must not exist
    UPDATE = "update"  # must exist
    DELETE = "delete"  # must exist
    READ = "read"  # linearizable


class Outcome(Enum):
    """Outcome as far as the client may rely on it."""

    OK = "ok"
    REFUSED = "refused"  # decided, not applied, and `seen` is the reason
    NOT_APPLIED = "not applied"  # the store promised that nothing happened
    UNKNOWN = "unknown"


class Seen(Enum):
    """Hint of an answer about the value, where it does not contain the value itself."""

    NOTHING = "nothing"
    PRESENT = "some value"
    NOT_EXPECTED = "another value than the expected one"


@dataclass(slots=True)
class Operation:
    """One logical request of one client: retries with the same `request_id` are one operation.

    Times are of any clock that all clients share. `expected` is the value a compare-and-set demands (a client knows a
    revision only with its value). `seen` is the value a READ found, or the hint of a refusal about it. `created` is the
    answer of a PUT about the moment before. `revision` is the offset after the write's own record, by its answer; for a
    mismatch the revision found instead, 0 for none.
    """

    number: int
    client: str
    key: str
    kind: Kind
    invoked: float
    value: str | None = None
    expected: str | None = None
    request_id: str = ""
    returned: float = math.inf
    outcome: Outcome = Outcome.UNKNOWN
    seen: str | Seen | None = Seen.NOTHING
    created: bool | None = None
    revision: int | None = None
    replica: str = ""
    attempts: int = 1
    detail: str = ""

    @property
    def writes(self) -> bool:
        return self.kind is not Kind.READ

    def __str__(self) -> str:
        asked = f"{self.kind.value} {self.value!r}" if self.writes else "read"
        when = f"[{self.invoked:.4f}, {self.returned:.4f}]"
        expects = f" over {self.expected!r}" if self.expected is not None else ""
        saw = "" if self.seen is Seen.NOTHING else f" saw {self.seen!r}"
        return (
            f"#{self.number} {self.client} {self.key}: {asked}{expects} {when} {self.outcome.value}{saw} {self.detail}"
        )


@dataclass(slots=True)
class Read:
    """One snapshot a client got: `values` of all keys (config text, None left out) at `revision`.

    `demanded` is the revision the client requested, `linearizable` whether it requested a linearizable read. `replica`
    names one life of one process: it changes when the process is started again.
    """

    client: str
    replica: str
    invoked: float
    returned: float
    revision: tuple[int, ...]
    values: dict[str, str]
    demanded: tuple[int, ...] | None = None
    linearizable: bool = False


class History:
    """The recorder. `now()` is the clock of all clients."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.operations: list[Operation] = []
        self.reads: list[Read] = []
        self.watches: list[WatchLog] = []

    def invoke(
        self,
        client: str,
        key: str,
        kind: Kind,
        *,
        value: str | None = None,
        expected: str | None = None,
        request_id: str = "",
    ) -> Operation:
        """Record that the client is about to send a request."""
        operation = Operation(
            len(self.operations), client, key, kind, self._now(), value, expected=expected, request_id=request_id
        )
        self.operations.append(operation)
        return operation

    def finish(self, operation: Operation, outcome: Outcome, *, detail: str = "") -> None:
        """Record the outcome, or that the client stops waiting (UNKNOWN: the operation has no end)."""
        operation.outcome = outcome
        operation.detail = detail
        if outcome is not Outcome.UNKNOWN:
            operation.returned = self._now()

    def of_key(self, key: str) -> Iterator[Operation]:
        """Operations on one key, in order of invocation."""
        return (operation for operation in self.operations if operation.key == key)

    @property
    def keys(self) -> list[str]:
        return list(dict.fromkeys(operation.key for operation in self.operations))


@dataclass(slots=True)
class Told:
    """One change event of a watch: the key, its value after it (None: removed), and the revision to resume from."""

    key: str
    value: str | None
    revision: tuple[int, ...]


@dataclass(slots=True)
class WatchLog:
    """All events one watcher got, over all replicas it was attached to.

    Each `Listing` begins with a snapshot; the changes after it, resumed across replicas or not, belong to it.
    """

    client: str
    listings: list[Listing] = field(default_factory=lambda: list[Listing]())
    resumed: int = 0
    cut_off: int = 0

    @property
    def told(self) -> int:
        return sum(len(listing.changes) for listing in self.listings)


@dataclass(slots=True)
class Listing:
    """A snapshot at `revision` and the changes after it; `last` is the latest revision received."""

    revision: tuple[int, ...]
    values: dict[str, str]
    last: tuple[int, ...]
    changes: list[Told] = field(default_factory=lambda: list[Told]())
