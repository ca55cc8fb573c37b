"""Task of `SparkStreamSource`: reads a stream slice by slice in its own Spark session.

Owns the schedule, and the position after each batch. The stream: `reader`; a slice's rows: `slice`.

Invariant: the position moves only by batches that were handed to the run, in their order; after any failure, reading
continues after the last of them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final

from herdmesh.connectors.spark.session_settings import FORMAT
from herdmesh.connectors.spark.stream_source.position import Position
from herdmesh.connectors.spark.stream_source.reader import Stream
from herdmesh.connectors.spark.stream_source.settings import KAFKA, KEY_COLUMN, settings_of
from herdmesh.connectors.spark.stream_source.slice import Slice, behind_records, readable
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
from herdmesh.sdk.arrow import arrow_source_batch

_AGAIN_S: Final = 1.0
"""Pause before the next attempt after an error."""
_KEEPS_SPARK_S: Final = 30.0
"""Maximum poll interval at which it is cheaper to keep the
run and its Spark than to start Spark for each poll.
"""


class SparkStreamTask(SourceTask):
    """Reads one stream. Contacts the source first at the first poll, which is retried."""

    _stream: Stream | None = None
    _slice: Slice | None = None
    _end = ""
    """End of the slice."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self._settings = settings_of(config)
        self._context = context
        self._position = Position.of(context.committed_offset(self._settings.partition))
        self._due_s = self._again_s = 0.0
        self._away = ""
        self._stream = Stream(self._settings)
        self._stream.begin()

    def poll(self) -> SourceBatch | None:
        now_s, place = time.monotonic(), f"Spark source {self._settings.name}"
        if now_s < self._again_s:
            raise RetriableError(self._away, tried=False, waits_for=place, next_try_s=self._again_s - now_s)
        try:
            if self._slice is None and (now_s < self._due_s or not self._is_more()):
                return None
            with waits.on(place, "reading the next slice"):
                return self._next()
        except (ConnectError, TaskFailed) as error:
            self._disconnect()
            if isinstance(error, RetriableError):
                error.waits_for = error.waits_for or place
                self._again_s, self._away = time.monotonic() + _AGAIN_S, str(error)
            raise

    def wake_after_ms(self) -> int:
        """0 keeps the run warm, with its Spark, if there is room for it."""
        if self._settings.poll_s <= _KEEPS_SPARK_S:
            return 0
        return max(1, int((self._due_s - time.monotonic()) * 1000))

    def stop(self) -> None:
        if self._stream is not None:
            self._disconnect()

    def _is_more(self) -> bool:
        """Return whether there is a batch to return; opens the next slice."""
        assert self._stream is not None
        position = self._position
        if position is None:
            return True
        end = position.end or self._stream.end_after(position.start)
        if end is None:
            self._due_s = time.monotonic() + self._settings.poll_s
            return False
        opened = self._stream.read(position.start, end)
        if (there := opened.skip(position.rows)) < position.rows:
            opened.close()
            raise ConfigError(
                f"{FORMAT}={self._settings.name}: {position.rows} rows were read between {position.start} and {end}, "
                f"and now it has {there} there", field=FORMAT,
                fix="set the source offset to another position (herd offsets set)",
            )  # fmt: skip
        self._slice, self._end = opened, end
        return True

    def _next(self) -> SourceBatch:
        """Return the slice's next rows, and the position after
        them; if no position is stored yet, only the position.
        """
        assert self._stream is not None
        if self._slice is None:
            # Stored at once: after a crash, "from now on" would be a later moment.
            self._position = Position(self._stream.initial())
            return self._moved()
        assert self._position is not None
        if self._slice.is_read:  # the slice was empty, or had only rows that were read before
            self._passed()
            return self._moved()
        rows = self._slice.take(max(1, min(self._settings.batch_rows, self._context.poll_records_max())))
        is_last = self._slice.is_read
        position = Position(self._end) if is_last else self._behind(self._position, rows)
        batch = self._batch(rows, position)
        if is_last:
            self._passed()
        self._position = position
        return batch

    def _behind(self, position: Position, rows: Any) -> Position:
        """Return the position after rows within the slice."""
        if self._settings.name == KAFKA:
            return Position(behind_records(position.start, rows))
        return replace(position, end=self._end, rows=position.rows + rows.num_rows)

    def _batch(self, rows: Any, position: Position) -> SourceBatch:
        settings = self._settings
        if settings.key_column and settings.key_column not in rows.schema.names:
            known = ", ".join(rows.schema.names)
            raise ConfigError(f"{KEY_COLUMN}: there is no column {settings.key_column}; its columns: {known}",
                              field=KEY_COLUMN, fix="name one of them")  # fmt: skip
        return arrow_source_batch(
            settings.topic, readable(rows), settings.partition, position.offset(), key=settings.key_column
        )

    def _moved(self) -> SourceBatch:
        assert self._position is not None
        return SourceBatch(self._settings.topic, (), self._settings.partition, self._position.offset())

    def _passed(self) -> None:
        """Close the slice, which is read: the next one begins at its end."""
        assert self._slice is not None
        self._slice.close()
        self._slice = None
        self._position = Position(self._end)
        if self._settings.format.is_endless:
            self._due_s = time.monotonic() + self._settings.poll_s

    def _disconnect(self) -> None:
        """Close the slice and the stream. The position stays."""
        if self._slice is not None:
            self._slice.close()
            self._slice = None
        assert self._stream is not None
        self._stream.close()
