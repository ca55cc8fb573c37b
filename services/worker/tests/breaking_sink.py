"""A connector whose task ends its process in every possible way; a test's worker finds it by `install`.

Owns no assertion. `how` selects the way, at the first record. `forks` does not end it: it reports the exit codes of its
children.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
from pathlib import Path

from herdmesh.connect.config.config_def import REQUIRED, ConfigDef, ConfigKey, Importance, Type
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi.connector import Config, SinkBatch, SinkConnector, SinkTask, TaskContext

STEP_BYTES = 16 << 20
#: Its memory grows to this size and stays there, so a late measurement finds it no larger.
STEPS_MAX = 64
#: Children of a task that forks. With gRPC's default settings about two of them die.
CHILDREN = 100


def install(folder: Path) -> None:
    """Make a folder with which, on the path of a process, the process finds the connector."""
    info = folder / "breaking_sink-0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: breaking-sink\nVersion: 0.0\n")
    (info / "entry_points.txt").write_text(f"[herdmesh.connectors]\nBreaks = {__name__}:Breaks\n")


class Breaks(SinkConnector):
    """Connector whose class name selects what its task does."""

    class_name = "Breaks"
    version = "0.0"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(ConfigKey("how", Type.STRING, REQUIRED, Importance.HIGH, "How its process is to end"))

    def task_class(self) -> str:
        return f"{__name__}:BreaksTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [dict(self.config)] * max_tasks


class BreaksTask(SinkTask):
    """Ends its process at the first record."""

    def start(self, config: Config, context: TaskContext) -> None:
        self._how = config["how"]

    def put(self, batch: SinkBatch) -> None:
        match self._how:
            case "segv":
                ctypes.string_at(0)
            case "abort":
                os.abort()
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(3)
            case "forks":
                # With a preexec function, as pyspark starts a JVM: only then is it a real fork.
                ends = [subprocess.run(["true"], preexec_fn=os.getpid, check=False).returncode for _ in range(CHILDREN)]
                raise ConfigError(f"{CHILDREN - ends.count(0)} of {CHILDREN} children died", field="how")
            case _:
                taken: list[bytes] = []
                while len(taken) < STEPS_MAX:
                    taken.append(bytes([len(taken) % 256]) * STEP_BYTES)
                threading.Event().wait()

    def flush(self) -> None:
        return
