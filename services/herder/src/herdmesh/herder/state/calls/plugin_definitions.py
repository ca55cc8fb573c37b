"""What workers say of their plugins, and describing one: any worker that has it is asked for its config definition.

Owns what is noted of it, and the search by class name or alias over all kinds of plugins. The definition itself is a
worker's to tell.
"""

from __future__ import annotations

from herdmesh.herder.state.memory import Call, Mesh, Stage
from herdmesh.herder.state.model.events import CommandReplied
from herdmesh.herder.state.model.questions import DescribePlugin
from herdmesh.herder.state.model.requests import GetPlugin, PluginDescribed
from herdmesh.herder.state.workers import commands, plugin_catalog
from herdmesh.rpc.errors import NoWorker, PluginNotFound, RequestInvalid


def ask(mesh: Mesh, call: Call, request: GetPlugin) -> None:
    """Ask a worker that has it. Raises PluginNotFound with the known ones, NoWorker when nobody can be asked."""
    class_name = request.class_name.strip()
    if not class_name:
        raise RequestInvalid("name the plugin: its class name or an alias", "class_name")
    if not any(member.session is not None for member in mesh.members.values()):
        raise NoWorker("no worker is connected, so no plugin can be described; start a worker and try again")
    found = plugin_catalog.workers_with(mesh, class_name)
    if not found:
        raise PluginNotFound(class_name, sorted({plugin.class_name for plugin in plugin_catalog.plugins(mesh)}))
    call.stage = Stage.DESCRIBING
    commands.ask(mesh, call, commands.preferred(mesh, found), DescribePlugin(class_name))


def described(mesh: Mesh, request: GetPlugin, worker_id: str, reply: CommandReplied) -> PluginDescribed:
    """The worker told, or could not. Raises NoWorker with its own words."""
    member = mesh.members.get(worker_id)
    plugin = plugin_catalog.find(member, request.class_name.strip()) if member is not None else None
    if reply.failure is not None or plugin is None:
        why = reply.failure.message if reply.failure is not None else "it does not have it any more"
        raise NoWorker(f"worker {worker_id} could not describe {request.class_name}: {why}")
    return PluginDescribed(plugin, reply.plugin_fields)
