"""Tests of `herd run` without a broker, and with two stop signals: it ends within bounds, with its exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from herdmesh.cli.app import app
from herdmesh.cli.commands import run
from herdmesh.cli.errors import EXIT_INTERNAL, EXIT_UNAVAILABLE, CommandError
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


def test_a_taken_port_is_reported_before_anything_starts(tmp_path: Path) -> None:
    """The broker of the file does not exist, and is not looked for."""
    worker = tmp_path / "worker.properties"
    worker.write_text(WORKER.format(bootstrap="127.0.0.1:9", folder=tmp_path))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = CliRunner().invoke(app, ["run", "--listen", address, str(worker)], catch_exceptions=False)
    assert done.exit_code == EXIT_INTERNAL
    assert f"the gRPC API cannot listen on {address}: process {os.getpid()} (" in done.stderr
    assert "--listen HOST:PORT" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_the_command_at_once(number: signal.Signals) -> None:
    """The first signal waits for all parts to end in order, however long that takes."""
    program = """
        import asyncio
        from herdmesh.cli.commands.run import _end_at_once
        from herdmesh.cli.stop_signals import stop_on_signals

        async def stop_for_ever():
            stop = stop_on_signals(_end_at_once)
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
