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
        ConfigKey(_OLD_URL, Type.STRING, None, Importance.HIGH, "The elder name of store.url."),
    ),
    last=(),
)
_HADOOPS = "Hadoop's settings are those in the worker's HADOOP_CONF_DIR"
_ANOTHER_WAY = "a commit is in Kafka, not in a log beside the files"


def _folder(config: Config, values: Mapping[str, Any]) -> dict[str, str | None]:
    key = _URL if (values[_URL] or "").strip() else _OLD_URL
    url = (values[key] or "").strip()
    if not url:
        raise ConfigError(f"{_URL} is missing: where the files go", field=_URL, fix="hdfs://host:8020")
    if Location.parse(url).scheme in ("file", "s3"):
        raise ConfigError.for_value(key, url, "no file system of Hadoop's", fix="hdfs://host:8020, or FileSink")
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
        "hadoop.home": ("Hadoop's client is the one that Spark brings", ()),
        "logs.dir": (_ANOTHER_WAY, ()),
        "max.open.files.per.partition": (_ANOTHER_WAY, ()),
        "retry.backoff.ms": ("a run that fails is tried again as herdmesh.restart.* say", ()),
        "shutdown.timeout.ms": ("a task is stopped as the worker is configured", ()),
        "schema.cache.size": ("schemas are kept while they are used", ()),
        "avro.codec": ("no Avro is written", ()),
    },
    refused={
        "hive.integration": (("", "false"), "no tables of Hive's are made",
                             "make an external table over the folders, which are named as Hive names them"),
        "hdfs.authentication.kerberos": (("", "false"), "there are no keys for Kerberos",
                                         f"leave it out: {_HADOOPS}, and its ticket cache"),
    },
)  # fmt: skip


class HdfsSinkConnector(confluent_settings.StorageSink):
    """Confluent's HDFS sinks."""

    class_name = "io.confluent.connect.hdfs3.Hdfs3SinkConnector"
    aliases = ("HdfsSink", "Hdfs3SinkConnector", "io.confluent.connect.hdfs.HdfsSinkConnector", "HdfsSinkConnector")

    @classmethod
    def dialect(cls) -> confluent_settings.Dialect:
        return DIALECT
