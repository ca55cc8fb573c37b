"""Task of `Datagen`: sends the records that are due.

Owns the position and the pace. `columns` generates the values.

Offsets are Confluent's, {"task.id": 0} and {"current.iteration": n, ...}: the number of the next record.

Invariant: record n of a task is a function of seed, task, schema and
n alone; a run continues with the record after the last committed one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from herdmesh.connect.model import StructColumn
from herdmesh.connectors.datagen.avro_schema import Columns, SchemaError, columns_of
from herdmesh.connectors.datagen.columns import Numbers, key_of, units
from herdmesh.connectors.datagen.settings import ITERATION, KEY_FIELD, TASK_ID, DatagenSettings, seed_of, settings_of
from herdmesh.sdk import Config, ConfigError, SourceBatch, SourceTask, SourceTaskContext

POLL_RECORDS = 5_000
POLL_WEIGHT = 2_000_000
"""Maximum number of draws for one batch, because a batch is held in memory."""
PACED_RECORDS = 1_000
_LATE_S = 1.0
"""Maximum delay that a late task catches up."""
_DONE_MS = 86_400_000
_GENERATION, _SEED = "task.generation", "random.seed"
_log = logging.getLogger(__name__)


def columns_for(settings: DatagenSettings, seed: int, task: int) -> Columns:
    """Return the columns of a task. Raises ConfigError whose field is the key of the schema."""
    try:
        columns = columns_of(settings.schema, seed, task)
    except SchemaError as error:
        raise ConfigError(f"{settings.source}: {error}", field=settings.source, fix="change the schema") from error
    if settings.key_field and settings.key_field not in columns.schema.places:
        known = ", ".join(columns.schema.places)
        raise ConfigError.for_value(
            KEY_FIELD, settings.key_field, f"the schema has no such field; its fields: {known}", fix="write one of them"
        )
    return columns


class Pace:
    """Schedule of records: each is due a random time of up to `interval_ms`
    after the one before. The caller passes the current time.
    """

    def __init__(self, interval_ms: int, key: int) -> None:
        self._interval_s = interval_ms / 1000
        self._key = key
        self._next_s: float | None = None

    def due(self, number: int, most: int, now_s: float) -> int:
        """Return how many records from `number` on are due, at most `most`;
        they count as sent. The first record of a run is due at once.
        """
        if not self._interval_s:
            return most
        if self._next_s is None:
            self._next_s = now_s
        begin_s = max(self._next_s, now_s - _LATE_S)
        gaps_s = units(self._key, numbers_of(number, min(most, PACED_RECORDS))) * self._interval_s
        ends_s = begin_s + np.cumsum(gaps_s)
        # The last due record is the first one whose interval ends after now.
        count = min(int(np.searchsorted(ends_s, now_s, "right")) + 1, len(ends_s)) if begin_s <= now_s else 0
        if count:
            self._next_s = float(ends_s[count - 1])
        return count

    def wait_s(self, now_s: float) -> float:
        """Return the time until the next record is due."""
        return max(0.0, (self._next_s or now_s) - now_s)


def numbers_of(first: int, count: int) -> Numbers:
    """Return `count` consecutive numbers, beginning with `first`."""
    return np.arange(first, first + count, dtype=np.uint64)


class DatagenTask(SourceTask):
    """The task of `Datagen`: generates records."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self._settings = settings_of(config)
        task = _task_of(config, context)
        seed = seed_of(self._settings, context.connector)
        self._columns = columns_for(self._settings, seed, task)
        self._key_place = self._columns.schema.places.get(self._settings.key_field)
        self._poll_records_max = context.poll_records_max
        self._most = max(1, min(POLL_RECORDS, POLL_WEIGHT // self._columns.weight))
        self._partition: Mapping[str, Any] = {TASK_ID: task}
        offset = context.committed_offset(self._partition) or {}
        self._next = _number(offset, ITERATION)
        #: offset fields that a Java task needs when it takes over.
        self._others = {_SEED: seed, _GENERATION: _number(offset, _GENERATION) + 1}
        self._pace = Pace(self._settings.interval_ms, key_of(seed, task, "", "pace"))
        self._is_done = False

    def poll(self) -> SourceBatch | None:
        most = min(self._most, self._poll_records_max())
        if self._settings.iterations > 0:
            most = min(most, self._settings.iterations - self._next)
            if most <= 0:
                self._end()
                return None
        count = self._pace.due(self._next, most, time.monotonic())
        if not count:
            return None
        numbers = numbers_of(self._next, count)
        schema = self._columns.schema
        fields = [make(numbers) for make in self._columns.makers]
        self._next += count
        return SourceBatch(
            self._settings.topic,
            StructColumn(schema, fields, count),
            self._partition,
            {ITERATION: self._next, **self._others},
            keys=() if self._key_place is None else fields[self._key_place],
            key_schema=None if self._key_place is None else schema.fields[self._key_place].schema,
            value_schema=schema,
        )

    def wake_after_ms(self) -> int:
        """Return the time until the next record is due. Never 0,
        because with 0 the loop would keep the idle run warm.
        """
        return _DONE_MS if self._is_done else max(1, int(self._pace.wait_s(time.monotonic()) * 1000))

    def _end(self) -> None:
        if not self._is_done:
            _log.info("all %d records have been generated", self._settings.iterations)
            self._is_done = True


def _task_of(config: Config, context: SourceTaskContext) -> int:
    text = (config.get(TASK_ID) or str(context.task)).strip()
    if not text.isdecimal():
        raise ConfigError.for_value(TASK_ID, text, "must be a number")
    return int(text)


def _number(offset: Mapping[str, Any], key: str) -> int:
    number = offset.get(key, 0)
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        fix = f"alter the offset to a number from 0 under '{key}'"
        raise ConfigError(f"the stored offset {dict(offset)} is not an offset of a datagen task", fix=fix)
    return number
