"""Java's side: `StoresBench.java` compiled at bench time into a temporary folder and run once per command.

Owns the class path and the processes. Invariant: each command runs in a fresh JVM, as a worker's start does.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from pathlib import Path

from herdmesh.devstack.jars import ensure_jars
from herdmesh.devstack.java import find_java

_SOURCE = Path(__file__).with_name("StoresBench.java")
_TIMEOUT_S = 900

Answer = dict[str, list[str]]
"""The printed results: every value of every name, in order."""


class JavaStores:
    """The compiled driver. `ask("replay-config", topic=..., rounds=3)`."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._class_path = f"{folder}:{ensure_jars('connect')}"
        self._java = find_java().executable
        javac = self._java.resolve().with_name("javac")
        subprocess.run([str(javac), "-cp", self._class_path, "-d", str(folder), str(_SOURCE)], check=True)
        # Connect logs every record of an unknown kind; the figures should not include the cost of that log.
        log = folder / "log4j2.properties"
        log.write_text("rootLogger.level = OFF\n")
        self._log = log

    def ask(self, command: str, **options: object) -> Answer:
        """Run one command. Raises `subprocess.CalledProcessError`."""
        pairs = [
            text for name, value in options.items() for text in (name.replace("_", "-"), str(value))
        ]  # each line is `name value`
        done = subprocess.run(
            [
                *(str(self._java), "-Xms256M", "-Xmx1G", f"-Dlog4j2.configurationFile={self._log}"),
                *("-cp", self._class_path, "StoresBench", command, "bootstrap", self._bootstrap, *pairs),
            ],
            stdout=subprocess.PIPE,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        answer: Answer = defaultdict(list)
        for line in done.stdout.splitlines():
            name, *values = line.split(" ")
            answer[name] += values
        return answer
