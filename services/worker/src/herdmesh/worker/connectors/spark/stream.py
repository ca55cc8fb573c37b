"""`SparkStreamSource`: a format that Spark streams from an explicit position, read by a Spark of the task's own.

Owns the connector. Its keys are in `stream_config`, its task in `stream_task`, so that a worker need not import
pyarrow.

Invariant: one task, because a stream has one position; it asks no source, for that takes a JVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from herdmesh.sdk import Config, ConfigDef, FieldViolation, SourceConnector
from herdmesh.worker.connectors.common import ReadConnector
from herdmesh.worker.connectors.spark import stream_config as stream_settings
from herdmesh.worker.connectors.spark.stream_config import StreamSettings, settings_of
from herdmesh.worker.connectors.spark.stream_position import check_offset


class SparkStreamSource(ReadConnector[StreamSettings], SourceConnector):
    """Reads what docs/connectors/spark-stream.md lists."""

    class_name = "herdmesh.SparkStreamSource"
    aliases = ("SparkStreamSource", "SparkStreamSourceConnector")
    version = "0.1.0"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return stream_settings.KEYS

    @classmethod
    def read(cls, config: Config) -> StreamSettings:
        return settings_of(config)

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return stream_settings.warnings_of(config)

    def exactly_once_support(self, config: Config) -> bool | None:
        return True

    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        settings = self.read(config)
        for partition, offset in offsets:
            check_offset(settings.partition, partition, offset)
        return True

    def task_class(self) -> str:
        return "herdmesh.worker.connectors.spark.stream_task:SparkStreamTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config)]
