"""Callers of the public service, as `herd` calls: to the leader, with retries under one request id until it answers.

Owns the requests, and the caller's final knowledge of each: acknowledged, refused, or unknown.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from herdmesh.herder.state.model.requests import Answer as CallAnswer
from herdmesh.herder.state.model.requests import (
    ChangeOffsets,
    CreateConnector,
    DeleteConnector,
    DrainWorker,
    PatchConnector,
    PlanConfig,
    Request,
    RestartConnector,
    RestartTask,
    SetLoggers,
    SetTarget,
    UpdateConnector,
    ValidateConfig,
    WriteOptions,
)
from herdmesh.rpc.errors import HerdmeshError, NotLeader, Unreachable
from herdmesh.session.model import OffsetEntry, TargetState
from tests.sim.mesh.node import Node
from tests.sim.mesh.offsets import told
from tests.sim.mesh.scheduler import Answer

if TYPE_CHECKING:
    from tests.sim.mesh.herder import HerderProcess
    from tests.sim.mesh.world import World

PATIENCE_MS = 10_000
CALL_MS = 8_000
_RETRY_MS = 250
_RETRIED = frozenset(
    {"NO_LEADER", "STORE_REPLAYING", "NOT_WRITER", "WRITER_FENCED", "SHUTTING_DOWN", "TOPIC_RECREATED", "NO_WORKER"}
)
#: answers that promise that nothing was done, and that nothing will be.
REFUSALS = frozenset(
    {
        "CONFIG_INVALID",
        "REQUEST_INVALID",
        "CONNECTOR_EXISTS",
        "CONNECTOR_NOT_FOUND",
        "TASK_NOT_FOUND",
        "WORKER_NOT_FOUND",
        "REVISION_MISMATCH",
        "CONNECTOR_NOT_STOPPED",
    }
)
_OFFSET = OffsetEntry('{"kafka_topic":"t","kafka_partition":0}', '{"kafka_offset":7}')
NAMES = ("a", "b", "c", "d", "e")


class Outcome(Enum):
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass
class Operation:
    """One request of a client, with all its attempts. Times are the world's."""

    id: str
    request: Request
    begun_ms: int
    ended_ms: int = 0
    outcome: Outcome = Outcome.UNKNOWN
    answer: CallAnswer | HerdmeshError | None = None
    attempts: int = 0
    #: when the herder gave the answer that the caller has.
    decided_ms: int = 0


class Client(Node):
    """One caller, one request at a time."""

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, world)
        self.operations: list[Operation] = []
        self.busy = False
        self.stopped = False
        self.start()
        self._dialled = world.rng.choice(world.herders)
        self._configured = self._dialled

    def begin(self) -> None:
        self.after(self.world.rng.randint(0, 2_000), self._next)

    def ask(self, request: Request) -> Operation:
        """Begin one request; it ends by itself."""
        operation = Operation(f"{self.name}-{len(self.operations)}", request, self.world.now)
        self.operations.append(operation)
        self.world.trace(self.name, "asks %s: %s", operation.id, request)
        self.busy = True
        self._attempt(operation)
        return operation

    def _next(self) -> None:
        if self.stopped:
            return
        if not self.busy:
            self.ask(self._request())
        self.after(self.world.rng.randint(300, 4_000), self._next)

    # --- one request, as cli.client.HerderClient.call

    def _attempt(self, operation: Operation) -> None:
        target = self._dialled
        operation.attempts += 1
        options = WriteOptions(request_id=operation.id, caller=operation.id)

        async def work() -> Any:
            found = await _called(target, operation.request, options)
            return found, self.world.now

        answer = self.world.network.call(self, target, work, CALL_MS)
        answer.then(lambda: self._read(operation, answer))

    def _read(self, operation: Operation, answer: Answer) -> None:
        result, error = answer.outcome
        late = self.world.now - operation.begun_ms > PATIENCE_MS
        if error is None:
            result, operation.decided_ms = result
            error = result if isinstance(result, HerdmeshError) else None
        if error is None:
            self._end(operation, Outcome.ACKNOWLEDGED, result)
        elif isinstance(error, NotLeader):
            self._follow(error.metadata.get("leader_address", ""))
            self._again(operation, late, error, 0)
        elif isinstance(error, Unreachable):
            self._dialled = self.world.rng.choice(self.world.herders)
            self._again(operation, late, error, _RETRY_MS)
        elif error.reason in _RETRIED:
            self._again(operation, late, error, _RETRY_MS)
        else:
            outcome = Outcome.REFUSED if error.reason in REFUSALS else Outcome.UNKNOWN
            self._end(operation, outcome, error)

    def _again(self, operation: Operation, late: bool, error: HerdmeshError, wait_ms: int) -> None:
        if late:
            self._end(operation, Outcome.UNKNOWN, error)
        else:
            self.after(wait_ms, lambda: self._attempt(operation))

    def _follow(self, address: str) -> None:
        self._dialled = next((one for one in self.world.herders if one.address == address), self._configured)

    def _end(self, operation: Operation, outcome: Outcome, answer: CallAnswer | HerdmeshError) -> None:
        operation.outcome, operation.answer, operation.ended_ms = outcome, answer, self.world.now
        self.world.trace(self.name, "%s %s: %r", operation.id, outcome.value, answer)
        self.busy = False
        self.world.checker.answered(operation)

    # --- choice of requests

    def _request(self) -> Request:
        rng = self.world.rng
        name = rng.choice(NAMES)
        config = self._config()
        kind = rng.choices(
            ("create", "update", "patch", "delete", "target", "restart", "task", "validate", "drain", "plan", "logger"),
            weights=(8, 5, 4, 2, 5, 4, 3, 1, 1, 1, 1),
        )[0]
        match kind:
            case "create":
                offsets = (_OFFSET,) if rng.random() < 0.3 else ()
                return CreateConnector(name, config, rng.choice((None, None, *TargetState)), offsets)
            case "update":
                return UpdateConnector(name, config, allow_missing=rng.random() < 0.5)
            case "patch":
                return PatchConnector(name, {"note": config["note"], "tasks.max": config["tasks.max"]})
            case "delete":
                return DeleteConnector(name)
            case "target":
                return SetTarget(name, rng.choice((TargetState.STARTED, *TargetState)))
            case "restart":
                return RestartConnector(name, include_tasks=rng.random() < 0.7, only_failed=rng.random() < 0.5)
            case "task":
                return RestartTask(name, rng.randint(0, 3))
            case "validate":
                return ValidateConfig(config)
            case "plan":
                return PlanConfig(name, config)
            case "logger":
                worker = rng.choice(("", *(worker.name for worker in self.world.workers)))
                return SetLoggers("herdmesh", rng.choice(("INFO", "DEBUG", "WARN")), worker)
            case _:
                return DrainWorker(rng.choice(self.world.workers).name)

    def _config(self) -> dict[str, Any]:
        rng = self.world.rng
        config: dict[str, Any] = {
            "connector.class": rng.choice(("Sink", "Source")),
            "tasks.max": str(rng.randint(1, 4)),
            "note": f"{self.name}-{len(self.operations)}",
        }
        draw = rng.random()
        if draw < 0.05:
            config["wrong"] = "yes"
        elif draw < 0.10:
            config["always"] = rng.choice(("RETRIABLE", "BAD_CONFIG", "UNKNOWN"))
        return config


class Operator(Client):
    """An operator who stops connectors, changes their offsets, and starts them again."""

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, world)
        self._chance = random.Random(f"operator {world.seed}")
        self._intended: list[Request] = []

    def _request(self) -> Request:
        if not self._intended:
            connector = self._chance.choice(NAMES[:3])
            changes = [self._change(connector) for _ in range(self._chance.randint(1, 2))]
            resumes = [SetTarget(connector, TargetState.STARTED)] if self._chance.random() < 0.8 else []
            self._intended = [SetTarget(connector, TargetState.STOPPED), *changes, *resumes]
        return self._intended.pop(0)

    def _change(self, connector: str) -> ChangeOffsets:
        if self._chance.random() < 0.4:
            return ChangeOffsets(connector, reset=True)
        return ChangeOffsets(connector, told(self._chance.randint(1, 1_000_000) * 1_000))


async def _called(herder: HerderProcess, request: Request, options: WriteOptions) -> Any:
    """Do the servicer's work: hand the request to the loop, wait for the answer or the refusal."""
    answer = Answer()

    def reply(found: CallAnswer | HerdmeshError) -> None:
        answer.set(found)

    number = herder.call(request, options, CALL_MS, reply)
    # A client that stops waiting cancels its call.
    herder.after(CALL_MS + 500, lambda: herder.cancel(number))
    return await answer
