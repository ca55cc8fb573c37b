"""Offsets of connectors, read and changed on request.

Owns the Kafka calls and the outcome of a change: `offsets` reads, alters and resets a source's offsets, `sink_offsets`
a consumer group's. The herder has the conditions for a change (`herder.state.calls.offset_changes`).
Invariant: an unknown outcome is reported as unknown.
"""

from __future__ import annotations

from herdmesh.worker.effects.offsets.offset_file import (
    OffsetFile,
)
from herdmesh.worker.effects.offsets.offset_forms import (
    OffsetsResult,
    Prepared,
)
from herdmesh.worker.effects.offsets.offset_write_outcome import (
    OutcomeUnknown,
)
from herdmesh.worker.effects.offsets.offsets import (
    Offsets,
)

__all__ = [
    "OffsetFile",
    "Offsets",
    "OffsetsResult",
    "OutcomeUnknown",
    "Prepared",
]
