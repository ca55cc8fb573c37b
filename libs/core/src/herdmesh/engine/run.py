"""Start and end of a run: from a spec to a loop with its clients, and back to an outcome.

Owns construction and release. The loops are `sink` and `source`.

Invariant: whatever happens, the task's `stop` is called once and the clients are released. After `run` returned, only
threads in which clients close are left, and they write nothing. After an exception, a hanging call to Kafka may be left
(`kafka.call_timeout`).
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from importlib import import_module
from typing import TypeVar

from herdmesh.connect.chain import chain_config
from herdmesh.connect.config import keep_secret
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.plugins import plugin_imports
from herdmesh.connect.spi import SinkTask, SourceTask, TaskContext, checked_methods, waits
from herdmesh.engine.bad_records import SinkErrors, SourceErrors
from herdmesh.engine.delivery import DeliveryFailures, outlet
from herdmesh.engine.fencing import GROUP_OFFSETS_TOPIC, held
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime import (
    RunLink,
    RunOutcome,
    RunSpans,
    RunSpec,
    TaskFailed,
    TaskKind,
    as_exceptions,
    failpoints,
    sink_settings,
    source_settings,
    watch_brokers,
)
from herdmesh.engine.sink import SinkLoop, SinkTaskRequests
from herdmesh.engine.source import SourceLoop

T = TypeVar("T")

_log = logging.getLogger(__name__)


def run(spec: RunSpec, link: RunLink, spans: RunSpans | None = None) -> RunOutcome:
    """Execute one run of a task in the calling thread until it is idle, stopped, or its share is used. `spans`: of its
    trace, None without tracing.

    Raises:
        TaskFailed: with an ErrorClass; TaskFenced when another owner took over (nothing more was published).
        ConfigError: a config the run cannot use, naming the key.
        RecordError: a record that cannot be converted or transformed, with its coordinates.
        Exception: any exception of the connector's task. `failure.classify` classifies them all.
    """
    _log.info("run %s begins", spec.run_id)
    keep_secret(spec.secrets)
    failpoints.arm(spec.connector)
    watch_brokers()
    waits.current().clear()
    if spec.imports is not None:
        plugin_imports.enter(spec.imports)  # before any import of the task's code; this process has no other run
    with as_exceptions():
        outcome = _run_sink(spec, link, spans) if spec.kind is TaskKind.SINK else _run_source(spec, link, spans)
    _log.info("run %s ends %s", spec.run_id, outcome.reason)
    return outcome


def _run_sink(spec: RunSpec, link: RunLink, spans: RunSpans | None) -> RunOutcome:
    settings = sink_settings(spec)
    _tell(settings.warnings)
    with ExitStack() as exits:
        # Clients first: they connect while the rest is created.
        fence = held(spec, settings.access)
        exits.callback(fence.close)
        contact = clients.contact(spec, settings.consumer, next(iter(settings.topics), GROUP_OFFSETS_TOPIC))
        consumer = clients.consumer(spec, settings.group, settings.consumer, on_error=contact.note)
        exits.callback(clients.close_in_background, consumer)
        admin = clients.admin(spec, settings.access)
        task = _new(spec.task_class, SinkTask)
        reading = SinkTaskRequests(task)
        chain = chain_config.sink_chain(spec.connector_config, worker=spec.worker_config, keys=task.uses_keys)
        errors = SinkErrors(spec, admin, chain)
        exits.callback(errors.close)
        context = TaskContext(
            connector=spec.connector,
            task=spec.task,
            task_count=spec.task_count,
            group=settings.group,
            run_id=spec.run_id,
            reporter=errors.reporter,
            reading=reading,
            errant=errors.errant,
            tolerates_errors=errors.tolerates,
            key_defaults=chain_config.has_defaults(spec.connector_config, "key.converter", worker=spec.worker_config),
            value_defaults=chain_config.has_defaults(
                spec.connector_config, "value.converter", worker=spec.worker_config
            ),
        )
        exits.callback(task.stop)
        # Before the take-over: files staged by then belong to earlier owners only (`staging`).
        task.start(spec.task_config, context)
        loop = SinkLoop(
            spec, settings, link, task=task, chain=chain, fence=fence, consumer=consumer, contact=contact, admin=admin,
            errors=errors, reading=reading, spans=spans,
        )  # fmt: skip
        return _to_its_end(loop, link)


def _run_source(spec: RunSpec, link: RunLink, spans: RunSpans | None) -> RunOutcome:
    settings = source_settings(spec)
    _tell(settings.warnings)
    failures = DeliveryFailures()
    with ExitStack() as exits:
        task = _new(spec.task_class, SourceTask)
        way_out = outlet(spec, settings, failures, reports=task.wants_metadata())
        exits.callback(way_out.close)
        admin = clients.admin(spec, settings.admin)
        chain = chain_config.source_chain(spec.connector_config, worker=spec.worker_config)
        exits.callback(task.stop)
        loop = SourceLoop(
            spec, settings, link, task=task, chain=chain, outlet=way_out, failures=failures, admin=admin,
            errors=SourceErrors(spec, admin), spans=spans,
        )  # fmt: skip
        return _to_its_end(loop, link)


def _to_its_end(loop: SinkLoop | SourceLoop, link: RunLink) -> RunOutcome:
    """Run the loop and return its outcome. On failure, report the remaining counters first."""
    try:
        with as_exceptions():
            return loop.run()
    except Exception:
        found = loop.progress()
        if (
            found.records_in or found.errors.failures
        ):  # else it may not have begun, and a report would claim that it has
            link.progress(found)
        raise


def _new(path: str, kind: type[T]) -> T:
    """An instance of the class at `module:Class`."""
    module, _, name = path.partition(":")
    try:
        with as_exceptions():
            found = getattr(import_module(module), name)
    except (ImportError, AttributeError, TaskFailed) as error:
        raise TaskFailed(f"the task class {path} cannot be loaded: {error}", ErrorClass.BAD_CONFIG) from error
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise TaskFailed(f"{path} is not a {kind.__name__}", ErrorClass.BAD_CONFIG)
    checked_methods(found)
    return found()


def _tell(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        _log.warning("%s", warning)
