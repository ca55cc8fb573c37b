"""Tests of waits of connectors' threads: a discovery that finds nothing, and repeated failures."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

import pytest

from herdmesh.connect.errors import RetriableError
from herdmesh.connect.spi import waits
from herdmesh.connect.spi.connector import ConnectorContext
from herdmesh.connect.spi.waits import Wait
from herdmesh.connectors.common import Lookout

WAIT_S = 30.0


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show waits at once, as if after 5 s."""
    monkeypatch.setattr(waits, "SHOWN_AFTER_S", 0.0)


def until(context: ConnectorContext, holds: Callable[[Wait | None], bool]) -> Wait | None:
    deadline_s = time.monotonic() + WAIT_S
    while not holds(wait := context.waits.shown()):
        assert time.monotonic() < deadline_s, wait
        time.sleep(0.01)
    return wait


def test_an_empty_discovery_is_a_wait_until_a_table_appears() -> None:
    asked: queue.SimpleQueue[None] = queue.SimpleQueue()
    context = ConnectorContext(lambda: asked.put(None))
    found: list[str] = []
    looking = Lookout("tables to read in PostgreSQL db:5432", found.copy, 0.01, context, nothing="table.whitelist")
    try:
        wait = until(context, lambda wait: wait is not None)
        assert wait is not None
        assert wait.waits_for == "tables to read in PostgreSQL db:5432"
        assert wait.message == "nothing was found to read, so there are no tasks: check table.whitelist"
        assert wait.next_ms > 0
        found.append("orders")
        asked.get(timeout=WAIT_S)
        until(context, lambda wait: wait is None)
    finally:
        looking.close()


def test_a_failing_discovery_is_a_wait_for_its_source() -> None:
    context, away = ConnectorContext(lambda: None), list[str]()

    def look() -> list[str]:
        if away:
            raise RetriableError("connection refused", waits_for="PostgreSQL db:5432")
        return ["orders"]

    looking = Lookout("tables to read", look, 0.01, context, nothing="table.whitelist")
    try:
        assert context.waits.shown() is None
        away.append("away")
        wait = until(context, lambda wait: wait is not None and wait.tries > 1)
        assert wait is not None
        assert wait.waits_for == "PostgreSQL db:5432"
        assert wait.message == "looking for tables to read failed: connection refused"
        away.clear()
        until(context, lambda wait: wait is None)
    finally:
        looking.close()
