"""`Hdfs3SinkConnector` of Confluent (`io.confluent.connect.hdfs3`),
and its predecessor, with settings translated to `FileSink`'s.

Owns the keys about Hadoop. The shared keys of Confluent's storage sinks: `confluent_settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from herdmesh.connectors.files import confluent_settings
from herdmesh.connectors.files.locations import DIRECTORY, Location
from herdmesh.sdk import Config, ConfigError, ConfigKey, Importance, Type

_URL, _OLD_URL = "store.url", "hdfs.url"
_PACKAGES = ("io.confluent.connect.hdfs3", "io.confluent.connect.hdfs")
_FORMATS = {
    f"{package}.{name}Format": form
    for package in _PACKAGES
    for name, form in (("json.Json", "json"), ("parquet.Parquet", "parquet"), ("string.String", "text"))
}
KEYS = confluent_settings.keys_of(
    _FORMATS,
    [f"{package}.storage.HdfsStorage" for package in _PACKAGES],
    first=(
        ConfigKey(_URL, Type.STRING, None, Importance.HIGH, "The HDFS connection URL, hdfs://hostname:port."),
        ConfigKey(_OLD_URL, Type.STRING, None, Importance.HIGH, "Old name of store.url."),
    ),
    last=(),
)
_HADOOPS = "Hadoop's settings come from the worker's HADOOP_CONF_DIR"
_ANOTHER_WAY = "commits are stored in Kafka, not in a log next to the files"


def _folder(config: Config, values: Mapping[str, Any]) -> dict[str, str | None]:
    key = _URL if (values[_URL] or "").strip() else _OLD_URL
    url = (values[key] or "").strip()
    if not url:
        raise ConfigError(
            f"{_URL} is missing: it names the file system of the files", field=_URL, fix="hdfs://host:8020"
        )
    if Location.parse(url).scheme in ("file", "s3"):
        raise ConfigError.for_value(key, url, "not a Hadoop file system", fix="hdfs://host:8020, or FileSink")
    root = url.rstrip("/")
    return {DIRECTORY: confluent_settings.below(f"{root}//" if root.endswith(":") else root, values)}


DIALECT = confluent_settings.Dialect(
    java="hdfs-sink", keys=KEYS,
    formats=_FORMATS,
    lines_compression="",
    folder=_folder,
    written={DIRECTORY: _URL},
    without_effect={
        "hadoop.conf.dir": (_HADOOPS, ()),
        "hadoop.home": ("the Hadoop client is the one that Spark ships", ()),
        "logs.dir": (_ANOTHER_WAY, ()),
        "max.open.files.per.partition": (_ANOTHER_WAY, ()),
        "retry.backoff.ms": ("herdmesh.restart.* decide how a failed task is restarted", ()),
        "shutdown.timeout.ms": ("the worker's settings decide how a task is stopped", ()),
        "schema.cache.size": ("schemas are cached while they are in use", ()),
        "avro.codec": ("Avro files are not written", ()),
    },
    refused={
        "hive.integration": (("", "false"), "Hive tables are not created",
                             "create an external table over the folders, which follow Hive's naming"),
        "hdfs.authentication.kerberos": (("", "false"), "Kerberos is not configured per connector",
                                         f"leave it out: {_HADOOPS}, and the Kerberos login from the worker's ticket "
                                         "cache"),
    },
)  # fmt: skip


class HdfsSinkConnector(confluent_settings.StorageSink):
    """Confluent's HDFS sinks."""

    class_name = "io.confluent.connect.hdfs3.Hdfs3SinkConnector"
    aliases = ("HdfsSink", "Hdfs3SinkConnector", "io.confluent.connect.hdfs.HdfsSinkConnector", "HdfsSinkConnector")

    @classmethod
    def dialect(cls) -> confluent_settings.Dialect:
        return DIALECT
