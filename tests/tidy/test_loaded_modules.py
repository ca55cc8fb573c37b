"""Modules that a service loads at its start: the control plane needs no records, so it loads nothing that works on
them.

Each module costs memory and start-up time in every process, and one import in a shared file brings in hundreds.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

_OF_RECORDS = (
    "numpy",
    "pyarrow",
    "herdmesh.connect.transforms",
    "herdmesh.connect.converters.avro",
    "herdmesh.engine",
)


@pytest.mark.parametrize("module", ["configstore", "statusstore", "herder"])
def test_the_control_plane_loads_no_module_that_works_on_records(module: str) -> None:
    code = f"import sys, herdmesh.{module}.__main__\nprint([one for one in {_OF_RECORDS!r} if one in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
