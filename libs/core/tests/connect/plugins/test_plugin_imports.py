"""Imports of a plugin's process: whose module wins, shown by a process that has entered a plugin's environment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.plugin_environments import Environment

_SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[2])            # where this installation has modules of its own
import shared_early, loose_early, spread.ours
from herdmesh.connect.plugins.plugin_imports import PluginImports, enter
imports = PluginImports(*json.loads(sys.argv[1]))
enter(imports)
enter(imports)                              # once is enough
try:
    enter(PluginImports("elsewhere", *json.loads(sys.argv[1])[1:]))
except RuntimeError as error:
    refused = str(error)
import shared_early, shared_late, loose_early, loose_late, editable, spread.ours, spread.theirs, late.ours, late.theirs
import colorsys, herdmesh.connect.model.data, herdmesh.extra
said = {name: sys.modules[name].WHOSE for name in (
    "shared_early", "shared_late", "loose_early", "loose_late", "editable", "spread.ours", "spread.theirs",
    "late.ours", "late.theirs", "herdmesh.extra")}
print(json.dumps([said, colorsys.__file__, herdmesh.connect.model.data.__file__, refused]))
"""


def test_our_own_modules_win_others_are_the_plugins_and_namespace_packages_have_both(tmp_path: Path) -> None:
    """`shared_*` belong to a library that Herdmesh requires, `loose_*` to one that only happens to be installed beside
    it; `*_early` are imported before the plugin is entered.
    """
    here = tmp_path / "here"
    for name in ("shared_early", "shared_late", "loose_early", "loose_late"):
        here.mkdir(exist_ok=True)
        (here / f"{name}.py").write_text('WHOSE = "ours"\n')
    for name in ("spread", "late"):
        (here / name).mkdir()
        (here / name / "ours.py").write_text('WHOSE = "ours"\n')
    theirs = 'WHOSE = "theirs"\n'
    environment = Environment(tmp_path / "venv").install(
        "plugin", "1",
        {
            "shared_early.py": theirs, "shared_late.py": theirs, "loose_early.py": theirs,
            "loose_late/__init__.py": theirs,
            "spread/ours.py": theirs, "spread/theirs.py": theirs, "late/ours.py": theirs, "late/theirs.py": theirs,
            "colorsys.py": theirs, "herdmesh/extra.py": theirs, "herdmesh/connect/model/data.py": theirs,
            "herdmesh/connect/__init__.py": theirs, "editable.pth": str(tmp_path / "source"),
        },
    )  # fmt: skip
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "editable.py").write_text(theirs)
    own = ["herdmesh", "late", "shared_early", "shared_late", "spread"]
    imports = json.dumps([str(environment.folder), str(environment.packages), own])
    ended = subprocess.run(
        [sys.executable, "-c", _SCRIPT, imports, str(here)], check=False, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    said, python_file, data_file, refused = json.loads(ended.stdout)
    assert said == {
        "shared_early": "ours", "shared_late": "ours", "loose_early": "theirs", "loose_late": "theirs",
        "editable": "theirs", "spread.ours": "ours", "spread.theirs": "theirs", "late.ours": "ours",
        "late.theirs": "theirs", "herdmesh.extra": "theirs",
    }  # fmt: skip
    assert str(tmp_path) not in python_file, "Python's own library hides the plugin's"
    assert str(tmp_path) not in data_file
    assert refused == f"this process imports from {environment.folder}, not from elsewhere"
