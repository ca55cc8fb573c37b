"""Dead letter requests: a worker that can load the connector's class lists its dead letters, or replays them.

Owns the choice of the worker. Does not own the queue and the record of replays, which Kafka keeps and a worker reads
(`ListDeadLetters`, `ReplayDeadLetters`): the herder passes request and answer on, unopened.

Invariant: a second worker gets a replay only under a request id, by which it knows what the first did.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Final

from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state.calls.connector_names import given_name
from herdmesh.herder.state.calls.handler import RequestHandler
from herdmesh.herder.state.memory import (
    Call,
    CallStage,
    Command,
    HerderMemory,
)
from herdmesh.herder.state.model import ConnectorEntry
from herdmesh.herder.state.model.events import CommandReplied
from herdmesh.herder.state.model.requests import Answer, DeadLettersAnswer, ListDeadLetters, ReplayDeadLetters
from herdmesh.herder.state.workers import commands
from herdmesh.rpc.errors import ConnectorNotFound, DeadLettersRefused, NoWorker
from herdmesh.session.worker_commands import ListDeadLettersOnWorker, ReplayOnWorker

_RETRIABLE: Final = (ErrorClass.RETRIABLE, ErrorClass.UNREACHABLE, ErrorClass.FENCED)


@dataclass(frozen=True)
class _DeadLetterHandler(RequestHandler):
    """Common steps of listing and replaying."""

    request: ListDeadLetters | ReplayDeadLetters

    @abstractmethod
    def worker_command(self, entry: ConnectorEntry) -> ListDeadLettersOnWorker | ReplayOnWorker:
        """The command for a worker."""

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Send the command to a worker. Raises ConnectorNotFound, NoWorker, or InvalidConfig when no worker has the
        class.
        """
        call.name = given_name(memory.stores, self.request.name)
        entry = memory.stores.entries.get(call.name)
        if entry is None or not entry.has_config:
            raise ConnectorNotFound(call.name)
        call.stage = CallStage.DEAD_LETTERS
        commands.send_to_able_worker(memory, call, self.worker_command(entry))
        return None

    def on_reply(self, memory: HerderMemory, call: Call, command: Command, reply: CommandReplied) -> Answer | None:
        """The worker's answer. Raises NoWorker for a failure that may go away by itself, DeadLettersRefused for any
        other.
        """
        failure = reply.failure
        if failure is not None and failure.error_class in _RETRIABLE:
            raise NoWorker(f"worker {command.worker_id} could not carry out the request: {failure.message}; try again")
        if failure is not None:
            raise DeadLettersRefused(call.name, failure.message)
        return DeadLettersAnswer(reply.dead_letters)

    def on_worker_lost(self, memory: HerderMemory, call: Call, command: Command) -> Answer | None:
        """Send the command to another worker. Raises as `begin`."""
        return self.begin(memory, call)


@dataclass(frozen=True)
class ListDeadLettersHandler(_DeadLetterHandler):
    """Lists of dead letters."""

    request: ListDeadLetters

    def worker_command(self, entry: ConnectorEntry) -> ListDeadLettersOnWorker:
        return ListDeadLettersOnWorker(entry.config, self.request.wire)


@dataclass(frozen=True)
class ReplayDeadLettersHandler(_DeadLetterHandler):
    """Replays of dead letters."""

    request: ReplayDeadLetters

    def worker_command(self, entry: ConnectorEntry) -> ReplayOnWorker:
        return ReplayOnWorker(entry.config, self.request.wire)

    def on_worker_lost(self, memory: HerderMemory, call: Call, command: Command) -> Answer | None:
        """Send the command to another worker if that is safe, else raise NoWorker. Raises as `begin`."""
        if not call.options.request_id:
            raise NoWorker(
                f"worker {command.worker_id} disconnected before it answered; dead letters may be replayed: list them"
            )
        return self.begin(memory, call)
