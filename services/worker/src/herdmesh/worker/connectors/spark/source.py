"""`SparkJdbcSource`: tables, or a query, of any database that has a JDBC driver, read by a Spark of the task's own.

Owns the connector. Its keys are in `source_config`, its task in `source_task`, so that a worker need not import
pyarrow.

Invariant: it asks no database, for that takes a JVM: its tables are those its config names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from herdmesh.connect.config import ConfigDef, FieldViolation
from herdmesh.connect.connector import Config, OffsetMap, SourceConnector
from herdmesh.connect.errors import ConfigError
from herdmesh.sdk.grouping import group_partitions
from herdmesh.worker.connectors.postgres.source_config import TASK_TABLES, Mode
from herdmesh.worker.connectors.postgres.source_place import check_offset, rewound
from herdmesh.worker.connectors.spark import source_config
from herdmesh.worker.connectors.spark.source_config import settings_of


class JdbcSource(SourceConnector):
    """Confluent's JDBC source connector for databases other than PostgreSQL, as far as docs/connectors/jdbc-source.md
    says."""

    class_name = "herdmesh.SparkJdbcSource"
    aliases = ("SparkJdbcSource", "SparkJdbcSourceConnector")
    version = "0.1.0"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return source_config.KEYS

    def validate(self, config: Config) -> Sequence[ConfigError]:
        try:
            settings_of(config)
        except ConfigError as error:
            return [error]
        return ()

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return source_config.warnings_of(config)

    def start(self, config: Config) -> None:
        settings_of(config)
        super().start(config)

    def task_class(self) -> str:
        return "herdmesh.worker.connectors.spark.source_task:JdbcSourceTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        settings = settings_of(self.config)
        if settings.query:
            return [dict(self.config)]
        groups = group_partitions(settings.tables, min(max_tasks, len(settings.tables)))
        return [{**self.config, TASK_TABLES: msgspec.json.encode(group).decode()} for group in groups]

    def exactly_once_support(self, config: Config) -> bool | None:
        """Not of bulk, which has no offsets: a run that dies in the middle begins anew."""
        try:
            return settings_of(config).mode is not Mode.BULK
        except ConfigError:
            return None

    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        for partition, offset in offsets:
            check_offset(partition, offset)
        return True

    def offsets_at(
        self, config: Config, time_ms: int, committed: Sequence[tuple[OffsetMap | None, OffsetMap]]
    ) -> Sequence[tuple[OffsetMap | None, OffsetMap | None]] | None:
        """By the rows' moments, in the modes that have them."""
        return rewound(time_ms, committed, has_timestamp=settings_of(config).mode.has_timestamp)
