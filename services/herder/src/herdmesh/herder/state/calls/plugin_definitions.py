"""Plugin definitions: `GetPlugin`, answered with the config definition that any worker with the plugin gives.

Owns the handler of that request. Does not own the search by class name or alias over all kinds of plugins
(`plugin_catalog.py`), nor the definition itself, which only workers have.
"""

from __future__ import annotations

from dataclasses import dataclass

from herdmesh.herder.state.calls.handler import RequestHandler
from herdmesh.herder.state.memory import (
    Call,
    CallStage,
    Command,
    HerderMemory,
)
from herdmesh.herder.state.model.events import CommandReplied
from herdmesh.herder.state.model.requests import Answer, GetPlugin, PluginDescribed
from herdmesh.herder.state.workers import commands, plugin_catalog
from herdmesh.rpc.errors import NoWorker, PluginNotFound, RequestInvalid
from herdmesh.session.worker_commands import DescribePlugin


@dataclass(frozen=True)
class PluginHandler(RequestHandler):
    """Requests for a plugin's config definition."""

    request: GetPlugin

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Send the command to a worker with the plugin. Raises PluginNotFound with the known ones, NoWorker when none
        is connected.
        """
        class_name = self.request.class_name.strip()
        if not class_name:
            raise RequestInvalid("name the plugin: its class name or an alias", "class_name")
        if not any(member.session is not None for member in memory.fleet.members.values()):
            raise NoWorker("no worker is connected, so no plugin can be described; start a worker and try again")
        found = plugin_catalog.workers_with(memory.fleet, class_name)
        if not found:
            known = sorted({plugin.class_name for plugin in plugin_catalog.plugins(memory.fleet)})
            raise PluginNotFound(class_name, known)
        call.stage = CallStage.DESCRIBING
        commands.send_command(
            memory.step,
            memory.fleet,
            memory.call_table,
            call,
            commands.preferred(memory.step, found),
            DescribePlugin(class_name),
        )
        return None

    def on_reply(self, memory: HerderMemory, call: Call, command: Command, reply: CommandReplied) -> Answer | None:
        """The definition. Raises NoWorker, with the worker's message, when the worker could not describe the plugin."""
        member = memory.fleet.members.get(command.worker_id)
        class_name = self.request.class_name
        plugin = plugin_catalog.find(member, class_name.strip()) if member is not None else None
        if reply.failure is not None or plugin is None:
            why = reply.failure.message if reply.failure is not None else "it does not have it any more"
            raise NoWorker(f"worker {command.worker_id} could not describe {class_name}: {why}")
        return PluginDescribed(plugin, reply.plugin_fields)

    def on_worker_lost(self, memory: HerderMemory, call: Call, command: Command) -> Answer | None:
        """Send the command to another worker. Raises as `begin`."""
        return self.begin(memory, call)
