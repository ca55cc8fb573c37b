"""The config keys of the Java connectors that Herdmesh replaces,
and the warning about such a key that is not read here.

Owns the table (`published_keys.json`, written by `libs/connectors/tests/common/published_keys/generate.py` from the
published definitions) and the advice about frequent keys. The caller passes the keys that a Herdmesh connector reads.

Invariant: a key of the table is never reported as a misspelling.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import resources

from herdmesh.connect.validation import WORKER_KEYS, unknown
from herdmesh.sdk import FieldViolation

_MIRRORS = ("mirror-source", "mirror-checkpoint", "mirror-heartbeat")
_JDBC = ("jdbc-source", "jdbc-sink")
_STORAGE = ("s3-sink", "hdfs-sink")
#: The definitions whose keys may appear in a config, by the definition of the connector itself.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_MIRRORS, _MIRRORS),
    **dict.fromkeys(_JDBC, (*_JDBC, "debezium-jdbc")),
    **dict.fromkeys(_STORAGE, _STORAGE),
    "http-sink": ("http-sink",),
    "datagen": ("datagen",),
    "file-source": ("file-source",),
    "file-sink": ("file-sink",),
    "debezium-postgres": ("debezium-postgres",),
}
_TITLES: Mapping[str, str] = {
    "mirror-source": "MirrorSourceConnector",
    "mirror-checkpoint": "MirrorCheckpointConnector",
    "mirror-heartbeat": "MirrorHeartbeatConnector",
    "jdbc-source": "the JDBC source",
    "jdbc-sink": "the JDBC sink",
    "debezium-jdbc": "Debezium's JDBC sink",
    "debezium-postgres": "Debezium's connector",
    "s3-sink": "the S3 sink",
    "hdfs-sink": "the HDFS sink",
    "http-sink": "the HTTP sinks",
    "datagen": "the datagen connector",
    "file-source": "FileStreamSource",
    "file-sink": "FileStreamSink",
}
_WRITE: Mapping[str, str] = {
    "database.server.name": "topic.prefix",
    "schema.whitelist": "schema.include.list",
    "schema.blacklist": "schema.exclude.list",
    "table.whitelist": "table.include.list",
    "table.blacklist": "table.exclude.list",
    "column.whitelist": "column.include.list",
    "column.blacklist": "column.exclude.list",
    "primary.key.mode": "pk.mode",
    "primary.key.fields": "pk.fields",
    "collection.name.format": "table.name.format",
    "schema.evolution": "auto.create and auto.evolve",
    "connection.username": "connection.user",
    "use.time.zone": "db.timezone",
    "incrementing.column.mapping": "incrementing.column.name",
    "timestamp.columns.mapping": "timestamp.column.name",
    "http.connect.timeout.ms": "http.timeout",
    "topics.blacklist": "topics.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.blacklist": "config.properties.exclude",
}
"""Java keys whose purpose another key has here. The advice is given only if the connector reads that other key."""

_DRIVER = "no JDBC driver is used, so its properties are not passed on"
_PATTERNS: Sequence[tuple[tuple[str, ...], re.Pattern[str], str]] = tuple(
    (owners, re.compile(pattern), why)
    for owners, pattern, why in (
        (_STORAGE, r"schema\.generator\.class|schemas?\.cache\.(?:config|size)",
         "it is a setting of older versions of this sink"),
        (("http-sink",), r"ssl\.enabled", "the scheme of the URL decides this"),
        (_STORAGE, r"s3\.credentials\.provider\..+", "no class that provides credentials is loaded"),
        (("debezium-postgres",), r"(?:database|schema)\.history\..+",
         "it is for Debezium's connectors that keep a history of schemas (MySQL, SQL Server, Oracle)"),
        (("debezium-postgres",),
         r"database\.(?:server\.id|allowPublicKeyRetrieval|serverTimezone|include\.list|whitelist)",
         "it is a setting of Debezium's connectors of other databases"),
        (("debezium-postgres",), r"driver\..+", _DRIVER),
        (_JDBC, r"connection\..+", _DRIVER),
        (_MIRRORS, r"clusters|.+->.+|use\.defaults\.from",
         "it belongs in the file of connect-mirror-maker; here each connector has its own config"),
    )
)  # fmt: skip
"""Frequent keys without a published definition: their connector, their pattern, and why they have no effect here."""


@cache
def published() -> Mapping[str, frozenset[str]]:
    """Return the keys of each definition, by the definition's name."""
    file = resources.files("herdmesh.connectors.common").joinpath("published_keys.json")
    text = file.read_text(encoding="utf-8")
    return {name: frozenset(keys) for name, keys in json.loads(text).items()}


def unread(key: str, java: str, known: Collection[str]) -> FieldViolation:
    """Return the warning about a key that a connector does not read.

    Args:
        java: the definition of the Java connector that it replaces; "" = none.
        known: keys that the connector reads.
    """
    owners = [name for name in FAMILIES.get(java, ()) if key in published()[name]]
    write = _WRITE.get(key, "")
    if write and write.partition(" ")[0] in known:
        return FieldViolation(key, f"{key} has no effect here: the equivalent key is {write}", f"write {write}")
    if java in owners:
        return FieldViolation(
            key, f"{key} has no effect here: this setting of {_TITLES[java]} is not supported", _LEAVE
        )
    if owners:
        return FieldViolation(key, f"{key} has no effect here: it is a setting of {_TITLES[owners[0]]}", _LEAVE)
    for theirs, pattern, why in _PATTERNS:
        if java in theirs and pattern.fullmatch(key):
            fix = "put the equivalent into connection.url" if java in _JDBC else _LEAVE
            return FieldViolation(key, f"{key} has no effect here: {why}", fix)
    if key in WORKER_KEYS:
        fix = "set it where workers are configured"
        return FieldViolation(key, f"{key} has no effect here: it is a property of workers", fix)
    return unknown(key, "this connector has no such setting", known)


_LEAVE = "leave it out"
