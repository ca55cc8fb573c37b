"""The path from a connector class to configs and tasks, the same as the worker's.

Owns that path, and the findings of validation. Invariant: every call begins with a new instance, as in the worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from herdmesh.connect.spi import TASK_CLASS, Connector, ConnectorContext, SinkTask, SourceConnector, SourceTask
from herdmesh.sdk.testing.worlds import World

TaskConfig = dict[str, str | None]


def full_config(connector: type[Connector], world: World, name: str) -> dict[str, str]:
    """The world's config plus the keys that all connectors have."""
    return {"name": name, "connector.class": connector.class_name, **world.config()}


def problems_of(connector: type[Connector], config: Mapping[str, str | None]) -> dict[str, list[str]]:
    """The errors of validation by key: from the config definition, and from the connector itself."""
    found: dict[str, list[str]] = {}
    for name, value in connector.config_def().validate(config).items():
        if value.problems:
            found[name] = [problem.message for problem in value.problems]
    for error in connector().validate(config):
        found.setdefault(error.field, []).append(str(error))
    return found


def started(connector: type[Connector], config: Mapping[str, str | None]) -> Connector:
    """A started instance, as in a worker."""
    made = connector()
    made.context = ConnectorContext(lambda: None)
    made.start(config)
    return made


def task_configs_of(connector: type[Connector], config: Mapping[str, str | None], tasks_max: int) -> list[TaskConfig]:
    """The configs of the tasks, as tasks receive them."""
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
    assert issubclass(found, kind), f"{path} is not a {kind.__name__}"
    return found()
