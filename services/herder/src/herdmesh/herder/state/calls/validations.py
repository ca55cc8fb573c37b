"""Validations of a config on a worker: whole requests, and the first step of others.

Owns the handler of `ValidateConfig` and the command that requests a verdict. The handlers of create, update, patch and
plan own the consequences of a verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

from herdmesh.herder.state.calls.connector_names import checked_name, given_name, own_name, trimmed
from herdmesh.herder.state.calls.handler import RequestHandler
from herdmesh.herder.state.memory import (
    Call,
    CallStage,
    Command,
    HerderMemory,
)
from herdmesh.herder.state.model import NAME_KEY
from herdmesh.herder.state.model.events import CommandReplied
from herdmesh.herder.state.model.requests import Answer, ValidateConfig, Validated
from herdmesh.herder.state.workers import commands
from herdmesh.session.model import Properties
from herdmesh.session.worker_commands import ValidateOnWorker


@dataclass(frozen=True)
class ValidateHandler(RequestHandler):
    """Validations without a write."""

    request: ValidateConfig

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Have a worker validate the config. Raises as `commands.send_to_able_worker`; InvalidConfig for a name that
        Connect refuses.
        """
        config = self.request.config
        if self.request.name is not None:
            given = config.get(NAME_KEY)
            named = self.request.name or (trimmed(given) if isinstance(given, str) else "")
            name = checked_name(given_name(memory.stores, named) if named else "")
            config = {**config, NAME_KEY: own_name(config, name)}
        request_validation(memory, call, config, verdict_only=self.request.name is not None)
        return None

    def on_reply(self, memory: HerderMemory, call: Call, command: Command, reply: CommandReplied) -> Answer | None:
        return Validated(commands.verdict(reply))

    def on_worker_lost(self, memory: HerderMemory, call: Call, command: Command) -> Answer | None:
        request_validation(memory, call, call.config or {}, verdict_only=self.request.name is not None)
        return None


def request_validation(memory: HerderMemory, call: Call, config: Properties, *, verdict_only: bool) -> None:
    """Have a worker validate a config; `verdict_only`: what is accepted needs no description. Raises as
    `commands.send_to_able_worker`.
    """
    call.config = config
    call.stage = CallStage.VALIDATING
    commands.send_to_able_worker(memory, call, ValidateOnWorker(config, verdict_only))
