"""The settings of a topic store.

Owns two frozen dataclasses: `TopicSettings` (which topic, which identities; a service fills it from its own settings)
and `StoreTuning` (times and limits; tests shorten them). Reads no environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MURMUR2_RANDOM = "murmur2_random"

MIN_COMPACTION_LAG = "min.compaction.lag.ms"
MAX_MESSAGE_BYTES = "max.message.bytes"
MAX_MESSAGE_BYTES_DEFAULT = 1_048_588
#: Of topics we make, unless told otherwise. Half of it is how long before a restart a watch can be resumed.
_MIN_COMPACTION_LAG_MS = 3_600_000


def _no_configs() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """One store's topic and the identities it takes there. The memory engine ignores what only a broker needs.

    Invariant: everyone who may write one topic uses the same `transactional_id`, because that is the fence.
    """

    topic: str
    #: Fences every earlier writer: `connect-cluster-<group.id>` or `herdmesh-status-<group.id>`.
    transactional_id: str
    #: Consumer group in which owning the last partition of `topic` means being the one to write.
    election_group: str
    partitions: int = 1
    bootstrap_servers: str = ""
    #: Of topics this store creates; -1 = the broker's default.
    replication_factor: int = -1
    #: Further settings of a topic this store creates. `cleanup.policy` is always `compact`.
    topic_configs: Mapping[str, str] = field(default_factory=_no_configs)
    #: Second topic written in the same transactions: one partition, not compacted. None = there is none.
    audit_topic: str | None = None
    #: Further settings of an audit topic this store creates. `cleanup.policy` is always `delete`.
    audit_topic_configs: Mapping[str, str] = field(default_factory=_no_configs)
    #: For every Kafka client (security, timeouts). What fencing and byte layout rest on cannot be overridden.
    client_configs: Mapping[str, str] = field(default_factory=_no_configs, repr=False)
    #: Client ids are `<client_id_base>-reader`, `-writer`, `-election`, `-admin`.
    client_id_base: str = "herdmesh"
    #: How long the broker waits for a silent writer before it elects another. 6 s is the least a broker usually allows.
    session_timeout_ms: int = 6_000
    #: The others learn by their next heartbeat that a writer left: this bounds how long a clean take-over takes.
    heartbeat_interval_ms: int = 250
    #: The broker aborts a transaction left open this long; also bounds how long a record may wait to be delivered.
    transaction_timeout_ms: int = 10_000
    #: Longest time one `start()` looks for a broker; it may be called again.
    start_timeout_ms: int = 5_000

    @property
    def own_topic_configs(self) -> Mapping[str, str]:
        """Settings of the topic when this store creates it."""
        return {MIN_COMPACTION_LAG: str(_MIN_COMPACTION_LAG_MS), **self.topic_configs, "cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True)
class StoreTuning:
    """Times and limits of the engine, the same for Kafka and memory."""

    #: A group commit takes what came within this time (when there was more than one write in the group before it) ...
    group_commit_ms: float = 2.0
    #: ... or so many records, whichever is first. One write larger than this has a transaction of its own.
    group_commit_records: int = 500
    #: Writes waiting, in flight or being re-checked; one more is `QueueFull`.
    pending_writes_max: int = 10_000
    #: How long a confirmed commit may stay unread, or the end of the log in a take-over, before this replica takes
    #: over anew, which ends what a broker left without a marker (ADR 0006).
    read_back_ms: int = 5_000
    #: After a commit whose answer was lost: how long to look for the outcome before `WriteOutcomeUnknown`.
    outcome_timeout_ms: int = 15_000
    #: Changes remembered for watches that resume.
    change_memory: int = 10_000
    #: Changes a watcher may be behind before it is cut off.
    watcher_lag_max: int = 1_000
    #: How long a write is held back while most watchers are behind by half of that, so that they catch up.
    crowded_wait_ms: int = 500
    #: An idle watcher is told the revision this often.
    progress_interval_ms: int = 5_000
    #: `may_write` said no: ask again after this time.
    may_write_interval_ms: int = 1_000
    #: Whether the topics are still the ones opened, as they must be and allowed, is looked at this often. So long a
    #: topic made anew with more records than the old one can go unnoticed.
    topic_check_interval_ms: int = 2_000
    #: Pause before taking over again after being cut off; doubles up to `take_over_backoff_ms_max`.
    take_over_backoff_ms: int = 100
    take_over_backoff_ms_max: int = 5_000
    #: A writer writes a record of its own this often, so that Kafka, which forgets an identity that was not used for a
    #: week (`transactional.id.expiration.ms`), never forgets the writer's.
    keep_alive_ms: int = 86_400_000
    #: Each stage of `close()` is given at most this long.
    close_stage_ms: int = 2_000
