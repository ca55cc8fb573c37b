"""The settings of a topic store.

Owns two frozen dataclasses: `TopicSettings` (topic and identities; a service fills it from its own settings) and
`StoreTuning` (times and limits; tests shorten them). Reads no environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MURMUR2_RANDOM = "murmur2_random"

MIN_COMPACTION_LAG = "min.compaction.lag.ms"
MAX_MESSAGE_BYTES = "max.message.bytes"
MAX_MESSAGE_BYTES_DEFAULT = 1_048_588
#: Default for topics that the store creates. A watch from before a restart can be resumed within half of this time.
_MIN_COMPACTION_LAG_MS = 3_600_000


def _no_configs() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """One store's topic and its identities there. The memory engine ignores settings that only a broker needs.

    Invariant: all writers of one topic use the same `transactional_id`, because that is the fence.
    """

    topic: str
    #: Transactional id that fences every earlier writer: `connect-cluster-<group.id>` or `herdmesh-status-<group.id>`.
    transactional_id: str
    #: Consumer group in which the owner of the last partition of `topic` is the writer.
    election_group: str
    partitions: int = 1
    bootstrap_servers: str = ""
    #: Replication factor of topics that this store creates; -1 = the broker's default.
    replication_factor: int = -1
    #: Further settings of a topic that this store creates. `cleanup.policy` is always `compact`.
    topic_configs: Mapping[str, str] = field(default_factory=_no_configs)
    #: Second topic written in the same transactions: one partition, not compacted. None = no audit topic.
    audit_topic: str | None = None
    #: Further settings of an audit topic that this store creates. `cleanup.policy` is always `delete`.
    audit_topic_configs: Mapping[str, str] = field(default_factory=_no_configs)
    #: Settings of every Kafka client (security, timeouts). Those that fencing and byte layout depend on cannot be
    #: overridden.
    client_configs: Mapping[str, str] = field(default_factory=_no_configs, repr=False)
    #: Client ids are `<client_id_base>-reader`, `-writer`, `-election`, `-admin`.
    client_id_base: str = "herdmesh"
    #: How long the broker waits for heartbeats of a writer before it elects another. 6 s is the usual minimum of a
    #: broker.
    session_timeout_ms: int = 6_000
    #: The other members learn at their next heartbeat that a writer left: this bounds the time of a clean take-over.
    heartbeat_interval_ms: int = 250
    #: The broker aborts a transaction left open this long; also bounds how long a record may wait for delivery.
    transaction_timeout_ms: int = 10_000
    #: Time limit of one `start()` to reach a broker; it may be called again.
    start_timeout_ms: int = 5_000

    @property
    def own_topic_configs(self) -> Mapping[str, str]:
        """Settings of the topic if this store creates it."""
        return {MIN_COMPACTION_LAG: str(_MIN_COMPACTION_LAG_MS), **self.topic_configs, "cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True)
class StoreTuning:
    """Times and limits of the engine, the same for Kafka and memory."""

    #: A group commit takes the writes of this time (when the group before it had more than one write) ...
    group_commit_ms: float = 2.0
    #: ... or this many records, whichever is first. A write with more records has a transaction of its own.
    group_commit_records: int = 500
    #: Writes waiting, in flight or being re-checked; one more raises `QueueFull`.
    pending_writes_max: int = 10_000
    #: How long a confirmed commit may stay unread, or the end of the log in a take-over, before this replica takes over
    #: again. That ends a transaction that a broker left without a marker (ADR 0006).
    read_back_ms: int = 5_000
    #: After a commit with a lost reply: how long to look for the outcome before `WriteOutcomeUnknown`.
    outcome_timeout_ms: int = 15_000
    #: Changes remembered for watches that resume.
    change_memory: int = 10_000
    #: Changes that a watcher may lag behind before it is cut off.
    watcher_lag_max: int = 1_000
    #: How long a write is delayed while most watchers lag by half of that, so that they catch up.
    crowded_wait_ms: int = 500
    #: An idle watcher receives the revision at this interval.
    progress_interval_ms: int = 5_000
    #: After a False of `may_write`, call it again after this time.
    may_write_interval_ms: int = 1_000
    #: Interval of the check that the topics are still the ones opened, with the required configuration and permissions.
    #: A recreated topic with more records than the old one can go unnoticed for this long.
    topic_check_interval_ms: int = 2_000
    #: Pause before the next take-over after being cut off; doubles up to `take_over_backoff_ms_max`.
    take_over_backoff_ms: int = 100
    take_over_backoff_ms_max: int = 5_000
    #: Interval of the writer's keep-alive record. Kafka forgets a transactional id that was not used for a week
    #: (`transactional.id.expiration.ms`); the record keeps the writer's alive.
    keep_alive_ms: int = 86_400_000
    #: Time limit of each stage of `close()`.
    close_stage_ms: int = 2_000
