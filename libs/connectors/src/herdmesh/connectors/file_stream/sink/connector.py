"""`FileStreamSink`: Kafka's file sink, which appends lines to a file (docs/reference/connect/data-model.md, section 8).

Owns the connector and its config key, in Connect's names and texts. The task: `task`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from herdmesh.connectors.common import warned_settings
from herdmesh.connectors.file_stream.settings import VERSION, missing_file, require_file
from herdmesh.sdk import (
    Config,
    ConfigDef,
    ConfigError,
    ConfigKey,
    FieldViolation,
    Importance,
    PartitionId,
    SinkConnector,
    Type,
)


class FileStreamSink(SinkConnector):
    """`FileStreamSink`: appends each record's value as a line to a file, at least once."""

    class_name = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    aliases = ("FileStreamSink", "FileStreamSinkConnector")
    version = VERSION
    java_task_class = "org.apache.kafka.connect.file.FileStreamSinkTask"
    process_reuse = True
    _keys = ConfigDef(
        ConfigKey(
            "file",
            Type.STRING,
            None,
            Importance.HIGH,
            "Destination filename. If not specified, the standard output will be used",
        )
    )

    @classmethod
    def config_def(cls) -> ConfigDef:
        return cls._keys

    def validate(self, config: Config) -> Sequence[ConfigError]:
        missing = missing_file(config, "write to")
        return missing or _not_appendable(Path(require_file(config, "write to")))

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return warned_settings(config, self._keys.keys, self.kind, java="file-sink")

    def start(self, config: Config) -> None:
        require_file(config, "write to")
        super().start(config)

    def task_class(self) -> str:
        return "herdmesh.connectors.file_stream.sink.task:FileStreamSinkTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config) for _ in range(max_tasks)]

    def alter_offsets(self, config: Config, offsets: Mapping[PartitionId, int | None]) -> bool:
        return True  # the sink has no offsets beside those of its consumer group


def _not_appendable(path: Path) -> list[ConfigError]:
    """Return the reasons why the file cannot be written, as seen from this machine."""
    if path.is_dir():
        return [ConfigError(f"file: {path} is a folder", field="file", fix="name a file in it")]
    if path.exists():
        writable = os.access(path, os.W_OK)
    else:
        writable = path.absolute().parent.is_dir() and os.access(path.absolute().parent, os.W_OK | os.X_OK)
    if writable:
        return []
    fix = "name a file in an existing folder you may write to"
    return [ConfigError(f"file: {path} cannot be written", field="file", fix=fix)]
