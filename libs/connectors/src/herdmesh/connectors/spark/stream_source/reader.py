"""Reader of a Spark stream: its positions, and the rows between two of them.

Owns the calls into Spark. Positions come from the stream itself (`MicroBatchStream`, the interface of every such
source). Rows are read by a query of one batch (`Trigger.Once`) whose checkpoint contains a batch that was begun and not
committed, which makes Spark read exactly the rows between two positions. The checkpoint is created for that one
query, from our positions, and removed with its rows: Spark keeps no state.

Invariant: all errors are Connect's: RetriableError; ConfigError when the config or the position must change; TaskFailed
when Spark in this process is gone.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JNetworkError  # pyright: ignore[reportMissingTypeStubs]

from herdmesh.connectors.spark.session_settings import FORMAT
from herdmesh.connectors.spark.stream_source.settings import StreamSettings
from herdmesh.connectors.spark.stream_source.slice import Slice
from herdmesh.sdk import ConfigError, ErrorClass, ScratchFolder, TaskFailed
from herdmesh.sdk.spark import task_session

_GONE: Final = re.compile(r"\bjava\.lang\.IllegalStateException|KafkaIllegalStateException")
"""Messages of sources about a position whose data is gone, or a relation that cannot be streamed."""
_BATCH: Final = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
_COMMIT: Final = '{"nextBatchWatermarkMs":0}'
_TIMESTAMPS: Final = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


class Stream:
    """One stream, for one thread. Spark is contacted at the first query."""

    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings
        self._begun: Any = None
        self._java: Any = None
        self._scratch: ScratchFolder | None = None

    def begin(self) -> None:
        """Start Spark in the background."""
        if self._begun is None or task_session.has_failed(self._begun):
            self._begun = task_session.begin(self._settings.memory, self._settings.session)

    def initial(self) -> str:
        """Return the position that the options select for a stream without an offset."""
        with self._errors_translated("cannot find the start position"):
            return str(self._opened().initialOffset().json())

    def end_after(self, start: str) -> str | None:
        """Return the end of the slice after a position; None = there is no new data."""
        with self._errors_translated(f"cannot check for data after {start}"):
            stream = self._opened()
            begin = stream.deserializeOffset(start)
            end = stream.latestOffset(begin, stream.getDefaultReadLimit())
            return None if end is None or end.json() == begin.json() else str(end.json())

    def read(self, start: str, end: str) -> Slice:
        """Return the rows between two positions."""
        with self._errors_translated(f"cannot read from {start} to {end}"):
            stream = self._opened()
            # The query makes the same call, but its errors there lack their class.
            stream.planInputPartitions(stream.deserializeOffset(start), stream.deserializeOffset(end))
            assert self._scratch is not None
            folder = Path(tempfile.mkdtemp(prefix="slice-", dir=self._scratch.path))
            try:
                return Slice(folder, self._staged(folder, start, end))
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise

    def close(self) -> None:
        """Remove the stream's slices. Does nothing if it is closed, or was never opened."""
        java, self._java = self._java, None
        if java is not None:
            with suppress(Exception):  # the JVM may be gone
                java.stop()
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def _opened(self) -> Any:
        if self._java is None:
            session = self._session()
            session.conf.set(*_TIMESTAMPS)
            # Sources look up the session of their thread.
            active = task_session.java_class(session, "org.apache.spark.sql.classic.SparkSession")
            active.setActiveSession(session._jsparkSession)
            relation = self._rows()._jdf.queryExecution().analyzed().collectLeaves().head()
            self._scratch = self._scratch or ScratchFolder("herdmesh-spark-stream-")
            scan = relation.table().newScanBuilder(relation.extraOptions()).build()
            self._java = scan.toMicroBatchStream((self._scratch.path / "checkpoint").as_uri())
        return self._java

    def _session(self) -> Any:
        self.begin()
        return task_session.session_of(self._begun)

    def _rows(self) -> Any:
        return self._session().readStream.format(self._settings.name).options(**self._settings.options).load()

    def _staged(self, folder: Path, start: str, end: str) -> Path:
        """Write the rows of a slice by a query of one batch."""
        checkpoint, rows = folder / "checkpoint", folder / "rows"
        files = {
            "metadata": f'{{"id":"{uuid.uuid4()}"}}',
            "offsets/0": f"v1\n{_BATCH}\n{start}",
            "commits/0": f"v1\n{_COMMIT}",
            "offsets/1": f"v1\n{_BATCH}\n{end}",
        }
        for name, text in files.items():
            (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
            (checkpoint / name).write_text(text)
        writing = self._rows().writeStream.format("parquet").trigger(once=True)
        query = writing.option("checkpointLocation", checkpoint.as_uri()).start(rows.as_uri())
        try:
            query.awaitTermination()  # waits: `_errors_translated` has reported it
        except task_session.ERRORS:
            # Kafka's source (4.1) fails to report the metrics of a recovered batch, after the batch is committed.
            if not (checkpoint / "commits/1").exists():
                raise
        return rows

    @contextmanager
    def _errors_translated(self, doing: str) -> Generator[None]:
        what = f"{FORMAT}={self._settings.name}: {doing}"
        with task_session.errors_translated(what, FORMAT, f"Spark source {self._settings.name}"):
            try:
                yield
            except (Py4JNetworkError, OSError) as error:
                raise TaskFailed(f"this task's Spark has ended: {what}: {error}", ErrorClass.RETRIABLE) from error
            except task_session.ERRORS as error:
                if not _GONE.search(str(error)):
                    raise
                raise ConfigError(f"{what}: {task_session.cause_of(error)}", field=FORMAT,
                                  fix="set the source offset to a position that exists (herd offsets set)",
                                  ) from error  # fmt: skip
