"""Holding runs between a write and its commit, so that a kill there is no matter of luck.

Owns the failpoints of a run's mesh (`herdmesh.failpoints`, `hold`): a held run goes no further, while its client sends
what is queued. Invariant: what is held lives until `end` is called or it is killed otherwise; nothing is let go.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.support.mesh import Mesh


class Holds:
    """Of all runs that begin after this was made: each connector's point, once, then once more after each `again`."""

    def __init__(self, mesh: Mesh, points: Mapping[str, str]) -> None:
        environment = mesh.stack.settings.worker_env
        self._log = Path(environment["HERDMESH_FAILPOINT_LOG"])
        self._ended: set[int] = set()
        self.again()
        armed = Path(environment["HERDMESH_FAILPOINTS"].removeprefix("@"))
        armed.write_text("".join(f"{connector}/{point}=hold\n" for connector, point in points.items()))

    def again(self) -> None:
        """Hold the next that comes to its point, of each connector."""
        self._log.unlink(missing_ok=True)

    def held(self) -> set[str]:
        """The connectors of which a run was held since."""
        return {connector for _, connector in self._hits()}

    def end(self) -> None:
        """Kill the runs that are held. Called again and again, because two runs of a connector may come to their point
        at the same time, and one of them be told of only after the first call."""
        for pid in {pid for pid, _ in self._hits()} - self._ended:
            self._ended.add(pid)
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()

    def _hits(self) -> list[tuple[int, str]]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [(int(pid), connector) for _point, pid, connector in (line.split(" ", 2) for line in lines)]
