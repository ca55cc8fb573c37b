"""A Spark that has no executor for the worker's first job is told of in the worker's log: it serves nothing yet."""

from __future__ import annotations

import asyncio
import threading

import pytest
from structlog.testing import capture_logs

from herdmesh.worker.spark import session
from herdmesh.worker.spark.session import SparkHost


async def test_a_start_that_waits_says_so_and_what_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    may_start = threading.Event()
    monkeypatch.setattr(session, "START_TOLD_AFTER_S", 0.01)

    def start(_host: SparkHost) -> None:
        assert may_start.wait(60)

    monkeypatch.setattr(SparkHost, "_start", start)
    host = SparkHost({"spark.master": "spark://h:7077"})
    with capture_logs() as said:
        starting = asyncio.create_task(host.start())
        is_told = False
        while not is_told:
            await asyncio.sleep(0.01)
            is_told = any(one["event"] == "spark_start_waits" for one in said)
        may_start.set()
        await starting
    waits = next(one for one in said if one["event"] == "spark_start_waits")
    assert (waits["spark_master"], waits["log_level"]) == ("spark://h:7077", "warning")
    assert "has a live worker with a core" in waits["next"]
    await host.stop(1.0)
