"""`JdbcSourceConnector` for PostgreSQL: reads tables, or a query, into topics.

Owns the connector: which tables there are, who reads which, noticing new ones, and the sign that there is something
new. Keys: `source_config`; the task: `source_task`.

Invariant: the tables it deals out are those it last saw, so two task sets in a row differ only by what was made or
dropped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from herdmesh.connect.config import ConfigDef, FieldViolation
from herdmesh.connect.connector import Config, OffsetMap, SourceConnector
from herdmesh.connect.errors import ConfigError, ConnectError
from herdmesh.worker.connectors.postgres.catalog import TableId, columns_of_table, tables
from herdmesh.worker.connectors.postgres.common import Connection, errors_translated
from herdmesh.worker.connectors.postgres.source_config import (
    KEYS,
    TASK_TABLES,
    Mode,
    SourceSettings,
    settings_of,
    warnings_of,
)
from herdmesh.worker.connectors.postgres.source_place import check_offset, rewound
from herdmesh.worker.connectors.postgres.source_plan import Plan, opened
from herdmesh.worker.connectors.postgres.source_task import PostgresSourceTask, table_relation, tables_of, written

_SIGN_KEPT_S = 0.5
"""A look serves at least so long; the worker asks four times a second."""
_SIGNS_MAX = 1_000
_log = logging.getLogger(__name__)


class PostgresSourceConnector(SourceConnector):
    """Confluent's JDBC source connector for PostgreSQL, as far as docs/connectors/postgres-source.md says."""

    class_name = "io.confluent.connect.jdbc.JdbcSourceConnector"
    aliases = ("PostgresSource", "JdbcSourceConnector", "JdbcSource")
    version = "0.1.0"
    java_task_class = "io.confluent.connect.jdbc.source.JdbcSourceTask"
    _watching: threading.Thread | None = None

    @classmethod
    def config_def(cls) -> ConfigDef:
        return KEYS

    def validate(self, config: Config) -> Sequence[ConfigError]:
        try:
            settings_of(config)
        except ConfigError as error:
            return [error]
        return ()

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return warnings_of(config)

    def start(self, config: Config) -> None:
        """Raises RetriableError when the server is away, ConfigError when it refuses us."""
        super().start(config)
        self._settings = settings_of(config)
        self._tables = [] if self._settings.query else _found(self._settings)
        self._over = threading.Event()
        if self.context is not None and not self._settings.query:
            self._watching = threading.Thread(target=self._watch, name="postgres tables", daemon=True)
            self._watching.start()

    def stop(self) -> None:
        self._over.set()

    def task_class(self) -> str:
        return f"{PostgresSourceTask.__module__}:{PostgresSourceTask.__name__}"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        if self._settings.query:
            return [dict(self.config)]
        return [{**self.config, TASK_TABLES: written(group)} for group in dealt(self._tables, max_tasks)]

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

    def sign(self, task_config: Config) -> str | None:
        """The place of each table's last row. Raises RetriableError while the server is away."""
        return _signs.of(task_config)

    def _watch(self) -> None:
        """Look for new and dropped tables until the connector is stopped."""
        while not self._over.wait(self._settings.tables_ms / 1000):
            try:
                found = _found(self._settings)
            except Exception as error:  # noqa: BLE001 - it would end this thread, and nobody would look any more
                _log.warning(
                    "tables are looked for again later: %s", error, exc_info=not isinstance(error, ConnectError)
                )
                continue
            if found != self._tables:
                _log.info("there are %d tables to read now, %d before", len(found), len(self._tables))
                self._tables = found
                assert self.context is not None
                self.context.request_task_reconfiguration()


def dealt(found: Sequence[TableId], tasks_max: int) -> list[list[TableId]]:
    """The tables of each task, as even as can be and in their order (Java: `ConnectorUtils.groupPartitions`). No task
    is without a table."""
    count = min(tasks_max, len(found))
    share, rest = divmod(len(found), count) if count else (0, 0)
    groups: list[list[TableId]] = []
    begin = 0
    for task in range(count):
        end = begin + share + (task < rest)
        groups.append(list(found[begin:end]))
        begin = end
    return groups


def _found(settings: SourceSettings) -> list[TableId]:
    choice = settings.tables
    connection = opened(settings)
    try:
        there = tables(connection, choice.types, choice.catalog_pattern, choice.schema_pattern)
    finally:
        connection.close()
    return [table for table in there if choice.has(table)]


class _Signs:
    """The last look at each task's tables, in this process; a connector is made anew for each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[tuple[str, str | None], ...], tuple[float, str]] = OrderedDict()

    def of(self, task_config: Config) -> str | None:
        settings = settings_of(task_config)
        if not settings.has_sign:
            return None
        key = tuple(sorted(task_config.items()))
        with self._lock:
            looked_s, sign = self._kept.get(key, (0.0, ""))
        if sign and time.monotonic() - looked_s < max(_SIGN_KEPT_S, settings.poll_ms / 1000):
            return sign
        looked_s = time.monotonic()
        sign = _look(settings, tables_of(task_config))
        with self._lock:
            self._kept[key] = looked_s, sign
            self._kept.move_to_end(key)
            if len(self._kept) > _SIGNS_MAX:
                self._kept.popitem(last=False)
        return sign


_signs = _Signs()


def _look(settings: SourceSettings, asked: Sequence[TableId]) -> str:
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
        order = Plan(table_relation(table, settings), columns, settings).order
    except ConfigError as error:  # the run says so, and fails of it
        return f"{table}:{error}"
    with errors_translated(f"cannot look at {table}"):
        row = connection.execute(order.last(table.sql).encode()).fetchone()
    return f"{table}:{row[0] if row else 'empty'}"
