"""Offsets of connectors, read and changed on a user's request.

Owns the Kafka calls and what is known of their outcome: `offsets` lists, alters and resets a source's, `sink_offsets`
a consumer group's. The conditions for a change are the herder's (`herder.state.calls.offset_changes`).
Invariant: an outcome that is not known is told as unknown.
"""

from __future__ import annotations

from herdmesh.worker.effects.offsets.offset_file import (
    OffsetFile,
)
from herdmesh.worker.effects.offsets.offset_forms import (
    OffsetsTold,
    Prepared,
)
from herdmesh.worker.effects.offsets.offset_write_outcome import (
    OutcomeUncertain,
)
from herdmesh.worker.effects.offsets.offsets import (
    Offsets,
)

__all__ = [
    "OffsetFile",
    "Offsets",
    "OffsetsTold",
    "OutcomeUncertain",
    "Prepared",
]
