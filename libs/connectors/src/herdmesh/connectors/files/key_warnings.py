"""Warnings about keys of `FileSink` without effect.

Owns the dependencies between its keys, and the check for misspellings.

Invariant: a key is honoured, refused or named here; none is ignored silently.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from herdmesh.connect.spi import ConnectorKind
from herdmesh.connectors.common import no_effect, warned_settings
from herdmesh.connectors.files import settings
from herdmesh.connectors.files.locations import (
    DIRECTORY,
    HADOOP_USER,
    S3_ACCESS_KEY,
    S3_ENDPOINT,
    S3_REGION,
    S3_SECRET_KEY,
    Location,
)
from herdmesh.sdk import Config, ConfigError, FieldViolation

_TIME = (settings.PARTITIONER, "time")
_NEEDED: Mapping[str, tuple[str, str]] = {
    settings.PARTITION_FIELDS: (settings.PARTITIONER, "field"),
    settings.PATH_FORMAT: _TIME,
    settings.DURATION_MS: _TIME,
    settings.TIMEZONE: _TIME,
    settings.EXTRACTOR: _TIME,
    settings.TIMESTAMP_FIELD: (settings.EXTRACTOR, "RecordField"),
}
"""Keys, each with the key and value that it depends on."""
_OF_S3 = (S3_REGION, S3_ENDPOINT, S3_ACCESS_KEY, S3_SECRET_KEY)


def unused(config: Config) -> list[FieldViolation]:
    """Return `FileSink`'s keys that are set and not used; empty for a config that is refused."""
    try:
        values = settings.KEYS.parse(config)
        scheme = Location.parse(values[DIRECTORY]).scheme
    except ConfigError:
        return []
    found = [
        no_effect(key, f"it needs {other}={wanted}")
        for key, (other, wanted) in _NEEDED.items()
        if key in config and values[other] != wanted
    ]
    found += [no_effect(key, f"{DIRECTORY} is not in S3") for key in _OF_S3 if key in config and scheme != "s3"]
    form = values[settings.FORMAT]
    if settings.JSON_DECIMALS in config and form not in ("json", "text"):
        found.append(no_effect(settings.JSON_DECIMALS, f"{form} files have a decimal type"))
    if HADOOP_USER in config and scheme in ("s3", "file"):
        found.append(no_effect(HADOOP_USER, f"{DIRECTORY} is not in a Hadoop file system"))
    return found


def unknown(config: Config, own: Collection[str], java: str = "") -> list[FieldViolation]:
    """Return the keys that are neither the connector's own nor common to all sinks."""
    return warned_settings(config, own, ConnectorKind.SINK, java=java)
