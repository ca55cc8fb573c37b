"""`S3SinkConnector` of Confluent (`io.confluent.connect.s3`), with settings translated to `FileSink`'s.

Owns the keys about S3. The shared keys of Confluent's storage sinks: `confluent_settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from herdmesh.connectors.files import confluent_settings
from herdmesh.connectors.files.locations import DIRECTORY, S3_ACCESS_KEY, S3_ENDPOINT, S3_REGION, S3_SECRET_KEY
from herdmesh.sdk import REQUIRED, Config, ConfigKey, Importance, Type
from herdmesh.sdk.validators import non_empty_string, one_of

_BUCKET, _STORE_URL, _LINES_COMPRESSION = "s3.bucket.name", "store.url", "s3.compression.type"
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_FORMATS = {
    "io.confluent.connect.s3.format.json.JsonFormat": "json",
    "io.confluent.connect.s3.format.parquet.ParquetFormat": "parquet",
}
KEYS = confluent_settings.keys_of(
    _FORMATS,
    ["io.confluent.connect.s3.storage.S3Storage"],
    first=(
        ConfigKey(_BUCKET, Type.STRING, REQUIRED, _HIGH, "The S3 Bucket.", non_empty_string()),
        ConfigKey(S3_REGION, Type.STRING, "us-west-2", _MEDIUM, "The AWS region to be used the connector."),
        ConfigKey(_STORE_URL, Type.STRING, None, _HIGH, "Store's connection URL, if applicable."),
        ConfigKey(_LINES_COMPRESSION, Type.STRING, "none", _LOW, "Compression type for JSON files.",
                  one_of("none", "gzip")),
    ),
    last=(
        ConfigKey(S3_ACCESS_KEY, Type.STRING, None, _HIGH,
                  "The AWS access key ID used to authenticate personal AWS credentials such as IAM credentials."),
        ConfigKey(S3_SECRET_KEY, Type.PASSWORD, None, _HIGH,
                  "The secret access key used to authenticate personal AWS credentials such as IAM credentials."),
    ),
)  # fmt: skip


def _folder(config: Config, values: Mapping[str, Any]) -> dict[str, str | None]:
    return {
        DIRECTORY: confluent_settings.below(f"s3://{values[_BUCKET]}", values),
        S3_REGION: values[S3_REGION],
        S3_ENDPOINT: values[_STORE_URL],
        S3_ACCESS_KEY: config.get(S3_ACCESS_KEY),
        S3_SECRET_KEY: config.get(S3_SECRET_KEY),
    }


DIALECT = confluent_settings.Dialect(
    java="s3-sink",
    keys=KEYS,
    formats=_FORMATS,
    lines_compression=_LINES_COMPRESSION,
    folder=_folder,
    written={DIRECTORY: _BUCKET, S3_ENDPOINT: _STORE_URL},
    without_effect={
        "behavior.on.null.values": ("a tombstone is a record without fields (JSON: null)", ("write",)),
        "s3.part.size": ("Arrow chooses the size of parts", ()),
        "s3.part.retries": ("requests are retried by the policy of the AWS client", ()),
        "s3.retry.backoff.ms": ("requests are retried by the policy of the AWS client", ()),
    },
)


class S3SinkConnector(confluent_settings.StorageSink):
    """Confluent's S3 sink."""

    class_name = "io.confluent.connect.s3.S3SinkConnector"
    aliases = ("S3SinkConnector", "S3Sink")

    @classmethod
    def dialect(cls) -> confluent_settings.Dialect:
        return DIALECT
