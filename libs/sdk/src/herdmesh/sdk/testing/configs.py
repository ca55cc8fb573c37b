"""The way from a connector class to configs and tasks, as the worker goes it.

Owns that way, and the findings of validation. Invariant: every call begins with a new instance, as the worker's do.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from herdmesh.connect.spi import TASK_CLASS, Connector, ConnectorContext, SinkTask, SourceConnector, SourceTask
from herdmesh.sdk.testing.worlds import World

TaskConfig = dict[str, str | None]


def full_config(connector: type[Connector], world: World, name: str) -> dict[str, str]:
    """The world's config with what all connectors have."""
    return {"name": name, "connector.class": connector.class_name, **world.config()}


def problems_of(connector: type[Connector], config: Mapping[str, str | None]) -> dict[str, list[str]]:
    """What validation says is wrong, by key: by the definition, and by the connector itself."""
    found: dict[str, list[str]] = {}
    for name, value in connector.config_def().validate(config).items():
        if value.problems:
            found[name] = [problem.message for problem in value.problems]
    for error in connector().validate(config):
        found.setdefault(error.field, []).append(str(error))
    return found


def started(connector: type[Connector], config: Mapping[str, str | None]) -> Connector:
    """An instance as a worker runs it."""
    made = connector()
    made.context = ConnectorContext(lambda: None)
    made.start(config)
    return made


def task_configs_of(connector: type[Connector], config: Mapping[str, str | None], tasks_max: int) -> list[TaskConfig]:
    """The configs of the tasks, as tasks are given them."""
    made = started(connector, config)
    try:
        configs = made.task_configs(tasks_max)
        path = made.task_class()
    finally:
        made.stop()
    return [{**one, TASK_CLASS: path} for one in configs]


def new_task(connector: type[Connector]) -> SourceTask | SinkTask:
    """A task that is not started."""
    path = connector().task_class()
    module, _, name = path.partition(":")
    found: Any = getattr(import_module(module), name, None)
    kind = SourceTask if issubclass(connector, SourceConnector) else SinkTask
    assert isinstance(found, type), f"task_class() is {path}, and {module} has no class {name}"
    assert issubclass(found, kind), f"{path} is no {kind.__name__}"
    return found()
