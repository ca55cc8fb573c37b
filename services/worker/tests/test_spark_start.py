"""A Spark without an executor for the worker's first job is reported in the worker's log: the worker does not serve
yet.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Any

import pytest
from py4j import java_gateway  # pyright: ignore[reportMissingTypeStubs]
from py4j.protocol import ERROR  # pyright: ignore[reportMissingTypeStubs]
from structlog.testing import capture_logs

from herdmesh.sdk.spark.py4j_log import limit_py4j_log
from herdmesh.worker.spark import session
from herdmesh.worker.spark.session import SparkHost


async def test_a_waiting_start_of_spark_is_logged_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_call_interrupted_by_the_jvms_end_logs_no_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A signal to the process group ends the JVM first. Py4J logs the interrupted calls on the root logger."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "filters", [])
    server = socket.create_server(("127.0.0.1", 0))

    def hang_up() -> None:
        accepted, _ = server.accept()
        accepted.recv(1)
        accepted.close()

    threading.Thread(target=hang_up, daemon=True).start()
    limit_py4j_log(logging.CRITICAL)
    client: Any = java_gateway.GatewayClient(port=server.getsockname()[1])
    assert client.send_command("c\no0\nname\ne\n", retry=False) == ERROR
    root.warning("a line of another library")
    assert [one.getMessage() for one in caplog.records] == ["a line of another library"]
