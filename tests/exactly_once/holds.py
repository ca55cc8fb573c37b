"""Failpoints that hold runs between a write and its commit, so that a kill there does not depend on luck.

Owns the failpoints of a run's mesh (`herdmesh.failpoints`, `hold`): a held run does not continue, while its client
sends queued records. Invariant: a held run lives until `end` is called or it is killed otherwise; none is resumed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.support.mesh import Mesh


class Holds:
    """Failpoints of all runs that begin after this was created: each connector's point, once, then once more after each
    `again`.
    """

    def __init__(self, mesh: Mesh, points: Mapping[str, str]) -> None:
        environment = mesh.stack.settings.worker_env
        self._log = Path(environment["HERDMESH_FAILPOINT_LOG"])
        self._ended: set[int] = set()
        self.again()
        armed = Path(environment["HERDMESH_FAILPOINTS"].removeprefix("@"))
        armed.write_text("".join(f"{connector}/{point}=hold\n" for connector, point in points.items()))

    def again(self) -> None:
        """Hold the next run that reaches its point, of each connector."""
        self._log.unlink(missing_ok=True)

    def held(self) -> set[str]:
        """The connectors of which a run was held since."""
        return {connector for _, connector in self._hits()}

    def end(self) -> None:
        """Kill the held runs. Called repeatedly, because two runs of a connector may reach their point
        at the same time, and one of them be reported only after the first call.
        """
        for pid in {pid for pid, _ in self._hits()} - self._ended:
            self._ended.add(pid)
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()

    def _hits(self) -> list[tuple[int, str]]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [(int(pid), connector) for _point, pid, connector in (line.split(" ", 2) for line in lines)]
