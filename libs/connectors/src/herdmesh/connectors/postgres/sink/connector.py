"""`PostgresSink`: records as rows of PostgreSQL's tables, each record exactly once.

Owns the connector, which accepts the configs of Confluent's JDBC sink. Keys and rules: `settings`; the task: `task`.

Invariant: altered offsets are written to the ledger, which decides where a task begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from herdmesh.connectors.postgres.connection import connection_settings, refuse_others, warnings_of_connection
from herdmesh.connectors.postgres.sink import settings
from herdmesh.connectors.postgres.sink.ledger import alter_ledger
from herdmesh.sdk import Config, ConfigDef, ConfigError, FieldViolation, PartitionId, SinkConnector


class PostgresSink(SinkConnector):
    """`PostgresSink`: one table for each topic, one row for each record or key."""

    class_name = "herdmesh.PostgresSink"
    aliases = (
        "PostgresSink", "PostgresSinkConnector", "io.confluent.connect.jdbc.JdbcSinkConnector", "JdbcSinkConnector",
        "io.aiven.connect.jdbc.JdbcSinkConnector",
    )  # fmt: skip
    version = "0.1.0"
    java_task_class = "io.confluent.connect.jdbc.sink.JdbcSinkTask"
    process_reuse = True

    @classmethod
    def config_def(cls) -> ConfigDef:
        return settings.KEYS

    def not_built(self, config: Config) -> Sequence[ConfigError]:
        return settings.not_built(config)

    def validate(self, config: Config) -> Sequence[ConfigError]:
        found = settings.not_built(config)
        fields = {one.field for one in found}
        others = {key: value for key, value in config.items() if key not in fields}
        for read in (settings.sink_settings, _check_connection):
            try:
                read(others)
            except ConfigError as error:
                found.append(error)
        return found

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return [*warnings_of_connection(config), *settings.warnings(config)]

    def start(self, config: Config) -> None:
        settings.sink_settings(config)
        _check_connection(config)
        super().start(config)

    def task_class(self) -> str:
        return "herdmesh.connectors.postgres.sink.task:PostgresSinkTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config) for _ in range(max_tasks)]

    def alter_offsets(self, config: Config, offsets: Mapping[PartitionId, int | None]) -> bool:
        alter_ledger(config, offsets)
        return True


def _check_connection(config: Config) -> None:
    refuse_others(
        config,
        "connector.class=SparkSink with spark.format=jdbc, spark.option.url and spark.option.dbtable adds rows to "
        "tables of other databases, through Spark",
    )
    connection_settings(config)
