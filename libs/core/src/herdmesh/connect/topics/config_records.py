"""Typed records of the config topic: Connect's eight kinds and Herdmesh's two.

Owns the types and the digest of a task config. Their bytes: `config_topic`.

The kinds that a topic has thousands of are msgspec structs: a replay creates one per record at a fifth of a dataclass's
cost, and the cycle collector need not track them.

Invariant: a record is immutable; the mappings in it are treated as frozen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

Properties = Mapping[str, Any]
"""Connector and task properties. Values are text or null; a foreign record can have any JSON value, kept as read."""


_encode_sorted = msgspec.json.Encoder(order="sorted").encode
#: Types that msgspec writes as `json` does. A float is none of them: 1e16 and 1E16.
_SAME_TEXT = frozenset((str, int, bool, type(None)))


class TargetState(StrEnum):
    """State of a connector that a user requests (docs/reference/connect/config-topic.md, section 2.2)."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class ConnectorRecord(msgspec.Struct, frozen=True, gc=False):
    """`connector-<c>`: the configuration as submitted, placeholders unresolved."""

    connector: str
    properties: Properties


class TargetStateRecord(msgspec.Struct, frozen=True, gc=False):
    """`target-state-<c>`. STOPPED is written as PAUSED for old workers, and as STOPPED in `state.v2`."""

    connector: str
    state: TargetState


class TaskConfigRecord(msgspec.Struct, frozen=True, gc=False):
    """`task-<c>-<n>`: takes effect only once a commit record follows."""

    connector: str
    task: int
    properties: Properties


class CommitRecord(msgspec.Struct, frozen=True, gc=False):
    """`commit-<c>`: the task records before it are a complete set of `tasks` tasks. The number in a foreign record can
    be negative.
    """

    connector: str
    tasks: int


@dataclass(frozen=True, slots=True)
class RestartRecord:
    """`restart-connector-<c>`: handled when read live, never when replayed."""

    connector: str
    include_tasks: bool
    only_failed: bool


class TaskCountRecord(msgspec.Struct, frozen=True, gc=False):
    """`tasks-fencing-<c>`: the number of transactional task producers that may be alive and must be fenced first."""

    connector: str
    task_count: int


@dataclass(frozen=True, slots=True)
class SessionKeyRecord:
    """`session-key`: Connect's inter-worker key. `key` is the raw secret; never log it."""

    key: bytes = field(repr=False)
    algorithm: str
    creation_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class LoggerRecord:
    """`logger-cluster-<ns>`: a cluster-wide logger level, applied when read live."""

    namespace: str
    level: str


class ManifestRecord(msgspec.Struct, frozen=True, gc=False):
    """`herdmesh-connector-<c>`: the manifest of the connector, last in every transaction that touches it
    (docs/design/stores.md, section 4).

    `incarnation` changes when a deleted connector is created anew. `applied_config` is the connector config that the
    task set was made from (None before the first). `task_digests[n]` is `task_config_digest` of task n; `task_count` is
    the number of tasks. `leftover_digests` are those of committed configs with other numbers, left over from a larger
    set, which Connect keeps. `restarts[n]` is the generation from which task n (-1 = the connector itself) is to run
    since its last requested restart. `config_digest` is the same digest of the connector config in force, "" when there
    is none. `revisions` has the revision per object ("config", "target_state", "tasks") as the next offset after its
    record, 0 = in this transaction; "commit" is that of the latest commit record its writer knew, whether or not that
    record met a connector config (0 = none, -1 = in this transaction; missing in manifests of older releases).
    `deleted` marks a connector that is gone, so that compaction cannot bring it back. `orphan_commit_offset` is the
    offset of the latest commit record if that record met no connector config, so that nothing waits for a fence (-1 =
    it met one).
    """

    connector: str
    incarnation: str
    applied_config: Properties | None = None
    task_count: int = 0
    task_digests: tuple[str, ...] = ()
    task_config_generation: int = 0
    deleted: bool = False
    config_digest: str = ""
    revisions: Mapping[str, int] = {}  # msgspec gives each record its own mapping
    leftover_digests: Mapping[int, str] = {}
    restarts: Mapping[int, int] = {}
    orphan_commit_offset: int = -1


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """`herdmesh-leader`: the herder leadership in force; generations below `next_generation` are used up."""

    epoch: int
    leader_id: str
    leader_address: str
    next_generation: int


ConfigRecord = (
    ConnectorRecord
    | TargetStateRecord
    | TaskConfigRecord
    | CommitRecord
    | RestartRecord
    | TaskCountRecord
    | SessionKeyRecord
    | LoggerRecord
    | ManifestRecord
    | EpochRecord
)


def task_config_digest(config: Properties) -> str:
    """sha256 (hex) of the config as JSON with sorted keys: equal for equal configs, whatever the order of members."""
    return hashlib.sha256(_canonical(config)).hexdigest()


def _canonical(config: Properties) -> bytes:
    """The output of `json.dumps` with sorted keys and only ASCII; msgspec writes it where its output is the same."""
    if _SAME_TEXT.issuperset(map(type, config.values())):
        try:
            data = _encode_sorted(config)
        except (OverflowError, UnicodeEncodeError, TypeError):
            pass  # an integer beyond 64 bits, or a lone surrogate
        else:
            if data.isascii() and b"\x7f" not in data:
                return data
    return json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")
