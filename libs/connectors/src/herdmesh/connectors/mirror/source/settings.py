"""Settings of the mirror, from MirrorMaker 2's keys, and a warning for each key without effect.

Owns reading the keys (`keys`) and the warnings. The rules for names: `topic_naming`; settings of clients:
`client_settings`. Creates no client.

Invariant: a key is honoured, refused or named in a warning; none is ignored silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from herdmesh.connect.clients import AUTO_OFFSET_RESET, OffsetReset, Start, read_offset_reset
from herdmesh.connect.java import compiled
from herdmesh.connect.spi import ConnectorKind
from herdmesh.connectors.common import warned_settings
from herdmesh.connectors.mirror.client_settings import (
    BOOTSTRAP,
    TARGET_BOOTSTRAP,
    Own,
    client_of,
    client_problems,
    cluster_of,
    prefixes_of,
)
from herdmesh.connectors.mirror.cluster import Cluster
from herdmesh.connectors.mirror.keys import (
    ASSIGNED,
    BYTE_ARRAY_CONVERTER,
    CONFIGS,
    CONFIGS_S,
    CONVERTERS,
    DEFAULT_POLICY,
    EMIT,
    EXCLUDE,
    IDENTITY_POLICY,
    INTERNAL_SEPARATOR,
    KEYS,
    LAG,
    LOCATION,
    MIRROR,
    POLICY,
    PROPERTIES_EXCLUDE,
    REFRESH_S,
    REPLICATION,
    SEPARATOR,
    SOURCE_ALIAS,
    SYNCS_REPLICATION,
    TARGET_ALIAS,
    TOPICS,
    check_interval,
)
from herdmesh.connectors.mirror.topic_naming import Naming, Selection
from herdmesh.engine.source import SourceCluster
from herdmesh.sdk import Config, ConfigError, FieldViolation, Validator
from herdmesh.sdk.validators import at_least, non_empty_string

_ISOLATION, _MAX_RECORDS = "isolation.level", "max.poll.records"
_LEVELS = ("read_committed", "read_uncommitted")
_OWN = (_ISOLATION, _MAX_RECORDS, AUTO_OFFSET_RESET)
_BATCH_RECORDS = 2_000

_RULES: Mapping[str, Validator] = {
    SOURCE_ALIAS: non_empty_string(),
    REPLICATION: at_least(-1),
    REFRESH_S: Validator("not 0", check_interval),
    CONFIGS_S: Validator("not 0", check_interval),
    SYNCS_REPLICATION: at_least(-1),
    LAG: at_least(0),
}
"""Keys that MirrorMaker does not check when it validates, and that make it fail when it starts."""
_ACLS = "ACLs are not copied"
_TO_WORKERS_CLUSTER = "records go to the workers' cluster, by their clients (producer.override.*)"
#: MirrorMaker's keys without effect: the reason, and the values for which no warning is due.
WITHOUT_EFFECT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "sync.topic.acls.enabled": (_ACLS, ("false",)),
    "sync.topic.acls.interval.seconds": (_ACLS, ()),
    "consumer.poll.timeout.ms": ("a task never waits long for records", ()),
    "admin.timeout.ms": ("requests to a cluster time out after 10 s", ()),
    "topic.filter.class": ("topics are chosen by topics and topics.exclude", (f"{MIRROR}DefaultTopicFilter",)),
    "config.property.filter.class": (
        "settings are chosen by config.properties.exclude", (f"{MIRROR}DefaultConfigPropertyFilter",),
    ),
    "forwarding.admin.class": (
        "it names a Java class, and this connector runs no Java", ("org.apache.kafka.clients.admin.ForwardingAdmin",),
    ),
    "metric.reporters": ("it configures Java's own metrics", ()),
    "metric.names.formats": ("it configures Java's own metrics", ()),
    "add.source.alias.to.metrics": ("it configures Java's own metrics", ("false",)),
}  # fmt: skip
_OF_SYNCS = (EMIT, LOCATION, LAG, SYNCS_REPLICATION, TARGET_BOOTSTRAP)
_TARGET_PREFIXES = ("target.cluster.", "target.producer.", "target.admin.", "target.consumer.", "producer.",
                    "source.producer.")  # fmt: skip
CONSUMERS = ("consumer.override.",)
"""Every key with this prefix is known, too."""
OF_TASKS = ("task.index", "task.class")
"""Further keys in each task's config."""


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """The parsed config of a mirror."""

    enabled: bool
    naming: Naming
    selection: Selection
    source: SourceCluster
    replication_factor: int
    refresh_s: int | None
    """Interval of the discovery of topics and partitions; None = never."""
    properties_exclude: tuple[str, ...]
    """Names, or regular expressions for names, of topic settings that are not copied."""
    batch_records: int
    """Maximum number of records in one read."""
    reset: OffsetReset
    """Start position of a partition without an offset."""
    reset_lost: bool
    """True = restart a partition whose next record is gone, by the reset policy, instead of failing the task."""
    syncs: SyncSettings | None
    """None = write no offset syncs."""
    configs_s: int | None
    """Interval at which copies get the settings of their topics; None = only when they are created."""
    target: Cluster | None
    """The workers' cluster; None if unknown."""


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """Settings for writing offset syncs."""

    topic: str
    at_target: bool
    kept_in: Cluster
    """The cluster with the offset-syncs topic."""
    target: Cluster
    replication_factor: int
    lag_max: int
    """Maximum distance in records between two syncs of a copy, for commits with more records than that."""


def settings_of(config: Config) -> MirrorSettings:
    """Read the config. Raises ConfigError whose field is the key."""
    values = KEYS.parse(config)
    for key, rule in _RULES.items():
        rule.check(key, values[key])
    naming = naming_of(values)
    for key in (TOPICS, EXCLUDE, PROPERTIES_EXCLUDE):
        require_regexes(key, values[key] or [])
    consumer, own = client_of("source", "consumer", config, KEYS.keys, _OWN)
    admin, _ = client_of("source", "admin", config, KEYS.keys)
    level = own.get(_ISOLATION, ("", _LEVELS[0]))
    if level[1].lower() not in _LEVELS:
        raise ConfigError.for_value(level[0], level[1], f"must be {' or '.join(_LEVELS)}", fix=_LEVELS[0])
    return MirrorSettings(
        enabled=values["enabled"],
        naming=naming,
        selection=Selection(
            naming, tuple(values[TOPICS] or ()), tuple(values[EXCLUDE] or ()), values["heartbeats.replication.enabled"]
        ),
        source=SourceCluster(
            name=naming.source,
            bootstrap_servers=values[BOOTSTRAP],
            consumer=dict(consumer.config),
            admin=dict(admin.config),
            client_id=consumer.config.get("client.id") or f"mirror-{naming.source}-{naming.target}",
            read_committed=level[1].lower() == _LEVELS[0],
        ),
        replication_factor=values[REPLICATION],
        refresh_s=values[REFRESH_S] if values["refresh.topics.enabled"] and values[REFRESH_S] > 0 else None,
        properties_exclude=tuple(values[PROPERTIES_EXCLUDE] or ()),
        batch_records=_batch_records(own),
        reset=_reset(own),
        reset_lost=(config.get("herdmesh.offsets.missing") or "").strip() == "reset",
        syncs=None if _no_syncs(config, values)[0] else _syncs(config, values, naming)[0],
        configs_s=None if _no_configs(values) else values[CONFIGS_S],
        target=_target(config, values, naming)[0] if _has_target(values) else None,
    )


def client_problems_of(config: Config) -> list[ConfigError]:
    """Return an error for every client setting with which a run would fail."""

    def clusters(config: Config) -> list[tuple[str, SourceCluster | Cluster]]:
        settings = settings_of(config)
        found: list[tuple[str, SourceCluster | Cluster]] = [("source", settings.source)]
        if settings.target is not None:
            found.append(("target", settings.target))
        if settings.syncs is not None and not settings.syncs.at_target:
            found.append(("source", settings.syncs.kept_in))
        return found

    return client_problems(config, KEYS.keys, _OWN, clusters)


def naming_of(values: Mapping[str, Any]) -> Naming:
    """Return the replication policy of parsed values. Raises ConfigError whose field is the key."""
    policy = values[POLICY]
    if policy.rpartition(".")[2] not in (DEFAULT_POLICY.rpartition(".")[2], IDENTITY_POLICY.rpartition(".")[2]):
        fix = f"write {DEFAULT_POLICY} or {IDENTITY_POLICY}"
        raise ConfigError.for_value(POLICY, policy, "only Kafka's own policies are supported", fix=fix)
    separator, keeps_names = values[SEPARATOR] or "", policy.endswith("IdentityReplicationPolicy")
    if not separator and not keeps_names:
        why = "without a separator, alias and topic in a name cannot be distinguished"
        raise ConfigError.for_value(SEPARATOR, separator, why, fix=f"write one, or {POLICY}={IDENTITY_POLICY}")
    return Naming(
        values[SOURCE_ALIAS],
        values[TARGET_ALIAS],
        separator,
        keeps_names=keeps_names,
        internal_separator=separator if values[INTERNAL_SEPARATOR] else ".",
    )


def _has_target(values: Mapping[str, Any]) -> bool:
    return bool((values[TARGET_BOOTSTRAP] or "").strip())


def _target(config: Config, values: Mapping[str, Any], naming: Naming) -> tuple[Cluster, list[FieldViolation]]:
    client_id = f"mirror-syncs-{naming.source}-{naming.target}"
    return cluster_of("target", naming.target, values[TARGET_BOOTSTRAP], config, KEYS.keys, client_id)


def _no_configs(values: Mapping[str, Any]) -> str:
    """Return the reason why copies do not follow the settings of their topics; empty = they do."""
    if not values[CONFIGS] or values[CONFIGS_S] < 0:
        return f"{CONFIGS} is false" if not values[CONFIGS] else f"{CONFIGS_S} is negative"
    return "" if _has_target(values) else f"changing topic settings of copies needs {TARGET_BOOTSTRAP}"


def _no_syncs(config: Config, values: Mapping[str, Any]) -> tuple[str, str]:
    """Return the reason why no offset syncs are written,
    and the key that causes it; empty = they are written.
    """
    if not values[EMIT]:
        return f"{EMIT} is false", EMIT
    if not _has_target(values):
        return f"offset syncs need {TARGET_BOOTSTRAP}, the workers' cluster", TARGET_BOOTSTRAP
    if (config.get("transforms") or "").strip():
        return (
            "a transformation may drop or reroute records, so the offsets of the two topics cannot be matched",
            "transforms",
        )
    if (config.get("errors.tolerance") or "").strip().lower() == "all":
        return "a record may be skipped, so the offsets of the two topics cannot be matched", "errors.tolerance"
    return "", ""


def _syncs(config: Config, values: Mapping[str, Any], naming: Naming) -> tuple[SyncSettings, list[FieldViolation]]:
    """Return the settings of offset syncs, and their warnings."""
    client_id, at_target = f"mirror-syncs-{naming.source}-{naming.target}", values[LOCATION] == "target"
    target, warnings = _target(config, values, naming)
    kept_in = target
    if not at_target:
        kept_in, of_source = cluster_of("source", naming.source, values[BOOTSTRAP], config, KEYS.keys, client_id)
        warnings += [one for one in of_source if one.field.startswith("source.producer.")]
    syncs = SyncSettings(
        topic=naming.offset_syncs(at_target),
        at_target=at_target,
        kept_in=kept_in,
        target=target,
        replication_factor=values[SYNCS_REPLICATION],
        lag_max=values[LAG],
    )
    return syncs, warnings


def warnings_of(config: Config) -> list[FieldViolation]:
    """Return a warning, with the reason, for every key without the effect that its value requests; for a refused
    config, the unknown keys.
    """
    try:
        return _warnings_of(config)
    except ConfigError:
        asked = (("source", "consumer"), ("source", "admin"), ("source", "producer"), ("target", "admin"),
                 ("target", "producer"))  # fmt: skip
        clients = [prefix for side, client in asked for prefix in prefixes_of(side, client)]
        return _unread(config, clients, lambda _name, _text: None)


def _unread(config: Config, clients: Iterable[str], here: Callable[[str, str], str | None]) -> list[FieldViolation]:
    own = {*KEYS.keys, ASSIGNED, *OF_TASKS}
    return warned_settings(
        config, own, ConnectorKind.SOURCE, WITHOUT_EFFECT, (*CONSUMERS, *clients), here=here, foreign=to_target,
        java="mirror-source",
    )  # fmt: skip


def _warnings_of(config: Config) -> list[FieldViolation]:
    found = converter_warnings(config)
    clients = (*prefixes_of("source", "consumer"), *prefixes_of("source", "admin"))
    values = KEYS.parse(config)
    why_none, blamed = _no_syncs(config, values)
    if not why_none:
        side = "target" if values[LOCATION] == "target" else "source"
        clients = (*clients, *prefixes_of("target", "admin"), *prefixes_of(side, "producer"))
        found += _syncs(config, values, naming_of(values))[1]
    elif blamed in ("transforms", "errors.tolerance"):
        found.append(FieldViolation(blamed, f"no offset syncs are written: {why_none}", f"write {EMIT}=false"))
    no_configs = _no_configs(values)
    if why_none and not no_configs:
        clients = (*clients, *prefixes_of("target", "admin"))
        found += client_of("target", "admin", config, KEYS.keys)[0].warnings

    def here(name: str, text: str) -> str | None:
        if name in (CONFIGS, CONFIGS_S) and no_configs:
            is_meant = (name, text.lower()) == (CONFIGS, "false") or text.startswith("-")
            return "" if is_meant else no_configs
        if why_none and name in _OF_SYNCS and name != blamed and not (name == TARGET_BOOTSTRAP and not no_configs):
            return None if name == EMIT and text == "false" else why_none
        return None

    found += _unread(config, clients, here)
    for kind, own in (("consumer", _OWN), ("admin", ())):
        found += client_of("source", kind, config, KEYS.keys, own)[0].warnings
    return found


def converter_warnings(config: Config) -> list[FieldViolation]:
    """Return warnings about converters that change bytes."""
    found: list[FieldViolation] = []
    for name in CONVERTERS:
        text = (config.get(name) or "").strip()
        if text and text.rpartition(".")[2] not in (BYTE_ARRAY_CONVERTER.rpartition(".")[2], "ByteArray"):
            message = f"{name}: a mirror copies keys, values and headers as bytes, and {text} may change them"
            found.append(FieldViolation(name, message, f"leave it out, or write {BYTE_ARRAY_CONVERTER}"))
    return found


def to_target(name: str) -> str | None:
    """Return the reason why a client setting of the target has no effect."""
    return _TO_WORKERS_CLUSTER if name.startswith(_TARGET_PREFIXES) else None


def require_regexes(key: str, patterns: list[str]) -> None:
    """Check regular expressions. Raises ConfigError whose field is the key."""
    for pattern in patterns:
        try:
            compiled(pattern)
        except ConfigError as error:
            raise ConfigError.for_value(key, pattern, str(error), fix=error.fix) from error


def _batch_records(own: Own) -> int:
    key, text = own.get(_MAX_RECORDS, ("", str(_BATCH_RECORDS)))
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError.for_value(key, text, "must be a number, 1 or more", fix=str(_BATCH_RECORDS))
    return int(text)


def _reset(own: Own) -> OffsetReset:
    key, text = own.get(AUTO_OFFSET_RESET, ("", Start.EARLIEST.value))
    return read_offset_reset(text, key)
