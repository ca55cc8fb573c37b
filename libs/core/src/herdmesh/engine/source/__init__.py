"""The loop of a source task: poll, convert, produce, commit offsets.

Owns transaction boundaries, source offsets and the topics that a source creates.
Invariant: the stored offset of a source never passes a record that is not delivered.
"""

from __future__ import annotations

from herdmesh.engine.source.record_check import (
    check_given,
)
from herdmesh.engine.source.source_cluster import (
    BEGINNING,
    PlaceLost,
    SourceCluster,
    SourceClusterReader,
)
from herdmesh.engine.source.source_loop import (
    SourceLoop,
)
from herdmesh.engine.source.source_offsets import (
    SourceOffsets,
)
from herdmesh.engine.source.unstable_offsets import (
    OpenTransactionScan,
)

__all__ = [
    "BEGINNING",
    "OpenTransactionScan",
    "PlaceLost",
    "SourceCluster",
    "SourceClusterReader",
    "SourceLoop",
    "SourceOffsets",
    "check_given",
]
