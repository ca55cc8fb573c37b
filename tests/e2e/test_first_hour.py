"""docs/tutorials/first-hour.md as printed: a newcomer's commands, from an empty folder to `herd down`.

HERDMESH_WRITE_PAGES=1 pytest tests/e2e/test_first_hour.py    writes the outputs into the page
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from herdmesh.devstack.broker import QUICK_JVM
from herdmesh.devstack.layout import StackLayout
from herdmesh.devstack.ports import PortReservations
from herdmesh.devstack.supervisor import stop_detached
from tests.support.first_hour import FirstHour

_WRITES = os.environ.get("HERDMESH_WRITE_PAGES", "") == "1"


@pytest.mark.own_broker
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600 if _WRITES else 240)
def test_the_first_hour_prints_its_page(tmp_path: Path) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HERDMESH_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    hour = FirstHour(
        tmp_path / "first-hour", {**inherited, "PATH": path, "JDK_JAVA_OPTIONS": " ".join(QUICK_JVM)}, writes=_WRITES
    )
    # Not the usual ports: another mesh may take one between its choice and its use.
    services = ("config-store", "status-store", "herder", "worker-1")
    StackLayout(hour.folder / ".herd").choose_ports(services, PortReservations(), usual=False)
    try:
        hour.run()
    finally:
        asyncio.run(stop_detached(hour.folder / ".herd"))  # nothing is left to stop when all went well
