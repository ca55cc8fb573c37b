"""Task configs of a connector, in their stored form: from its running instance, or from a temporary one.

Owns the keys that are added to the configs of the author's class. Calls authors' code, so call it in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from herdmesh.connect.config import keep_secret
from herdmesh.connect.config_providers import Resolved
from herdmesh.connect.spi import (
    TASK_CLASS,
    Connector,
    ConnectorContext,
    SinkConnector,
    checked_task_class,
    checked_task_configs,
)
from herdmesh.engine.runtime import Properties, as_exceptions
from herdmesh.worker.effects.runs import RunSpecs

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Started:
    """A started instance, and the config it was started with."""

    instance: Connector
    resolved: Resolved


def started(specs: RunSpecs, config: Properties, context: ConnectorContext | None = None) -> Started:
    """A started instance; `context` for one that stays running. Raises ConfigError, and any error of the author's
    `start`.
    """
    resolved = specs.providers.resolve(config)
    instance = specs.plugin(resolved.config).load()
    keep_secret(instance.config_def().passwords(resolved.config))
    instance.context = context
    instance.start(resolved.config)
    return Started(instance, resolved)


def task_configs(made: Started, tasks_max: int) -> list[Properties]:
    """The task configs of the instance, with references restored where they were resolved. The herder refuses more than
    `tasks_max` (`tasks.max.enforce`).
    """
    instance, config = made.instance, made.resolved.raw
    added: dict[str, str | None] = {TASK_CLASS: instance.java_task_class or checked_task_class(instance.task_class())}
    if isinstance(instance, SinkConnector):
        added |= {key: config[key] for key in ("topics", "topics.regex") if config.get(key)}
    # As Connect stores them (docs/reference/connect/herder.md, section 4.3): without these keys a Java worker that
    # takes over the topics could not start the tasks.
    return [{**made.resolved.put_back(one), **added} for one in checked_task_configs(instance.task_configs(tasks_max))]


def planned_task_configs(specs: RunSpecs, config: Properties, tasks_max: int) -> list[Properties]:
    """The task configs that the config would give: a temporary instance is started, called and stopped."""
    made = started(specs, config)
    try:
        return task_configs(made, tasks_max)
    finally:
        _stop(made.instance)


def _stop(instance: Connector) -> None:
    """Stop the instance. An error of `stop` does not change the result; as for a running instance, it is only
    logged."""
    try:
        with as_exceptions():
            instance.stop()
    except Exception:  # noqa: BLE001 - an author's code may raise anything
        _log.exception("connector_stop_failed", connector=type(instance).__name__)
