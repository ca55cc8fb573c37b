"""Task configs of a connector, as they are stored: of a running instance, or of one made for the question.

Owns what is added to what the author's class returns. Calls authors' code, so it is called in a thread.
"""

from __future__ import annotations

from herdmesh.connect.connector import TASK_CLASS, Connector, SinkConnector
from herdmesh.engine.contract import Properties
from herdmesh.worker.effects.specs import RunSpecs


def started(specs: RunSpecs, config: Properties) -> Connector:
    """A started instance. Raises ConfigError, and what the author's `start` raises."""
    instance = specs.plugin(config).load()
    instance.start(config)
    return instance


def task_configs(instance: Connector, config: Properties, tasks_max: int) -> list[Properties]:
    """What an instance started with `config` makes; more than `tasks_max` is the herder's to refuse
    (`tasks.max.enforce`)."""
    added: dict[str, str | None] = {TASK_CLASS: instance.java_task_class or instance.task_class()}
    if isinstance(instance, SinkConnector):
        added |= {key: config[key] for key in ("topics", "topics.regex") if config.get(key)}
    # As Connect stores them (reference/herder.md 4.3): without these a Java worker that takes over the topics could
    # start none of the tasks.
    return [{**one, **added} for one in instance.task_configs(tasks_max)]


def planned_task_configs(specs: RunSpecs, config: Properties, tasks_max: int) -> list[Properties]:
    """What the config would make: an instance of its own is started, asked and stopped."""
    instance = started(specs, config)
    try:
        return task_configs(instance, config, tasks_max)
    finally:
        instance.stop()
