"""`FileStreamSource`: Kafka's file source, which tails a text file (docs/reference/connect/data-model.md, section 8).

Owns the connector and its config keys, in Connect's names and texts. The task: `task`.

Departure from Connect: positions are always bytes. Connect mixes
bytes and characters, so its position is wrong after multi-byte text.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from herdmesh.connect.spi import Absent
from herdmesh.connectors.common import topic_problems, warned_settings
from herdmesh.connectors.file_stream.settings import VERSION, absent_file, missing_file, require_file
from herdmesh.sdk import (
    REQUIRED,
    Config,
    ConfigDef,
    ConfigError,
    ConfigKey,
    FieldViolation,
    Importance,
    SourceConnector,
    Type,
)
from herdmesh.sdk.validators import non_empty_string

BATCH_SIZE_DEFAULT = 2_000


class FileStreamSource(SourceConnector):
    """`FileStreamSource`: each line of a file becomes a record. Always one task."""

    class_name = "org.apache.kafka.connect.file.FileStreamSourceConnector"
    aliases = ("FileStreamSource", "FileStreamSourceConnector")
    version = VERSION
    java_task_class = "org.apache.kafka.connect.file.FileStreamSourceTask"
    process_reuse = True
    _keys = ConfigDef(
        ConfigKey(
            "file",
            Type.STRING,
            None,
            Importance.HIGH,
            "Source filename. If not specified, the standard input will be used",
        ),
        ConfigKey("topic", Type.STRING, REQUIRED, Importance.HIGH, "The topic to publish data to", non_empty_string()),
        ConfigKey(
            "batch.size",
            Type.INT,
            BATCH_SIZE_DEFAULT,
            Importance.LOW,
            "The maximum number of records the source task can read from the file each time it is polled",
        ),
    )

    @classmethod
    def config_def(cls) -> ConfigDef:
        return cls._keys

    def validate(self, config: Config) -> Sequence[ConfigError]:
        return [*missing_file(config, "read from"), *topic_problems(config, "topic")]

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return warned_settings(config, self._keys.keys, self.kind, java="file-source")

    def start(self, config: Config) -> None:
        self._keys.parse(config)
        require_file(config, "read from")
        super().start(config)

    def task_class(self) -> str:
        return "herdmesh.connectors.file_stream.source.task:FileStreamSourceTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config)]

    def exactly_once_support(self, config: Config) -> bool | None:
        return not missing_file(config, "read from")

    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        require_file(config, "read from")
        for partition, offset in offsets:
            if offset is None:
                continue  # an offset may always be deleted, even one of an invalid partition
            if partition is None:
                raise ConfigError("Partition objects cannot be null")
            if "filename" not in partition:
                raise ConfigError("Partition objects should contain the key 'filename'")
            if "position" not in offset:
                raise ConfigError("Offset objects should either be null or contain the key 'position'")
            position = offset["position"]
            if isinstance(position, bool) or not isinstance(position, int):
                raise ConfigError("The value for the 'position' key in the offset is expected to be a Long value")
            if position < 0:
                raise ConfigError("The value for the 'position' key in the offset should be a non-negative value")
        return True

    def sign(self, task_config: Config) -> str | None:
        try:
            found = os.stat(task_config.get("file") or "")
        except OSError as error:
            return Absent(*absent_file(task_config.get("file") or "", error))
        return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"
