"""What workers say of their plugins, and describing one: any worker that has it is asked for its config definition.

Owns what is noted of it, and the search by class name or alias over all kinds of plugins. The definition itself is a
worker's to tell.
"""

from __future__ import annotations

from herdmesh.herder.state import commands
from herdmesh.herder.state.configs import plugins as known_plugins
from herdmesh.herder.state.events import CommandReplied, PluginsTold
from herdmesh.herder.state.mesh import Mesh
from herdmesh.herder.state.model import Plugin, RefusedPlugin
from herdmesh.herder.state.questions import DescribePlugin
from herdmesh.herder.state.records import Call, Member, Stage
from herdmesh.herder.state.requests import GetPlugin, PluginDescribed
from herdmesh.rpc.errors import NoWorker, PluginNotFound, RequestInvalid


def told(mesh: Mesh, event: PluginsTold) -> None:
    """The plugin folders of a worker have changed. What it runs goes on; what waits for a plugin may find it now."""
    member = mesh.member_of(event.session)
    if member is None:
        return
    member.heard_ms = mesh.now
    member.tell(event.plugins, event.refused)
    note(mesh, member)
    mesh.place_again = True


def note(mesh: Mesh, member: Member) -> None:
    """Remember what a worker can load for when it is away."""
    mesh.connectors_told.update(member.connectors)
    for name, versions in member.step_versions.items():
        mesh.steps_told.setdefault(name, set()).update(versions)


def refused(mesh: Mesh) -> list[tuple[RefusedPlugin, list[str]]]:
    """What connected workers found and cannot use, sorted, each with the workers that say so."""
    found: dict[RefusedPlugin, list[str]] = {}
    for worker_id, member in sorted(mesh.members.items()):
        for one in member.refused if member.session is not None else ():
            found.setdefault(one, []).append(worker_id)
    return sorted(found.items(), key=lambda item: (item[0].folder, item[0].plugin, item[0].why))


def ask(mesh: Mesh, call: Call, request: GetPlugin) -> None:
    """Ask a worker that has it. Raises PluginNotFound with the known ones, NoWorker when nobody can be asked."""
    class_name = request.class_name.strip()
    if not class_name:
        raise RequestInvalid("name the plugin: its class name or an alias", "class_name")
    if not any(member.session is not None for member in mesh.members.values()):
        raise NoWorker("no worker is connected, so no plugin can be described; start a worker and try again")
    found = able(mesh, class_name)
    if not found:
        raise PluginNotFound(class_name, sorted({plugin.class_name for plugin in known_plugins(mesh)}))
    call.stage = Stage.DESCRIBING
    commands.ask(mesh, call, commands.preferred(mesh, found), DescribePlugin(class_name))


def able(mesh: Mesh, class_name: str) -> list[Member]:
    """The connected workers that have the plugin, by class name or alias."""
    members = (member for member in mesh.members.values() if member.session is not None)
    return [member for member in members if _find(member, class_name) is not None]


def described(mesh: Mesh, request: GetPlugin, worker_id: str, reply: CommandReplied) -> PluginDescribed:
    """The worker told, or could not. Raises NoWorker with its own words."""
    member = mesh.members.get(worker_id)
    plugin = _find(member, request.class_name.strip()) if member is not None else None
    if reply.failure is not None or plugin is None:
        why = reply.failure.message if reply.failure is not None else "it does not have it any more"
        raise NoWorker(f"worker {worker_id} could not describe {request.class_name}: {why}")
    return PluginDescribed(plugin, reply.plugin_fields)


def _find(member: Member, name: str) -> Plugin | None:
    return next((plugin for plugin in member.plugins if name in (plugin.class_name, *plugin.aliases)), None)
