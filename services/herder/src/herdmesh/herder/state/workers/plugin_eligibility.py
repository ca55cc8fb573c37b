"""Plugin eligibility: which workers can run a connector, having its class and the other plugins that its config names.

Owns that rule. A transformation, predicate or converter counts once a worker has reported it to this leader, also while
that worker is unreachable. A class that no worker reported (it exists nowhere, or is a reference that only a worker
resolves) excludes no worker: the task's failure names the problem.

Invariant: the order of workers and configs changes nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator

from herdmesh.herder.state.memory import (
    Connector,
    Fleet,
    Member,
    has,
)
from herdmesh.herder.state.model import ConnectorEntry
from herdmesh.session.model import Properties

#: A class by its name or alias, and its requested version; empty = any.
Named = tuple[str, str]


def needs(entry: ConnectorEntry) -> tuple[Named, ...]:
    """The connector's class, then the other plugins of its config. A worker that can run one entry can run all with
    the same needs."""
    return (entry.plugin, *steps(entry.config))


def needs_of(connector: Connector, entry: ConnectorEntry) -> tuple[Named, ...]:
    """The needs of a connector's entry, which are remembered while its config is the same object: each placement needs
    those of all connectors.
    """
    if connector.needs_config is not entry.config:
        connector.needs, connector.needs_config = needs(entry), entry.config
    return connector.needs


def steps(config: Properties) -> Iterator[Named]:
    """The transformations, predicates and converters that a config names. Malformed ones are left out."""
    for family in ("transforms", "predicates"):
        for alias in filter(None, map(str.strip, _text(config, family).split(","))):
            yield from _named(config, f"{family}.{alias}.type", f"{family}.{alias}.")
    for key in ("key.converter", "value.converter", "header.converter"):
        yield from _named(config, key, f"{key}.")


def runs(fleet: Fleet, member: Member, entry: ConnectorEntry) -> bool:
    """True when the worker has all plugins of the entry."""
    return member.has_plugin(entry.plugin) and next(lacks(fleet, member, entry.config), None) is None


def lacks(fleet: Fleet, member: Member, config: Properties) -> Iterator[Named]:
    """The transformations, predicates and converters of a config that other workers have or had and this one lacks."""
    for step in steps(config):
        if not has(member.step_versions, step) and has(fleet.steps_reported, step):
            yield step


def text(named: Named) -> str:
    """Class and version, as text for an explanation."""
    class_name, version = named
    return f"the plugin {class_name or '(none named)'}{f' in version {version}' if version else ''}"


def _named(config: Properties, key: str, prefix: str) -> Iterator[Named]:
    if class_name := _text(config, key).strip():
        yield class_name, _text(config, f"{prefix}plugin.version")


def _text(config: Properties, key: str) -> str:
    value = config.get(key)
    return value if isinstance(value, str) else ""
