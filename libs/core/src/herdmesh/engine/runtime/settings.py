"""Settings of a run, read from the configs in its spec: groups, topics, intervals, client settings.

Owns the reading of those keys and their defaults (docs/reference/connect/configs.md, sections 4 and 5;
docs/reference/connect/offsets-topic.md, sections 8 and 9). `connect.client_settings` translates client settings for
librdkafka, `connect.client_security` logins and encryption. Pure: no client is created here.

Invariant: an unusable value raises a ConfigError that names its key; a setting without its effect is in `warnings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from herdmesh.connect.clients import (
    AUTO_OFFSET_RESET,
    ClientSettings,
    OffsetReset,
    Start,
    client_access,
    client_settings,
    read_offset_reset,
)
from herdmesh.connect.config import contradictions, is_at_least_once
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.java import compiled, matches
from herdmesh.engine.runtime.contract import RunSpec
from herdmesh.engine.runtime.topic_groups import TopicGroup, topic_groups

ClientConfig = dict[str, str | int | float | bool]

OFFSETS_MISSING = "herdmesh.offsets.missing"
OFFSET_FLUSH_INTERVAL_MS_DEFAULT = 60_000
METADATA_MAX_AGE_MS_DEFAULT = 300_000
TRANSACTION_INTERVAL_MS_DEFAULT = 1_000
FIRST_TRANSACTION_MS = 50
TRANSACTION_TIMEOUT_MS_DEFAULT = 60_000
"""Kafka's default."""
_TRANSACTION_TIMEOUT = "transaction.timeout.ms"
_BYTES_MAX = "herdmesh.transaction.max.bytes"
_TRANSACTION_TIMEOUT_MS_MOST = 900_000
"""The broker's default limit (`transaction.max.timeout.ms`)."""
OFFSETS_PARTITIONS_DEFAULT = 25
_OFFSET_STORAGE = "offset.storage."
_NO_TOPIC_CONFIGS = frozenset(("topic", "partitions", "replication.factor", "cleanup.policy", "file.filename"))
BATCH_RECORDS_MAX_DEFAULT = 1_000
"""Records taken from the client at once; the client's queue limits their bytes. Measured for JSON, three
transformations and JSON again: 1.02 microseconds of CPU a record with 1,000, 1.25 with 4,000, 1.36 with 10,000, because
a small batch stays in the processor's cache.
"""
FETCH_PARTITION_BYTES = 4_000_000
"""Maximum bytes of one partition in one fetch."""
_POLL_RECORDS = "consumer.override.max.poll.records"


@dataclass(frozen=True, slots=True)
class RateSettings:
    """Limits of the connector, for all its tasks together; 0 = no limit."""

    records_per_second: int
    bytes_per_second: int


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Settings of a sink run."""

    group: str
    topics: tuple[str, ...]
    """Topics named one by one; empty when `topics_regex` is set."""
    topics_regex: str | None
    """A Java regular expression."""
    flush_interval_ms: int
    metadata_max_age_ms: int
    reset: OffsetReset
    """The start without a committed offset."""
    reset_missing: bool
    """True = after a loss of offsets the partitions are started again instead of failing the task."""
    batch_records_max: int
    """Maximum number of records passed on at once (`max.poll.records`)."""
    rate: RateSettings
    consumer: ClientConfig
    access: ClientConfig
    """Login and encryption of the task's other clients: the same as its consumer's, which in Connect is a sink's only
    client.
    """
    warnings: tuple[str, ...]
    """Client settings without their effect, each with the reason."""

    def wants(self, topic: str) -> bool:
        """True when the connector consumes the topic. A regex never matches Kafka's internal topics."""
        if self.topics_regex is None:
            return topic in self.topics
        return not topic.startswith("__") and matches(self.topics_regex, topic)


def _named(config: Mapping[str, str | None], setting: str) -> str:
    """The property that has the setting: the connector's or else the worker's."""
    own = f"consumer.override.{setting}"
    return own if own in config else f"consumer.{setting}"


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Settings of a source run."""

    offsets_topic: str
    """Topic of the connector's offsets: the worker's, or its own (`offsets.storage.topic`)."""
    offsets_copy: str | None
    """If the connector has a topic of its own: the worker's, which has a copy, and offsets committed before the other
    existed.
    """
    transaction_interval_ms: int
    """A transaction is committed after this time, or as soon as the source has nothing more."""
    first_transaction_ms: int
    """Like `transaction_interval_ms`, for the first transaction of a run and the first after the source had nothing: so
    consumers see the first records at once. Not less if the user has set an interval.
    """
    flush_interval_ms: int
    """How often a task that polls nothing is notified that everything is committed."""
    at_least_once: bool
    """True = records are sent outside of transactions, before their offsets (`herdmesh.delivery.guarantee`)."""
    connector_boundaries: bool
    """True = transactions end where the task requests it, and neither after a time nor at a size."""
    poll_boundaries: bool
    """True = each poll is exactly one transaction, by the user's setting. It is Connect's default, too; ours is
    `transaction_interval_ms`.
    """
    transaction_timeout_ms: int
    """Kafka aborts a transaction that is open for longer."""
    transaction_bytes_max: int | None
    """A transaction is also committed at this size; None = no limit."""
    rate: RateSettings
    producer: ClientConfig
    admin: ClientConfig
    """Client settings for the creation of topics; those of the producer unless there are settings of admin clients."""
    offsets_consumer: ClientConfig
    """Client settings for the reading of offsets, with the same rule."""
    topic_creation: bool
    """False = topics are left to the broker's auto-creation (the worker's `topic.creation.enable`)."""
    topic_groups: tuple[TopicGroup, ...]
    """For topics that the run creates; the last matches every topic."""
    warnings: tuple[str, ...]
    """See `SinkSettings.warnings`."""

    def new_topic(self, topic: str) -> TopicGroup:
        """The group with the settings for creating the topic."""
        return next(group for group in self.topic_groups if group.has(topic))


def sink_settings(spec: RunSpec) -> SinkSettings:
    """Read a sink's settings. Raises ConfigError."""
    config = spec.connector_config
    given = client_settings("consumer", spec.worker_config, config)
    group = given.engine.get("group.id", f"connect-{spec.connector}")
    reset = read_offset_reset(
        given.engine.get(AUTO_OFFSET_RESET, Start.EARLIEST.value), _named(config, AUTO_OFFSET_RESET)
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
        reset=reset,
        reset_missing=missing == "reset",
        batch_records_max=_number(
            {_POLL_RECORDS: given.engine.get("max.poll.records")}, _POLL_RECORDS, BATCH_RECORDS_MAX_DEFAULT, minimum=1
        ),
        rate=_rate(config),
        consumer=_held(given.config),
        access=access_of(spec, "consumer"),
        warnings=_texts(given),
    )


def source_settings(spec: RunSpec) -> SourceSettings:
    """Read a source's settings. Raises ConfigError."""
    config = spec.connector_config
    given = client_settings("producer", spec.worker_config, config)
    admin = client_settings("admin", spec.worker_config, config)
    interval_ms, first_ms = TRANSACTION_INTERVAL_MS_DEFAULT, FIRST_TRANSACTION_MS
    boundary = _text(config, "transaction.boundary").lower()
    flush_ms = _number(spec.worker_config, "offset.flush.interval.ms", OFFSET_FLUSH_INTERVAL_MS_DEFAULT, minimum=1)
    if boundary == "interval":
        interval_ms = first_ms = _number(config, "transaction.boundary.interval.ms", flush_ms, minimum=0)
    elif boundary == "poll":
        interval_ms = first_ms = 0
    own_offsets = _text(config, "offsets.storage.topic")
    producer = _lasting(given.config, interval_ms)
    timeout_ms = int(producer.get(_TRANSACTION_TIMEOUT, TRANSACTION_TIMEOUT_MS_DEFAULT))
    return SourceSettings(
        offsets_topic=own_offsets or spec.offset_storage_topic,
        offsets_copy=spec.offset_storage_topic if own_offsets not in ("", spec.offset_storage_topic) else None,
        # With a longer interval, Kafka would abort a transaction under a steady flow before its commit.
        transaction_interval_ms=min(interval_ms, timeout_ms // 2),
        first_transaction_ms=min(first_ms, timeout_ms // 2),
        flush_interval_ms=flush_ms,
        at_least_once=_is_at_least_once(config),
        connector_boundaries=boundary == "connector",
        poll_boundaries=boundary == "poll",
        transaction_timeout_ms=timeout_ms,
        transaction_bytes_max=_number(config, _BYTES_MAX, 0, minimum=1) or None,
        rate=_rate(config),
        producer=producer,
        admin={**admin.config, **access_of(spec, "admin", "producer")},
        offsets_consumer=access_of(spec, "consumer", "producer"),
        topic_creation=_text(spec.worker_config, "topic.creation.enable").lower() != "false",
        topic_groups=topic_groups(config),
        warnings=(*_texts(given, admin), *_no_size(config, boundary)),
    )


def _no_size(config: Mapping[str, str | None], boundary: str) -> tuple[str, ...]:
    if boundary != "connector" or not _text(config, _BYTES_MAX):
        return ()
    return (f"{_BYTES_MAX} has no effect with transaction.boundary=connector: the connector ends transactions",)


def _is_at_least_once(config: Mapping[str, str | None]) -> bool:
    """Whether delivery is at least once. Raises ConfigError for a contradiction: a program that does not know the key
    may have stored the config.
    """
    for one in contradictions(config, is_source=True):
        raise ConfigError(one.message, field=one.field, fix=one.fix)
    return is_at_least_once(config)


def _lasting(producer: Mapping[str, str], interval_ms: int) -> ClientConfig:
    """Kafka's own limit is 60 s, as is the default interval of `transaction.boundary=interval`: a transaction that
    lasts nearly as long, or longer, gets a minute more, unless the user has set a limit.
    """
    found: ClientConfig = dict(producer)
    if interval_ms > TRANSACTION_TIMEOUT_MS_DEFAULT // 2:
        most_ms = min(interval_ms + TRANSACTION_TIMEOUT_MS_DEFAULT, _TRANSACTION_TIMEOUT_MS_MOST)
        found.setdefault(_TRANSACTION_TIMEOUT, most_ms)
    return found


def _texts(*given: ClientSettings) -> tuple[str, ...]:
    return tuple(dict.fromkeys(warning.message for one in given for warning in one.warnings))


def access_of(spec: RunSpec, *clients: str) -> ClientConfig:
    """Login and encryption from the first of these kinds of client with a setting. Raises ConfigError."""
    for client in clients:
        found = client_access(client, spec.worker_config, spec.connector_config).config
        if found:
            return dict(found)
    return {}


def offsets_topic_settings(spec: RunSpec) -> tuple[int, int, dict[str, str]]:
    """Partitions, replication factor and configs of an offsets topic to be created; -1 = the broker's default.

    The worker's further `offset.storage.*` are the topic's configs, but it is always compacted
    (docs/reference/connect/configs.md, section 4).
    """
    worker = spec.worker_config
    configs = {
        name: value
        for key, value in worker.items()
        if (name := key.removeprefix(_OFFSET_STORAGE)) != key and name not in _NO_TOPIC_CONFIGS and value is not None
    }
    return (
        _number(worker, f"{_OFFSET_STORAGE}partitions", OFFSETS_PARTITIONS_DEFAULT, minimum=-1),
        _number(worker, f"{_OFFSET_STORAGE}replication.factor", -1, minimum=-1),
        {**configs, "cleanup.policy": "compact"},
    )


def _rate(config: Mapping[str, str | None]) -> RateSettings:
    return RateSettings(
        _number(config, "herdmesh.rate.records.per.second", 0, minimum=1),
        _number(config, "herdmesh.rate.bytes.per.second", 0, minimum=1),
    )


def _held(consumer: Mapping[str, str]) -> ClientConfig:
    """`fetch.max.bytes` limits a fetch of Java's client, and so the data that a task gets at once. librdkafka
    prefetches much more by default: here the setting limits that, too, to two fetches at the most.
    """
    found: ClientConfig = dict(consumer)
    bound = consumer.get("fetch.max.bytes")
    if bound is not None:
        found.setdefault("queued.max.messages.kbytes", max(1, int(bound) // 1024))
        found.setdefault("fetch.message.max.bytes", min(int(bound), FETCH_PARTITION_BYTES))
    return found


def _topics(config: Mapping[str, str | None]) -> tuple[tuple[str, ...], str | None]:
    listed, pattern = _text(config, "topics"), _text(config, "topics.regex")
    if listed and pattern:
        raise ConfigError(
            "topics and topics.regex are mutually exclusive options, but both are set.", field="topics.regex"
        )
    if pattern:
        try:
            compiled(pattern)
        except ConfigError as error:
            raise ConfigError.for_value("topics.regex", pattern, str(error), fix=error.fix) from error
        return (), pattern
    topics = tuple(dict.fromkeys(filter(None, (topic.strip() for topic in listed.split(",")))))
    if not topics:
        raise ConfigError("Must configure one of topics or topics.regex", field="topics")
    return topics, None


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
