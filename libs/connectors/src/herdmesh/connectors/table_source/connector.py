"""Base class of source connectors that read tables, independent of the access to the database.

Owns the delivery guarantee of each mode, and altering and rewinding offsets. Each source finds and reads its tables.

Invariant: offsets have Confluent's form, so one of these sources can continue where another stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from herdmesh.connectors.common import ReadConnector
from herdmesh.connectors.table_source.offsets import check_offset, rewound
from herdmesh.connectors.table_source.settings import Mode, TableSettings
from herdmesh.sdk import Config, OffsetMap, SourceConnector

T = TypeVar("T", bound=TableSettings)


class TableSource(ReadConnector[T], SourceConnector):
    """A source with the keys and offsets of Confluent's JDBC source connector."""

    def exactly_once_support(self, config: Config) -> bool | None:
        """False for bulk mode, which has no offsets: a run that fails in the middle starts again."""
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
        """Compute offsets by the rows' timestamps, in the modes that have them."""
        return rewound(time_ms, committed, has_timestamp=self.read(config).mode.has_timestamp)
