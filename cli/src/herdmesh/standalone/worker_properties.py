"""A Connect worker's properties file as settings of ours: the effect of each property, or the warning about it.

Owns that table (docs/how-to/standalone.md shows it). Reads no file and starts nothing.

Invariant: every property of the file is used, or named in a warning; none is ignored silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from herdmesh.connect.chain import chain_config
from herdmesh.connect.clients import PROTOCOL, client_access, client_settings, is_access
from herdmesh.connect.config import Type, closest, parse_value, redacted
from herdmesh.connect.config_providers import ConfigProviders
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.java import Property
from herdmesh.connect.validation import WORKER_KEYS
from herdmesh.engine.librdkafka import worker_violations
from herdmesh.standalone.errors import BadFiles, Problem

REQUIRED = ("bootstrap.servers", "key.converter", "value.converter", "offset.storage.file.filename")
#: Passed to every run unchanged, under their own names.
PASSED = (
    "config.providers",
    *("key.converter", "value.converter", "header.converter", "topic.creation.enable"),
    *("connector.client.config.override.policy", "connector.client.config.override.allowlist"),
)
PASSED_PREFIXES = (
    *("key.converter.", "value.converter.", "header.converter.", "config.providers."),
    *("admin.", "consumer.", "producer."),
)
#: Whole numbers: property -> (our worker setting, minimum).
NUMBERS = {
    "offset.flush.interval.ms": ("offset_flush_interval_ms", 1),
    "task.shutdown.graceful.timeout.ms": ("stop_timeout_ms", 0),
}
#: Texts that are used as written, as in Connect, with references unresolved: property -> our worker setting.
TEXTS = {"plugin.path": "plugin_path"}
#: True or false, for the herder: property -> our herder setting.
HERDER_FLAGS = {
    "topic.tracking.enable": "topic_tracking_enable",
    "topic.tracking.allow.reset": "topic_tracking_allow_reset",
}

_CLIENTS = ("admin", "consumer", "producer")
_OTHER_CLUSTER = ("consumer.bootstrap.servers", "producer.bootstrap.servers")
_REST = "there is no REST server in this process; the same API is served over gRPC (--listen)"
_UNREAD = (
    f"without {PROTOCOL}, clients of Kafka neither log in nor encrypt, and there is no REST server in this process"
)
_DISCOVERY = "plugins are found by the metadata that their installer wrote, see plugin.path in docs/how-to/plugins.md"
_METRICS = "metrics are served for Prometheus, on the port of --listen + 1000"
_VERSIONS = "there is one version of each converter: the installed one"
#: Properties of Connect's standalone worker that have no effect here: property -> reason.
UNUSED = {
    **dict.fromkeys(
        (
            *("listeners", "admin.listeners", "rest.advertised.host.name", "rest.advertised.port"),
            *("rest.advertised.listener", "rest.extension.classes", "access.control.allow.origin"),
            *("access.control.allow.methods", "response.http.headers.config", "ssl.client.auth"),
        ),
        _REST,
    ),
    "plugin.discovery": _DISCOVERY,
    **dict.fromkeys(
        ("metrics.sample.window.ms", "metrics.num.samples", "metrics.recording.level", "metric.reporters"), _METRICS
    ),
    "client.dns.lookup": "clients try every address of a name (use_all_dns_ips)",
    "offset.flush.timeout.ms": "a commit takes as long as Kafka and the disk need, at most a minute",
    "header.converter.plugin.version": _VERSIONS,
    "key.converter.plugin.version": _VERSIONS,
    "value.converter.plugin.version": _VERSIONS,
    "internal.key.converter": "Connect ignores it too",
    "internal.value.converter": "Connect ignores it too",
}
UNUSED_PREFIXES = {
    "listeners.https.": _REST,
    "admin.listeners.https.": _REST,
    "metrics.context.": _METRICS,
    "internal.key.converter.": "Connect ignores it too",
    "internal.value.converter.": "Connect ignores it too",
}
#: Properties of Connect's distributed worker only.
DISTRIBUTED = frozenset(
    (
        *("group.id", "session.timeout.ms", "rebalance.timeout.ms", "heartbeat.interval.ms", "client.id"),
        *("exactly.once.source.support", "metadata.max.age.ms", "send.buffer.bytes", "receive.buffer.bytes"),
        *("reconnect.backoff.ms", "reconnect.backoff.max.ms", "socket.connection.setup.timeout.ms"),
        *("socket.connection.setup.timeout.max.ms", "retry.backoff.ms", "retry.backoff.max.ms", "request.timeout.ms"),
        *("connections.max.idle.ms", "worker.sync.timeout.ms", "worker.unsync.backoff.ms"),
        *("connect.protocol", "scheduled.rebalance.max.delay.ms", "metadata.recovery.strategy"),
        *("metadata.recovery.rebootstrap.trigger.ms",),
    )
)
DISTRIBUTED_PREFIXES = ("offset.storage.", "config.storage.", "status.storage.", "inter.worker.")
_LEAVE_EXTRA_MS = 5_000


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """The result of a worker's properties: `settings` of `WorkerSettings`, `herder` of `HerderSettings`, and `passed`,
    which is passed on to runs.
    """

    settings: Mapping[str, str | int]
    herder: Mapping[str, bool]
    passed: Mapping[str, str]
    warnings: tuple[Problem, ...]

    #: login and encryption of the process's own Kafka clients, as librdkafka's settings.
    access: Mapping[str, str]

    brokers: int = 0
    """Number of brokers in the cluster; 0 = not known yet."""

    @property
    def bootstrap_servers(self) -> str:
        return str(self.settings["bootstrap_servers"])

    @property
    def offsets_file(self) -> str:
        return str(self.settings["offset_storage_file"])


def plan_worker(path: str, properties: Mapping[str, Property]) -> WorkerPlan:
    """Read a worker's properties. Raises BadFiles with all errors."""
    resolved = _resolved(path, properties)
    problems: list[Problem] = []
    warnings: list[Problem] = []
    settings: dict[str, str | int] = {}
    herder: dict[str, bool] = {}
    passed: dict[str, str] = {}
    for key in REQUIRED:
        if not resolved.get(key, "").strip():
            message = f'Missing required configuration "{key}" which has no default value.'
            problems.append(Problem(path, properties[key].line if key in properties else 0, key, message))
    for key, one in properties.items():
        value = resolved[key].strip()
        try:
            if key in NUMBERS:
                name, least = NUMBERS[key]
                settings[name] = _number(key, value, least)
            elif key == "bootstrap.servers":
                settings["bootstrap_servers"] = ",".join(part.strip() for part in value.split(","))
            elif key == "offset.storage.file.filename":
                settings["offset_storage_file"] = value
            elif key in TEXTS:
                settings[TEXTS[key]] = one.value.strip()
            elif key in HERDER_FLAGS:
                herder[HERDER_FLAGS[key]] = bool(parse_value(key, value, Type.BOOLEAN))
            elif key == "topic.creation.enable":
                passed[key] = "true" if parse_value(key, value, Type.BOOLEAN) else "false"
            elif key in _OTHER_CLUSTER:
                _must_be_the_same(key, value, resolved)
            elif _is_passed(key) or _is_access(key, properties):
                passed[key] = one.value
            else:
                warnings.append(Problem(path, one.line, key, _unused(key)))
        except ConfigError as error:
            problems.append(Problem(path, one.line, key, redacted(str(error))))
    used = {key: resolved[key] for key in passed}
    if not problems:
        problems += _converter_problems(path, properties, used)
    problems += _client_problems(path, properties, used, warnings)
    if problems:
        raise BadFiles(problems)
    for name in ("key.converter", "value.converter"):
        # Connect's default; the default of our workers is false.
        passed.setdefault(f"{name}.schemas.enable", "true")
    stop_ms = int(settings.get("stop_timeout_ms", 5_000))
    settings["stop_timeout_ms"] = stop_ms
    settings["leave_timeout_ms"] = stop_ms + _LEAVE_EXTRA_MS
    warnings.sort(key=lambda one: one.line)
    return WorkerPlan(settings, herder, passed, tuple(warnings), client_access("admin", used).config)


def _resolved(path: str, properties: Mapping[str, Property]) -> dict[str, str]:
    """The values with their references resolved. Raises BadFiles for one that cannot be resolved."""
    written = {key: one.value for key, one in properties.items()}
    try:
        providers = ConfigProviders.of(written)
        try:
            found = providers.resolve(written).config
        finally:
            providers.close()
    except ConfigError as error:
        raise BadFiles([_problem(path, properties, error)]) from None
    return {key: value or "" for key, value in found.items()}


def _problem(path: str, properties: Mapping[str, Property], error: ConfigError) -> Problem:
    line = properties[error.field].line if error.field in properties else 0
    message = redacted(str(error)).removeprefix(f"{error.field}: ")
    return Problem(path, line, error.field, f"{message}{f' ({error.fix})' if error.fix else ''}")


def _must_be_the_same(key: str, value: str, resolved: Mapping[str, str]) -> None:
    if _split(value) != _split(resolved.get("bootstrap.servers", "")):
        raise ConfigError.for_value(key, value, "connectors for another cluster than the worker's are not supported")


def _split(servers: str) -> set[str]:
    return {part.strip() for part in servers.split(",")}


def _is_passed(key: str) -> bool:
    unused = key in UNUSED or key.startswith(tuple(UNUSED_PREFIXES))
    return key in PASSED or (key.startswith(PASSED_PREFIXES) and not unused)


def _is_access(key: str, properties: Mapping[str, Property]) -> bool:
    """True for a property of the clients' login and encryption. Keys without prefix count only if `security.protocol`
    is set, for the worker or its admin client: a REST server has the same keys.
    """
    return is_access(key) and key not in UNUSED and (PROTOCOL in properties or f"admin.{PROTOCOL}" in properties)


def _unused(key: str) -> str:
    """The reason why a property has no effect."""
    if key in UNUSED:
        return UNUSED[key]
    if key in DISTRIBUTED or key.startswith(DISTRIBUTED_PREFIXES):
        return "it belongs to Connect's distributed worker; a standalone worker does not read it"
    if is_access(key):
        return _UNREAD
    for prefix, why in UNUSED_PREFIXES.items():
        if key.startswith(prefix):
            return why
    meant = closest(key, WORKER_KEYS)
    return f"neither Connect nor Herdmesh knows this property{f'; did you mean {meant}?' if meant else ''}"


def _number(key: str, value: str, least: int) -> int:
    number = parse_value(key, value, Type.LONG)
    if number is None or number < least:
        raise ConfigError(f"Invalid value {value} for configuration {key}: Value must be at least {least}", field=key)
    return int(number)


def _client_problems(
    path: str, properties: Mapping[str, Property], used: Mapping[str, str], warnings: list[Problem]
) -> list[Problem]:
    """Settings with which no client could be created, each once; settings without effect are added to the warnings."""
    found: dict[str, Problem] = {}
    told: dict[str, Problem] = {}
    for client in _CLIENTS:
        try:
            given = client_settings(client, used, {})
        except ConfigError as error:
            found[error.field] = _problem(path, properties, error)
            continue
        for one in given.warnings:
            message = one.message.removeprefix(f"{one.field}: ").removeprefix(f"{one.field} ")
            told[one.field] = Problem(path, properties[one.field].line, one.field, redacted(f"{message} ({one.fix})"))
    warnings += told.values()
    for one in worker_violations(used):
        found.setdefault(one.field, _problem(path, properties, ConfigError(one.message, field=one.field, fix=one.fix)))
    return list(found.values())


def _converter_problems(path: str, properties: Mapping[str, Property], used: Mapping[str, str]) -> list[Problem]:
    try:
        chain_config.converters(used)
    except ConfigError as error:
        return [_problem(path, properties, error)]
    return []
