"""One compacted Kafka topic as a small replicated store: elected and fenced writer, snapshot and watch.

Owns the public names of the library except its engines; start reading at `contract`. There are two engines:
`kafka.KafkaTopicStore(settings, initial_state, may_write=..., tuning=...)` and `memory.MemoryTopicStore(broker,
settings, initial_state, may_write=..., tuning=...)`. A service that has a store imports its engine from the engine's
module. A herder or a worker needs only revisions, so it loads neither the engines nor a Kafka client.
"""

from herdmesh.topicstore.contract import (
    KEEP_ALIVE_KEY,
    Beside,
    GroupOffset,
    NewRecord,
    Revision,
    StoredRecord,
    StoreRole,
    StoreState,
    TopicStore,
    WatchChange,
    WatchEvent,
    WatchProgress,
    WatchSnapshot,
    WriteDecision,
)
from herdmesh.topicstore.errors import (
    BesideRefused,
    BrokerUnreachable,
    ForeignWriter,
    NotApplied,
    NotAuthorized,
    NotWriter,
    QueueFull,
    RecordTooLarge,
    RevisionCompacted,
    RevisionError,
    RevisionForeign,
    RevisionInFuture,
    StartError,
    StoreClosed,
    StoreReplaying,
    TopicMisconfigured,
    TopicRecreated,
    TopicStoreError,
    WatchOverflow,
    WriteOutcomeUnknown,
    WriterFenced,
)
from herdmesh.topicstore.health import StoreCondition, StoreHealth
from herdmesh.topicstore.partitioner import partition_of
from herdmesh.topicstore.readiness import store_readiness
from herdmesh.topicstore.settings import StoreTuning, TopicSettings
from herdmesh.topicstore.stages import OnStage, WriteStage
from herdmesh.topicstore.starting import start_when_possible

__all__ = [
    "KEEP_ALIVE_KEY",
    "Beside",
    "BesideRefused",
    "BrokerUnreachable",
    "ForeignWriter",
    "GroupOffset",
    "NewRecord",
    "NotApplied",
    "NotAuthorized",
    "NotWriter",
    "OnStage",
    "QueueFull",
    "RecordTooLarge",
    "Revision",
    "RevisionCompacted",
    "RevisionError",
    "RevisionForeign",
    "RevisionInFuture",
    "StartError",
    "StoreClosed",
    "StoreCondition",
    "StoreHealth",
    "StoreReplaying",
    "StoreRole",
    "StoreState",
    "StoreTuning",
    "StoredRecord",
    "TopicMisconfigured",
    "TopicRecreated",
    "TopicSettings",
    "TopicStore",
    "TopicStoreError",
    "WatchChange",
    "WatchEvent",
    "WatchOverflow",
    "WatchProgress",
    "WatchSnapshot",
    "WriteDecision",
    "WriteOutcomeUnknown",
    "WriteStage",
    "WriterFenced",
    "partition_of",
    "start_when_possible",
    "store_readiness",
]
