"""One environment with the installed release, used as a user would: `python -m tests.install.scenario VENV FOLDER`.

Owns the steps and their checks. After each way of ending the temporary folder must be empty and no process
of the environment may live: `herd down`, a worker and a `herd run` that were killed, a killed supervisor, the demo.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from deploy.dist import ROOT, project_file
from tests.support.first_hour import FirstHour

VERSION = project_file(ROOT / "meta")["project"]["version"]
WAIT_S = 120.0
_CONVERTERS = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}


class Scenario:
    """The environment at `venv`; everything of the run is in `folder`."""

    def __init__(self, venv: Path, folder: Path) -> None:
        self.venv = venv
        self.folder = folder
        self.temporary = Path(tempfile.gettempdir())
        folder.mkdir(parents=True)

    def herd(self, *arguments: str) -> str:
        """Standard output of a command, run in the folder. Raises CalledProcessError."""
        done = subprocess.run(
            ["herd", *arguments], cwd=self.folder, stdout=subprocess.PIPE, check=True, stdin=subprocess.DEVNULL
        )
        return done.stdout.decode()

    def json(self, *arguments: str) -> Any:
        """The document that a command prints."""
        return json.loads(self.herd(*arguments, "-o", "json"))

    def run(self) -> None:
        """Run all steps."""
        self.clean("before anything was started")
        assert self.json("version")["client"]["version"] == VERSION
        state = self.json("up", "--detach")
        assert self.json("version", "--herder", state["herder"])["herders"][0]["version"] == VERSION
        self.connectors(state)
        self.standalone(state["bootstrap_servers"])
        self.herd("down")
        self.clean("after herd down")
        self.first_hour()
        self.killed_supervisor()
        said = self.herd("demo")
        assert "nothing lost, nothing doubled" in said, said
        self.clean("after herd demo")

    def connectors(self, state: Any) -> None:
        """Lines from a file through a topic into a file, also after the worker was killed."""
        source, sink = self.folder / "in.txt", self.folder / "out.txt"
        source.write_text("one\ntwo\n")
        topic = {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1"}
        configs = [
            {"name": "in", "connector.class": "FileStreamSource", "file": str(source), "topic": "lines", **topic},
            {"name": "out", "connector.class": "FileStreamSink", "file": str(sink), "topics": "lines"},
        ]
        for config in configs:
            path = self.folder / f"{config['name']}.json"
            path.write_text(json.dumps({**config, **_CONVERTERS}))
            self.herd("apply", "-f", str(path))
        self.until(lambda: sink.is_file() and sink.read_text() == "one\ntwo\n", "two lines arrived")
        (worker,) = [one for one in state["services"] if one["name"] == "worker-1"]
        os.kill(worker["mark"]["pid"], signal.SIGKILL)
        with source.open("a") as lines:
            lines.write("three\n")
        # This sink is at least once: lines it had written and not committed are written again.
        self.until(lambda: sink.read_text().endswith("three\n"), "a line after the worker was killed")
        assert list(dict.fromkeys(sink.read_text().split())) == ["one", "two", "three"]

    def standalone(self, bootstrap: str) -> None:
        """`herd run`, ended by Ctrl-C, and once more, killed."""
        (self.folder / "again.txt").write_text("four\n")
        files = {
            "worker.properties": {
                "bootstrap.servers": bootstrap,
                "offset.storage.file.filename": str(self.folder / "offsets"),
                **_CONVERTERS,
            },
            "again.properties": {
                "name": "again",
                "connector.class": "FileStreamSource",
                "file": str(self.folder / "again.txt"),
                "topic": "lines",
            },
        }
        for name, properties in files.items():
            (self.folder / name).write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        for end in (signal.SIGINT, signal.SIGKILL):
            command = ["herd", "run", "--listen", "127.0.0.1:0", *files]
            with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True) as running:
                assert running.stdout is not None
                assert any("1 of 1 tasks running" in line for line in running.stdout)
                running.send_signal(end)
                running.stdout.read()
            assert running.returncode == (0 if end is signal.SIGINT else -end), running.returncode

    def first_hour(self) -> None:
        """The commands of docs/tutorials/first-hour.md, with the outputs of the page."""
        FirstHour(self.folder / "first-hour", os.environ).run()
        self.clean("after the first hour")

    def killed_supervisor(self) -> None:
        """Its services stay alive, and `herd down` ends them."""
        state = self.json("up", "--detach")
        supervisor = psutil.Process(state["supervisor"]["pid"])
        supervisor.kill()
        supervisor.wait(WAIT_S)
        assert self.json("down")["result"] == "stopped"
        self.clean("after herd down of a killed supervisor's services")

    def clean(self, when: str) -> None:
        """Raises AssertionError when a process or a file is left. A process that is just ending has a moment to do
        so.
        """
        self.until(lambda: not self.processes(), f"no process {when}", lambda: str(self.processes()))
        left = sorted(one.name for one in self.temporary.iterdir())
        assert not left, f"{self.temporary} has {left} {when}"
        print(f"  {when}: no process, and {self.temporary} is empty", flush=True)

    def processes(self) -> list[tuple[int, str]]:
        """Processes of this environment, or of its data folders."""
        places = (str(self.venv), str(self.folder))
        found: list[tuple[int, str]] = []
        for process in psutil.process_iter(["pid", "cmdline", "status"]):
            line = " ".join(process.info["cmdline"] or ())
            is_ours = process.pid != os.getpid() and any(one in line for one in places)
            if is_ours and process.info["status"] != psutil.STATUS_ZOMBIE and "tests.install" not in line:
                found.append((process.pid, line[:200]))
        return found

    def until(self, holds: Callable[[], bool], what: str, detail: Callable[[], str] = str) -> None:
        """Poll until the condition holds. Raises AssertionError after `WAIT_S`."""
        deadline_s = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < deadline_s, f"{what}: not within {WAIT_S:g} s {detail()}"
            time.sleep(0.1)


if __name__ == "__main__":
    Scenario(Path(sys.argv[1]), Path(sys.argv[2])).run()
