"""What the herder itself knows of connector configs: names, patches, and who has which plugin.

Owns these few rules; everything else about a config is a worker's to judge, because workers have the plugins.
"""

from __future__ import annotations

import re

from herdmesh.herder.state.mesh import Mesh
from herdmesh.herder.state.model import (
    NAME_KEY,
    ConnectorEntry,
    ConnectorType,
    Plugin,
    PluginKind,
    Properties,
)
from herdmesh.rpc.errors import FieldViolation, InvalidConfig, RequestInvalid
from herdmesh.rpc.properties import PropertyValue

#: What `String.trim` takes off both ends; a space that is none of these belongs to the name.
_TRIMMED = "".join(map(chr, range(0x21)))
NAME_BYTES_MAX = 1_000
"""Names are part of ids of groups, clients and transactions (Kafka: 32,767 bytes), and of errors' trailing metadata
(gRPC: 8 KiB)."""
TASK_CLASS_KEY = "task.class"
"""Connect stores the class of a connector's tasks with each task's config."""
_SOURCE_FAMILIES = re.compile(
    r"io\.debezium\.connector\.|PostgresConnector$"
    r"|org\.apache\.kafka\.connect\.mirror\.|Mirror(Checkpoint|Heartbeat)(Connector)?$"
    r"|(io\.confluent\.kafka\.connect\.datagen\.)?Datagen(Connector)?$"
)
"""Sources whose names have neither Sink nor Source in them."""


def trimmed(name: str) -> str:
    """The name of a new connector, as Connect takes it from a create (reference/rest-api.md 3.2)."""
    return name.strip(_TRIMMED)


def given_name(mesh: Mesh, name: str) -> str:
    """The name that a request means: exactly as given where such a connector is there, else as a create takes it.
    (Java's PUT makes a connector with blanks around its name, which only the exact name means.) Raises RequestInvalid
    for an empty one."""
    if not name:
        raise RequestInvalid("name the connector", "name")
    entry = mesh.entries.get(name)
    return name if entry is not None and entry.has_config else trimmed(name) or name


def checked_name(name: str) -> str:
    """A name that Connect would take, and that fits into Kafka's requests. Raises InvalidConfig for an empty one, one
    with control characters, or one too long."""
    if len(name.encode()) > NAME_BYTES_MAX:
        text = f"a name has at most {NAME_BYTES_MAX} bytes (UTF-8), and {name[:40]}... has {len(name.encode())}"
        raise InvalidConfig([FieldViolation(NAME_KEY, f"{text}: choose a shorter one")])
    if not trimmed(name):
        raise InvalidConfig([FieldViolation(NAME_KEY, "String may not be empty: give the connector a name")])
    codes = {ord(character) for character in name}
    control = sorted(code for code in codes if code < 0x20 or 0x7F <= code < 0xA0)
    if control:
        text = f"String may not contain control sequences but had the following ASCII chars: {control}"
        raise InvalidConfig([FieldViolation(NAME_KEY, text)])
    return name


def own_name(config: Properties, name: str) -> str:
    """The name, which the config's own must equal, but for blanks around it, if it has one. Raises InvalidConfig."""
    given = config.get(NAME_KEY)
    if given is not None and given != name and trimmed(str(given)) != name:
        text = f"Connector name configuration ({given}) doesn't match connector name in the request ({name})"
        raise InvalidConfig([FieldViolation(NAME_KEY, text)])
    return name


def merged(config: Properties, patch: Properties) -> Properties:
    """`config` with `patch` over it; null removes its key (KIP-477)."""
    result: dict[str, PropertyValue] = {**config, **patch}
    return {name: value for name, value in result.items() if not (value is None and name in patch)}


def plugins(mesh: Mesh) -> list[Plugin]:
    """Every plugin of the connected workers, sorted by class; the same class in two versions stands twice."""
    found = {plugin for member in mesh.members.values() if member.session is not None for plugin in member.plugins}
    return sorted(found, key=lambda plugin: (plugin.class_name, plugin.version, plugin.kind))


def plugins_text(mesh: Mesh) -> str:
    """The connectors that could be named, for an error."""
    names = [plugin.class_name for plugin in plugins(mesh) if plugin.is_connector]
    return f"available connectors are: {', '.join(names) or '(none)'}"


def type_of(mesh: Mesh, entry: ConnectorEntry) -> ConnectorType:
    """Source or sink. First by the plugin of a worker that is here, then by what a worker once told this herder, then
    by the names of the connector's class and of the task class that is stored with its tasks. UNKNOWN only when none
    of them tells."""
    class_name = entry.class_name
    for member in mesh.members.values():
        plugin = member.connectors.get(class_name)
        if plugin is not None:
            return _type_of_plugin(plugin)
    if (told := mesh.connectors_told.get(class_name)) is not None:
        return _type_of_plugin(told)
    named = type_by_name(class_name)
    if named is ConnectorType.UNKNOWN and entry.tasks:
        return type_by_name(str(entry.tasks[0].get(TASK_CLASS_KEY) or ""))
    return named


def type_by_name(class_name: str) -> ConnectorType:
    """What a class is by its name alone. Nearly all of Connect's say so (`JdbcSinkConnector`); the families whose names
    do not are in `_SOURCE_FAMILIES`."""
    simple = class_name.rsplit(".", 1)[-1]
    is_sink, is_source = "Sink" in simple, "Source" in simple
    if is_sink != is_source:
        return ConnectorType.SINK if is_sink else ConnectorType.SOURCE
    if not is_sink and _SOURCE_FAMILIES.match(class_name):
        return ConnectorType.SOURCE
    return ConnectorType.UNKNOWN


def _type_of_plugin(plugin: Plugin) -> ConnectorType:
    return ConnectorType.SOURCE if plugin.kind is PluginKind.SOURCE else ConnectorType.SINK
