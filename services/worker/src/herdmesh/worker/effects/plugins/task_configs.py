"""Task configs of a connector, as they are stored: made by its running instance, or by one made for the request.

Owns what is added to what the author's class returns. Calls authors' code, so it is called in a thread.
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
    """A started instance; `context` of one that is to run. Raises ConfigError, and what the author's `start` raises."""
    resolved = specs.providers.resolve(config)
    instance = specs.plugin(resolved.config).load()
    keep_secret(instance.config_def().passwords(resolved.config))
    instance.context = context
    instance.start(resolved.config)
    return Started(instance, resolved)


def task_configs(made: Started, tasks_max: int) -> list[Properties]:
    """What the instance makes, with references where they were resolved; more than `tasks_max` is the herder's to
    refuse (`tasks.max.enforce`)."""
    instance, config = made.instance, made.resolved.raw
    added: dict[str, str | None] = {TASK_CLASS: instance.java_task_class or checked_task_class(instance.task_class())}
    if isinstance(instance, SinkConnector):
        added |= {key: config[key] for key in ("topics", "topics.regex") if config.get(key)}
    # As Connect stores them (docs/reference/connect/herder.md, section 4.3): without these a Java worker that takes
    # over the topics could start none of the tasks.
    return [{**made.resolved.put_back(one), **added} for one in checked_task_configs(instance.task_configs(tasks_max))]


def planned_task_configs(specs: RunSpecs, config: Properties, tasks_max: int) -> list[Properties]:
    """What the config would make: an instance of its own is started, asked and stopped."""
    made = started(specs, config)
    try:
        return task_configs(made, tasks_max)
    finally:
        _stop(made.instance)


def _stop(instance: Connector) -> None:
    """What `stop` raises changes no answer that is there already; as of one that ran, it is only logged."""
    try:
        with as_exceptions():
            instance.stop()
    except Exception:  # noqa: BLE001 - an author's code may raise anything
        _log.exception("connector_stop_failed", connector=type(instance).__name__)
