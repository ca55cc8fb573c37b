"""The mutations of the config store, and the fields that all of them carry.

Owns the values, and the choice of those that distinguish a retry from another request. `writes` has their checks and
records.

Invariant: each mutation describes its write as plain JSON without its secrets; a retry must have the same description.
The condition of a write is not part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from herdmesh.configstore.state.redaction import redacted
from herdmesh.connect.topics import LoggerRecord, Properties, RestartRecord, SessionKeyRecord, TargetState
from herdmesh.topicstore.contract import Beside, Revision


@dataclass(frozen=True, slots=True)
class LeaderToken:
    """The epoch and the herder that a caller claims to lead with."""

    epoch: int
    leader_id: str


@dataclass(frozen=True, slots=True)
class WriteContext:
    """The fields that every mutation carries.

    `expected_revision` is of the object's own record, None = unconditional. `retry_only` requests only the outcome of
    an earlier request of the same id. `now_ms` is the wall clock and `new_incarnation` a unique id, both taken when the
    request arrived: a plan may be made several times and must give the same result each time.
    """

    operation: str
    now_ms: int
    new_incarnation: str
    store_id: str = ""
    audit_topic: str | None = None
    request_id: str = ""
    expected_revision: Revision | None = None
    caller: str = ""
    leader: LeaderToken | None = None
    retry_only: bool = False


@dataclass(frozen=True, slots=True)
class PutConnectorConfig:
    """Create or replace a config. The same transaction has the initial target state, before the config, and the offsets
    of a create. `patch` is the patch that gave the config, None = the caller sent the whole config. `only_if_changed`
    writes nothing when the stored config is equal.
    """

    connector: str
    config: Properties
    must_not_exist: bool = False
    must_exist: bool = False
    initial_target_state: TargetState | None = None
    patch: Properties | None = None
    initial_offsets: Beside | None = None
    only_if_changed: bool = False

    def request_json(self) -> Any:
        written = {"config": redacted(self.config)} if self.patch is None else {"patch": redacted(self.patch)}
        return [written, self.initial_target_state and self.initial_target_state.value]


@dataclass(frozen=True, slots=True)
class RestoreConnector:
    """Write the config of an earlier revision again. `past` is that config as history keeps it (None = not read,
    because the request is already known); `secrets` are values for the properties that history does not keep.
    """

    connector: str
    revision: Revision
    past: Properties | None
    secrets: Properties = field(default_factory=dict[str, Any])

    def request_json(self) -> Any:
        return [self.revision.store_id, self.revision.next_offsets, sorted(self.secrets)]


@dataclass(frozen=True, slots=True)
class DeleteConnector:
    """Remove config and target state."""

    connector: str

    def request_json(self) -> Any:
        return None


@dataclass(frozen=True, slots=True)
class SetTargetState:
    """Store the target state of an existing connector."""

    connector: str
    target_state: TargetState

    def request_json(self) -> Any:
        return self.target_state.value


@dataclass(frozen=True, slots=True)
class CommitTaskConfigs:
    """Replace the task set; `config_revision` is of the config from which the tasks were made, None = not checked. With
    `fenced_generation`, which must be the generation of the set in force, the transaction also has the count of its
    producers.
    """

    connector: str
    tasks: Sequence[Properties]
    config_revision: Revision | None = None
    fenced_generation: int | None = None

    def request_json(self) -> Any:
        tasks = [redacted(task) for task in self.tasks]
        return tasks if self.fenced_generation is None else [tasks, "counted"]


@dataclass(frozen=True, slots=True)
class PutTaskCount:
    """Store the number of transactional producers that may be alive. As in Connect, the connector need not exist."""

    connector: str
    task_count: int

    def request_json(self) -> Any:
        return self.task_count


@dataclass(frozen=True, slots=True)
class RequestRestart:
    """Store a restart request for watchers, and the `generation` from which the restarted units must run (0 = none).
    `task` None = all that `request` covers. `restarted` are task numbers, -1 = the connector itself; `response` is the
    response to the caller, as plain JSON.
    """

    request: RestartRecord
    task: int | None = None
    restarted: Sequence[int] = ()
    generation: int = 0
    response: Any = None

    def request_json(self) -> Any:
        flags = [self.request.include_tasks, self.request.only_failed]
        return flags if self.task is None else [*flags, self.task]


@dataclass(frozen=True, slots=True)
class PutSessionKey:
    """Store the key of Connect's internal requests."""

    key: SessionKeyRecord

    def request_json(self) -> Any:
        return [self.key.algorithm, self.key.creation_timestamp_ms]


@dataclass(frozen=True, slots=True)
class PutLoggerLevel:
    """Store a cluster-wide logger level."""

    level: LoggerRecord

    def request_json(self) -> Any:
        return [self.level.namespace, self.level.level]


@dataclass(frozen=True, slots=True)
class RecordDrain:
    """Record that a worker acknowledged a drain or its end, for retries of the request."""

    worker_id: str
    draining: bool

    def request_json(self) -> Any:
        return [self.worker_id, self.draining]


@dataclass(frozen=True, slots=True)
class RecordOffsets:
    """Record the start of a change of a connector's offsets, or (`ended`) the response to its caller, for retries of
    the request. `change` is a digest of the request; `response` has offsets and a message, as plain JSON.
    """

    connector: str
    change: str
    ended: bool
    response: Mapping[str, Any]

    def request_json(self) -> Any:
        return self.change


Mutation = (
    PutConnectorConfig
    | RestoreConnector
    | DeleteConnector
    | SetTargetState
    | CommitTaskConfigs
    | PutTaskCount
    | RequestRestart
    | PutSessionKey
    | PutLoggerLevel
    | RecordDrain
    | RecordOffsets
)
