"""One compacted Kafka topic as a small replicated store: elected and fenced writer, snapshot and watch.

Owns the public names of the library but its engines; start reading at `contract`. Two engines keep it:
`kafka.KafkaTopicStore(settings, initial_state, may_write=..., tuning=...)` and
`memory.MemoryTopicStore(broker, settings, initial_state, may_write=..., tuning=...)`. They are imported from there by
who has a store: a herder and a worker, which know revisions, load neither them nor a Kafka client for it.
"""

from herdmesh.topicstore.contract import (
    KEEP_ALIVE_KEY,
    Beside,
    Decision,
    GroupOffset,
    NewRecord,
    Revision,
    Role,
    StoredRecord,
    StoreState,
    TopicStore,
    WatchChange,
    WatchEvent,
    WatchProgress,
    WatchSnapshot,
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
from herdmesh.topicstore.health import Condition, StoreHealth
from herdmesh.topicstore.partitioner import partition_of
from herdmesh.topicstore.settings import StoreTuning, TopicSettings
from herdmesh.topicstore.stages import OnStage, Stage
from herdmesh.topicstore.starting import start_when_possible

__all__ = [
    "KEEP_ALIVE_KEY",
    "Beside",
    "BesideRefused",
    "BrokerUnreachable",
    "Condition",
    "Decision",
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
    "Role",
    "Stage",
    "StartError",
    "StoreClosed",
    "StoreHealth",
    "StoreReplaying",
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
    "WriteOutcomeUnknown",
    "WriterFenced",
    "partition_of",
    "start_when_possible",
]
