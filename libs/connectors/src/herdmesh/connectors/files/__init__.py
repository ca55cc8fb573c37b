"""File sinks: records as files in a folder, each record exactly once: `FileSink`, and Confluent's S3 and HDFS sinks.

Owns the connectors (`connector`, `s3`, `hdfs`), their settings, partitioning into subfolders (`partitioners`), the
formats (`formats`) and the file systems (`locations`, `remote_files`, `hadoop`). A value's JSON text,
`json.decimal.format` included, is `connectors.values.payloads`. `parquet` and `spark` import the names below; `spark`
also imports `formats.parquet`, which needs pyarrow.
"""

from __future__ import annotations

from herdmesh.connectors.files.connector import FileSink
from herdmesh.connectors.files.formats import COMPRESSIONS
from herdmesh.connectors.files.key_warnings import unknown
from herdmesh.connectors.files.locations import Location, folder_problem, make_folder
from herdmesh.connectors.files.settings import COMPRESSION, FORMAT, KEYS

__all__ = [
    "COMPRESSION",
    "COMPRESSIONS",
    "FORMAT",
    "KEYS",
    "FileSink",
    "Location",
    "folder_problem",
    "make_folder",
    "unknown",
]
