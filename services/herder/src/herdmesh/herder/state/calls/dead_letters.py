"""A connector's dead letters: a worker that can load its class looks at them, or puts them back.

Owns who is asked. The queue, and what was put back, are Kafka's to remember and a worker's to read (`ListDeadLetters`,
`ReplayDeadLetters`): the herder only passes the request and the answer on, unopened.

Invariant: a replay is asked of a second worker only under a request id, by which the second knows what the first did.
"""

from __future__ import annotations

from typing import Final

from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state.calls.connector_names import given_name
from herdmesh.herder.state.memory import Call, Command, Mesh, Stage
from herdmesh.herder.state.model.events import CommandReplied
from herdmesh.herder.state.model.questions import AskDeadLetters, AskReplay
from herdmesh.herder.state.model.requests import DeadLettersTold, ListDeadLetters, ReplayDeadLetters
from herdmesh.herder.state.workers import commands
from herdmesh.rpc.errors import ConnectorNotFound, DeadLettersRefused, NoWorker

_RETRIABLE: Final = (ErrorClass.RETRIABLE, ErrorClass.UNREACHABLE, ErrorClass.FENCED)


def ask(mesh: Mesh, call: Call, request: ListDeadLetters | ReplayDeadLetters) -> None:
    """Ask a worker. Raises ConnectorNotFound, NoWorker, or InvalidConfig when no worker has the class."""
    call.name = given_name(mesh, request.name)
    entry = mesh.entries.get(call.name)
    if entry is None or not entry.has_config:
        raise ConnectorNotFound(call.name)
    call.stage = Stage.DEAD_LETTERS
    if isinstance(request, ListDeadLetters):
        commands.ask_able(mesh, call, AskDeadLetters(entry.config, request.wire))
    else:
        commands.ask_able(mesh, call, AskReplay(entry.config, request.wire))


def answered(call: Call, command: Command, reply: CommandReplied) -> DeadLettersTold:
    """A worker told, or could not. Raises NoWorker for what may go away by itself, DeadLettersRefused."""
    failure = reply.failure
    if failure is not None and failure.error_class in _RETRIABLE:
        raise NoWorker(f"worker {command.worker_id} could not do it: {failure.message}; try again")
    if failure is not None:
        raise DeadLettersRefused(call.name, failure.message)
    return DeadLettersTold(reply.dead_letters)


def lost(mesh: Mesh, call: Call, request: ListDeadLetters | ReplayDeadLetters, command: Command) -> None:
    """The worker went without answering: another one is asked where that is safe. Raises as `ask`."""
    if isinstance(request, ReplayDeadLetters) and not call.options.request_id:
        raise NoWorker(
            f"worker {command.worker_id} went away before it answered; it may have put letters back: list them"
        )
    ask(mesh, call, request)
