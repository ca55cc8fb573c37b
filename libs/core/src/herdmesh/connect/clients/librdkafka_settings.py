"""Table of Java's Kafka client settings and their librdkafka counterparts, and the translation of a client's settings.

Owns every consumer, producer and admin setting of Kafka 4.3 besides logins and encryption (`client_security`): its name
and unit in librdkafka, or the reason why it has no effect here. docs/reference/client-settings.md is generated from the
table. Creates no client.

Invariant: a setting reaches librdkafka, is read by the engine, or is named in a warning; none is dropped silently.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import assert_never

from herdmesh.connect.clients.client_overrides import CLIENTS
from herdmesh.connect.clients.client_security import client_access, is_access
from herdmesh.connect.clients.offset_reset import AUTO_OFFSET_RESET, read_offset_reset
from herdmesh.connect.config import FieldViolation, RawConfig
from herdmesh.connect.errors import ConfigError

_LETTERS = {"producer": "P", "consumer": "C"}
_WHOLE = re.compile(r"[-+]?[0-9]{1,18}", re.ASCII)
_INT_MAX = 2_147_483_647
_GROUP_BYTES_MAX = 32_767
"""Maximum size of a text in Kafka's protocol."""
_LEAVE_OUT = "leave it out"


@dataclass(frozen=True, slots=True)
class Passed:
    """A setting for librdkafka: under `names` (empty = the same name), between `least` and `most`, divided by
    `unit`."""

    names: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    unit: int = 1
    negative: str | None = None
    """librdkafka's value for a negative number in Java."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A setting that Herdmesh decides; `same` are the values that agree with its choice."""

    why: str
    same: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Engine:
    """A setting that Herdmesh reads itself and does not pass to librdkafka."""

    what: str


@dataclass(frozen=True, slots=True)
class Meaningless:
    """A setting without anything here that it could configure."""

    why: str


Meaning = Passed | Fixed | Engine | Meaningless

_ASSIGNED = Meaningless("Herdmesh assigns partitions to tasks, so their consumers join no group")
_METRICS = Meaningless("it configures Java's own metrics")
_JAVA_CODE = Meaningless("it names Java classes, and librdkafka runs no Java")
_BYTES = Fixed("clients move bytes, and the connector's converters read and write them")
_PARTITIONS = Fixed("records without a partition go where Java's default partitioner sends their key (murmur2)")
_CALLS = Meaningless("calls that wait for Kafka are retried for 60 s, whatever the client's setting")
_LEVEL = Passed(("compression.level",), least=0, most=12, negative="-1")

#: By Java's name; a setting that differs for one kind of client is in `_OF_CLIENT`.
SETTINGS: Mapping[str, Meaning] = {
    "acks": Fixed("a task's producer is transactional, which needs all", ("all", "-1")),
    "allow.auto.create.topics": Passed(),
    "auto.commit.interval.ms": Fixed("offsets are committed by Herdmesh, in the task's transaction"),
    "auto.offset.reset": Engine(
        "start position of a sink without a committed offset: earliest, latest, none (the task fails) or "
        "by_duration:PT1H"
    ),
    "batch.size": Passed(least=1, most=2_147_483_647),
    "bootstrap.controllers": Meaningless("librdkafka connects to brokers, not controllers"),
    "bootstrap.servers": Fixed("all clients of a task connect to the workers' cluster"),
    "buffer.memory": Passed(("queue.buffering.max.kbytes",), least=1, most=2_147_483_647, unit=1024),
    "check.crcs": Passed(),
    "client.dns.lookup": Passed(),
    "client.id": Passed(),
    "client.rack": Passed(),
    "compression.gzip.level": _LEVEL,
    "compression.lz4.level": _LEVEL,
    "compression.zstd.level": _LEVEL,
    "compression.type": Passed(),
    "config.providers": Meaningless("references are resolved by the providers of the worker"),
    "connections.max.idle.ms": Passed(least=0, most=2_147_483_647, negative="0"),
    "default.api.timeout.ms": _CALLS,
    "delivery.timeout.ms": Passed(least=1, most=2_147_483_647),
    "enable.auto.commit": Fixed("offsets are committed by Herdmesh, in the task's transaction", ("false",)),
    "enable.idempotence": Fixed("a task's producer is transactional, which needs it", ("true",)),
    "enable.metrics.push": Passed(),
    "exclude.internal.topics": Fixed("topics.regex never matches Kafka's internal topics", ("true",)),
    "fetch.max.bytes": Passed(least=1_000_000, most=2_147_483_135),
    "fetch.max.wait.ms": Passed(("fetch.wait.max.ms",), least=0, most=300_000),
    "fetch.min.bytes": Passed(least=1, most=100_000_000),
    "group.id": Engine("the group a sink's offsets are committed to"),
    "group.instance.id": _ASSIGNED,
    "group.protocol": _ASSIGNED,
    "group.remote.assignor": _ASSIGNED,
    "heartbeat.interval.ms": _ASSIGNED,
    "interceptor.classes": _JAVA_CODE,
    "internal.throw.on.fetch.stable.offset.unsupported": Meaningless("it is internal to Java's Kafka Streams"),
    "isolation.level": Fixed("sinks read committed records only", ("read_committed",)),
    "key.deserializer": _BYTES,
    "key.serializer": _BYTES,
    "linger.ms": Passed(least=0, most=900_000),
    "max.block.ms": _CALLS,
    "max.in.flight.requests.per.connection": Passed(least=1, most=5),
    "max.partition.fetch.bytes": Passed(("fetch.message.max.bytes",), least=1, most=1_000_000_000),
    "max.poll.interval.ms": Engine("maximum time without progress before the task's run is ended and started again"),
    "max.poll.records": Engine("maximum number of records in a batch of a sink task; 1,000 if unset"),
    "max.request.size": Passed(("message.max.bytes",), least=1_000, most=1_000_000_000),
    "metadata.max.age.ms": Passed(least=1, most=86_400_000),
    "metadata.max.idle.ms": Meaningless("librdkafka drops unused topics by a rule of its own"),
    "metadata.recovery.rebootstrap.trigger.ms": Passed(least=0, most=2_147_483_647),
    "metadata.recovery.strategy": Passed(),
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "partition.assignment.strategy": _ASSIGNED,
    "partitioner.adaptive.partitioning.enable": _PARTITIONS,
    "partitioner.availability.timeout.ms": _PARTITIONS,
    "partitioner.class": _PARTITIONS,
    "partitioner.ignore.keys": Fixed(_PARTITIONS.why, ("false",)),
    "receive.buffer.bytes": Passed(("socket.receive.buffer.bytes",), least=0, most=100_000_000, negative="0"),
    "reconnect.backoff.max.ms": Passed(least=0, most=3_600_000),
    "reconnect.backoff.ms": Passed(least=0, most=3_600_000),
    "request.timeout.ms": Passed(("socket.timeout.ms",), least=10, most=300_000),
    "retries": Passed(least=1, most=2_147_483_647),
    "retry.backoff.max.ms": Passed(least=1, most=300_000),
    "retry.backoff.ms": Passed(least=1, most=300_000),
    "send.buffer.bytes": Passed(("socket.send.buffer.bytes",), least=0, most=100_000_000, negative="0"),
    "session.timeout.ms": _ASSIGNED,
    "share.acknowledgement.mode": Meaningless("sinks read as consumers, not from share groups"),
    "share.acquire.mode": Meaningless("sinks read as consumers, not from share groups"),
    "socket.connection.setup.timeout.max.ms": Meaningless("librdkafka gives each attempt the same time"),
    "socket.connection.setup.timeout.ms": Passed(least=1_000, most=2_147_483_647),
    "transaction.timeout.ms": Passed(least=1_000, most=2_147_483_647),
    "transaction.two.phase.commit.enable": Fixed("Herdmesh ends a task's transactions", ("false",)),
    "transactional.id": Fixed("it fences the task, and is derived from group, connector and task"),
    "value.deserializer": _BYTES,
    "value.serializer": _BYTES,
}
_OF_CLIENT: Mapping[tuple[str, str], Meaning] = {
    ("producer", "request.timeout.ms"): Passed(("request.timeout.ms", "socket.timeout.ms"), least=10, most=300_000),
    ("producer", "metadata.recovery.strategy"): Fixed(
        "a producer that loses its brokers can wait for its group's coordinator for ever", ("none",)
    ),
    ("admin", "retries"): _CALLS,
}
#: Settings that Herdmesh decides, by librdkafka's own names.
_FIXED_IN_LIBRDKAFKA: Mapping[str, Fixed] = {
    "delivery.report.only.error": Fixed("Herdmesh chooses which delivery reports it gets"),
    "auto.commit.enable": Fixed("offsets are committed by Herdmesh, in the task's transaction", ("false",)),
    "enable.auto.offset.store": Fixed("offsets are committed by Herdmesh, in the task's transaction", ("false",)),
    "enable.partition.eof": Fixed("a task needs it to detect that it has read everything", ("true",)),
    "metadata.broker.list": Fixed("all clients of a task connect to the workers' cluster"),
    "partitioner": Fixed(_PARTITIONS.why, ("murmur2_random",)),
    "request.required.acks": Fixed("a task's producer is transactional, which needs all", ("all", "-1")),
}
_BOOLEANS = frozenset({"allow.auto.create.topics", "check.crcs", "enable.metrics.push"})
_LOWER = frozenset({"compression.type", "client.dns.lookup", "metadata.recovery.strategy"})


@dataclass(slots=True)
class ClientSettings:
    """Translated settings of one client."""

    config: dict[str, str] = field(default_factory=dict[str, str])
    """Settings for librdkafka, under its names."""
    origins: dict[str, str] = field(default_factory=dict[str, str])
    """Full name of the property that each of them comes from."""
    engine: dict[str, str] = field(default_factory=dict[str, str])
    """Settings that the engine reads itself, under Java's names."""
    warnings: list[FieldViolation] = field(default_factory=list[FieldViolation])
    """Settings without the requested effect, under their full names, each with the reason and the fix."""


def meaning(client: str, name: str) -> Meaning | None:
    """The table's row for a setting; None = it has no row: librdkafka's own, `client_security`'s, or unknown."""
    return _OF_CLIENT.get((client, name)) or SETTINGS.get(name) or _FIXED_IN_LIBRDKAFKA.get(name)


@functools.cache
def librdkafka_names(client: str) -> frozenset[str]:
    """librdkafka's own settings (2.16) for the kind of client, without those whose value is code."""
    text = resources.files("herdmesh.connect.clients").joinpath("librdkafka_settings.jsonl").read_text(encoding="utf-8")
    wanted = ("*", _LETTERS.get(client, "*"))
    return frozenset(row["name"] for row in map(json.loads, text.splitlines()) if row["clients"] in wanted)


def client_settings(client: str, worker: RawConfig, connector: RawConfig) -> ClientSettings:
    """Merge and translate the worker's `<client>.*` and the connector's `<client>.override.*`, which take precedence,
    with logins and encryption.

    Values that Herdmesh reads itself, and values that would crash librdkafka, are checked here, for every kind of
    client; `herdmesh.engine.librdkafka.client_trial` finds the values that librdkafka refuses. Raises ConfigError whose
    `field` is the property's full name.
    """
    found = ClientSettings()
    given: dict[str, tuple[str, str]] = {}
    for prefix, config in ((f"{client}.", worker), (f"{client}.override.", connector)):
        for full, value in config.items():
            name = full.removeprefix(prefix)
            if full.startswith(prefix) and name and value is not None:
                given[name] = (full, _text(full, str(value)))
    for name, (full, value) in given.items():
        if not is_access(name):
            _read(client, name, full, value, found)
    for name in ("gzip", "lz4", "zstd"):
        _level(name, given, found)
    access = client_access(client, worker, connector)
    found.config |= access.config
    found.warnings += [_warning(full, "it only tunes Java's own code") for full in access.ignored]
    return found


def override_warnings(clients: Iterable[str], connector: RawConfig, worker: RawConfig) -> list[FieldViolation]:
    """Warnings about a connector's own client settings without the requested effect, including those of a client that
    it does not have. Settings that cannot be used at all are errors, and reported elsewhere; their client is skipped
    here.
    """
    used = tuple(clients)
    warnings: list[FieldViolation] = []
    for client in CLIENTS:
        prefix = f"{client}.override."
        own = [name for name in connector if name.startswith(prefix) and name != prefix]
        if client not in used:
            why = f"this connector has no {client} client of its own"
            warnings += [_warning(name, why) for name in own]
        elif own:
            try:
                found = client_settings(client, worker, connector).warnings
            except ConfigError:
                continue
            warnings += [one for one in found if one.field.startswith(prefix)]
    return warnings


def worker_warnings(worker: RawConfig) -> list[FieldViolation]:
    """Warnings about a worker's `<client>.*` settings without the requested effect. Raises ConfigError as
    `client_settings`."""
    found = [one for client in CLIENTS for one in client_settings(client, worker, {}).warnings]
    return [one for one in found if one.field.startswith(tuple(f"{client}." for client in CLIENTS))]


def _read(client: str, name: str, full: str, value: str, found: ClientSettings) -> None:
    meant = meaning(client, name)
    match meant:
        case Passed() as passed:
            for target in passed.names or (name,):
                if target != "compression.level":  # of three such settings, that of the codec in use counts
                    found.config[target] = _value(passed, name, full, value, found)
                    found.origins[target] = full
        case Fixed(why, same):
            if value.lower() not in same:
                always = f" (it is always {same[0]})" if same else ""
                found.warnings.append(_warning(full, f"Herdmesh decides it{always}: {why}"))
        case Engine():
            if client == "consumer":
                _check_engine(name, full, value)
                found.engine[name] = value
            else:
                found.warnings.append(_warning(full, "it is a setting of consumers"))
        case Meaningless(why):
            found.warnings.append(_warning(full, why))
        case None:
            if name in librdkafka_names(client):
                found.config[name] = value
                found.origins[name] = full
            else:
                why = f"neither Kafka's {client} nor librdkafka has a setting {name}"
                found.warnings.append(FieldViolation(full, f"{full} has no effect: {why}", "is it misspelt?"))
        case _:
            assert_never(meant)


def _text(full: str, value: str) -> str:
    """The value without surrounding blanks. Raises ConfigError for half of a surrogate pair and for a text with a NUL
    character: librdkafka would cut the text there, and ends the process where that leaves an empty group.
    """
    why = ""
    if "\0" in value:
        why = "a NUL character cannot be part of it"
    elif not value.isascii() and any("\ud800" <= one <= "\udfff" for one in value):
        why = "half of a surrogate pair is not a character"
    if why:  # without the value, which may be a secret
        raise ConfigError(f"Invalid value for configuration {full}: {why}", field=full, fix="leave that character out")
    return value.strip()


def _check_engine(name: str, full: str, value: str) -> None:
    """Raise ConfigError for a value that would end a run."""
    if name == AUTO_OFFSET_RESET:
        read_offset_reset(value, full)
    elif name == "group.id":
        if not value:  # librdkafka ends the process for an empty group
            why = "a sink's offsets need a group"
            raise ConfigError.for_value(
                full, value, why, fix="leave it out: the group is connect-<the connector's name>"
            )
        if len(value.encode()) > _GROUP_BYTES_MAX:
            why = f"it has {len(value.encode())} bytes, and Kafka takes {_GROUP_BYTES_MAX}"
            raise ConfigError.for_value(full, f"{value[:40]}...", why, fix="write a shorter one")
    else:
        if not _WHOLE.fullmatch(value):
            raise ConfigError.for_value(full, value, "Not a number of type INT", fix="write a whole number")
        if not 1 <= int(value) <= _INT_MAX:
            raise ConfigError.for_value(full, value, f"must be 1 to {_INT_MAX}", fix="leave it out, or write 1 or more")


def _value(passed: Passed, name: str, full: str, value: str, found: ClientSettings) -> str:
    if name in _BOOLEANS or name in _LOWER:
        return value.lower()
    if passed.least is None or passed.most is None:
        return value
    if not _WHOLE.fullmatch(value):
        raise ConfigError.for_value(full, value, "Not a number of type LONG", fix="write a whole number")
    number = int(value)
    if number < 0 and passed.negative is not None:
        return passed.negative
    number = -(-number // passed.unit)
    used = min(max(number, passed.least), passed.most)
    if used != number:
        why = f"{full}: librdkafka takes {passed.least * passed.unit} to {passed.most * passed.unit}, so "
        warning = FieldViolation(full, f"{why}{used * passed.unit} is used instead of {value}", "write one of these")
        if warning not in found.warnings:
            found.warnings.append(warning)
    return str(used)


def _level(codec: str, given: Mapping[str, tuple[str, str]], found: ClientSettings) -> None:
    full, value = given.get(f"compression.{codec}.level", ("", ""))
    if full and found.config.get("compression.type", "lz4") == codec:
        found.config["compression.level"] = _value(_LEVEL, "", full, value, found)
        found.origins["compression.level"] = full
    elif full:
        found.warnings.append(_warning(full, f"records are not compressed with {codec}"))


def _warning(full: str, why: str) -> FieldViolation:
    return FieldViolation(full, f"{full} has no effect: {why}", _LEAVE_OUT)
