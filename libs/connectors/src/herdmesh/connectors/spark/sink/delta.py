"""Idempotent target for Delta tables: each file of rows is written once.

Owns reading the last number of a writer (connector, partition and staging folder) from Delta's log. Delta stores it as
the version of an application's transaction (`txnAppId`, `txnVersion`), in the commit that has the rows, and refuses a
concurrent commit of the same application.

Invariant: the rows of a number are in the table if and only if the table's log has reached that number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from herdmesh.connectors.spark.session_settings import FORMAT
from herdmesh.connectors.spark.sink.settings import SparkSettings
from herdmesh.connectors.spark.sink.targets import SparkWriter, place_of
from herdmesh.engine.runtime import failpoints
from herdmesh.sdk.spark import task_session


class DeltaTarget:
    """One Delta table, by its folder."""

    keeps_numbers: ClassVar[bool] = True

    def __init__(self, settings: SparkSettings) -> None:
        self._spark = SparkWriter(settings)
        self._folder = settings.options["path"]
        self._what = f"{FORMAT}={settings.format}, writing {self._folder}"
        self._place = place_of(settings)

    def begin(self) -> None:
        self._spark.begin()

    def last_number(self, writer: str) -> int:
        with task_session.errors_translated(self._what, FORMAT, self._place):
            session: Any = self._spark.session()
            # Delta's public API does not give the version of an application's transaction.
            logs = task_session.java_class(session, "org.apache.spark.sql.delta.DeltaLog")
            logs.clearCache()  # the cache has the log as this process last read it
            found = logs.forTable(session._jsparkSession, self._folder).unsafeVolatileSnapshot().transactions()
            last = found.get(writer)
            return int(last.get()) if last.isDefined() else 0

    def write(self, path: Path, writer: str, number: int | None) -> None:
        assert number is not None
        if self.last_number(writer) >= number:
            return
        with task_session.errors_translated(self._what, FORMAT, self._place):
            rows = self._spark.rows(path)
            self._spark.appending(rows, txnAppId=writer, txnVersion=str(number)).save()
        failpoints.hit("after-target-commit")
