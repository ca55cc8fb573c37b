"""Task of `HttpSink`: converts batches to requests, queues them in lanes, and reports refused records.

Owns the order of these steps. Building requests: `requests`;
sending: `client`; concurrency and retries: `partition_lanes`.

Invariant: once `flush` has returned, each record put was accepted by the receiver, ignored as configured, or reported;
a run that ends because of a record that is not tolerated never passes a `flush` again.
"""

from __future__ import annotations

from dataclasses import replace

from herdmesh.connectors.http.client import HttpClient
from herdmesh.connectors.http.partition_lanes import Lanes
from herdmesh.connectors.http.requests import HttpRequest, requests_of
from herdmesh.connectors.http.settings import settings_of
from herdmesh.sdk import Config, RecordError, SinkBatch, SinkTask, TaskContext


class HttpSinkTask(SinkTask):
    """Task of `HttpSink`: sends records, at least once."""

    _client: HttpClient | None = None
    _lanes: Lanes | None = None

    def start(self, config: Config, context: TaskContext) -> None:
        self._context = context
        self._settings = replace(
            settings_of(config), key_defaults=context.key_defaults, value_defaults=context.value_defaults
        )
        self._given: tuple[SinkBatch, list[HttpRequest]] | None = None
        self._ended: RecordError | None = None
        self._client = HttpClient(self._settings, context.connector)
        self._lanes = Lanes(
            self._client.send,
            receiver=self._client.receiver,
            threads_max=self._settings.connections,
            retries=self._settings.retries,
            backoff_s=self._settings.retry_backoff_s,
            splits=self._settings.splits,
            keeps_refused=context.tolerates_errors or context.reporter is not None,
        )

    def put(self, batch: SinkBatch) -> None:
        assert self._lanes is not None
        self._report_refused()
        if self._given is None or self._given[0] is not batch:
            # Kept for the repeated `put` after a lack of room, so that no refused record is reported twice.
            self._given = batch, requests_of(batch, self._settings, self._refuse)
        self._lanes.give(self._given[1])
        self._given = None

    def flush(self) -> None:
        assert self._lanes is not None
        if self._ended is not None:
            raise self._ended
        try:
            self._lanes.drain()
        finally:
            self._report_refused()

    def stop(self) -> None:
        if self._client is not None and (self._lanes is None or self._lanes.close()):
            self._client.close()  # never while a thread waits for a response

    def _report_refused(self) -> None:
        """Report the records that the receiver refused since the
        last call. Raises RecordError if errors are not tolerated.
        """
        assert self._lanes is not None
        for request, error in self._lanes.refused():
            for place in request.places:
                self._refuse(request.batch, place, error)

    def _refuse(self, batch: SinkBatch, place: int, error: BaseException) -> None:
        """Report a record that no request can be built for, or that the receiver refuses."""
        if self._ended is not None:
            raise self._ended
        try:
            self._context.skip_record(batch, place, error)
        except RecordError as ended:
            self._ended = ended
            raise
