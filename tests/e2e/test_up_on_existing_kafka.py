"""`herd up --bootstrap-servers` in a pipe, in a folder with letters beyond ASCII: a line for each event, a mesh with
its own topics in the cluster, the dead letter example of docs/connectors/http-sink.md on one broker, Ctrl-C.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from herdmesh.devstack.broker import QUICK_JVM, Broker
from herdmesh.devstack.layout import StackLayout
from herdmesh.devstack.ports import PortReservations
from tests.docs.blocks import blocks

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]
WAIT_S = 120.0
SERVICES = ("config-store", "status-store", "herder", "worker-1")


class Up:
    """`herd up` with the services' ports of its folder, and the lines that it printed so far."""

    def __init__(self, folder: Path, *options: str) -> None:
        # Not the usual ports: another mesh may take one between its choice and its use.
        StackLayout(folder / ".herd").choose_ports(SERVICES, PortReservations(), usual=False)
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "herdmesh.cli", "up", *options],
            cwd=folder,
            env={
                **os.environ,
                "JDK_JAVA_OPTIONS": " ".join(QUICK_JVM),
                "XDG_CONFIG_HOME": str(folder / "config"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def until(self, pattern: str) -> str:
        """Wait for a line that contains the pattern; returns it."""
        deadline_s = time.monotonic() + WAIT_S
        while True:
            found = [line for line in self.lines if re.search(pattern, line)]
            if found:
                return found[0]
            assert self.process.poll() is None, self.lines
            assert time.monotonic() < deadline_s, self.lines
            time.sleep(0.05)

    def stop(self) -> int:
        """Ctrl-C; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(WAIT_S)
        self._reader.join()
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines += (line.rstrip("\n") for line in self.process.stdout)


def test_up_uses_an_existing_cluster_and_prints_line_by_line(
    kafka: Broker, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    folder = tmp_path / "mitü 雪"
    folder.mkdir()
    group, topic = tmp_topic(), tmp_topic("orders")
    admin: Any = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    shown = next(json.loads(one.text) for one in blocks("docs/connectors/http-sink.md") if one.language == "json")
    queue = f"{topic}-refused"
    example = {**shown.get("config", shown), "topics": topic, "errors.deadletterqueue.topic.name": queue}
    example |= {"name": f"sink-{topic}", "http.url": "http://127.0.0.1:9", "http.headers.authorization": "x"}
    (folder / "sink.json").write_text(json.dumps(example))
    up = Up(folder, "--bootstrap-servers", kafka.bootstrap, "--group-id", group)
    try:
        up.until(r"^kafka serving at ")
        running = up.until(r"^running: Kafka serves at ")
        assert kafka.bootstrap in running
        assert str(folder / ".herd") in running
        assert "1 broker, so topics" in up.until("^note: the cluster has ")
        assert "`herd --context mitü-雪 get connectors` reaches it from every folder" in up.until("^Its context is ")
        apply = [sys.executable, "-m", "herdmesh.cli", "--context", "mitü-雪", "apply", "-f", folder / "sink.json"]
        elsewhere = {**os.environ, "XDG_CONFIG_HOME": str(folder / "config")}
        subprocess.run(apply, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL, env=elsewhere)
        up.until(rf"^sink-{re.escape(topic)} RUNNING, 2 of 2 tasks running")
        topics = admin.list_topics(timeout=30).topics
        assert {queue, f"{group}-configs", f"{group}-status"} <= set(topics)
        assert len(next(iter(topics[queue].partitions.values())).replicas) == 1
    finally:
        code = up.stop()
    assert code == 0
    assert [line for line in up.lines if line in ("stopping", "stopped")] == ["stopping", "stopped"]
    assert up.lines[-1] == "stopped"
    assert "worker-1 stopped" in up.lines
    contexts = json.loads((folder / "config" / "herdmesh" / "contexts.json").read_text())
    assert contexts == {"current": "", "contexts": {}}
    assert not (folder / ".herd" / "broker").exists()
    log = (folder / ".herd" / "logs" / "worker-1.log").read_text()
    assert "SparkR" not in log
    assert "spark_ready" in log


def test_the_reason_of_a_failed_start_is_on_a_line_of_its_own(tmp_path: Path) -> None:
    up = Up(tmp_path, "--bootstrap-servers", "127.0.0.1:9")
    assert up.process.wait(WAIT_S) == 1
    up.stop()
    assert up.lines[0] == "kafka starting at 127.0.0.1:9"
    assert "failed" in up.lines
    assert any(line.startswith("error no broker answers at 127.0.0.1:9: ") for line in up.lines)


def test_a_closed_output_stops_everything(kafka: Broker, tmp_path: Path, tmp_topic: Callable[..., str]) -> None:
    """`herd up | head -1`, and a terminal that is closed."""
    StackLayout(tmp_path / ".herd").choose_ports(SERVICES, PortReservations(), usual=False)
    options = ("--bootstrap-servers", kafka.bootstrap, "--group-id", tmp_topic())
    command = [sys.executable, "-m", "herdmesh.cli", "up", *options]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert kafka.bootstrap in process.stdout.readline()
        process.stdout.close()
        assert "all was stopped, because the output of `herd up` was closed" in process.stderr.read()
        assert process.wait(WAIT_S) == 1
    state = StackLayout(tmp_path / ".herd").read_state()
    assert state is not None
    assert [one.name for one in state.services if one.mark is not None and one.mark.alive() is not None] == []
