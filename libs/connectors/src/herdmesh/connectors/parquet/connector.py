"""`ParquetSink`: writes records as Parquet files to a folder, each record exactly once.

Owns the name and two keys: the rest is `FileSink` with `format=parquet`, and its task.
"""

from __future__ import annotations

from typing import ClassVar

from herdmesh.connectors.files import COMPRESSION, COMPRESSIONS, FORMAT, KEYS, FileSink
from herdmesh.sdk import ConfigDef, ConfigKey, Importance, Type
from herdmesh.sdk.validators import one_of

PARQUET = "parquet"


class ParquetSink(FileSink):
    """`ParquetSink`: one Parquet file per partition, subfolder and commit, one column per top-level field."""

    class_name = "herdmesh.ParquetSink"
    aliases = ("ParquetSink", "ParquetSinkConnector")
    _keys: ClassVar[ConfigDef] = KEYS.extended(
        ConfigKey(FORMAT, Type.STRING, PARQUET, Importance.LOW, "Always parquet.", one_of(PARQUET)),
        ConfigKey(
            COMPRESSION, Type.STRING, COMPRESSIONS[PARQUET][0], Importance.LOW,
            "Compression of the files.", one_of(*COMPRESSIONS[PARQUET]),
        ),
    )  # fmt: skip
