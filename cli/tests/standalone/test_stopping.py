"""Tests of `herd run` without a broker, and with two stop signals: it ends within bounds, with its exit code."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress

import pytest

from herdmesh.cli.commands import run
from herdmesh.cli.errors import EXIT_UNAVAILABLE, CommandError
from herdmesh.connect.java.properties_files import parse
from herdmesh.rpc.process import EXIT_FORCED
from herdmesh.standalone.worker_properties import plan_worker
from tests.support.standalone import WORKER

PLAN = plan_worker("w.properties", parse(WORKER.format(bootstrap="127.0.0.1:9", folder="x").encode()))


async def test_a_missing_broker_is_reported_after_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "PATIENCE_S", 0.1)
    with pytest.raises(CommandError, match=r"no broker answers at 127\.0\.0\.1:9") as refused:
        await run.until_kafka_serves(PLAN, asyncio.Event())
    assert refused.value.exit_code == EXIT_UNAVAILABLE
    assert "Start Kafka" in refused.value.next_step


async def test_a_stop_signal_ends_the_wait_for_a_broker() -> None:
    stop = asyncio.Event()
    stop.set()
    await run.until_kafka_serves(PLAN, stop)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_the_command_at_once(number: signal.Signals) -> None:
    """The first signal waits for all parts to end in order, however long that takes."""
    program = """
        import asyncio
        from herdmesh.cli.commands import run

        async def stop_for_ever():
            stop = run._stop_on_signals()
            print("ready", flush=True)
            await stop.wait()
            print("stops", flush=True)
            await asyncio.Event().wait()

        asyncio.run(stop_for_ever())
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            assert process.stdout.readline() == "stops\n"
            for _ in range(300):
                process.send_signal(number)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
                    break
            assert process.returncode == EXIT_FORCED
        finally:
            process.kill()
