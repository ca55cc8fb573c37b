"""Settings of a CDC source, from Debezium's keys: read, refused, or named in a warning.

Owns the keys and the rules between them. Does not connect. The form of column values: `types`.

Invariant: a key is honoured, refused or named in a warning; none is ignored silently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from herdmesh.connect.java import compiled
from herdmesh.connect.validation import COMMON, HERDMESH, SOURCE
from herdmesh.connectors.common.known_keys import unread
from herdmesh.connectors.postgres.cdc.text_forms import SESSION
from herdmesh.connectors.postgres.connection import ConnectionSettings
from herdmesh.connectors.postgres.names import NAME_BYTES_MAX, check_names, why_no_name
from herdmesh.connectors.postgres.unchanged_placeholder import DEFAULT, placeholder_validator
from herdmesh.sdk import (
    REQUIRED,
    Config,
    ConfigDef,
    ConfigError,
    ConfigKey,
    FieldViolation,
    Importance,
    Type,
    Validator,
)
from herdmesh.sdk.validators import at_least, non_empty_string, one_of

HOST, PORT, USER, PASSWORD, DATABASE = (
    "database.hostname", "database.port", "database.user", "database.password", "database.dbname",
)  # fmt: skip
PREFIX, SLOT, PUBLICATION, AUTOCREATE = "topic.prefix", "slot.name", "publication.name", "publication.autocreate.mode"
VIA_ROOT = "publish.via.partition.root"
SNAPSHOT_MODE, DECIMALS, TIMES = "snapshot.mode", "decimal.handling.mode", "time.precision.mode"
BINARY, INTERVALS, PLACEHOLDER = "binary.handling.mode", "interval.handling.mode", "unavailable.value.placeholder"
TABLES = ("schema.include.list", "schema.exclude.list", "table.include.list", "table.exclude.list")
COLUMNS = ("column.include.list", "column.exclude.list")
_SKIPPED = "skipped.operations"
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_SLOT_NAME = re.compile(rf"[a-z0-9_]{{1,{NAME_BYTES_MAX}}}")
_NOT_IN_TOPICS = re.compile(r"[^a-zA-Z0-9._-]")
_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword")
_SYSTEM = ("pg_catalog", "information_schema", "pg_toast")


class SnapshotMode(StrEnum):
    """When the present rows of the tables are read before their changes."""

    INITIAL = "initial"
    """Once, if there is no offset yet."""
    ALWAYS = "always"
    """At the start of each run."""
    INITIAL_ONLY = "initial_only"
    """Once, without changes after it."""
    NEVER = "never"
    NO_DATA = "no_data"
    """Debezium's later name of `never`."""


class Autocreate(StrEnum):
    """Reaction to a missing publication."""

    ALL_TABLES = "all_tables"
    FILTERED = "filtered"
    DISABLED = "disabled"


def _regexes() -> Validator:
    def check(name: str, value: Sequence[str] | None) -> None:
        for pattern in value or ():
            try:
                compiled(pattern)
            except ConfigError as error:
                raise ConfigError.for_value(name, pattern, str(error), fix=error.fix) from error

    return Validator("regular expressions, separated by commas", check)


def _slot_name() -> Validator:
    def check(name: str, value: str) -> None:
        if not _SLOT_NAME.fullmatch(value):
            fix = f"write lower-case letters, digits and _, at most {NAME_BYTES_MAX}"
            why = f"not a name of a replication slot: {why_no_name(value) or 'it has other characters'}"
            raise ConfigError.for_value(name, value, why, fix=fix)

    return Validator("lower-case letters, digits and _", check)


def _publication_name() -> Validator:
    def check(name: str, value: str) -> None:
        check_names(name, [value], "write a shorter one")

    return Validator("name of a publication", check)


def _operations() -> Validator:
    def check(name: str, value: Sequence[str]) -> None:
        for one in value:
            if one not in ("c", "u", "d", "t", "none"):
                raise ConfigError.for_value(name, one, "no operation", fix="write c, u, d, t or none")

    return Validator("[c, u, d, t, none]", check)


KEYS = ConfigDef(
    ConfigKey(HOST, Type.STRING, REQUIRED, _HIGH, "Address of the PostgreSQL server.", non_empty_string()),
    ConfigKey(PORT, Type.INT, 5_432, _HIGH, "Port of the PostgreSQL server.", at_least(1)),
    ConfigKey(USER, Type.STRING, REQUIRED, _HIGH, "User with the right to replicate.", non_empty_string()),
    ConfigKey(PASSWORD, Type.PASSWORD, None, _HIGH, "The user's password."),
    ConfigKey(DATABASE, Type.STRING, REQUIRED, _HIGH, "Database whose changes are captured.", non_empty_string()),
    ConfigKey("database.sslmode", Type.STRING, "prefer", _MEDIUM, "Whether the connection is encrypted.",
              one_of("disable", "allow", "prefer", "require", "verify-ca", "verify-full")),
    ConfigKey("database.sslrootcert", Type.STRING, None, _MEDIUM,
              "File with the CA certificates that verify the server."),
    ConfigKey("database.sslcert", Type.STRING, None, _MEDIUM, "File with the client's certificate."),
    ConfigKey("database.sslkey", Type.STRING, None, _MEDIUM, "File with the client's private key."),
    ConfigKey("database.sslpassword", Type.PASSWORD, None, _MEDIUM, "Password of the private key."),
    ConfigKey("database.tcpKeepAlive", Type.BOOLEAN, True, _MEDIUM, "Whether TCP keep-alives are sent."),
    ConfigKey(PREFIX, Type.STRING, REQUIRED, _HIGH,
              "Prefix of all topic names, and name of the server in events and offsets. A changed prefix starts with a "
              "new snapshot.", non_empty_string()),
    ConfigKey("topic.delimiter", Type.STRING, ".", _LOW, "Separator between the parts of a topic name.",
              non_empty_string()),
    ConfigKey("plugin.name", Type.STRING, "pgoutput", _MEDIUM, "The server's plugin; every server has pgoutput.",
              one_of("pgoutput")),
    ConfigKey(SLOT, Type.STRING, "debezium", _MEDIUM, "Replication slot, for one connector only; created if missing.",
              _slot_name()),
    ConfigKey("slot.drop.on.stop", Type.BOOLEAN, False, _MEDIUM,
              "Whether the task drops the slot when a run ends. Changes until its next run are lost; for tests only."),
    ConfigKey(PUBLICATION, Type.STRING, "dbz_publication", _MEDIUM, "Publication to read changes from.",
              _publication_name()),
    ConfigKey(AUTOCREATE, Type.STRING, Autocreate.ALL_TABLES, _MEDIUM, "How a missing publication is "
              "created: all_tables = of all tables, filtered = of the captured ones (also later ones), disabled = not.",
              one_of(*Autocreate)),
    ConfigKey(VIA_ROOT, Type.BOOLEAN, False, _LOW,
              "Whether rows of a partitioned table are captured under its name instead of its partitions' names, if "
              "the config captures both."),
    *(ConfigKey(key, Type.LIST, [], _HIGH,
                f"Regular expressions that match whole names, case-insensitive: {what}.", _regexes())
      for key, what in zip((*TABLES, *COLUMNS), (
          "schemas to capture", "schemas not to capture", "tables (schema.table) to capture",
          "tables (schema.table) not to capture", "columns (schema.table.column) to have in events",
          "columns (schema.table.column) not to have in events"), strict=True)),
    ConfigKey(SNAPSHOT_MODE, Type.STRING, SnapshotMode.INITIAL, _MEDIUM,
              "Whether a snapshot of the tables is read before their changes.", one_of(*SnapshotMode)),
    ConfigKey("tombstones.on.delete", Type.BOOLEAN, True, _MEDIUM,
              "Whether a deletion is followed by a tombstone, so that compaction removes the key."),
    ConfigKey(_SKIPPED, Type.LIST, ["t"], _LOW, "Operations without records: c, u, d, t, or none.", _operations()),
    ConfigKey("heartbeat.interval.ms", Type.INT, 0, _MEDIUM, "Interval between records to the heartbeat topic, in "
              "milliseconds; 0 = none.", at_least(0)),
    ConfigKey("topic.heartbeat.prefix", Type.STRING, "__debezium-heartbeat", _LOW,
              "Prefix of the heartbeat topic's name.", non_empty_string()),
    ConfigKey(DECIMALS, Type.STRING, "precise", _MEDIUM, "Representation of numeric and money in records.",
              one_of("precise", "double", "string")),
    ConfigKey(TIMES, Type.STRING, "adaptive", _MEDIUM, "Representation of dates and times in records.",
              one_of("adaptive", "adaptive_time_microseconds", "connect")),
    ConfigKey(BINARY, Type.STRING, "bytes", _LOW, "What bytea becomes.",
              one_of("bytes", "base64", "base64-url-safe", "hex")),
    ConfigKey(INTERVALS, Type.STRING, "numeric", _LOW, "What interval becomes.", one_of("numeric", "string")),
    ConfigKey(PLACEHOLDER, Type.STRING, DEFAULT, _LOW,
              "Placeholder for a large value that an update did not change, since the server does not send it; hex: "
              "and digits stand for bytes.", placeholder_validator()),
    ConfigKey("max.batch.size", Type.INT, 2_048, _MEDIUM, "Maximum number of changes in a batch.", at_least(1)),
    ConfigKey("status.update.interval.ms", Type.INT, 10_000, _LOW,
              "Interval between reports of the position to the server, in milliseconds.", at_least(1)),
)  # fmt: skip

#: Unsupported keys of Debezium that change the content of records, with the harmless values.
_NOT_BUILT: Mapping[str, tuple[str, ...]] = {
    "provide.transaction.metadata": ("false",),
    "message.key.columns": ("",),
    "schema.name.adjustment.mode": ("none", ""),
    "field.name.adjustment.mode": ("none", ""),
    "hstore.handling.mode": ("json",),
    "money.fraction.digits": ("2",),
    "converters": ("",),
    "post.processors": ("",),
    "signal.data.collection": ("",),
    "snapshot.select.statement.overrides": ("",),
    "snapshot.include.collection.list": ("",),
    "heartbeat.action.query": ("",),
    "topic.naming.strategy": ("io.debezium.schema.SchemaTopicNamingStrategy",),
    "include.schema.comments": ("false",),
    "replica.identity.autoset.values": ("",),
    "database.initial.statements": ("",),
    "slot.stream.params": ("",),
    "xmin.fetch.interval.ms": ("0",),
}
_NOT_BUILT_PREFIXES = ("column.mask.", "column.truncate.", "column.propagate.", "datatype.propagate.",
                       "snapshot.select.statement.overrides.", "publication.row.filter")  # fmt: skip
_WITHOUT_EFFECT: Mapping[str, str] = {
    "poll.interval.ms": "the server pushes changes; an idle loop checks for them ten times a second",
    "max.queue.size": "there is no queue: a batch is read when the previous one is sent",
    "max.queue.size.in.bytes": "there is no queue: a batch is read when the previous one is sent",
    "slot.max.retries": "a slot in use is retried without a limit",
    "slot.retry.delay.ms": "a slot in use is retried ten times a second",
    "errors.max.retries": "an unreachable server is retried without a limit",
    "retriable.restart.connector.wait.ms": "an unreachable server is retried ten times a second",
    "snapshot.fetch.size": "tables are read by COPY",
    "snapshot.max.threads": "tables are read one after the other",
    "snapshot.delay.ms": "a snapshot starts immediately",
    "snapshot.lock.timeout.ms": "no table is locked",
    "snapshot.locking.mode": "no table is locked",
    "snapshot.isolation.mode": "the snapshot is the one in which the slot begins",
    "schema.refresh.mode": "the server reports changes of tables itself",
    "include.unknown.datatypes": "types without a mapping become text",
    "event.processing.failure.handling.mode": "errors.tolerance decides about records that cannot be written",
    "flush.lsn.source": "the slot is confirmed when its records are committed",
    "slot.failover": "the slot is created without failover",
}
_SHARED_PREFIXES = ("transforms.", "predicates.", "key.converter", "value.converter", "header.converter", "errors.",
                    "topic.creation.", "consumer.override.", "producer.override.", "admin.override.",
                    "herdmesh.")  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """Names selected by case-insensitive regular expressions of whole names. Without `include` all names."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    @cached_property
    def _patterns(self) -> tuple[Any, ...]:
        joined = ("|".join(f"(?:{one})" for one in some) for some in (self.include, self.exclude))
        return tuple(compiled(f"(?i:{one})") if one else None for one in joined)

    def has(self, name: str) -> bool:
        """Return whether the name is selected."""
        include, exclude = self._patterns
        if include is not None and include.fullmatch(name) is None:
            return False
        return exclude is None or exclude.fullmatch(name) is None


@dataclass(frozen=True)
class Tables:
    """Selection of the captured tables."""

    schemas: Choice = Choice()
    tables: Choice = Choice()

    def has(self, schema: str, table: str) -> bool:
        """Return whether the table is captured. System tables never are."""
        return (
            not schema.startswith(_SYSTEM) and self.schemas.has(schema) and self.tables.has(f"{schema}.{table}")
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Modes:
    """Modes of value conversion, in Debezium's terms."""

    decimals: str = "precise"
    times: str = "adaptive"
    binary: str = "bytes"
    intervals: str = "numeric"
    placeholder: str = DEFAULT


@dataclass(frozen=True, slots=True)
class CdcSettings:
    """The parsed config of a CDC source."""

    connection: ConnectionSettings
    prefix: str
    delimiter: str
    slot: str
    drops_slot: bool
    publication: str
    autocreate: Autocreate
    via_root: bool
    """Send partitioned tables under their own names."""
    tables: Tables
    columns: Choice
    """By `schema.table.column`."""
    snapshot: SnapshotMode
    tombstones: bool
    skipped: frozenset[str]
    heartbeat_s: float
    """0 = no heartbeats."""
    heartbeat_topic: str
    modes: Modes
    batch_changes: int
    status_s: float
    reset_lost: bool
    """True = restart with a snapshot when a slot lost changes, or is gone, instead of failing the task."""

    def topic(self, schema: str, table: str) -> str:
        """Return the topic of a table's records; characters that a topic name cannot have become underscores."""
        return _NOT_IN_TOPICS.sub("_", self.delimiter.join((self.prefix, schema, table)))


def settings_of(config: Config) -> CdcSettings:
    """Read the config. Raises ConfigError whose field is the key."""
    values = KEYS.parse(config)
    for problem in not_built(config):
        raise problem
    for including, excluding in (TABLES[:2], TABLES[2:], COLUMNS):
        if values[including] and values[excluding]:
            message = f"{including} and {excluding} cannot both be set"
            raise ConfigError(message, field=excluding, fix="leave one of them out")
    return CdcSettings(
        connection=_connection(values),
        prefix=values[PREFIX],
        delimiter=values["topic.delimiter"],
        slot=values[SLOT],
        drops_slot=values["slot.drop.on.stop"],
        publication=values[PUBLICATION],
        autocreate=Autocreate(values[AUTOCREATE]),
        via_root=values[VIA_ROOT],
        tables=Tables(Choice(values[TABLES[0]], values[TABLES[1]]), Choice(values[TABLES[2]], values[TABLES[3]])),
        columns=Choice(values[COLUMNS[0]], values[COLUMNS[1]]),
        snapshot=SnapshotMode(values[SNAPSHOT_MODE]),
        tombstones=values["tombstones.on.delete"],
        skipped=frozenset(values[_SKIPPED]) - {"none"},
        heartbeat_s=values["heartbeat.interval.ms"] / 1_000,
        heartbeat_topic=_NOT_IN_TOPICS.sub(
            "_", f"{values['topic.heartbeat.prefix']}{values['topic.delimiter']}{values[PREFIX]}"
        ),
        modes=Modes(values[DECIMALS], values[TIMES], values[BINARY], values[INTERVALS], values[PLACEHOLDER]),
        batch_changes=values["max.batch.size"],
        status_s=values["status.update.interval.ms"] / 1_000,
        reset_lost=(config.get("herdmesh.offsets.missing") or "").strip() == "reset",
    )


def warnings_of(config: Config) -> list[FieldViolation]:
    """Return a warning, with the reason, for every key without the effect that its value requests."""
    found: list[FieldViolation] = []
    known = {*COMMON.keys, *SOURCE.keys, *HERDMESH.keys, *KEYS.keys, *_NOT_BUILT, "name", "task.class"}
    for name in config:
        if name in _WITHOUT_EFFECT:
            message = f"{name} has no effect: {_WITHOUT_EFFECT[name]}"
            found.append(FieldViolation(name, message, "leave it out"))
        elif name not in known and not name.startswith((*_SHARED_PREFIXES, *_NOT_BUILT_PREFIXES)):
            found.append(unread(name, "debezium-postgres", known))
    return found


def not_built(config: Config) -> list[ConfigError]:
    """Return an error for every key that requests an unsupported feature."""
    found: list[ConfigError] = []
    for name, value in config.items():
        accepted = _NOT_BUILT.get(name)
        text = (value or "").strip()
        if accepted is None and name.startswith(_NOT_BUILT_PREFIXES):
            accepted = ("",)
        if accepted is not None and text and text.lower() not in map(str.lower, accepted):
            fix = f"leave it out or write {accepted[0]}" if accepted[0] else "leave it out"
            found.append(ConfigError.for_value(name, text, "this is not supported yet", fix=fix))
    return found


def _connection(values: Mapping[str, Any]) -> ConnectionSettings:
    parameters = {key: values[f"database.{key}"] or "" for key in _TLS}
    parameters["keepalives"] = "1" if values["database.tcpKeepAlive"] else "0"
    # Set for the session, so that they override the defaults of the role and the database.
    options = " ".join(f"-c {name}={_escaped(value)}" for name, value in SESSION.items())
    return ConnectionSettings(
        values[HOST], str(values[PORT]), values[DATABASE], values[USER], values[PASSWORD] or "",
        {**parameters, "options": options},
    )  # fmt: skip


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
