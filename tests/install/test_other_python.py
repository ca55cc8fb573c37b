"""Tests that depend on Python's version, run with the other end of the supported ones (`other_python`).

Chosen: processes and supervisors (`herd up --detach` lost its supervisor on 3.12 and 3.13 alone), the event loop of a
service, generated code, the command line. `make dist-check` runs everything from wheels, with Spark.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deploy.dist import ROOT
from tests.install import other_python

CHOSEN = (
    "cli/tests/devstack/test_left_behind.py",
    "cli/tests/devstack/test_process.py",
    "cli/tests/devstack/test_supervisor.py",
    "cli/tests/devstack/test_data_folder.py",
    "cli/tests/devstack/test_log_rotation.py",
    "cli/tests/devstack/test_supervision.py",
    "cli/tests/cli/test_transform_golden.py",
    "libs/core/tests/connect/chain/test_chain.py",
    "libs/core/tests/rpc",
    "services/config-store/tests/test_service.py",
    "services/herder/tests/test_loop.py",
)


@pytest.fixture
def python() -> Path:
    found = other_python.interpreter()
    if found is None:
        pytest.skip(f"make test makes .venv/other where a Python {other_python.other_version()} is found; none was")
    return found


@pytest.mark.slow
def test_what_depends_on_pythons_version_works_on_the_other_end(python: Path) -> None:
    command = [str(python), "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", "not kafka", *CHOSEN]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    version = subprocess.run([str(python), "-V"], capture_output=True, text=True, check=True).stdout
    assert version.startswith(f"Python {other_python.other_version()}.")


def test_the_chosen_tests_exist() -> None:
    assert [one for one in CHOSEN if not (ROOT / one).exists()] == []
