"""The drawing of plugin folders on docs/how-to/plugins.md: a worker finds each environment of it, and no other.

The drawn `python -m venv` runs. The test writes the files of `pip install`, which would need an index.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from herdmesh.worker.effects.plugins.plugin_folders import find, own_libraries
from tests.docs.blocks import blocks
from tests.support.plugin_environments import Environment

_LINE: Final = re.compile(r"(?P<indent> *)(?P<name>\S+)(?: {2,}(?P<beside>\S.*))?")
_PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"


def test_a_worker_finds_the_drawn_plugin_folders(tmp_path: Path) -> None:
    (root, *paths), beside = _drawn()
    setting, make, install, _ = beside
    assert setting == f"HERDMESH_PLUGIN_PATH={root}"
    made = make.removeprefix(f"{_PYTHON} -m venv ")
    package, _, version = install.removeprefix(f"{made}/bin/pip install ").partition("==")
    assert made == f"{root}/{package}/{version}"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", f"{tmp_path}{made}"], check=True)
    contents = [path for path in paths if path.startswith(f"{made}/")]
    assert contents
    for path in contents:
        assert Path(f"{tmp_path}{path.removesuffix('/...')}").exists(), path
    others = [one for one in paths if one not in contents and not any(path.startswith(f"{one}/") for path in paths)]
    environments = {f"{tmp_path}{one}" for one in (made, *others)}
    for folder in environments:
        Environment(Path(folder)).install(package, version, {}, connectors=["Greet = greet:Greet"])
    found, refused = find(f"{tmp_path}{root}", own_libraries())
    assert not refused
    assert {one.imports.folder for one in found} == environments


def _drawn() -> tuple[list[str], list[str]]:
    """The paths of the drawing, in its order, and the texts beside them. Four blanks are one folder deeper."""
    drawing, _ = (block.text for block in blocks("docs/how-to/plugins.md") if block.language == "text")
    within, paths, beside = list[str](), list[str](), list[str]()
    for line in drawing.replace("python3.11", _PYTHON).splitlines():
        found = _LINE.fullmatch(line)
        assert found is not None, line
        within = [*within[: len(found["indent"]) // 4], found["name"].rstrip("/")]
        paths.append("/".join(within))
        beside += [found["beside"]] if found["beside"] else []
    return paths, beside
