"""Calls that only ask: plans, plugins, loggers, dead letters, offsets. Dispatches them to the file of their concept.

Owns the dispatch and nothing else. Each step of such a call returns its answer, or None while something is still to be
heard, and raises what the call is to be refused with.
"""

from __future__ import annotations

from typing import Final

from herdmesh.herder.state.calls import dead_letters, loggers, offset_changes, plans, plugin_definitions
from herdmesh.herder.state.memory import Call, Command, Mesh
from herdmesh.herder.state.model.events import CommandReplied
from herdmesh.herder.state.model.requests import (
    Answer,
    ChangeOffsets,
    GetLoggers,
    GetOffsets,
    GetPlugin,
    ListDeadLetters,
    PlanConfig,
    ReplayDeadLetters,
    SetLoggers,
)

QUERIES: Final = (
    PlanConfig | GetPlugin | GetLoggers | SetLoggers | ListDeadLetters | ReplayDeadLetters | GetOffsets | ChangeOffsets
)


def begin(mesh: Mesh, call: Call) -> Answer | None:
    """Start the call."""
    match call.request:
        case PlanConfig():
            plans.begin(mesh, call, call.request)
        case GetPlugin():
            plugin_definitions.ask(mesh, call, call.request)
        case GetLoggers():
            loggers.list_levels(mesh, call, call.request)
        case SetLoggers():
            loggers.set_level(mesh, call, call.request)
        case ListDeadLetters() | ReplayDeadLetters():
            dead_letters.ask(mesh, call, call.request)
        case GetOffsets():
            offset_changes.read(mesh, call, call.request)
        case ChangeOffsets():
            return offset_changes.begin(mesh, call, call.request)
        case _:
            raise AssertionError(f"{call.request} is no query")
    return None


def answered(mesh: Mesh, call: Call, command: Command, reply: CommandReplied) -> Answer | None:
    """A worker answered a question of the call."""
    match call.request:
        case PlanConfig():
            return plans.answered(mesh, call, command.question, reply)
        case GetPlugin():
            return plugin_definitions.described(mesh, call.request, command.worker_id, reply)
        case ListDeadLetters() | ReplayDeadLetters():
            return dead_letters.answered(call, command, reply)
        case GetOffsets():
            return offset_changes.was_read(call, command, reply)
        case ChangeOffsets():
            return offset_changes.answered(mesh, call, call.request, command, reply)
        case GetLoggers() | SetLoggers():
            return loggers.answered(mesh, call, command, reply)
        case _:
            raise AssertionError(f"{call.request} is no query")


def lost(mesh: Mesh, call: Call, command: Command) -> Answer | None:
    """The worker that was asked is gone."""
    match call.request:
        case PlanConfig():
            plans.ask_again(mesh, call, command.question)
        case GetPlugin():
            plugin_definitions.ask(mesh, call, call.request)
        case ListDeadLetters() | ReplayDeadLetters():
            dead_letters.lost(mesh, call, call.request, command)
        case GetOffsets():
            offset_changes.read(mesh, call, call.request)
        case ChangeOffsets():
            return offset_changes.lost(mesh, call, call.request, command)
        case GetLoggers() | SetLoggers():
            return loggers.lost(mesh, call, command)
        case _:
            raise AssertionError(f"{call.request} is no query")
    return None
