"""`SparkSink`: writes records to any format that Spark writes in batches.

Owns the connector. Its keys: `settings`. Its task is in another
module, `task`, so that a worker need not import pyarrow.

Invariant: a config without a target, or with a staging folder that is
not writable, is an error of its field before the connector starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from herdmesh.connectors.spark.sink import settings
from herdmesh.sdk import Config, ConfigDef, ConfigError, FieldViolation, PartitionId, SinkConnector


class SparkSink(SinkConnector):
    """`SparkSink`: one write by Spark for each partition and commit."""

    class_name = "herdmesh.SparkSink"
    aliases = ("SparkSink", "SparkSinkConnector")
    version = "0.1.0"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return settings.KEYS

    def validate(self, config: Config) -> Sequence[ConfigError]:
        return settings.problems_of(config)

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return settings.warnings_of(config)

    def start(self, config: Config) -> None:
        settings.settings_of(config)
        super().start(config)

    def task_class(self) -> str:
        return "herdmesh.connectors.spark.sink.task:SparkSinkTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        staging = str(settings.settings_of(self.config).staging)
        return [{**self.config, settings.STAGING: staging} for _ in range(max_tasks)]

    def alter_offsets(self, config: Config, offsets: Mapping[PartitionId, int | None]) -> bool:
        return True  # the sink has no offsets beside those of its consumer group
