"""Tests of `herd plugin new`: the written package passes its own tests unchanged; names and folders that cannot be used
are refused.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from herdmesh.cli.app import app
from herdmesh.cli.errors import EXIT_USAGE

KINDS = ("source", "sink")


def made(folder: Path, name: str, kind: str) -> Path:
    """Write a package; returns its folder."""
    done = CliRunner().invoke(app, ["plugin", "new", name, f"--{kind}", "--dir", str(folder), "-o", "json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert sorted(told["files"]) == sorted(
        str(path.relative_to(told["folder"])) for path in Path(told["folder"]).rglob("*") if path.is_file()
    )
    return Path(told["folder"])


def its_tests(package: Path, **environment: str) -> dict[str, int]:
    """Run the package's tests as its README says; returns the numbers of passed, skipped and failed tests."""
    paths = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=package,
        env={**os.environ, "PYTHONPATH": paths, "KAFKA_BOOTSTRAP": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {what: int(count) for count, what in re.findall(r"(\d+) (passed|skipped|failed)", done.stdout)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_generated_package_passes_its_own_tests(tmp_path: Path, kind: str) -> None:
    package = made(tmp_path, f"my-orders-{kind}", kind)
    counts = its_tests(package)
    assert counts["passed"] >= 10
    assert counts["skipped"] == 2, "the real runs, for want of a broker, and what does not apply"


@pytest.mark.parametrize("kind", KINDS)
def test_the_generated_package_passes_its_tests_with_real_runs(tmp_path: Path, kind: str, kafka_bootstrap: str) -> None:
    package = made(tmp_path, "orders", kind)
    counts = its_tests(package, KAFKA_BOOTSTRAP=kafka_bootstrap, PYTEST_ADDOPTS="-k Runs")
    assert counts == {"passed": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_the_generated_package_passes_ruff_and_names_its_entry_point(tmp_path: Path, kind: str) -> None:
    package = made(tmp_path, "orders", kind)
    project = tomllib.loads((package / "pyproject.toml").read_text())
    name = f"Orders{kind.capitalize()}"
    assert project["project"]["entry-points"] == {"herdmesh.connectors": {name: f"orders:{name}"}}
    for check in (["check", "--select", "E,F,I,UP,B"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *check, str(package)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Orders", "Orders is not a valid name of a package"),
        ("or/ders", "or/ders is not a valid name of a package"),
        ("json", "a module named json would hide"),
        ("class", "a module named class would hide"),
        ("herdmesh", "a module named herdmesh would hide"),
        ("there", "exists"),
    ],
)
def test_unusable_names_are_refused(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "there").mkdir()
    done = CliRunner().invoke(app, ["plugin", "new", name, "--dir", str(tmp_path), "-o", "json"])
    assert done.exit_code == EXIT_USAGE
    assert says in json.loads(done.stdout)["error"]["message"]
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["plugin", "new", "orders", "--dir", str(tmp_path / "file"), "-o", "json"])
    assert done.exit_code == EXIT_USAGE
    assert "cannot be written" in json.loads(done.stdout)["error"]["message"]
