"""Position of a `SparkStreamSource`: the source's own offset, stored in Connect's.

Owns the stored form of source partitions and offsets, and their check. The content of a position is the format's.

A format whose rows contain their position (Kafka's) has a position after every row.
For other formats Spark knows positions only between slices: within a slice, which
has the same rows in the same order at every read, the rows already read are counted.

Invariant: a position written and read again is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from herdmesh.sdk import ConfigError

_POSITION: Final = "position"
_END: Final = "end"
_ROWS: Final = "rows"


@dataclass(frozen=True, slots=True)
class Position:
    """Position after everything before `start`, and after `rows` rows of the slice from `start` to `end`."""

    start: str
    """The source's own offset, as JSON as in Spark's checkpoints."""
    end: str = ""
    """"" = between two slices."""
    rows: int = 0

    @classmethod
    def of(cls, offset: Mapping[str, Any] | None) -> Position | None:
        """Parse a stored offset; None = there is none. Raises
        ConfigError for an offset that Herdmesh cannot have written.
        """
        if offset is None:
            return None
        end, rows = offset.get(_END), offset.get(_ROWS)
        if (end is None) != (rows is None):
            raise ConfigError(f"The source offset {dict(offset)} needs both of '{_END}' and '{_ROWS}', or neither")
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 0):
            raise ConfigError(f"The source offset {dict(offset)} needs a number under the key '{_ROWS}'")
        start = _json_of(offset, _POSITION)
        return cls(start) if rows is None else cls(start, _json_of(offset, _END), rows)

    def offset(self) -> dict[str, Any]:
        """Return the offset to store."""
        if not self.end:
            return {_POSITION: self.start}
        return {_POSITION: self.start, _END: self.end, _ROWS: self.rows}


def check_offset(own: Mapping[str, Any], partition: Mapping[str, Any] | None, offset: Mapping[str, Any] | None) -> None:
    """Raise ConfigError unless it is an offset of the stream
    with source partition `own`; None = a deleted offset.
    """
    if partition is None:
        raise ConfigError("Source partition may not be null")
    if dict(partition) != dict(own):
        shown = msgspec.json.encode(own).decode()
        raise ConfigError(f"The source partition {dict(partition)} does not belong to this connector: write {shown}")
    Position.of(offset)


def _json_of(offset: Mapping[str, Any], key: str) -> str:
    text = offset.get(key)
    try:
        if isinstance(text, str):
            msgspec.json.decode(text, type=dict[str, Any])
            return text
    except msgspec.DecodeError:
        pass
    raise ConfigError(f"The source offset {dict(offset)} needs a string under the key '{key}': the source's own "
                      "offset, "
                      "a JSON object")  # fmt: skip
