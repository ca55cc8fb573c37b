"""`JdbcSourceConnector` for PostgreSQL: reads tables, or a query, into topics.

Owns finding the tables and assigning them to tasks, and the change
sign that shows new rows. Keys: `settings`; the task: `task`.

Invariant: the tables assigned are those of the last discovery, so two consecutive task sets differ only by tables that
were created or dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from herdmesh.connectors.common import SIGN_KEPT_S, KeptSigns, Lookout
from herdmesh.connectors.postgres.connection import Connection, errors_translated, is_of_another, server
from herdmesh.connectors.postgres.source.catalog import TableId, columns_of_table, tables
from herdmesh.connectors.postgres.source.plan import SourcePlan, opened
from herdmesh.connectors.postgres.source.settings import (
    KEYS,
    SourceSettings,
    check_tables,
    not_built,
    settings_of,
    warnings_of,
)
from herdmesh.connectors.postgres.source.task import PostgresSourceTask, table_relation, tables_of, tables_text
from herdmesh.connectors.table_source import TableSource
from herdmesh.connectors.table_source.settings import JAVA_CLASSES, TASK_TABLES
from herdmesh.sdk import Config, ConfigDef, ConfigError, FieldViolation, group_partitions

_signs = KeptSigns()


class PostgresSourceConnector(TableSource[SourceSettings]):
    """Confluent's JDBC source connector for PostgreSQL, with the differences that
    docs/connectors/postgres-source.md lists.
    """

    class_name = "io.confluent.connect.jdbc.JdbcSourceConnector"
    aliases = ("PostgresSource", "JdbcSourceConnector", "JdbcSource", "io.aiven.connect.jdbc.JdbcSourceConnector")
    """All aliases but the first are in `JAVA_CLASSES`."""
    version = "0.1.0"
    process_reuse = True
    java_task_class = "io.confluent.connect.jdbc.source.JdbcSourceTask"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return KEYS

    @classmethod
    def served_by(cls, config: Config) -> str | None:
        """Return the connector for the URL, because the Java classes read any database."""
        named = config.get("connector.class") in JAVA_CLASSES
        return "herdmesh.SparkJdbcSource" if named and is_of_another(config) else None

    @classmethod
    def read(cls, config: Config) -> SourceSettings:
        return settings_of(config)

    def not_built(self, config: Config) -> list[ConfigError]:
        return not_built(config)

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return warnings_of(config)

    def start(self, config: Config) -> None:
        """Raises RetriableError when the server is unreachable, ConfigError when it refuses the login, and for a table
        whose topic name would be invalid. (For a table created later the task reports it.)
        """
        super().start(config)
        every_s = None if self.settings.query else self.settings.tables_ms / 1000
        self._tables = Lookout(
            f"tables to read in {server(self.settings.connection)}", self._look, every_s, self.context,
            nothing="table.whitelist, table.blacklist, table.types, catalog.pattern and schema.pattern",
        )  # fmt: skip
        try:
            check_tables(config, self.settings, self._tables.found)
        except ConfigError:
            self._tables.close()
            raise

    def stop(self) -> None:
        self._tables.close()

    def task_class(self) -> str:
        return f"{PostgresSourceTask.__module__}:{PostgresSourceTask.__name__}"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        if self.settings.query:
            return [dict(self.config)]
        return [{**self.config, TASK_TABLES: tables_text(group)} for group in dealt(self._tables.found, max_tasks)]

    def sign(self, task_config: Config) -> str | None:
        """Return the place of each table's last row. Raises RetriableError while the server is unreachable."""
        settings = settings_of(task_config)
        if not settings.has_sign:
            return None
        kept_s = max(SIGN_KEPT_S, settings.poll_ms / 1000)
        return _signs.of(task_config, lambda: _last_rows(settings, tables_of(task_config)), kept_s)

    def _look(self) -> list[TableId]:
        return [] if self.settings.query else _found(self.settings)


def dealt(found: Sequence[TableId], tasks_max: int) -> list[list[TableId]]:
    """Return the tables of each task, evenly and in order (Java:
    `ConnectorUtils.groupPartitions`). Each task has at least one table.
    """
    return group_partitions(found, min(tasks_max, len(found))) if found else []


def _found(settings: SourceSettings) -> list[TableId]:
    choice = settings.tables
    connection = opened(settings)
    try:
        there = tables(connection, choice.types, choice.catalog_pattern, choice.schema_pattern)
    finally:
        connection.close()
    return [table for table in there if choice.has(table)]


def _last_rows(settings: SourceSettings, asked: Sequence[TableId]) -> str:
    connection = opened(settings)
    try:
        return " ".join(_last_of(connection, table, settings) for table in asked) or "no tables"
    finally:
        connection.close()


def _last_of(connection: Connection, table: TableId, settings: SourceSettings) -> str:
    columns = columns_of_table(connection, table)
    if not columns:
        return f"{table}:gone"
    try:
        order = SourcePlan(table_relation(table, settings), columns, settings).order
    except ConfigError as error:  # the run reports it, and fails
        return f"{table}:{error}"
    with errors_translated(f"cannot read the definition of {table}"):
        row = connection.execute(order.last(table.sql).encode()).fetchone()
    return f"{table}:{row[0] if row else 'empty'}"
