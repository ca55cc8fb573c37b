"""The task of `SparkJdbcSource`: reads tables, or a query, of a database with a Spark of its own.

Owns what is looked at when, and what is done when the database is away. A look is a `source_sweep`; SQL and columns:
`source_plan`; the connection: `source_database`.

Invariant: a table's place moves only by batches that were handed on, in their order; whatever breaks, reading goes on
behind the last of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from herdmesh.sdk import (
    Config,
    ConfigError,
    ConnectError,
    RetriableError,
    SourceBatch,
    SourceTask,
    SourceTaskContext,
    TaskFailed,
    waits,
)
from herdmesh.worker.connectors.postgres.source_config import TASK_TABLES, Mode
from herdmesh.worker.connectors.postgres.source_place import Place
from herdmesh.worker.connectors.spark.source_config import JdbcSettings, settings_of
from herdmesh.worker.connectors.spark.source_database import Database
from herdmesh.worker.connectors.spark.source_plan import Plan, Relation, query_relation, relation_of
from herdmesh.worker.connectors.spark.source_sweep import Sweep

_CONNECT_AGAIN_S: Final = 1.0
"""How soon after an error the database is asked again."""
_KEEPS_SPARK_MS: Final = 30_000
"""A look that comes sooner is cheaper in a run that stays than with a Spark that is started for it."""


@dataclass(slots=True, eq=False)
class _Source:
    """One table, or the query, and how far it is."""

    relation: Relation
    place: Place
    from_now: bool
    """Its place is the time at which the database is first asked."""
    due_s: float = 0.0
    """When it is to be looked at next, of the monotonic clock."""
    plan: Plan | None = None


class JdbcSourceTask(SourceTask):
    """Reads some tables, or a query. The database is asked nothing before the first poll: that one is tried again."""

    _database: Database | None = None
    _sweep: Sweep | None = None
    _swept: _Source | None = None

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self._settings = settings_of(config)
        self._context = context
        self._again_s, self._away = 0.0, ""
        self._sources = deque(
            self._source(relation, context.committed_offset(relation.partition))
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
                return self._poll()
        except (ConnectError, TaskFailed) as error:
            self._disconnect()
            if isinstance(error, RetriableError):
                error.waits_for = error.waits_for or place
                self._again_s, self._away = time.monotonic() + _CONNECT_AGAIN_S, str(error)
            raise

    def may_yield(self) -> bool:
        """Not in the middle of a table without places, nor before all of them were read: the next run reads them anew.
        Nor among the rows of one place."""
        if self._settings.mode is Mode.BULK:
            return self._sweep is None and all(source.due_s > 0.0 for source in self._sources)
        return self._sweep is None or not self._sweep.is_among_ties

    def wake_after_ms(self) -> int:
        """0 lets a run stay, with its Spark, where there is room for it."""
        if self._settings.mode is not Mode.BULK and self._settings.poll_ms <= _KEEPS_SPARK_MS:
            return 0
        due_s = min((source.due_s for source in self._sources), default=0.0)
        return max(1, int((due_s - time.monotonic()) * 1000))

    def stop(self) -> None:
        if self._database is not None:
            self._disconnect()

    def _source(self, relation: Relation, offset: Mapping[str, Any] | None) -> _Source:
        settings = self._settings
        if settings.mode is Mode.BULK:
            return _Source(relation, Place(), from_now=False)
        if offset is None and settings.mode.has_timestamp:
            return _Source(relation, Place(moment_us=settings.initial_us), settings.from_now)
        return _Source(relation, Place.of(offset), from_now=False)

    def _poll(self) -> SourceBatch | None:
        """The next batch of whatever is due; each source is looked at once."""
        looked_at: set[_Source] = set()
        while True:
            was_reading = self._sweep is not None
            batch = self._next_batch()
            if batch is not None or (was_reading and self._settings.mode is Mode.BULK and self.may_yield()):
                return batch  # none, though a table may be due again already: here others get their turn
            now_s = time.monotonic()
            due = next((one for one in self._sources if one.due_s <= now_s and one not in looked_at), None)
            if due is None:
                return None
            looked_at.add(due)
            batch = self._begin(due)
            if batch is not None:
                return batch

    def _next_batch(self) -> SourceBatch | None:
        """Of the sweep that is open; None = there is none, or it has come to its end."""
        if self._sweep is None or self._swept is None:
            return None
        batch = self._sweep.batch(max(1, min(self._settings.batch_rows, self._context.poll_records_max())))
        if self._settings.mode is not Mode.BULK:
            self._swept.place = self._sweep.place
        if batch is None:
            self._swept.due_s = time.monotonic() + self._settings.poll_ms / 1000
            self._sources.remove(self._swept)
            self._sources.append(self._swept)  # behind all others
            self._sweep = self._swept = None
        return batch

    def _begin(self, source: _Source) -> SourceBatch | None:
        """Look at a source: open a sweep. Returns a batch only to store a place."""
        assert self._database is not None
        plan = self._plan(source)
        before_us = self._database.now_us() if self._settings.mode.has_timestamp else None
        if source.from_now:
            source.place, source.from_now = Place(moment_us=before_us), False
            return SourceBatch(source.relation.topic, (), source.relation.partition, source.place.offset())
        if before_us is not None:
            before_us -= self._settings.delay_ms * 1_000
        self._sweep = Sweep(self._database, plan, source.place, before_us, self._settings.batch_rows)
        self._swept = source
        return None

    def _plan(self, source: _Source) -> Plan:
        """The plan for the columns there are now."""
        assert self._database is not None
        columns = self._database.columns(source.relation.source)
        if source.plan is None or source.plan.columns.columns != columns.columns:
            quoted = self._database.quoted([one.name for one in columns.columns])
            source.plan = Plan(source.relation, columns, quoted, self._settings)
        return source.plan

    def _disconnect(self) -> None:
        """Forget the connection and what was going on in it. What was passed stays passed."""
        if self._sweep is not None:
            self._sweep.close()
        self._sweep = self._swept = None
        assert self._database is not None
        self._database.close()


def _relations(config: Config, settings: JdbcSettings) -> list[Relation]:
    if settings.query:
        return [query_relation(settings)]
    text = config.get(TASK_TABLES) or ""
    try:
        return [relation_of(one, settings) for one in msgspec.json.decode(text, type=list[str])]
    except msgspec.DecodeError as error:
        raise ConfigError.for_value(TASK_TABLES, text, f"is no list of tables: {error}") from error
