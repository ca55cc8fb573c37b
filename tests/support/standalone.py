"""Connect's own sample files and a `herd run` of them, for tests of standalone mode.

Owns the texts (docs/reference/connect/configs.md, section 3.1, with the values a test must change: broker, folder,
topic) and the process. Invariant: a process started here ends with its test, with all its children.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

WAIT_S = 60.0
SAMPLE_SOURCE, SAMPLE_SINK = "local-file-source", "local-file-sink"
WORKER = """\
# These are defaults. This file just demonstrates how to override some settings.
bootstrap.servers={bootstrap}

# The converters specify the format of data in Kafka and how to translate it into Connect data. Every Connect user will
# need to configure these based on the format they want their data in when loaded from or stored into Kafka
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
# Converter-specific settings can be passed in by prefixing the Converter's setting with the converter we want to apply
# it to
key.converter.schemas.enable=true
value.converter.schemas.enable=true

offset.storage.file.filename={folder}/connect.offsets
# Flush much faster than normal, which is useful for testing/debugging
offset.flush.interval.ms=10000

#plugin.path=
"""
SOURCE = """\
name=local-file-source
connector.class=FileStreamSource
tasks.max=1
file=test.txt
topic={topic}
"""
SINK = """\
name=local-file-sink
connector.class=FileStreamSink
tasks.max=1
file=test.sink.txt
topics={topic}
"""


def write_samples(folder: Path, bootstrap: str, topic: str) -> list[str]:
    """The three files; their names in the order of the command line."""
    texts = {
        "connect-standalone.properties": WORKER.format(bootstrap=bootstrap, folder=folder),
        "connect-file-source.properties": SOURCE.format(topic=topic),
        "connect-file-sink.properties": SINK.format(topic=topic),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return list(texts)


class HerdRun:
    """One `herd run -o json` in a folder: its output, as documents."""

    def __init__(self, folder: Path, files: list[str], env: Mapping[str, str]) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "herdmesh.cli", "run", *files, "--listen", "127.0.0.1:0", "-o", "json"]
        self._log = (folder / "run.log").open("ab")
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self.said: list[dict[str, Any]] = []
        self._new = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def listening(self) -> dict[str, Any]:
        """Its listen address, and those of its stores."""
        return next(one for one in self.said if one.get("event") == "listening")

    @property
    def address(self) -> str:
        return self.listening["address"]

    def until(self, what: str, holds: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Wait until the output satisfies the condition."""
        with self._new:
            self._new.wait_for(lambda: holds(self.said) or not self._reader.is_alive(), WAIT_S)
            assert holds(self.said), f"not {what}; it said {self.said}"

    def until_running(self, *names: str) -> None:
        def all_run(said: list[dict[str, Any]]) -> bool:
            last = {one["name"]: one for one in said if one.get("event") == "connector"}
            return all(name in last and last[name]["tasks"] == ["RUNNING"] for name in names)

        self.until(f"RUNNING: {names}", all_run)

    def kill(self) -> None:
        """kill -9 of the one process; its children end by themselves."""
        self.process.kill()
        self.process.wait(WAIT_S)

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ctrl-C, which a terminal sends to all processes in the foreground, or another signal; the exit code."""
        os.killpg(self.process.pid, number)
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        """End the remaining processes."""
        if self.process.poll() is None:
            left = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
            self.process.wait(WAIT_S)
            for one in left:
                with suppress(psutil.NoSuchProcess):  # it went with its parent
                    one.kill()
        self._reader.join(WAIT_S)
        self._log.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._new:
                self.said.append(json.loads(line))
                self._new.notify_all()
        with self._new:
            self._new.notify_all()


@contextmanager
def herd_run(folder: Path, files: list[str], **env: str) -> Generator[HerdRun]:
    """A `herd run`, ended with the block."""
    running = HerdRun(folder, files, env)
    try:
        yield running
    finally:
        running.close()


def until_lines(path: Path, count: int) -> list[str]:
    """The lines of a file, once there are so many."""
    deadline_s = time.monotonic() + WAIT_S
    while not path.exists() or len(lines := path.read_text().splitlines()) < count:
        assert time.monotonic() < deadline_s, f"{path.name}: {path.read_text()[-500:] if path.exists() else 'absent'}"
        time.sleep(0.1)
    return lines
