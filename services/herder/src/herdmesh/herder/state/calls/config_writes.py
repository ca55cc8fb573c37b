"""Config writes: requests that the config store carries out, from the name over a worker's validation to the write.

Owns the handlers of create, update, patch, delete and of a change of the target state, and the base of all requests
that the store recognises by their id (`StoreWrite`). Does not own restarts (`restart_requests.py`), nor the offsets
that a create brings (`initial_offsets.py`). Owns no rule of the config store: the store alone decides, on the newest
state, whether a name exists, whether the expected revision is the stored one and whether it has seen the request id.
So a retried create is answered with its first outcome and not with CONNECTOR_EXISTS, and the store alone finds that an
update or a patch gives the config that is stored: then nothing is written and nothing restarts.

Order of checks as observable in Connect (docs/reference/connect/herder.md, section 4.1): name, validation, existence,
write. For a patch: existence, validation of the merged config, write. In a batch (`service/batches.py`) all validations
come before the first write, and the write has the verdict with it.

Invariant: a write goes out only while no other call holds the connector (`initial_offsets.must_wait`).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

from herdmesh.herder.state.calls import initial_offsets
from herdmesh.herder.state.calls.connector_names import checked_name, given_name, merged, own_name, trimmed
from herdmesh.herder.state.calls.handler import RequestHandler
from herdmesh.herder.state.calls.validations import request_validation
from herdmesh.herder.state.leadership import leadership_queries
from herdmesh.herder.state.memory import (
    Call,
    CallStage,
    Command,
    HerderMemory,
    Op,
    OpKind,
)
from herdmesh.herder.state.model import NAME_KEY, Validation
from herdmesh.herder.state.model.events import CommandReplied
from herdmesh.herder.state.model.instructions import DeleteConfig, PutConfig, PutTarget, RequestRestart
from herdmesh.herder.state.model.requests import (
    Answer,
    CreateConnector,
    DeleteConnector,
    PatchConnector,
    SetTarget,
    UpdateConnector,
    WriteOptions,
    Written,
)
from herdmesh.herder.state.workers import commands
from herdmesh.rpc.errors import ConnectorNotFound, HerdmeshError, InvalidConfig, RevisionMismatch
from herdmesh.session.model import Properties
from herdmesh.session.worker_commands import ValidateOnWorker

PATCH_ATTEMPTS_MAX = 5

StoreWriteInstruction = PutConfig | DeleteConfig | PutTarget | RequestRestart


@dataclass(frozen=True)
class StoreWrite(RequestHandler):
    """Request that the config store carries out, and recognises by its id."""

    @abstractmethod
    def instruction(self, memory: HerderMemory, call: Call, op: int, options: WriteOptions) -> StoreWriteInstruction:
        """The write for the store. Raises the error to refuse the call with."""

    def write(self, memory: HerderMemory, call: Call) -> None:
        """Have the store write; for a call that is to be refused, only look up an earlier request of its id."""
        op = memory.call_table.next_number()
        options = replace(call.options, retry_only=call.refusal is not None)
        instruction = self.instruction(memory, call, op, options)
        if call.refusal is None:
            memory.inventory.traces.begin(call.name, call.options.traceparent, memory.step.now)
        call.stage = CallStage.WRITING if call.refusal is None else CallStage.LOOKING_BACK
        memory.call_table.add_op(op, Op(OpKind.CALL, call=call.id))
        memory.step.emit(instruction)

    def write_when_free(self, memory: HerderMemory, call: Call) -> None:
        """Write now, or as soon as no other call holds the connector."""
        if not initial_offsets.must_wait(memory.call_table, call) and self.prepare(memory, call):
            self.write(memory, call)

    def prepare(self, memory: HerderMemory, call: Call) -> bool:
        """Take the last steps before the write. False while they are under way."""
        return True

    def look_again(self, memory: HerderMemory, call: Call) -> Answer | None:
        if call.stage in initial_offsets.WAITING:
            self.write_when_free(memory, call)
            return None
        return super().look_again(memory, call)

    def outcome(self, memory: HerderMemory, call: Call) -> Answer | None:
        return Written(call.name, call.revision, call.created, call.validation, call.unchanged)

    def may_be_recorded(self, call: Call) -> bool:
        return True

    def look_back(self, memory: HerderMemory, call: Call) -> None:
        self.write(memory, call)


@dataclass(frozen=True)
class ValidatedWrite(StoreWrite):
    """Write of a config, which a worker validates first."""

    def validate(self, memory: HerderMemory, call: Call, config: Properties, verdict: Validation | None) -> None:
        """Have a worker validate the config that is to be written; with a verdict, write it."""
        config = {**config, NAME_KEY: own_name(config, call.name)}
        if verdict is None:
            request_validation(memory, call, config, verdict_only=True)
        else:
            call.config, call.validation = config, verdict
            self.write_when_free(memory, call)

    def on_reply(self, memory: HerderMemory, call: Call, command: Command, reply: CommandReplied) -> Answer | None:
        """Act on the worker's verdict. Raises InvalidConfig, NoWorker."""
        validation = commands.verdict(reply)
        if validation.violations:
            raise InvalidConfig(validation.violations)
        call.validation = validation
        self.write_when_free(memory, call)
        return None

    def on_worker_lost(self, memory: HerderMemory, call: Call, command: Command) -> Answer | None:
        """Send the command to another worker. Raises as `commands.send_to_able_worker`."""
        request_validation(memory, call, call.config or {}, verdict_only=True)
        return None


@dataclass(frozen=True)
class CreateHandler(ValidatedWrite):
    """Creates of a connector."""

    request: CreateConnector

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Have the config validated, or written. Raises InvalidConfig for a name that Connect refuses."""
        given = self.request.config.get(NAME_KEY)
        named = trimmed(self.request.name) or (trimmed(given) if isinstance(given, str) else "")
        call.name, call.may_create = checked_name(named), True
        self.validate(memory, call, self.request.config, self.request.verdict)
        return None

    def prepare(self, memory: HerderMemory, call: Call) -> bool:
        return initial_offsets.prepare(memory, call, self.request)

    def on_reply(self, memory: HerderMemory, call: Call, command: Command, reply: CommandReplied) -> Answer | None:
        """Act on the worker's verdict, or take the next step towards the offsets that the create brings."""
        if isinstance(command.body, ValidateOnWorker):
            return super().on_reply(memory, call, command, reply)
        if initial_offsets.on_reply(memory, call, self.request, command, reply):
            self.write(memory, call)
        return None

    def on_worker_lost(self, memory: HerderMemory, call: Call, command: Command) -> Answer | None:
        """Send the command to another worker. Raises as `commands.send_to_able_worker`."""
        if isinstance(command.body, ValidateOnWorker):
            return super().on_worker_lost(memory, call, command)
        self.write_when_free(memory, call)
        return None

    def instruction(self, memory: HerderMemory, call: Call, op: int, options: WriteOptions) -> PutConfig:
        return PutConfig(
            op,
            call.name,
            call.config or {},
            options,
            must_not_exist=True,
            initial_target=self.request.initial_target,
            initial_offsets=call.prepared_offsets,
        )


@dataclass(frozen=True)
class UpdateHandler(ValidatedWrite):
    """Replacements of a config."""

    request: UpdateConnector

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Have the config validated, or written. Raises InvalidConfig for a name that Connect refuses."""
        call.name, call.may_create = (
            checked_name(given_name(memory.stores, self.request.name)),
            self.request.allow_missing,
        )
        self.validate(memory, call, self.request.config, self.request.verdict)
        return None

    def instruction(self, memory: HerderMemory, call: Call, op: int, options: WriteOptions) -> PutConfig:
        return PutConfig(
            op,
            call.name,
            call.config or {},
            options,
            must_exist=not self.request.allow_missing,
            only_if_changed=True,
        )


@dataclass(frozen=True)
class PatchHandler(ValidatedWrite):
    """Patches of a config: merged here, and merged again after a lost race with another write."""

    request: PatchConnector

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Merge and have the result validated. Raises ConnectorNotFound."""
        call.name = given_name(memory.stores, self.request.name)
        self._merge(memory, call)
        return None

    def instruction(self, memory: HerderMemory, call: Call, op: int, options: WriteOptions) -> PutConfig:
        # The merged config is correct only on top of the config that it was merged with.
        options = replace(options, expected_revision=options.expected_revision or call.revision)
        return PutConfig(
            op,
            call.name,
            call.config or {},
            options,
            must_exist=True,
            patch=self.request.patch,
            only_if_changed=True,
        )

    def on_write_failed(self, memory: HerderMemory, call: Call, error: HerdmeshError) -> Answer | HerdmeshError | None:
        raced = isinstance(error, RevisionMismatch) and call.options.expected_revision is None
        if not raced or call.refusal is not None:
            return super().on_write_failed(memory, call, error)
        refused = leadership_queries.refusal(memory.step, memory.leadership)
        if refused is not None or call.attempts >= PATCH_ATTEMPTS_MAX:
            return refused or error
        # The caller gave no revision to compare, so a lost race is no error: nothing was written, merge again.
        call.attempts += 1
        call.stage = CallStage.VALIDATING
        call.config = None
        memory.call_table.wait_for_watch(call)
        return self.look_again(memory, call)

    def look_again(self, memory: HerderMemory, call: Call) -> Answer | None:
        if not memory.call_table.waits_for_watch(call) or call.stage is CallStage.READING_BACK:
            return super().look_again(memory, call)
        entry = memory.stores.entries.get(call.name)
        if entry is not None and entry.has_config and entry.config_revision == call.revision:
            return None  # the watch has not yet brought the config that won the race
        memory.call_table.stop_waiting(call)
        self._merge(memory, call)
        return None

    def _merge(self, memory: HerderMemory, call: Call) -> None:
        entry = memory.stores.entries.get(call.name)
        if entry is None or not entry.has_config:
            raise ConnectorNotFound(call.name)
        call.revision = entry.config_revision
        config = merged(entry.config, self.request.patch)
        if NAME_KEY in config:
            config = {**config, NAME_KEY: own_name(config, call.name)}
        request_validation(memory, call, config, verdict_only=True)


@dataclass(frozen=True)
class DeleteHandler(StoreWrite):
    """Deletions of a connector."""

    request: DeleteConnector

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        call.name = given_name(memory.stores, self.request.name)
        self.write_when_free(memory, call)
        return None

    def instruction(self, memory: HerderMemory, call: Call, op: int, options: WriteOptions) -> DeleteConfig:
        return DeleteConfig(op, call.name, options)


@dataclass(frozen=True)
class SetTargetHandler(StoreWrite):
    """Pauses, resumes and stops."""

    request: SetTarget

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        call.name = given_name(memory.stores, self.request.name)
        self.write_when_free(memory, call)
        return None

    def instruction(self, memory: HerderMemory, call: Call, op: int, options: WriteOptions) -> PutTarget:
        return PutTarget(op, call.name, self.request.target, options)
