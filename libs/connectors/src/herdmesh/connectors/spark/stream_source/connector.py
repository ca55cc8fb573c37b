"""`SparkStreamSource`: reads a format that Spark streams from
an explicit position, in the task's own Spark session.

Owns the connector. Its keys: `settings`. Its task is in another
module, `task`, so that a worker need not import pyarrow.

Invariant: there is one task, because a stream has one position;
the connector does not query the source, because that needs a JVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from herdmesh.connectors.common import ReadConnector
from herdmesh.connectors.spark.stream_source import settings as stream_settings
from herdmesh.connectors.spark.stream_source.position import check_offset
from herdmesh.connectors.spark.stream_source.settings import StreamSettings, settings_of
from herdmesh.sdk import Config, ConfigDef, FieldViolation, SourceConnector


class SparkStreamSource(ReadConnector[StreamSettings], SourceConnector):
    """`SparkStreamSource`: reads the formats that docs/connectors/spark-stream.md lists."""

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
        return "herdmesh.connectors.spark.stream_source.task:SparkStreamTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config)]
