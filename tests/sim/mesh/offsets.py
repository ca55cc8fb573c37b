"""The offsets of connectors in the simulation: their state in Kafka, the writer of each, and the promises about a
change.

Owns one number for each connector, in the place of all its partitions: task 0 commits one more when it begins to move
records, a change sets it, a reset deletes it. A worker writes a change as the real one does: it takes over the id of
task 0, checks in the config topic that the connector was not changed, and writes unless another process takes the id
over. Offsets of a create are only prepared by it, and written by the config store's transaction.

Invariant: every write is known with its request, by the beginning in the audit topic that its worker
had got; so the checks need not believe a herder.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from herdmesh.api.common.v1 import offsets_pb2
from herdmesh.connect.topics import audit_topic
from herdmesh.connect.topics.audit_topic import AuditRecord
from herdmesh.engine.fencing import task_set_check
from herdmesh.engine.runtime.contract import TaskSetClaim
from herdmesh.herder.state.model.requests import ChangeOffsets, CreateConnector, OffsetsAnswer
from herdmesh.session import worker_commands
from herdmesh.session.model import OffsetEntry
from herdmesh.topicstore.contract import WriteDecision

if TYPE_CHECKING:
    from tests.sim.mesh.clients import Operation
    from tests.sim.mesh.dataplane import Run
    from tests.sim.mesh.world import World

_PARTITION = '{"kafka_partition":0,"kafka_topic":"t"}'
_ALTERED = "RecordOffsets"


@dataclass(frozen=True)
class Write:
    """One write. `request` is the id of the change or the create that it was made for, "" = a task's commit."""

    at_ms: int
    request: str
    before: int | None
    after: int | None


def told(value: int | None) -> tuple[OffsetEntry, ...]:
    """A number as offset entries of requests and answers."""
    return () if value is None else (OffsetEntry(_PARTITION, json.dumps({"kafka_offset": value})),)


class ConnectorOffsets:
    """Committed offsets, by connector, and the promises about them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.values: dict[str, int] = {}
        self.writes: dict[str, list[Write]] = {}
        #: owners of an id that took it over in order to change offsets, and have neither written nor been fenced.
        self._owners: dict[tuple[str, int], object] = {}
        #: acknowledged changes, by connector, in the order of their answers.
        self._acknowledged: dict[str, list[Operation]] = {}

    # --- Kafka

    def fence(self, task_id: tuple[str, int]) -> None:
        """Handle another process's initialisation of the id."""
        self._owners.pop(task_id, None)

    def change(self, question: worker_commands.AlterOffsets, written: Callable[[OffsetsAnswer | None], None]) -> None:
        """A worker changes offsets; `written` gets its report, None = it was late."""
        world, name, owner = self._world, question.connector, object()
        claim = TaskSetClaim("config", question.config_offset or 0, question.incarnation, "")
        manifest = world.config_log.manifest_since(name, claim.offset)
        late = manifest is not None and task_set_check.contradicts(manifest, claim, 0)
        world.dataplane.fence((name, 0))
        if question.prepare:
            written(None if late else OffsetsAnswer(()))
            return
        self._owners[name, 0] = owner
        request = "" if late else self._request(name, claim.offset)

        def write() -> None:
            if late or self._owners.get((name, 0)) is not owner:
                world.checker.counts["changes of offsets that came too late"] += 1
                written(None)
                return
            del self._owners[name, 0]
            before = self.values.get(name)
            after = None if question.reset else _number(question.offsets)
            self._write(name, request, after)
            written(OffsetsAnswer(told(before if question.reset else after), "done"))

        world.scheduler.at(world.now + (world.rng.randint(2, 30) if world.rng.random() < 0.9 else 2_000), write)

    def created(self, decision: WriteDecision[Any]) -> None:
        """The config store creates a connector with its initial offsets."""
        assert decision.beside is not None
        [record] = decision.beside.records
        told = (audit_topic.decode(one.key, one.value) for one in decision.records if one.topic is not None)
        [made] = [one for one in told if isinstance(one, AuditRecord)]
        self._world.checker.altered(made.connector)
        self._world.checker.counts["creates that brought offsets"] += 1
        self._write(made.connector, made.request_id, int(record.value or b""))

    def begins(self, run: Run) -> None:
        """Task 0 moves records from the committed offset on, and commits."""
        name = run.unit.connector
        if run.unit.task != 0:
            return
        self._check_begin(name)
        self._write(name, "", (self.values.get(name) or 0) + 1)

    def _write(self, name: str, request: str, after: int | None) -> None:
        world = self._world
        written = Write(world.now, request, self.values.get(name), after)
        world.trace("data", "offsets of %s: %s", name, written)
        self._check_write(name, written)
        self.writes.setdefault(name, []).append(written)
        if after is None:
            self.values.pop(name, None)
        else:
            self.values[name] = after

    def _request(self, name: str, config_offset: int) -> str:
        """The change whose beginning a worker had got: the last one of the connector that its leader had read."""
        for entry in reversed(self._world.config_log.entries):
            record = audit_topic.decode(entry.record.key, entry.record.value)
            if not isinstance(record, AuditRecord) or entry.revision.next_offsets[0] > config_offset:
                continue
            if (record.operation, record.connector) == (_ALTERED, name) and record.outcome["ended"] is False:
                return record.request_id
        return ""

    # --- checks

    def _check_write(self, name: str, write: Write) -> None:
        if not write.request:
            return
        earlier = self.writes.get(name, [])
        mine = [place for place, one in enumerate(earlier) if one.request == write.request]
        if mine and any(one.request != write.request for one in earlier[mine[0] :]):
            text = (
                f"{write.request} changes the offsets of {name} once more, after what came of it: {earlier[mine[0] :]}"
            )
            self._world.checker.find("change of offsets made once", text)

    def answered(self, operation: Operation, *, acknowledged: bool, refused: bool) -> None:
        """Handle the answer to a client's change."""
        request = operation.request
        assert isinstance(request, ChangeOffsets)
        mine = [one for one in self.writes.get(request.name, []) if one.request == operation.id]
        if refused and mine:
            self._world.checker.find("wrong answer", f"{operation.id} is refused and was made: {mine}")
        if not acknowledged:
            return
        self._world.checker.counts["changes of offsets acknowledged"] += 1
        assert isinstance(operation.answer, OffsetsAnswer)
        if not mine:
            self._world.checker.find("acknowledged, not in effect", f"{operation.id} {request}: nobody wrote it")
            return
        expected = told(mine[0].before) if request.reset else request.offsets
        if operation.answer.offsets != expected:
            text = f"{operation.id} is told {operation.answer.offsets}, and it was {expected}"
            self._world.checker.find("a change of offsets tells what it did", text)
        self._acknowledged.setdefault(request.name, []).append(operation)

    def create_answered(self, operation: Operation, *, applied: bool) -> None:
        """Handle the answer to a client's create with initial offsets."""
        assert isinstance(operation.request, CreateConnector)
        name = operation.request.name
        written = any(one.request == operation.id for one in self.writes.get(name, []))
        if written != applied:
            was, were = "made" if applied else "not made", "set" if written else "not set"
            text = f"{operation.id}: {name} was {was}, its offsets were {were}"
            self._world.checker.find("a connector and its initial offsets are one write", text)

    def _check_begin(self, name: str) -> None:
        """Check that tasks begin at the acknowledged offset, unless a later write moved it."""
        operations = self._acknowledged.pop(name, [])
        if not operations:
            return
        last = operations[-1]
        assert isinstance(last.request, ChangeOffsets)
        wanted = None if last.request.reset else _number(last.request.offsets)
        since = [one for one in self.writes.get(name, []) if one.at_ms >= last.begun_ms and one.request != last.id]
        if since:
            return
        self._world.checker.counts["starts from offsets that were changed"] += 1
        if self.values.get(name) != wanted:
            text = f"{name} begins from {self.values.get(name)}, {last.id} was told {wanted}"
            self._world.checker.find("an acknowledged change of offsets is what tasks begin from", text)


def prepared(question: worker_commands.AlterOffsets) -> offsets_pb2.PreparedOffsets:
    """A worker's answer about the offsets of a create."""
    value = b"%d" % (_number(question.offsets) or 0)
    record = offsets_pb2.OffsetRecord(topic="offsets", key=question.connector.encode(), value=value)
    return offsets_pb2.PreparedOffsets(records=[record])


def _number(offsets: tuple[OffsetEntry, ...] | tuple[tuple[str, str | None], ...]) -> int | None:
    [one] = offsets
    text = one.offset_json if isinstance(one, OffsetEntry) else one[1]
    return None if text is None else int(json.loads(text)["kafka_offset"])
