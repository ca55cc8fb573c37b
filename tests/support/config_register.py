"""The config store as a set of registers: requests of clients, and its topic read back for the checkers.

Owns the translation between requests of a history (keys, texts) and the protos of the config store, the same for its
servicers called directly (`tests/sim/stores`) and for stubs to a process (`tests.support.store_runs`).

Invariant: a value is the property `v` of a config, unique in a history, so a config read back names its write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from herdmesh.api.common.v1 import revision_pb2
from herdmesh.api.configstore.v1 import config_pb2, config_read_service_pb2, config_write_service_pb2
from herdmesh.configstore.state.config import GENERATIONS_PER_BLOCK
from herdmesh.connect.topics import audit_topic, config_topic
from herdmesh.connect.topics.config_records import ConnectorRecord, EpochRecord, TaskConfigRecord
from herdmesh.connect.topics.decoding import Tombstone, Undecodable
from herdmesh.rpc import properties, revisions
from herdmesh.rpc.errors import ConnectorExists, ConnectorNotFound, HerdmeshError, RevisionMismatch
from herdmesh.topicstore import KEEP_ALIVE_KEY, StoredRecord
from tests.support.history import Kind, Operation, Seen
from tests.support.store_checks import Granted, Logged, Privileged, StoreLog, Visible

_Read, _Write = config_read_service_pb2, config_write_service_pb2
#: Servicers read nothing from it.
CONTEXT: Any = None


class ConfigServer(Protocol):
    """A replica's services: servicers, or stubs that accept a context and drop it."""

    write: Any
    read: Any
    leadership: Any


@dataclass(frozen=True, slots=True)
class Archived:
    """Records that became visible at once: one transaction, or one record of a plain producer (`writer` ""). `owner` is
    the latest owner by take-over at that time.
    """

    writer: str
    owner: str
    records: tuple[StoredRecord, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Values of all keys and the revision of each value's own record."""

    revision: tuple[int, ...]
    values: dict[str, str]
    own: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a watch. `snapshot` opens it; `key` None is progress."""

    revision: tuple[int, ...]
    snapshot: dict[str, str] | None = None
    key: str | None = None
    value: str | None = None


class ConfigRegister:
    """Client-side knowledge of a config store whose topic is `topic` and whose revisions are of `store_id`."""

    partitions = 1
    has_requests = True
    #: A refusal of a retry means that no try was applied.
    refusal_is_final = True
    kinds = (Kind.PUT, Kind.CREATE, Kind.UPDATE, Kind.DELETE)

    def __init__(self, topic: str, store_id: str) -> None:
        self.topic = topic
        self.store_id = store_id

    async def write(self, server: ConfigServer, operation: Operation, expected: int | None) -> Any:
        """Make the call; `told` puts the answer's facts on `operation`, never before it arrived."""
        options = _Write.WriteOptions(request_id=operation.request_id, caller=operation.client)
        if expected is not None:
            options.expected_revision.CopyFrom(self._revision(expected))
        if operation.kind is Kind.DELETE:
            delete = _Write.DeleteConnectorRequest(options=options, connector=operation.key)
            return await server.write.DeleteConnector(delete, CONTEXT)
        put = _Write.PutConnectorConfigRequest(
            options=options,
            connector=operation.key,
            config=properties.to_proto({"name": operation.key, "v": operation.value or ""}),
            must_not_exist=operation.kind is Kind.CREATE,
            must_exist=operation.kind is Kind.UPDATE,
        )
        return await server.write.PutConnectorConfig(put, CONTEXT)

    def told(self, operation: Operation, answer: Any) -> dict[str, tuple[str, Any]] | None:
        """Put the facts of the answer on `operation`; returns the key's current value as the answer shows it, None for
        nothing.
        """
        if operation.kind is Kind.DELETE:
            if operation.attempts == 1:
                operation.revision = answer.meta.revision.next_offsets[0]
            return None
        operation.created = answer.created if operation.kind is Kind.PUT else None
        values, own = _values([answer.connector])
        if values.get(operation.key) == operation.value:
            operation.revision = own[operation.key]
        return {key: (value, own[key]) for key, value in values.items()}

    def refused(self, operation: Operation, error: HerdmeshError) -> bool:
        """True when `error` is a refusal, whose reason is put on `operation`."""
        match error:
            case ConnectorExists():
                operation.seen = Seen.PRESENT
            case ConnectorNotFound():
                operation.seen = None
            case RevisionMismatch():
                operation.seen = Seen.NOT_EXPECTED
                actual = revisions.from_text(error.actual_revision)
                operation.revision = 0 if actual is None else actual.next_offsets[0]
            case _:
                return False
        return True

    async def read(self, server: ConfigServer, demanded: tuple[int, ...] | None, linearizable: bool) -> Snapshot:
        request = _Read.GetSnapshotRequest(linearizable=linearizable)
        if demanded is not None:
            request.at_least.CopyFrom(self._revision(*demanded))
        answer = await server.read.GetSnapshot(request, CONTEXT)
        values, own = _values(answer.connectors)
        return Snapshot(tuple(answer.meta.revision.next_offsets), values, own)

    async def watch(self, server: ConfigServer, resume: tuple[int, ...] | None) -> AsyncGenerator[Change, None]:
        request = _Read.WatchRequest()
        if resume is not None:
            request.resume.CopyFrom(self._revision(*resume))
        async for change in changes(server.read.Watch(request, CONTEXT)):
            yield change

    def _revision(self, *next_offsets: int) -> revision_pb2.Revision:
        return revision_pb2.Revision(store_id=self.store_id, next_offsets=next_offsets)

    def log(self, archive: Sequence[Archived]) -> StoreLog:
        """The archive as the checkers read it. A plain producer's record is archived when it is written and seen only
        when the transaction below it has ended: the topic's order is that of the offsets."""
        log = StoreLog(requests=Counter())
        found: list[tuple[int, int, str, StoredRecord]] = []
        for number, visible in enumerate(archive):
            # A take-over may end an earlier open transaction, by a record without content (ADR 0006).
            told = [record for record in visible.records if record.key != KEEP_ALIVE_KEY]
            audits = [_request_id(record) for record in told if record.topic != self.topic]
            own = [record for record in told if record.topic == self.topic]
            requests = _requests_of(own, audits)
            found += [(record.offset, number, requests[record.offset], record) for record in own]
            assert log.requests is not None
            log.requests.update(request for request in audits if request)
            if visible.writer:
                log.visible.append(Visible(visible.writer, visible.owner))
        for _, number, request, record in sorted(found, key=lambda item: item[0]):
            _add(log, record, number, request)
        return log


def _add(log: StoreLog, record: StoredRecord, number: int, request: str) -> None:
    decoded = config_topic.decode(record.key, record.value)
    match decoded:
        case ConnectorRecord():
            text = str(decoded.properties.get("v"))
            log.writes.append(Logged(decoded.connector, text, 0, record.offset, number, request))
        case Tombstone() if decoded.kind == "connector":
            log.writes.append(Logged(decoded.connector, None, 0, record.offset, number, request))
        case EpochRecord():
            first = decoded.next_generation - GENERATIONS_PER_BLOCK
            log.granted.append(Granted(decoded.epoch, decoded.leader_id, first, decoded.next_generation))
        case TaskConfigRecord() if "epoch" in decoded.properties:
            what = f"the task set {decoded.properties.get('v')} of {decoded.connector}"
            in_force = log.granted[-1].epoch if log.granted else 0
            log.privileged.append(Privileged(what, int(str(decoded.properties["epoch"])), in_force))
        case _:
            pass


def _requests_of(own: Sequence[StoredRecord], audits: Sequence[str]) -> dict[int, str]:
    """Request id of each own record: every write ends with its manifest, and has one audit record."""
    found: dict[int, str] = {}
    remaining = list(audits)
    request = remaining.pop(0) if remaining else ""
    for position, record in enumerate(own):
        if record.key is not None and record.key.startswith(b"herdmesh-leader"):
            continue  # an epoch's transaction has no audit record
        found[record.offset] = request
        if record.key is not None and record.key.startswith(b"herdmesh-connector-") and position + 1 < len(own):
            request = remaining.pop(0) if remaining else ""
    return {**dict.fromkeys((record.offset for record in own), ""), **found}


def _request_id(record: StoredRecord) -> str:
    decoded = audit_topic.decode(record.key, record.value)
    assert not isinstance(decoded, Undecodable), decoded
    return decoded.request_id


def _values(entries: Any) -> tuple[dict[str, str], dict[str, int]]:
    present: list[config_pb2.ConnectorEntry] = [entry for entry in entries if entry.has_config]
    values = {entry.name: text_of(entry) for entry in present}
    return values, {entry.name: entry.config_revision.next_offsets[0] for entry in present}


def text_of(entry: config_pb2.ConnectorEntry) -> str:
    """The text a story wrote into a config."""
    return entry.config.entries["v"].text


async def changes(events: AsyncIterator[config_read_service_pb2.WatchResponse]) -> AsyncGenerator[Change, None]:
    """A watch of configs: its snapshot as one event, then every written or removed config."""
    snapshot: dict[str, str] | None = {}
    last: tuple[int, ...] = ()
    async for event in events:
        if event.meta.HasField("revision"):
            last = tuple(event.meta.revision.next_offsets)
        match event.WhichOneof("event"):
            case "snapshot_complete":
                yield Change(last, snapshot=snapshot)
                snapshot = None
            case "connector_changed":
                changed = event.connector_changed
                if _Read.CONNECTOR_CHANGE_KIND_SNAPSHOT in changed.kinds:
                    if snapshot is not None and changed.after.has_config:
                        snapshot[changed.name] = text_of(changed.after)
                elif _Read.CONNECTOR_CHANGE_KIND_CONFIG_UPDATED in changed.kinds:
                    yield Change(last, key=changed.name, value=text_of(changed.after))
                elif _Read.CONNECTOR_CHANGE_KIND_CONFIG_REMOVED in changed.kinds:
                    yield Change(last, key=changed.name)
                else:
                    yield Change(last)
            case "progress":
                yield Change(last)
            case _:
                pass
