"""A plugin folder created as docs/how-to/plugins.md describes: `herd plugin new`, a wheel of that, `python -m venv`,
and pip's own installation. Other tests write such folders by hand (`plugin_environments`), faster, and only by our
assumptions.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from herdmesh.cli.plugin.skeleton import Skeleton, write
from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.worker.effects.plugins import validation
from herdmesh.worker.effects.plugins.plugins import discover
from herdmesh.worker.effects.plugins.task_configs import planned_task_configs
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings

_OFFLINE = ("--no-index", "--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--quiet")


def environment(folder: Path, package: Path) -> Path:
    """A virtual environment with a package installed in it, without a network. Its site-packages."""
    wheels = package / "dist"
    _ran(sys.executable, "-m", "pip", "wheel", *_OFFLINE, "--no-build-isolation", "-w", str(wheels), str(package))
    (wheel,) = wheels.iterdir()
    _ran(sys.executable, "-m", "venv", "--without-pip", str(folder))  # a pip of its own takes as long as all else here
    _ran(sys.executable, "-m", "pip", "--python", str(folder), "install", *_OFFLINE, str(wheel))
    (packages,) = folder.glob("lib/python*/site-packages")
    return packages


def _ran(*command: str) -> None:
    of_tests = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=of_tests, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(180)
def test_a_package_installed_by_pip_into_a_virtual_environment_is_a_plugin_of_the_worker(tmp_path: Path) -> None:
    """Its connector is listed, validates a config, is started and makes task configs, in a process of the folder."""
    package = write(Skeleton("red-fish", "sink"), tmp_path)
    packages = environment(tmp_path / "plugins" / "red-fish", package)
    found = discover(str(tmp_path / "plugins"))
    try:
        descriptor = found.registry.find("RedFishSink")
        assert (descriptor.class_name, descriptor.version) == ("red_fish.RedFishSink", "0.1.0")
        assert descriptor.imports is not None
        assert descriptor.imports.site_packages == str(packages)
        settings = WorkerSettings()
        worker = settings.worker_config()
        config: dict[str, str | None] = {"name": "fish", "connector.class": "RedFishSink", "topics": "t"}
        told = [
            {field.name: list(field.errors) for field in result.fields if field.errors}
            for result in (
                validation.validate({**config, "folder": one}, found.registry, worker, ConfigProviders.of(worker))
                for one in (str(tmp_path / "none"), str(tmp_path))
            )
        ]
        assert told == [{"folder": [f"folder: {tmp_path / 'none'} is no folder"]}, {}]
        specs = RunSpecs(settings, found.registry)
        tasks = planned_task_configs(specs, {**config, "folder": str(tmp_path)}, 2)
        assert [task["task.class"] for task in tasks] == ["red_fish.connector:RedFishSinkTask"] * 2
        assert "red_fish" not in sys.modules, "its code is not this process'"
        assert any("plugin_process" in " ".join(child.cmdline()) for child in psutil.Process().children())
    finally:
        found.close()
