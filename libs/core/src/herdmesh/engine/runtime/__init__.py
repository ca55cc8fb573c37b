"""Contract of a run and the small parts that every loop shares.

Owns the types between a worker and a run (`contract`), its commands, settings, rate limits, counters, the progress
ticks that a watchdog reads, and the classification of errors. Creates no Kafka client. Invariant: imports no other room
of the engine.
"""

from __future__ import annotations

from herdmesh.engine.runtime.background_call import (
    BackgroundCall,
)
from herdmesh.engine.runtime.contract import (
    PRODUCED_MAX,
    Command,
    EndWarmRun,
    PartitionProgress,
    ProgressReport,
    Properties,
    Rate,
    RunEnd,
    RunLink,
    RunOutcome,
    RunSpans,
    RunSpec,
    Share,
    Stop,
    TaskKind,
    TaskSetClaim,
)
from herdmesh.engine.runtime.errors import (
    ForeignMembers,
    LedgerTaken,
    ManifestInvalid,
    OffsetsLost,
    TaskFailed,
    TaskFenced,
)
from herdmesh.engine.runtime.failpoints import (
    NAMES,
)
from herdmesh.engine.runtime.failure import (
    MESSAGE_CHARS_MAX,
    as_exceptions,
    classify,
    classify_kafka,
    error_class,
    is_fenced,
    message_of,
    note_error,
    shortened,
    watch_brokers,
)
from herdmesh.engine.runtime.gc_schedule import (
    GcSchedule,
)
from herdmesh.engine.runtime.limits import (
    RateLimits,
)
from herdmesh.engine.runtime.loop_waits import (
    LoopWaits,
    kafka,
    no_topic,
)
from herdmesh.engine.runtime.measures import (
    LATENCY_BOUNDS_MS,
    Latency,
    Measures,
    MeasureSpread,
)
from herdmesh.engine.runtime.meter import (
    Meter,
)
from herdmesh.engine.runtime.run_commands import (
    RunCommands,
)
from herdmesh.engine.runtime.settings import (
    FETCH_PARTITION_BYTES,
    OFFSETS_MISSING,
    ClientConfig,
    SinkSettings,
    SourceSettings,
    access_of,
    offsets_topic_settings,
    sink_settings,
    source_settings,
)

__all__ = [
    "FETCH_PARTITION_BYTES",
    "LATENCY_BOUNDS_MS",
    "MESSAGE_CHARS_MAX",
    "NAMES",
    "OFFSETS_MISSING",
    "PRODUCED_MAX",
    "BackgroundCall",
    "ClientConfig",
    "Command",
    "EndWarmRun",
    "ForeignMembers",
    "GcSchedule",
    "Latency",
    "LedgerTaken",
    "LoopWaits",
    "ManifestInvalid",
    "MeasureSpread",
    "Measures",
    "Meter",
    "OffsetsLost",
    "PartitionProgress",
    "ProgressReport",
    "Properties",
    "Rate",
    "RateLimits",
    "RunCommands",
    "RunEnd",
    "RunLink",
    "RunOutcome",
    "RunSpans",
    "RunSpec",
    "Share",
    "SinkSettings",
    "SourceSettings",
    "Stop",
    "TaskFailed",
    "TaskFenced",
    "TaskKind",
    "TaskSetClaim",
    "access_of",
    "as_exceptions",
    "classify",
    "classify_kafka",
    "error_class",
    "is_fenced",
    "kafka",
    "message_of",
    "no_topic",
    "note_error",
    "offsets_topic_settings",
    "shortened",
    "sink_settings",
    "source_settings",
    "watch_brokers",
]
