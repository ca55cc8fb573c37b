"""Run specs, built from a unit's configs: the plugin, the run's spec, the fence's name.

Owns the plugin registry, and the settings that the worker itself reads from a connector's config (`herdmesh.*`).
`run_spec` calls the author's class, so call it in a thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from herdmesh.connect.clients import check_overrides, client_access, policy_of
from herdmesh.connect.config import SHARED, bytes_of, isolation_of, keep_secret, text_of_bytes
from herdmesh.connect.config_providers import ConfigProviders
from herdmesh.connect.errors import ConfigError, RetriableError
from herdmesh.connect.plugins import PLUGIN_VERSION, PluginRegistry
from herdmesh.connect.spi import (
    Connector,
    ConnectorKind,
    PluginDescriptor,
    PluginKind,
    SourceConnector,
    checked_task_class,
)
from herdmesh.connect.topics import CommitScope
from herdmesh.connect.validation import MEMORY_MIN_BYTES
from herdmesh.engine.librdkafka import poll_interval_max_ms
from herdmesh.engine.runtime import Properties, RunSpec, TaskKind, TaskSetClaim
from herdmesh.session.model import Assignment, UnitId
from herdmesh.worker.effects.runs.memory_watch import MEMORY_MAX
from herdmesh.worker.effects.runs.reloads import Values
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state.model import TaskSpec

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

_KNOWN_MAX: Final = 10_000
LINGER_MS = "herdmesh.linger.ms"
TRIGGER = "herdmesh.trigger"
TRIGGERS = ("available", "continuous")


@dataclass(frozen=True, slots=True)
class _Known:
    """Resolved configs of a unit's last run."""

    spec: TaskSpec
    values: Values

    @property
    def resolved(self) -> TaskSpec:
        connector, task = self.values.configs
        return replace(self.spec, connector_config=connector.config, task_config=task.config)


class RunSpecs:
    """Builds run specs for this worker's cluster."""

    def __init__(
        self,
        settings: WorkerSettings,
        plugins: PluginRegistry,
        source_offsets: Callable[[str], Mapping[bytes, bytes]] | None = None,
    ) -> None:
        """`source_offsets` returns a source connector's offsets from the offsets file; None = they are in the offsets
        topic.
        """
        self.plugins = plugins
        self._settings = settings
        self._source_offsets = source_offsets
        self.providers = ConfigProviders.of(settings.worker_config())
        self._known: OrderedDict[UnitId, _Known] = OrderedDict()

    def plugin(self, connector_config: Properties) -> PluginDescriptor:
        """The connector's plugin, in the requested version. Raises ConfigError naming `connector.class`, or
        `connector.plugin.version`.
        """
        name = connector_config.get("connector.class")
        if not name:
            raise ConfigError('Missing required configuration "connector.class"', field="connector.class")
        return self.plugins.find(self.plugins.serving(name, connector_config), connector_config.get(PLUGIN_VERSION))

    def version(self, connector_config: Properties) -> str | None:
        """The plugin's version, None when the plugin is unknown."""
        try:
            return self.plugin(connector_config).version
        except ConfigError:
            return None

    def sign(self, unit: UnitId, spec: TaskSpec) -> str | None:
        """A source's change sign (`SourceConnector.sign`), None when only a run can tell. Calls the author's class.

        Raises RetriableError while the sign cannot be read.
        """
        try:
            spec = self._last(unit, spec).resolved
            connector, _ = self._loaded(spec)
            return connector.sign(spec.task_config) if isinstance(connector, SourceConnector) else None
        except RetriableError:
            raise
        except Exception:  # noqa: BLE001 - an author's code may raise anything; a run then reports the error
            _log.exception("sign_failed", unit=unit.log_context)
            return None

    def transactional_id(self, connector: str, task: int) -> str:
        """The task's fence: the last process that initialised this id owns the task."""
        return f"{self._settings.group_id}-{connector}-{task}"

    def claim(self, assignment: Assignment, config_offset: int | None) -> TaskSetClaim | None:
        """The task set that a run must verify after its take-over; None where there is no config topic."""
        topic = self._settings.config_storage_topic
        if not topic or config_offset is None:
            return None
        return TaskSetClaim(topic, config_offset, assignment.incarnation, assignment.task_digest)

    def taskless(self, config_offset: int | None, incarnation: str) -> TaskSetClaim | None:
        """The check for a writer of offsets: since the request, the connector still has no tasks and was not changed,
        or (`incarnation` is "") does not exist.
        """
        topic = self._settings.config_storage_topic
        return TaskSetClaim(topic, config_offset, incarnation, "") if topic and config_offset is not None else None

    def run_spec(self, unit: UnitId, spec: TaskSpec, run_id: str, commit_scope: CommitScope | None) -> RunSpec:
        """Everything a run needs. Raises ConfigError, and any error of the author's `task_class`."""
        try:
            known = _Known(spec, self._resolved(spec))
        except ConfigError:
            self._remember(unit, _Known(spec, self._written(spec)))
            raise
        self._remember(unit, known)
        connector, passwords = self._loaded(known.resolved)
        task_class = checked_task_class(connector.task_class())
        bare = self.without_class(unit, spec)
        imports = self.plugins.environment(known.resolved.connector_config, bare.worker_config)
        offsets: Mapping[bytes, bytes] | None = None
        if self._source_offsets is not None and bare.kind is TaskKind.SOURCE:
            offsets = self._source_offsets(unit.connector)
        return replace(
            bare,
            worker_config={**bare.worker_config, **connector.default_converters},
            run_id=run_id,
            task_class=task_class,
            imports=imports,
            process_reuse=connector.process_reuse
            and isolation_of(known.resolved.connector_config) == SHARED
            and imports is None
            # Memory that an earlier run left in its process would count.
            and not bare.memory_max_bytes
            and not self.plugins.names_authored(known.resolved.connector_config, bare.worker_config),
            commit_scope=commit_scope,
            source_offsets=offsets,
            secrets=tuple(sorted(passwords.union(bare.secrets))),
        )

    def without_class(self, unit: UnitId, spec: TaskSpec) -> RunSpec:
        """A spec without a particular run, built without calling the author's code. Raises ConfigError.

        No provider is queried when the unit's last run had the same configs.
        """
        assert unit.task is not None
        known = self._last(unit, spec)
        spec = known.resolved
        config = spec.connector_config
        settings = self._settings
        worker = settings.worker_config()
        kind = self.plugin(config).kind
        check_overrides(PluginKind(kind.value), config, policy_of(worker))
        watched = kind is not ConnectorKind.SINK or not _has_own_login(config, worker)
        return RunSpec(
            run_id="",
            connector=unit.connector,
            task=unit.task,
            task_count=spec.task_count,
            kind=TaskKind.SINK if kind is ConnectorKind.SINK else TaskKind.SOURCE,
            task_class="",
            connector_config=dict(config),
            task_config=dict(spec.task_config),
            bootstrap_servers=settings.bootstrap_servers,
            group_id=settings.group_id,
            offset_storage_topic=settings.offset_storage_topic,
            transactional_id=self.transactional_id(unit.connector, unit.task),
            worker_config=worker,
            linger_ms=self._linger_ms(config),
            stays_warm=self._settings.warm_count() > 0 and not _own_linger(config),
            poll_interval_max_ms=poll_interval_max_ms(config, worker),
            memory_max_bytes=self._memory_max_bytes(config),
            # Sinks with their own credentials keep polling: the idle watch only has the worker's.
            continuous=_continuous(config) or not watched,
            secrets=tuple(sorted(known.values.secrets | settings.worker_secrets())),
        )

    @property
    def stalled_ms(self) -> int:
        """Time without progress after which a run is shown as STALLED."""
        return self._settings.stalled_ms

    def values(self, unit: UnitId) -> Values | None:
        """The values of the unit's last run, including a failed lookup; None = no run of it is remembered."""
        known = self._known.get(unit)
        return None if known is None else known.values

    def values_now(self, given: Values) -> Values:
        """The same configs, resolved again. Queries providers. Raises ConfigError."""
        return Values(tuple(self.providers.resolve(one.raw) for one in given.configs))

    def _loaded(self, resolved: TaskSpec) -> tuple[Connector, frozenset[str]]:
        """The author's class, and the passwords in the configs. They are registered as secrets before the class is
        called: a worker that only has the task never started the connector, and the author's errors may contain them.

        Raises ConfigError, and any error of the author's `config_def`.
        """
        connector = self.plugin(resolved.connector_config).load()
        configs = (resolved.connector_config, resolved.task_config)
        passwords = frozenset[str]().union(*map(connector.config_def().passwords, configs))
        keep_secret(passwords)
        return connector, passwords

    def _last(self, unit: UnitId, spec: TaskSpec) -> _Known:
        """The resolved configs of the unit's last run if it had these configs, otherwise newly resolved ones."""
        known = self._known.get(unit)
        if known is not None and known.spec == spec and known.values.complete:
            return known
        return _Known(spec, self._resolved(spec))

    def _remember(self, unit: UnitId, known: _Known) -> None:
        self._known[unit] = known
        self._known.move_to_end(unit)
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)

    def _written(self, spec: TaskSpec) -> Values:
        return Values(tuple(map(self.providers.unresolved, (spec.connector_config, spec.task_config))), complete=False)

    def _resolved(self, spec: TaskSpec) -> Values:
        """The resolved configs. Queries providers. Raises ConfigError."""
        return Values((self.providers.resolve(spec.connector_config), self.providers.resolve(spec.task_config)))

    def _memory_max_bytes(self, config: Properties) -> int:
        text = (config.get(MEMORY_MAX) or "").strip()
        if not text:
            return self._settings.memory_max_bytes
        found = bytes_of(text)
        if found is None or found < MEMORY_MIN_BYTES:
            least = text_of_bytes(MEMORY_MIN_BYTES)
            raise ConfigError.for_value(MEMORY_MAX, text, f"must be a size such as 512MB, {least} or more", fix="512MB")
        if not self._settings.sees_runs:
            raise ConfigError.for_value(
                MEMORY_MAX,
                text,
                f"the worker cannot bound it: its runs are on the machines of {self._settings.spark_master}",
                fix="leave it out and bound the executors' memory there",
            )
        return found

    def _linger_ms(self, config: Properties) -> int:
        text = _own_linger(config)
        if not text:
            return self._settings.linger_ms
        if not text.isdecimal():
            raise ConfigError.for_value(LINGER_MS, text, "must be a number of milliseconds, 0 or more", fix="5000")
        return int(text)


def _own_linger(config: Properties) -> str:
    return (config.get(LINGER_MS) or "").strip()


def _has_own_login(config: Properties, worker: Properties) -> bool:
    """True when the connector's consumer connects to the brokers differently from the worker's consumers."""
    return client_access("consumer", worker, config).config != client_access("consumer", worker).config


def _continuous(config: Properties) -> bool:
    text = (config.get(TRIGGER) or TRIGGERS[0]).strip().lower()
    if text not in TRIGGERS:
        raise ConfigError.for_value(TRIGGER, text, f"must be one of {', '.join(TRIGGERS)}", fix=TRIGGERS[0])
    return text == "continuous"
