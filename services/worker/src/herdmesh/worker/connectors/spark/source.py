"""`SparkJdbcSource`: tables, or a query, of any database that has a JDBC driver, read by a Spark of the task's own.

Owns the connector. Its keys are in `source_config`, its task in `source_task`, so that a worker need not import
pyarrow.

Invariant: it asks no database, for that takes a JVM: its tables are those its config names.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from herdmesh.sdk import Config, ConfigDef, ConfigError, FieldViolation, group_partitions
from herdmesh.worker.connectors.spark import source_config
from herdmesh.worker.connectors.spark.source_config import JdbcSettings, settings_of
from herdmesh.worker.connectors.table_source import TableSource
from herdmesh.worker.connectors.table_source.settings import TASK_TABLES


class JdbcSource(TableSource[JdbcSettings]):
    """Confluent's JDBC source connector for databases other than PostgreSQL, as far as docs/connectors/jdbc-source.md
    says."""

    class_name = "herdmesh.SparkJdbcSource"
    aliases = ("SparkJdbcSource", "SparkJdbcSourceConnector")
    version = "0.1.0"
    java_task_class = "io.confluent.connect.jdbc.source.JdbcSourceTask"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return source_config.KEYS

    @classmethod
    def read(cls, config: Config) -> JdbcSettings:
        return settings_of(config)

    def not_built(self, config: Config) -> list[ConfigError]:
        return source_config.not_built(config)

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return source_config.warnings_of(config)

    def task_class(self) -> str:
        return "herdmesh.worker.connectors.spark.source_task:JdbcSourceTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        if self.settings.query:
            return [dict(self.config)]
        tables = self.settings.tables
        groups = group_partitions(tables, min(max_tasks, len(tables)))
        return [{**self.config, TASK_TABLES: msgspec.json.encode(group).decode()} for group in groups]
