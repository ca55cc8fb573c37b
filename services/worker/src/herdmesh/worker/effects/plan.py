"""Task configs of a connector, as they are stored: of a running instance, or of one made for the question.

Owns what is added to what the author's class returns. Calls authors' code, so it is called in a thread.
"""

from __future__ import annotations

from herdmesh.connect.connector import TASK_CLASS, Connector
from herdmesh.engine.contract import Properties
from herdmesh.worker.effects.specs import RunSpecs


def started(specs: RunSpecs, config: Properties) -> Connector:
    """A started instance. Raises ConfigError, and what the author's `start` raises."""
    instance = specs.plugin(config).load()
    instance.start(config)
    return instance


def task_configs(instance: Connector, tasks_max: int) -> list[Properties]:
    """What a started instance makes; more than `tasks_max` is the herder's to refuse (`tasks.max.enforce`)."""
    task_class = instance.java_task_class or instance.task_class()
    # As Connect stores them: without it a Java worker that takes over the topics could start none of the tasks.
    return [{**one, TASK_CLASS: task_class} for one in instance.task_configs(tasks_max)]


def planned_task_configs(specs: RunSpecs, config: Properties, tasks_max: int) -> list[Properties]:
    """What the config would make: an instance of its own is started, asked and stopped."""
    instance = started(specs, config)
    try:
        return task_configs(instance, tasks_max)
    finally:
        instance.stop()
