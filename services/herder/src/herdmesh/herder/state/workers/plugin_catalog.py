"""Plugin catalog: which plugins the workers have, and whether a connector class is a source or a sink.

Owns the leader's memory of the plugins that workers report, and the search in it by class name or alias. Does not
own whether a worker can run a whole config (`plugin_eligibility.py`), nor plugins' config definitions, which workers
have.
"""

from __future__ import annotations

import re

from herdmesh.herder.state.memory import (
    Agenda,
    Fleet,
    Member,
    Step,
)
from herdmesh.herder.state.model import ConnectorEntry, ConnectorType, Plugin, PluginKind, RefusedPlugin
from herdmesh.herder.state.model.events import PluginsChanged

TASK_CLASS_KEY = "task.class"
"""Connect stores the class of a connector's tasks with each task's config."""


_SOURCE_FAMILIES = re.compile(
    r"io\.debezium\.connector\.|PostgresConnector$"
    r"|org\.apache\.kafka\.connect\.mirror\.|Mirror(Checkpoint|Heartbeat)(Connector)?$"
    r"|(io\.confluent\.kafka\.connect\.datagen\.)?Datagen(Connector)?$"
)
"""Sources whose names contain neither Sink nor Source."""


def plugins(fleet: Fleet) -> list[Plugin]:
    """Every plugin of the connected workers, sorted by class; the same class in two versions is listed twice."""
    found = {plugin for member in fleet.members.values() if member.session is not None for plugin in member.plugins}
    return sorted(found, key=lambda plugin: (plugin.class_name, plugin.version, plugin.kind))


def connector_names(fleet: Fleet) -> set[str]:
    """The names of the known connectors as a config may write them: classes and aliases."""
    known = [plugin for plugin in plugins(fleet) if plugin.is_connector]
    return {name for plugin in known for name in (plugin.class_name, *plugin.aliases)}


def plugins_text(fleet: Fleet) -> str:
    """The known connectors, as text for an error."""
    names = [plugin.class_name for plugin in plugins(fleet) if plugin.is_connector]
    return f"available connectors are: {', '.join(names) or '(none)'}"


def type_of(fleet: Fleet, entry: ConnectorEntry) -> ConnectorType:
    """Source or sink: by the plugin of a connected worker, else by a report of an earlier worker, else by the names
    of the connector's class and of the task class that is stored with its tasks. UNKNOWN only when none of them
    helps.
    """
    class_name = entry.class_name
    for member in fleet.members.values():
        plugin = member.connectors.get(class_name)
        if plugin is not None:
            return _type_of_plugin(plugin)
    if (told := fleet.reported_connector(class_name)) is not None:
        return _type_of_plugin(told)
    named = type_by_name(class_name)
    if named is ConnectorType.UNKNOWN and entry.tasks:
        return type_by_name(str(entry.tasks[0].get(TASK_CLASS_KEY) or ""))
    return named


def type_by_name(class_name: str) -> ConnectorType:
    """Source or sink by the name of a class alone. Nearly all of Connect's names contain it (`JdbcSinkConnector`); the
    other families are in `_SOURCE_FAMILIES`.
    """
    simple = class_name.rsplit(".", 1)[-1]
    is_sink, is_source = "Sink" in simple, "Source" in simple
    if is_sink != is_source:
        return ConnectorType.SINK if is_sink else ConnectorType.SOURCE
    if not is_sink and _SOURCE_FAMILIES.match(class_name):
        return ConnectorType.SOURCE
    return ConnectorType.UNKNOWN


def _type_of_plugin(plugin: Plugin) -> ConnectorType:
    return ConnectorType.SOURCE if plugin.kind is PluginKind.SOURCE else ConnectorType.SINK


def folders_changed(step: Step, agenda: Agenda, fleet: Fleet, event: PluginsChanged) -> None:
    """The plugin folders of a worker have changed. Its units run on; units that wait for a plugin may find it now."""
    member = fleet.member_of(event.session)
    if member is None:
        return
    member.last_message_ms = step.now
    member.set_plugins(event.plugins, event.refused)
    fleet.note_plugins(member)
    agenda.place_all()


def refused_plugins(fleet: Fleet) -> list[tuple[RefusedPlugin, list[str]]]:
    """The plugins that connected workers found and cannot use, sorted, each with the workers that reported it."""
    found: dict[RefusedPlugin, list[str]] = {}
    for worker_id, member in sorted(fleet.members.items()):
        for one in member.refused if member.session is not None else ():
            found.setdefault(one, []).append(worker_id)
    return sorted(found.items(), key=lambda item: (item[0].folder, item[0].plugin, item[0].why))


def workers_with(fleet: Fleet, class_name: str) -> list[Member]:
    """The connected workers that have the plugin, by class name or alias."""
    members = (member for member in fleet.members.values() if member.session is not None)
    return [member for member in members if find(member, class_name) is not None]


def find(member: Member, name: str) -> Plugin | None:
    return next((plugin for plugin in member.plugins if name in (plugin.class_name, *plugin.aliases)), None)
