"""`ParquetSink`: records as Parquet files in a folder, each record exactly once.

Owns the connector and its config keys. The task is in `parquet_task`, so that a worker need not import pyarrow.

    directory             folder to write to; made when absent
    flush.records         commit when a task holds so many records
    rotate.interval.ms    ... or when its oldest record waits so long
    compression           zstd, snappy, gzip or none

Invariant: a folder that cannot be written is an error of the field `directory` before the connector starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from herdmesh.connect.config import REQUIRED, ConfigDef, ConfigKey, Importance, Type
from herdmesh.connect.connector import Config, PartitionId, SinkConnector
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.validators import at_least, non_empty_string, one_of

DIRECTORY = "directory"
FLUSH_RECORDS = "flush.records"
ROTATE_INTERVAL_MS = "rotate.interval.ms"
COMPRESSION = "compression"
FLUSH_RECORDS_DEFAULT = 100_000
ROTATE_INTERVAL_MS_DEFAULT = 10_000
_DIRECTORY_BYTES_MAX = 2_000
"""The path travels in the offset metadata, of which the broker keeps 4096 bytes."""


class ParquetSink(SinkConnector):
    """One file per partition and commit, one column per top-level field."""

    class_name = "herdmesh.ParquetSink"
    aliases = ("ParquetSink", "ParquetSinkConnector")
    version = "0.1.0"
    _keys = ConfigDef(
        ConfigKey(
            DIRECTORY, Type.STRING, REQUIRED, Importance.HIGH,
            "Folder the files are published in, on a disk all workers see. Made when absent.", non_empty_string(),
        ),
        ConfigKey(
            FLUSH_RECORDS, Type.INT, FLUSH_RECORDS_DEFAULT, Importance.MEDIUM,
            "Publish when a task holds so many records.", at_least(1),
        ),
        ConfigKey(
            ROTATE_INTERVAL_MS, Type.LONG, ROTATE_INTERVAL_MS_DEFAULT, Importance.MEDIUM,
            "Publish when the oldest record a task holds has waited so long, in milliseconds.", at_least(1),
        ),
        ConfigKey(
            COMPRESSION, Type.STRING, "zstd", Importance.LOW,
            "Compression of the files.", one_of("zstd", "snappy", "gzip", "none"),
        ),
    )  # fmt: skip

    @classmethod
    def config_def(cls) -> ConfigDef:
        return cls._keys

    def validate(self, config: Config) -> Sequence[ConfigError]:
        problem = folder_problem(Path((config.get(DIRECTORY) or "").strip()))
        return [problem] if problem else []

    def start(self, config: Config) -> None:
        self._keys.parse(config)
        super().start(config)

    def task_class(self) -> str:
        return "herdmesh.worker.connectors.parquet_task:ParquetSinkTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        folder = os.path.abspath((self.config[DIRECTORY] or "").strip())
        return [{**self.config, DIRECTORY: folder} for _ in range(max_tasks)]

    def alter_offsets(self, config: Config, offsets: Mapping[PartitionId, int | None]) -> bool:
        return True  # the group's are all it has


def folder_problem(folder: Path) -> ConfigError | None:
    """Why files cannot be written there, None when they can.

    Tried, not asked: permission bits say nothing to root, nor about a read-only or full disk. Leaves nothing behind.
    """
    absolute = folder.absolute()
    if len(os.fsencode(absolute)) > _DIRECTORY_BYTES_MAX:
        return ConfigError(f"{DIRECTORY}: the path is longer than {_DIRECTORY_BYTES_MAX} bytes", field=DIRECTORY)
    existing = absolute
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return ConfigError(f"{DIRECTORY}: {existing} is not a folder", field=DIRECTORY, fix="name another folder")
    try:
        with TemporaryDirectory(prefix=".herdmesh-probe-", dir=existing) as probe:
            (Path(probe) / "file").write_bytes(b"x")
    except OSError as error:
        fix = f"name a folder this worker may write to, or give it the right to write to {existing}"
        return ConfigError(f"{DIRECTORY}: {absolute} cannot be written: {error.strerror}", field=DIRECTORY, fix=fix)
    return None
