"""The errors a Herdmesh RPC can end with, one class per reason of `common.v1.ErrorReason`.

    HerdmeshError
    |-- InvalidConfig, RequestInvalid                                       fix the request
    |-- ConnectorNotFound, TaskNotFound, WorkerNotFound, LeaseNotFound, PluginNotFound, HistoryNotFound,
    |   LoggerNotFound, StatusNotFound
    |-- ConnectorExists, ConnectorNotStopped, TopicTrackingDisabled, OffsetsRefused, DeadLettersRefused
    |-- Superseded, StaleEpoch, StatusNewer                                 the caller was replaced: never retry
    |-- NotLeader                                                           go to `leader_address`
    |-- RevisionMismatch                                                    read again, re-apply
    |-- WriteOutcomeUnknown                                                 retry with the same request_id
    |-- RevisionCompacted, RevisionInFuture, RevisionForeign                list, then watch again
    |-- Unavailable: StoreReplaying, NotWriter, WriterFenced, NoLeader, NoWorker, ShuttingDown, TopicRecreated,
    |   |   StoreUnauthorized                                               not applied: retry
    |   `-- Unreachable                                                     no answer: outcome may be unknown
    |-- WatchOverflow, QueueFull                                            slow down
    |-- Timeout, RecordCorrupt, NotBuilt, ForeignWriter, RequestIdExpired, RequestIdUnknown, Internal

Owns the tree and the data of each error; imports neither gRPC nor protobuf, so pure state may raise these. The gRPC
codes are in `herdmesh.rpc.status`, the one table.

Invariant: all data of an error is in `message`, `metadata` and `violations`, so it survives the wire unchanged:
`restore(cls, ...)` on the client gives an equal error of the same class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """A violation of one field: `field` as the user writes it (a config's key, or a path in the request)."""

    field: str
    message: str


class HerdmeshError(Exception):
    """Root. `message` is one line for the operator, `metadata` small text values for a program."""

    reason: ClassVar[str] = ""

    def __init__(
        self,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[FieldViolation] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.metadata: dict[str, str] = dict(metadata or {})
        self.violations: tuple[FieldViolation, ...] = tuple(violations)

    @classmethod
    def restore(cls, message: str, metadata: Mapping[str, str], violations: Sequence[FieldViolation]) -> Self:
        """The error as it was before it crossed the wire; bypasses the constructor of the subclass."""
        error = cls.__new__(cls, message)
        HerdmeshError.__init__(error, message, metadata, violations)
        return error


class InvalidConfig(HerdmeshError):
    """A config that cannot be accepted; `violations` name the fields."""

    reason = "CONFIG_INVALID"

    def __init__(self, violations: Sequence[FieldViolation], message: str = "") -> None:
        text = message or "; ".join(f"{item.field}: {item.message}" for item in violations)
        super().__init__(text, violations=violations)


class RequestInvalid(HerdmeshError):
    """A malformed request, for example an empty name."""

    reason = "REQUEST_INVALID"

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message, violations=[FieldViolation(field, message)] if field else [])


class ConnectorNotFound(HerdmeshError):
    """No connector of that name."""

    reason = "CONNECTOR_NOT_FOUND"

    def __init__(self, name: str) -> None:
        super().__init__(f"connector {name!r} does not exist", {"connector": name})


class TaskNotFound(HerdmeshError):
    """The connector has no task of that number."""

    reason = "TASK_NOT_FOUND"

    def __init__(self, name: str, task: int) -> None:
        super().__init__(f"connector {name!r} has no task {task}", {"connector": name, "task": str(task)})


class WorkerNotFound(HerdmeshError):
    """No worker with that id has a session."""

    reason = "WORKER_NOT_FOUND"

    def __init__(self, worker_id: str) -> None:
        super().__init__(f"no worker {worker_id!r} has a session", {"worker_id": worker_id})


class LeaseNotFound(HerdmeshError):
    """The worker has no lease."""

    reason = "LEASE_NOT_FOUND"

    def __init__(self, worker_id: str) -> None:
        super().__init__(f"worker {worker_id!r} has no lease", {"worker_id": worker_id})


class PluginNotFound(HerdmeshError):
    """No live worker has that plugin; `available` names the plugins they have."""

    reason = "PLUGIN_NOT_FOUND"

    def __init__(self, plugin: str, available: Sequence[str] = ()) -> None:
        known = f"; available: {', '.join(available)}" if available else ""
        super().__init__(f"no worker has the plugin {plugin!r}{known}", {"plugin": plugin})


class HistoryNotFound(HerdmeshError):
    """The connector's history has no change of `revision`, or no longer has it."""

    reason = "HISTORY_NOT_FOUND"

    def __init__(self, connector: str, revision: str, why: str) -> None:
        message = f"no config of {connector!r} at revision {revision}: {why}"
        super().__init__(message, {"connector": connector, "revision": revision})


class LoggerNotFound(HerdmeshError):
    """No worker has a logger of that name."""

    reason = "LOGGER_NOT_FOUND"

    def __init__(self, logger: str) -> None:
        super().__init__(f"no worker has a logger {logger!r}; `herd get loggers` lists them", {"logger": logger})


class StatusNotFound(HerdmeshError):
    """The connector exists and has no status yet (KIP-745: no restart can be planned for it)."""

    reason = "STATUS_NOT_FOUND"

    def __init__(self, connector: str) -> None:
        super().__init__(f"Status for connector {connector} not found; try again in a moment", {"connector": connector})


class ConnectorExists(HerdmeshError):
    """A connector of that name exists already."""

    reason = "CONNECTOR_EXISTS"

    def __init__(self, name: str) -> None:
        super().__init__(f"connector {name!r} already exists", {"connector": name})


class ConnectorNotStopped(HerdmeshError):
    """The request needs a stopped connector, and this one is not stopped."""

    reason = "CONNECTOR_NOT_STOPPED"

    def __init__(self, name: str) -> None:
        super().__init__(f"connector {name!r} is not stopped; stop it first", {"connector": name})


class TopicTrackingDisabled(HerdmeshError):
    """Topic tracking (KIP-558), or its reset, is switched off in the settings."""

    reason = "TOPIC_TRACKING_DISABLED"

    def __init__(self, setting: str) -> None:
        super().__init__(f"{setting}=false in the herder's settings disables this", {"setting": setting})


class OffsetsRefused(HerdmeshError):
    """The connector rejects these offsets, or they cannot be read; the connector's own message has the reason."""

    reason = "OFFSETS_REFUSED"

    def __init__(self, connector: str, why: str, done: str = "changed") -> None:
        super().__init__(f"the offsets of {connector!r} were not {done}: {why}", {"connector": connector})


class DeadLettersRefused(HerdmeshError):
    """The connector has no such dead letters, or they cannot be replayed; `why` names the next step."""

    reason = "DEAD_LETTERS_REFUSED"

    def __init__(self, connector: str, why: str) -> None:
        super().__init__(f"dead letters of {connector!r}: {why}", {"connector": connector})


class Superseded(HerdmeshError):
    """A newer process or session replaced the caller: stop work, never retry."""

    reason = "STALE_GENERATION"


class StaleEpoch(HerdmeshError):
    """Another herder leads: never retry with this epoch."""

    reason = "STALE_EPOCH"


class StatusNewer(HerdmeshError):
    """A PUT_SAFE found a newer status."""

    reason = "STATUS_NEWER"


class NotLeader(HerdmeshError):
    """Another herder leads; `leader_address` is "" when it is not known."""

    reason = "NOT_LEADER"

    def __init__(self, leader_address: str) -> None:
        where = f"the leader is {leader_address}" if leader_address else "the leader is not known"
        super().__init__(f"this herder does not lead; {where}", {"leader_address": leader_address})

    @property
    def leader_address(self) -> str:
        return self.metadata.get("leader_address", "")


class RevisionMismatch(HerdmeshError):
    """`expected_revision` is not the stored one; `actual_revision` as `herdmesh.rpc.revisions.to_text` writes it."""

    reason = "REVISION_MISMATCH"

    def __init__(self, actual_revision: str, message: str = "") -> None:
        text = message or f"the object is at revision {actual_revision or '(none)'}"
        super().__init__(text, {"actual_revision": actual_revision})

    @property
    def actual_revision(self) -> str:
        return self.metadata.get("actual_revision", "")


class WriteOutcomeUnknown(HerdmeshError):
    """The write may have been applied; the same `request_id` makes a retry safe."""

    reason = "WRITE_OUTCOME_UNKNOWN"


class RevisionCompacted(HerdmeshError):
    """The replica does not remember changes that old: list, then watch again."""

    reason = "REVISION_COMPACTED"


class RevisionInFuture(HerdmeshError):
    """The replica is behind that revision: list, then watch again."""

    reason = "REVISION_IN_FUTURE"


class RevisionForeign(HerdmeshError):
    """The revision belongs to another store: list, then watch again."""

    reason = "REVISION_FOREIGN"


class Unavailable(HerdmeshError):
    """Retry the same call with backoff. Abstract: raise a subclass.

    All but `Unreachable` promise that nothing was applied.
    """


class StoreReplaying(Unavailable):
    """The store is still reading its topic."""

    reason = "STORE_REPLAYING"


class NotWriter(Unavailable):
    """This replica is not the writer: try another replica."""

    reason = "NOT_WRITER"


class WriterFenced(Unavailable):
    """Another writer took over before the write took effect."""

    reason = "WRITER_FENCED"


class NoLeader(Unavailable):
    """No herder leads yet."""

    reason = "NO_LEADER"


class NoWorker(Unavailable):
    """No worker that could execute the request has a session."""

    reason = "NO_WORKER"


class ShuttingDown(Unavailable):
    """The process is stopping."""

    reason = "SHUTTING_DOWN"


class TopicRecreated(Unavailable):
    """The store's topic was deleted or created anew while the store used it: this replica ends and starts again on the
    current topic.
    """

    reason = "TOPIC_RECREATED"


class StoreUnauthorized(Unavailable):
    """The broker denies this store a permission it needs: `operation` on `resource`. An operator has to grant it."""

    reason = "STORE_UNAUTHORIZED"

    def __init__(self, operation: str, resource: str) -> None:
        message = f"the broker does not allow this store to {operation} {resource}: grant it with kafka-acls"
        super().__init__(message, {"operation": operation, "resource": resource})


class Unreachable(Unavailable):
    """No answer came back: the connection failed or broke. The outcome of a write is unknown."""

    reason = "UNREACHABLE"


class WatchOverflow(HerdmeshError):
    """The watcher was too slow: resume from its last revision (`last_revision` in metadata where known)."""

    reason = "WATCH_OVERFLOW"


class QueueFull(HerdmeshError):
    """Too many calls wait: slow down. Nothing was applied."""

    reason = "QUEUE_FULL"


class Timeout(HerdmeshError):
    """The deadline passed while the request was at `stage`; its outcome may be unknown."""

    reason = "TIMEOUT"

    def __init__(self, stage: str) -> None:
        super().__init__(f"the deadline passed while {stage or 'waiting for the answer'}", {"stage": stage})

    @property
    def stage(self) -> str:
        return self.metadata.get("stage", "")


class RecordCorrupt(HerdmeshError):
    """A stored record cannot be read."""

    reason = "RECORD_CORRUPT"


class NotBuilt(HerdmeshError):
    """The contract has this RPC or option, this release does not implement it yet."""

    reason = "NOT_BUILT"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is part of the contract but not built in this release", {"what": what})


class ForeignWriter(HerdmeshError):
    """A live Java Connect cluster owns the topics: stop it first."""

    reason = "FOREIGN_WRITER"

    def __init__(self, members: Sequence[str]) -> None:
        named = ", ".join(members)
        super().__init__(f"another Connect cluster is alive: {named}; stop it first", {"members": named})


class RequestIdExpired(HerdmeshError):
    """The request id is too old: its outcome is no longer known, and the request is not applied again."""

    reason = "REQUEST_ID_EXPIRED"


class RequestIdUnknown(HerdmeshError):
    """The request asked only for the outcome of an earlier one, and nothing was ever applied under that request id."""

    reason = "REQUEST_ID_UNKNOWN"


class Internal(HerdmeshError):
    """A bug; the log of the process that answered has the details, under `correlation_id`."""

    reason = "INTERNAL"

    def __init__(self, correlation_id: str) -> None:
        super().__init__(
            f"internal error; look for {correlation_id} in the server's log", {"correlation_id": correlation_id}
        )

    @property
    def correlation_id(self) -> str:
        return self.metadata.get("correlation_id", "")
