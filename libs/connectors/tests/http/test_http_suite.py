"""The standard suite for authors, applied to `HttpSink`: records one by one, and several in a request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from herdmesh.connectors.http.connector import HttpSink
from herdmesh.sdk.testing import RecordForm, SinkRunSuite, SinkSuite, SinkWorld
from herdmesh.sdk.testing.worlds import BadConfig
from libs.connectors.tests.http.http_receiver import Receiver


class OneByOne(SinkWorld):
    """A receiver that accepts everything."""

    forms = (RecordForm.MAP, RecordForm.STRUCT, RecordForm.TEXT)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._receiver = Receiver()

    def config(self) -> dict[str, str]:
        return {"http.url": self._receiver.url}

    def bad_configs(self) -> list[BadConfig]:
        return [({"http.url": None}, "http.url"), ({"http.authorization.type": "static"}, "http.headers.authorization")]

    def found(self) -> list[int]:
        values: list[Any] = [value for request in self._receiver.taken for value in request.values()]
        return [int(value if isinstance(value, str | int) else value["id"]) for value in values]

    def close(self) -> None:
        self._receiver.__exit__()


class Batched(OneByOne):
    """The same receiver, with several records in a request."""

    def config(self) -> dict[str, str]:
        return {**super().config(), "batch.max.size": "2"}


class TestOneByOne(SinkSuite):
    connector = HttpSink
    world = OneByOne


class TestBatched(SinkSuite):
    connector = HttpSink
    world = Batched


class TestRuns(SinkRunSuite):
    connector = HttpSink
    world = Batched
