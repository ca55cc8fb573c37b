"""What a run takes from the configs in its spec: groups, topics, intervals, client settings.

Owns the reading of those keys and their defaults (reference configs 4 and 5, offsets-topic 8 and 9). What a client
setting is to librdkafka is `connect.client_settings`'s, logins and encryption `connect.client_security`'s. Pure: no
client is made here.

Invariant: a value that cannot be used is a ConfigError that names its key; a setting without the effect it asks for is
told in `warnings`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from herdmesh.connect.client_security import client_access
from herdmesh.connect.client_settings import ClientSettings, client_settings
from herdmesh.connect.errors import ConfigError
from herdmesh.engine.contract import RunSpec

ClientConfig = dict[str, str | int | float | bool]

OFFSETS_MISSING = "herdmesh.offsets.missing"
OFFSET_FLUSH_INTERVAL_MS_DEFAULT = 60_000
METADATA_MAX_AGE_MS_DEFAULT = 300_000
TRANSACTION_INTERVAL_MS_DEFAULT = 1_000
OFFSETS_PARTITIONS_DEFAULT = 25


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """What a sink run needs to know."""

    group: str
    topics: tuple[str, ...]
    """Topics named one by one; empty when `topics_regex` is set."""
    topics_regex: re.Pattern[str] | None
    flush_interval_ms: int
    metadata_max_age_ms: int
    reset_to_latest: bool
    """Where to begin without a committed offset: the end (True) or the beginning."""
    reset_missing: bool
    """True = lost offsets are started anew instead of failing the task."""
    consumer: ClientConfig
    access: ClientConfig
    """How the task's other clients reach the brokers: as its consumer, which in Connect is the only one a sink has."""
    warnings: tuple[str, ...]
    """Client settings that have not the effect they ask for, each with why."""

    def wants(self, topic: str) -> bool:
        """True when the connector consumes the topic. A regex never matches Kafka's internal topics."""
        if self.topics_regex is None:
            return topic in self.topics
        return self.topics_regex.fullmatch(topic) is not None and not topic.startswith("__")


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """What a source run needs to know."""

    offsets_topic: str
    transaction_interval_ms: int
    """A transaction is committed after so long, or as soon as the source has nothing more."""
    producer: ClientConfig
    admin: ClientConfig
    """How topics are made; as the producer reaches the brokers where nothing is said of admin clients."""
    offsets_consumer: ClientConfig
    """How offsets are read, likewise."""
    topic_creation: bool
    """False = topics are left to the broker's auto-creation (the worker's `topic.creation.enable`)."""
    topic_partitions: int
    """For topics the run creates; -1 = the broker's default."""
    topic_replication_factor: int
    topic_config: Mapping[str, str]
    warnings: tuple[str, ...]
    """As a sink's."""


def sink_settings(spec: RunSpec) -> SinkSettings:
    """Read a sink's settings. Raises ConfigError."""
    config = spec.connector_config
    given = client_settings("consumer", spec.worker_config, config)
    group = given.engine.get("group.id", f"connect-{spec.connector}")
    reset = given.engine.get("auto.offset.reset", "earliest").lower()
    if reset not in ("earliest", "latest", "beginning", "end", "smallest", "largest"):
        raise ConfigError.for_value(
            "consumer.override.auto.offset.reset", reset, "must be earliest or latest", fix="earliest"
        )
    missing = _text(config, OFFSETS_MISSING) or "fail"
    if missing not in ("fail", "reset"):
        raise ConfigError.for_value(OFFSETS_MISSING, missing, "must be fail or reset", fix="fail")
    topics, regex = _topics(config)
    max_age_ms = int(given.config.get("metadata.max.age.ms", METADATA_MAX_AGE_MS_DEFAULT))
    return SinkSettings(
        group=group,
        topics=topics,
        topics_regex=regex,
        flush_interval_ms=_number(
            spec.worker_config, "offset.flush.interval.ms", OFFSET_FLUSH_INTERVAL_MS_DEFAULT, minimum=1
        ),
        metadata_max_age_ms=max_age_ms,
        reset_to_latest=reset in ("latest", "end", "largest"),
        reset_missing=missing == "reset",
        consumer=dict(given.config),
        access=access_of(spec, "consumer"),
        warnings=_texts(given),
    )


def source_settings(spec: RunSpec) -> SourceSettings:
    """Read a source's settings. Raises ConfigError."""
    config = spec.connector_config
    given = client_settings("producer", spec.worker_config, config)
    admin = client_settings("admin", spec.worker_config, config)
    interval_ms = TRANSACTION_INTERVAL_MS_DEFAULT
    if (_text(config, "transaction.boundary") or "poll").lower() == "interval":
        flush_ms = _number(spec.worker_config, "offset.flush.interval.ms", OFFSET_FLUSH_INTERVAL_MS_DEFAULT, minimum=1)
        interval_ms = _number(config, "transaction.boundary.interval.ms", flush_ms, minimum=0)
    prefix = "topic.creation.default."
    own = ("include", "exclude", "partitions", "replication.factor")
    return SourceSettings(
        offsets_topic=_text(config, "offsets.storage.topic") or spec.offset_storage_topic,
        transaction_interval_ms=interval_ms,
        producer=dict(given.config),
        admin={**admin.config, **access_of(spec, "admin", "producer")},
        offsets_consumer=access_of(spec, "consumer", "producer"),
        topic_creation=_text(spec.worker_config, "topic.creation.enable").lower() != "false",
        topic_partitions=_number(config, prefix + "partitions", -1, minimum=-1),
        topic_replication_factor=_number(config, prefix + "replication.factor", -1, minimum=-1),
        topic_config={key: value for key, value in _under(config, prefix) if key not in own},
        warnings=_texts(given, admin),
    )


def _texts(*given: ClientSettings) -> tuple[str, ...]:
    return tuple(dict.fromkeys(warning.message for one in given for warning in one.warnings))


def access_of(spec: RunSpec, *clients: str) -> ClientConfig:
    """How the first of these kinds of client that anything is said of reaches the brokers. Raises ConfigError."""
    for client in clients:
        found = client_access(client, spec.worker_config, spec.connector_config).config
        if found:
            return dict(found)
    return {}


def offsets_topic_settings(spec: RunSpec) -> tuple[int, int]:
    """Partitions and replication factor for an offsets topic that has to be created; -1 = the broker's default."""
    return (
        _number(spec.worker_config, "offset.storage.partitions", OFFSETS_PARTITIONS_DEFAULT, minimum=-1),
        _number(spec.worker_config, "offset.storage.replication.factor", -1, minimum=-1),
    )


def _topics(config: Mapping[str, str | None]) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    listed, pattern = _text(config, "topics"), _text(config, "topics.regex")
    if listed and pattern:
        raise ConfigError(
            "topics and topics.regex are mutually exclusive options, but both are set.", field="topics.regex"
        )
    if pattern:
        try:
            return (), re.compile(pattern)
        except re.error as error:
            raise ConfigError.for_value("topics.regex", pattern, f"Invalid regex: {error}") from error
    topics = tuple(dict.fromkeys(filter(None, (topic.strip() for topic in listed.split(",")))))
    if not topics:
        raise ConfigError("Must configure one of topics or topics.regex", field="topics")
    return topics, None


def _under(config: Mapping[str, str | None], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if key.startswith(prefix) and value is not None:
            yield key.removeprefix(prefix), value.strip()


def _text(config: Mapping[str, str | None], key: str) -> str:
    return (config.get(key) or "").strip()


def _number(config: Mapping[str, str | None], key: str, default: int, *, minimum: int) -> int:
    text = _text(config, key)
    if not text:
        return default
    try:
        number = int(text)
    except ValueError as error:
        raise ConfigError.for_value(key, text, "Not a number of type LONG") from error
    if number < minimum:
        raise ConfigError.for_value(key, text, f"Value must be at least {minimum}")
    return number
