"""The task of `SparkJdbcSource`: reads tables, or a query, of a database in its own Spark session.

Owns opening passes over tables, and retrying while the database is unreachable. The schedule and the places:
`table_source.task`; one pass over a table: `sweep`; SQL and columns: `plan`; the connection: `database`.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Final

import msgspec

from herdmesh.connectors.spark.jdbc_source.database import Database
from herdmesh.connectors.spark.jdbc_source.plan import JdbcPlan, query_relation, relation_of
from herdmesh.connectors.spark.jdbc_source.settings import JdbcSettings, settings_of
from herdmesh.connectors.spark.jdbc_source.sweep import Sweep
from herdmesh.connectors.table_source import Mode, Relation, TablePlace, TableProgress, TableSourceTask
from herdmesh.connectors.table_source.settings import TASK_TABLES
from herdmesh.connectors.table_source.task import CONNECT_AGAIN_S
from herdmesh.sdk import (
    Config,
    ConfigError,
    ConnectError,
    RetriableError,
    SourceBatch,
    SourceTaskContext,
    TaskFailed,
    waits,
)

_KEEPS_SPARK_MS: Final = 30_000
"""Maximum poll interval at which it is cheaper to keep
the run and its Spark than to start them for each poll.
"""


@dataclass(slots=True, eq=False)
class _Table(TableProgress):
    """One table, or the query, and the progress of reading it."""

    plan: JdbcPlan | None = None


class JdbcSourceTask(TableSourceTask[JdbcSettings, _Table]):
    """Reads some tables, or a query, of one database."""

    _database: Database | None = None

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self._settings = settings_of(config)
        self._context = context
        self._again_s, self._away = 0.0, ""
        self._tables = deque(
            _Table(relation, *self._start_place(context.committed_offset(relation.partition)))
            for relation in _relations(config, self._settings)
        )
        self._database = Database(self._settings)
        self._database.begin()

    def poll(self) -> SourceBatch | None:
        assert self._database is not None
        now_s, place = time.monotonic(), self._database.place
        if now_s < self._again_s:
            raise RetriableError(self._away, tried=False, waits_for=place, next_try_s=self._again_s - now_s)
        try:
            with waits.on(place, "rows"):
                return self._poll_tables()
        except (ConnectError, TaskFailed) as error:
            self._disconnect()
            if isinstance(error, RetriableError):
                error.waits_for = error.waits_for or place
                self._again_s, self._away = time.monotonic() + CONNECT_AGAIN_S, str(error)
            raise

    def wake_after_ms(self) -> int:
        """0 keeps the run warm, with its Spark, if there is room for it."""
        if self._settings.mode is not Mode.BULK and self._settings.poll_ms <= _KEEPS_SPARK_MS:
            return 0
        return self._next_due_ms()

    def stop(self) -> None:
        if self._database is not None:
            self._disconnect()

    def _begin(self, table: _Table) -> SourceBatch | None:
        assert self._database is not None
        plan = self._plan(table)
        before_us = self._database.now_us() if self._settings.mode.has_timestamp else None
        if table.from_now:
            table.place, table.from_now = TablePlace(moment_us=before_us), False
            return SourceBatch(table.relation.topic, (), table.relation.partition, table.place.offset())
        if before_us is not None:
            before_us -= self._settings.delay_ms * 1_000
        self._open(table, Sweep(self._database, plan, table.place, before_us, self._settings.batch_rows))
        return None

    def _plan(self, table: _Table) -> JdbcPlan:
        """Return the plan for the present columns."""
        assert self._database is not None
        columns = self._database.columns(table.relation.source)
        if table.plan is None or table.plan.columns.columns != columns.columns:
            quoted = self._database.quoted([one.name for one in columns.columns])
            table.plan = JdbcPlan(table.relation, columns, quoted, self._settings)
        return table.plan

    def _disconnect(self) -> None:
        """Discard the connection and the open sweep. The places stay."""
        self._close_sweep()
        assert self._database is not None
        self._database.close()


def _relations(config: Config, settings: JdbcSettings) -> list[Relation]:
    if settings.query:
        return [query_relation(settings)]
    text = config.get(TASK_TABLES) or ""
    try:
        return [relation_of(one, settings) for one in msgspec.json.decode(text, type=list[str])]
    except msgspec.DecodeError as error:
        raise ConfigError.for_value(TASK_TABLES, text, f"is not a list of tables: {error}") from error
