"""Progress of a source in a table: source partitions and offsets as Confluent's JDBC source writes them.

Owns their form and their check, so that a connector can be taken over from Java and returned. The SQL of the rows
after a place: each source's plan.

Invariant: a place written and read again is the same place, to the microsecond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from herdmesh.sdk import ConfigError, OffsetMap

QUERY_PARTITION: Final[Mapping[str, Any]] = {"query": "query"}
_INCREMENTING, _TIMESTAMP, _NANOS = "incrementing", "timestamp", "timestamp_nanos"
_INT64 = range(-(1 << 63), 1 << 63)


def table_partition(table: str) -> dict[str, Any]:
    """Return the source partition of a table; the order of its members matters."""
    return {"protocol": "1", "table": table}


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Position after the row with this number, this moment, or both; all None = before the first row."""

    number: int | None = None
    moment_us: int | None = None
    """Microseconds since 1970 in UTC."""

    @classmethod
    def of(cls, offset: Mapping[str, Any] | None) -> TablePlace:
        """Parse a stored offset; unknown members are ignored. Raises ConfigError for an offset that neither Herdmesh
        nor Java can have written.
        """
        if offset is None:
            return cls()
        number, ms = _number(offset, _INCREMENTING), _number(offset, _TIMESTAMP)
        nanos = _number(offset, _NANOS)
        if nanos is not None and not 0 <= nanos < 1_000_000_000:
            raise ConfigError(f"The source offset {dict(offset)} needs a number from 0 to 999999999 under '{_NANOS}'")
        if ms is None:
            return cls(number)
        # As in Java: the nanoseconds, if present, contain the whole part below the second.
        moment_us = ms * 1_000 if nanos is None else ms // 1_000 * 1_000_000 + nanos // 1_000
        return cls(number, moment_us)

    def offset(self) -> dict[str, Any] | None:
        """Return the offset as `JdbcSourceConnector` writes it; None = before the first row."""
        found: dict[str, Any] = {}
        if self.number is not None:
            found[_INCREMENTING] = self.number
        if self.moment_us is not None:
            found[_TIMESTAMP] = self.moment_us // 1_000
            found[_NANOS] = self.moment_us % 1_000_000 * 1_000
        return found or None


def _number(offset: Mapping[str, Any], key: str) -> int | None:
    value = offset.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value not in _INT64:
        raise ConfigError(f"The source offset {dict(offset)} needs a number under the key '{key}'")
    return value


def check_offset(partition: Mapping[str, Any] | None, offset: Mapping[str, Any] | None) -> None:
    """Raise ConfigError unless it is an offset of this connector,
    by its source partition; None = a deleted offset.
    """
    if partition is None:
        raise ConfigError("Source partition may not be null")
    is_table = isinstance(partition.get("table"), str) and partition.get("protocol") == "1"
    if not is_table and partition != QUERY_PARTITION:
        raise ConfigError(
            f"The source partition {dict(partition)} does not belong to this connector: write "
            f'{{"protocol": "1", "table": '
            '"database.schema.table"}, or {"query": "query"}'
        )
    if offset is not None and TablePlace.of(offset).offset() is None:
        raise ConfigError(f"The source offset {dict(offset)} has neither '{_INCREMENTING}' nor '{_TIMESTAMP}'")


def rewound(
    time_ms: int, committed: Sequence[tuple[OffsetMap | None, OffsetMap]], *, has_timestamp: bool
) -> list[tuple[OffsetMap | None, OffsetMap | None]] | None:
    """Return offsets before the first row whose moment is `time_ms` or later (`SourceConnector.offsets_at`); offsets
    that are already before it stay. None if the mode has no moments.
    """
    if not has_timestamp:
        return None
    before_us = time_ms * 1_000 - 1
    places = [(partition, TablePlace.of(offset)) for partition, offset in committed]
    return [
        (partition, replace(place, moment_us=before_us).offset())
        for partition, place in places
        if place.moment_us is not None and place.moment_us > before_us
    ]
