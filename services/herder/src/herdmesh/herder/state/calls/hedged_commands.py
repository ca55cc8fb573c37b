"""Hedged commands: a command that one worker does not answer in time is sent to a second one (hedged requests).

Owns when another worker gets the command, and how many at most. A worker that is frozen, or busy in a plugin's code, is
declared lost much later or never; a command that others can answer as well does not wait for it.

Only commands that change nothing and that every worker with the plugin answers alike are hedged. The first reply
counts, also a failure (`calls.on_reply` forgets the other commands). The reason why FenceTasks and AlterOffsets are not
hedged is in docs/adr/0008.

Invariant: a command is under way to `WORKERS_MAX` workers at most, to each of them once.
"""

from __future__ import annotations

from typing import Final

from herdmesh.herder.state.memory import (
    Call,
    CallTable,
    Command,
    Fleet,
    Member,
    Step,
)
from herdmesh.herder.state.workers import commands, plugin_catalog
from herdmesh.session.worker_commands import (
    DescribePlugin,
    PlanTaskConfigs,
    ReadOffsets,
    ValidateOnWorker,
    WorkerCommand,
)

#: Time before a second worker gets the command; a validation takes some milliseconds.
HEDGE_MS: Final = 2_000
WORKERS_MAX: Final = 3
HEDGED: Final = ValidateOnWorker | PlanTaskConfigs | DescribePlugin | ReadOffsets


def tick(step: Step, fleet: Fleet, call_table: CallTable) -> None:
    """Send every command that has waited too long to one more worker."""
    by_call: dict[int, list[Command]] = {}
    for command in call_table.commands.values():
        if command.call is not None and isinstance(command.body, HEDGED):
            by_call.setdefault(command.call, []).append(command)
    for number, asked in by_call.items():
        call = call_table.calls.get(number)
        if call is not None and len(asked) < WORKERS_MAX and step.now - asked[-1].sent_ms >= HEDGE_MS:
            _send_to_another(step, fleet, call_table, call, asked)


def _send_to_another(step: Step, fleet: Fleet, call_table: CallTable, call: Call, asked: list[Command]) -> None:
    body = asked[-1].body
    already = {command.worker_id for command in asked}
    others = [member for member in _able(fleet, body) if member.worker_id not in already]
    if others:
        commands.send_command(step, fleet, call_table, call, commands.preferred(step, others), body)


def _able(fleet: Fleet, body: WorkerCommand) -> list[Member]:
    match body:
        case ValidateOnWorker(config=config) | PlanTaskConfigs(config=config) | ReadOffsets(config=config):
            return commands.able(fleet, config)
        case DescribePlugin(class_name=class_name):
            return plugin_catalog.workers_with(fleet, class_name)
        case _:
            raise AssertionError(f"{body} is not a hedged command")
