"""The index of each connector's changes: their positions in the audit topic.

Owns an index, not the changes: they are read from the audit topic on request (`effects.history`), so a long history
costs no memory. Does not know the content of a change.

Invariant: the positions of one connector rise. The newest `changes_max` of each are kept, and at most `places_max` of
all connectors together. Beyond that each connector loses its older half; if there are still too many, the connectors
whose last change is oldest lose all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from herdmesh.topicstore.layered import Layered

CHANGES_MAX = 1_000
PLACES_MAX = 200_000


class HistoryPosition(NamedTuple):
    """One audit record: its offset, and the offset of the revision its change led to (0 = the record has none)."""

    audit_offset: int
    revision_offset: int


class HistoryIndex:
    """Positions by connector, ordered by last change, the newest last. Not thread-safe, like all state."""

    def __init__(self, changes_max: int = CHANGES_MAX, places_max: int = PLACES_MAX) -> None:
        self._changes_max = changes_max
        self._places_max = places_max
        self._places: Layered[str, tuple[HistoryPosition, ...]] = Layered()
        self._count = 0

    def add(self, connector: str, place: HistoryPosition) -> None:
        """Add the position of a change of `connector`."""
        known = self._places.get(connector, ())
        kept = (*known[-(self._changes_max - 1) :], place)
        self._places[connector] = kept
        self._count += len(kept) - len(known)
        if self._count > self._places_max:
            self._make_room()

    def _make_room(self) -> None:
        # The older half of each history goes: enough to be worth the pass over all histories, and no connector loses
        # all.
        halves = {name: places[len(places) // 2 :] for name, places in self._places.items()}
        self._count = sum(map(len, halves.values()))
        for name in list(halves):
            if self._count <= self._places_max // 2:
                break
            self._count -= len(halves.pop(name))
        self._places = Layered()
        self._places.update(halves)

    def before(self, connector: str, audit_offset: int | None, count: int) -> Sequence[HistoryPosition]:
        """Up to `count` positions below `audit_offset` (None = from the newest), newest first."""
        newest_first = reversed(self._places.get(connector, ()))
        found = [place for place in newest_first if audit_offset is None or place.audit_offset < audit_offset]
        return found[:count]

    def at(self, connector: str, revision_offset: int) -> Sequence[int]:
        """Audit offsets of the changes that led to this offset, newest first. There is more than one only where the
        config topic was created again beside an older audit topic: the records name their store.
        """
        places = reversed(self._places.get(connector, ()))
        return [place.audit_offset for place in places if place.revision_offset == revision_offset]

    def copy(self) -> HistoryIndex:
        """An independent copy that shares the positions."""
        copied = HistoryIndex(self._changes_max, self._places_max)
        copied._places = self._places.copy()
        copied._count = self._count
        return copied
