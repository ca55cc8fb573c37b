"""Targets of `SparkSink`: how Spark writes a file of rows, and whether a repeated write is idempotent.

Owns the writes. A target that keeps numbers writes each number of a writer once, however often `write` is called; any
other target writes at every call.

| Format | Numbers |
|---|---|
| jdbc | in a table of the database (`jdbc`), updated in the transaction that has the rows |
| delta | in the table's log (`delta`), in the commit that has the rows |
| any other | none |

Invariant: `write` returns when Spark reports that the target has the rows.
"""

from __future__ import annotations

import secrets
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from herdmesh.connect.config import database_place
from herdmesh.connectors.spark.session_settings import FILE_FORMATS, FORMAT, ICEBERG
from herdmesh.connectors.spark.sink.settings import DELTA, SparkSettings
from herdmesh.sdk import ConfigError
from herdmesh.sdk.spark import task_session

_ATTEMPT: Final = "mapreduce.job.application.attempt.id"
_LEAVE_OTHERS: Final = "mapreduce.fileoutputcommitter.cleanup.skipped"


class Target(Protocol):
    """Destination of the rows."""

    keeps_numbers: ClassVar[bool]
    """Whether files need numbers."""

    def begin(self) -> None:
        """Start Spark in the background, because a write will follow."""
        ...

    def last_number(self, writer: str) -> int:
        """Return the writer's highest number in the target, 0 = none. Raises like `write`."""
        ...

    def write(self, path: Path, writer: str, number: int | None) -> None:
        """Write the rows of a Parquet file. Raises ConfigError, RetriableError, TaskFailed."""
        ...


class SparkWriter:
    """The task's Spark session, with its errors translated."""

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings
        self._begun: Future[Any] | None = None

    def begin(self) -> None:
        """Start the session, unless it is started."""
        if self._begun is None or task_session.has_failed(self._begun):
            self._begun = task_session.begin(self._settings.memory, self._settings.session)

    def session(self) -> Any:
        """Wait for the session and return it. Raises RetriableError."""
        self.begin()
        assert self._begun is not None
        return task_session.session_of(self._begun)

    def rows(self, path: Path) -> Any:
        """Return a DataFrame of one partition, so that it is written in one transaction, or as one file."""
        return self.session().read.parquet(str(path)).coalesce(1)

    def appending(self, rows: Any, **more: str) -> Any:
        """Return a configured DataFrameWriter that appends."""
        writer = rows.write.format(self._settings.format).mode("append").options(**{**self._settings.options, **more})
        return writer.partitionBy(*self._settings.partition_by) if self._settings.partition_by else writer


def place_of(settings: SparkSettings) -> str:
    """Return the target's name in waits: `mysql db:3306`, `delta /lake/orders`."""
    if settings.format == "jdbc":
        return database_place(settings.options["url"])
    return f"{settings.format} {settings.options.get('path', 'target')}"


class FormatTarget:
    """A target of any format, written by its DataFrameWriter alone."""

    keeps_numbers: ClassVar[bool] = False

    def __init__(self, settings: SparkSettings) -> None:
        self._spark = SparkWriter(settings)
        self._what = f"{FORMAT}={settings.format}"
        self._place = place_of(settings)
        self._table = settings.options["path"] if settings.format == ICEBERG else ""
        self._partition_by = settings.partition_by
        self._folder = settings.options["path"] if settings.format in FILE_FORMATS else ""

    def begin(self) -> None:
        self._spark.begin()

    def last_number(self, writer: str) -> int:
        raise ConfigError(f"{self._what} stores no commit numbers of {writer}", field=FORMAT)

    def write(self, path: Path, writer: str, number: int | None) -> None:
        with task_session.errors_translated(f"{self._what}, writing {path.name}", FORMAT, self._place):
            rows = self._spark.rows(path)
            if self._folder:
                self._write_beside_others(rows)
            else:
                if self._table:
                    self._make_table(rows)
                self._spark.appending(rows).save()

    def _write_beside_others(self, rows: Any) -> None:
        """Write to a folder that other tasks write to as well. By default all of Spark's jobs write below
        `_temporary/0` of the folder, and the first job to end moves the files of the others and deletes `_temporary`:
        the others fail, write twice, or do not notice that their files are gone.
        """
        attempt = str(1 + secrets.randbelow(1 << 30))
        try:
            self._spark.appending(rows, **{_ATTEMPT: attempt, _LEAVE_OTHERS: "true"}).save()
        finally:
            with suppress(Exception):  # nothing reads the rest
                self._delete_attempt(attempt)

    def _make_table(self, rows: Any) -> None:
        """Create a table, unless it exists: Iceberg's tables are in a catalog, and a write does not create them."""
        if self._spark.session().catalog.tableExists(self._table):
            return
        wanted = rows.limit(0).writeTo(self._table).using(ICEBERG)
        if self._partition_by:
            wanted = wanted.partitionedBy(*(rows[name] for name in self._partition_by))
        try:
            wanted.create()
        except task_session.ERRORS:
            if not self._spark.session().catalog.tableExists(
                self._table
            ):  # if it exists now, another task has just created it
                raise

    def _delete_attempt(self, attempt: str) -> None:
        context: Any = self._spark.session().sparkContext
        of_hadoop = context._jvm.org.apache.hadoop.fs
        folder = of_hadoop.Path(self._folder, f"_temporary/{attempt}")
        folder.getFileSystem(context._jsc.hadoopConfiguration()).delete(folder, True)


def target_of(settings: SparkSettings) -> Target:
    """Return the target of a config."""
    if settings.format == "jdbc":
        from herdmesh.connectors.spark.sink.jdbc import JdbcTarget

        return JdbcTarget(settings)
    if settings.format == DELTA:
        from herdmesh.connectors.spark.sink.delta import DeltaTarget

        return DeltaTarget(settings)
    return FormatTarget(settings)
