"""`SparkJdbcSource`: reads tables, or a query, of any database
with a JDBC driver, in the task's own Spark session.

Owns the connector. Its keys: `settings`. Its task is in another
module, `task`, so that a worker need not import pyarrow.

Invariant: the connector does not query the database, because that needs a JVM; its tables are those in the config.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from herdmesh.connectors.spark.jdbc_source import settings
from herdmesh.connectors.spark.jdbc_source.settings import JdbcSettings, settings_of
from herdmesh.connectors.table_source import TableSource
from herdmesh.connectors.table_source.settings import TASK_TABLES
from herdmesh.sdk import Config, ConfigDef, ConfigError, FieldViolation, group_partitions


class JdbcSource(TableSource[JdbcSettings]):
    """Confluent's JDBC source connector for databases other than PostgreSQL, with the differences that
    docs/connectors/jdbc-source.md lists.
    """

    class_name = "herdmesh.SparkJdbcSource"
    aliases = ("SparkJdbcSource", "SparkJdbcSourceConnector")
    version = "0.1.0"
    java_task_class = "io.confluent.connect.jdbc.source.JdbcSourceTask"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return settings.KEYS

    @classmethod
    def read(cls, config: Config) -> JdbcSettings:
        return settings_of(config)

    def not_built(self, config: Config) -> list[ConfigError]:
        return settings.not_built(config)

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return settings.warnings_of(config)

    def task_class(self) -> str:
        return "herdmesh.connectors.spark.jdbc_source.task:JdbcSourceTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        if self.settings.query:
            return [dict(self.config)]
        tables = self.settings.tables
        groups = group_partitions(tables, min(max_tasks, len(tables)))
        return [{**self.config, TASK_TABLES: msgspec.json.encode(group).decode()} for group in groups]
