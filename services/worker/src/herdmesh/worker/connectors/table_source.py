"""What sources of tables share, whichever way they reach their database.

Owns what a mode promises, and that offsets are Confluent's. Which tables there are, and reading them, is each one's.

Invariant: who takes such a source over from another of them goes on with its offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from herdmesh.sdk import Config, OffsetMap, SourceConnector
from herdmesh.worker.connectors.common import ReadConnector
from herdmesh.worker.connectors.postgres.source_config import Mode
from herdmesh.worker.connectors.postgres.source_place import check_offset, rewound


class TableSettings(Protocol):
    """A configuration, read."""

    @property
    def mode(self) -> Mode:
        """How new rows are told from those that were read."""
        ...


T = TypeVar("T", bound=TableSettings)


class TableSource(ReadConnector[T], SourceConnector):
    """A source in the words of Confluent's JDBC source connector."""

    def exactly_once_support(self, config: Config) -> bool | None:
        """Not of bulk, which has no offsets: a run that dies in the middle begins anew."""
        return self.answer_from(config, lambda settings: settings.mode is not Mode.BULK)

    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        for partition, offset in offsets:
            check_offset(partition, offset)
        return True

    def offsets_at(
        self, config: Config, time_ms: int, committed: Sequence[tuple[OffsetMap | None, OffsetMap]]
    ) -> Sequence[tuple[OffsetMap | None, OffsetMap | None]] | None:
        """By the rows' moments, in the modes that have them."""
        return rewound(time_ms, committed, has_timestamp=self.read(config).mode.has_timestamp)
