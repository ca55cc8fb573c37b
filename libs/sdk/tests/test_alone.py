"""The SDK installed with `herdmesh-core` alone: no other part of Herdmesh, and only the packages that these two
declare.

The declared packages are linked from this environment; no registry is contacted.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
OURS = ("herdmesh-core", "herdmesh-sdk")
CONNECTOR = """
from pathlib import Path

from herdmesh.sdk import RecordSourceTask, Settings, SourceConnector, SourceRecord, setting


class LinesSettings(Settings):
    file: str = setting("The file to read.")
    topic: str = setting("The topic to write to.")


class LinesSource(SourceConnector):
    class_name, version = "example.LinesSource", "1.0"

    @classmethod
    def config_def(cls):
        return LinesSettings.config_def()

    def task_class(self):
        return "lines:LinesTask"

    def task_configs(self, max_tasks):
        return [dict(self.config)]

    def exactly_once_support(self, config):
        return True


class LinesTask(RecordSourceTask):
    def start(self, config, context):
        super().start(config, context)
        self.settings = LinesSettings.parse(config)
        self.source = {"file": self.settings.file}
        self.line = (context.committed_offset(self.source) or {"line": 0})["line"]

    def poll_records(self):
        path = Path(self.settings.file)
        for line in path.read_text().splitlines()[self.line :] if path.exists() else ():
            self.line += 1
            yield SourceRecord(self.settings.topic, int(line), self.source, {"line": self.line})
"""
IMPORTS = "from herdmesh.sdk.testing import SourceSuite, SourceWorld, json_number\nfrom lines import LinesSource\n"
BEGIN = """
import importlib.util, sys
sys.path[:0] = sys.argv[1:3]
import herdmesh.sdk, pytest
print("the SDK is", herdmesh.sdk.__file__)
print("foreign:", [one for one in ("herdmesh.worker", "herdmesh.cli", "pyspark") if importlib.util.find_spec(one)])
sys.path.insert(0, ".")
raise SystemExit(pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir=.", "test_lines.py"]))
"""


def link_packages(folder: Path, wanted: list[Requirement]) -> None:
    """Link the wanted packages, and their own requirements, into a folder."""
    seen: set[tuple[str, str]] = set()
    while wanted:
        one = wanted.pop()
        for extra in ("", *one.extras):
            if one.name in OURS or (one.name, extra) in seen:
                continue
            seen.add((one.name, extra))
            found = distribution(one.name)
            needs = map(Requirement, found.requires or ())
            wanted += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]
            names = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
            for name in names:
                if not name.endswith(".pth") and not (folder / name).exists():
                    (folder / name).symlink_to(Path(str(found.locate_file(name))))


def declared() -> list[Requirement]:
    """Requirements of both packages, and of the extra `testing`."""
    projects = [
        tomllib.loads((ROOT / "libs" / one / "pyproject.toml").read_text())["project"] for one in ("core", "sdk")
    ]
    texts = [text for project in projects for text in project["dependencies"]]
    return [Requirement(text) for text in texts + projects[1]["optional-dependencies"]["testing"]]


@pytest.mark.slow
def test_readme_test_kit_runs_with_only_the_sdk_and_core_installed(tmp_path: Path) -> None:
    site, packages, sources, here = (tmp_path / name for name in ("site", "packages", "sources", "here"))
    for folder in (packages, here):
        folder.mkdir()
    for name in ("core", "sdk"):  # a build writes beside its sources
        shutil.copytree(
            ROOT / "libs" / name, sources / name, ignore=shutil.ignore_patterns("*.egg-info", "tests", "build")
        )
    quiet = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-q")
    pip = [sys.executable, "-m", "pip", "install", *quiet, "--target", str(site)]
    subprocess.run([*pip, *(str(sources / name) for name in ("core", "sdk"))], check=True)
    link_packages(packages, declared())
    readme = (ROOT / "libs/sdk/README.md").read_text()
    (example,) = re.findall(r"```python\n(class FileWorld\(.*?)```", readme, re.DOTALL)
    (here / "lines.py").write_text(CONNECTOR)
    (here / "test_lines.py").write_text(IMPORTS + example)
    # -I and -S keep this checkout, and packages installed beside it, off the import path.
    command = [sys.executable, "-I", "-S", "-c", BEGIN, str(site), str(packages)]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, check=False)
    assert f"the SDK is {site}" in done.stdout, done.stdout + done.stderr
    assert "foreign: []" in done.stdout
    assert re.search(r"^10 passed, 1 skipped in ", done.stdout, re.MULTILINE), done.stdout + done.stderr
