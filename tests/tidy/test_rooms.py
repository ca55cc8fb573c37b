"""The rooms (sub-packages): the exports of `herdmesh.connect`'s and the way into them, and the size of every folder."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONNECT = ROOT / "libs/core/src/herdmesh/connect"
ROOMS = sorted(path.parent.name for path in CONNECT.glob("*/__init__.py"))
FOLDER_MODULES_MAX = 20
_IMPORT = re.compile(r"^ *from herdmesh\.connect\.(\w+)\.([\w.]+) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def _lists(room: str) -> tuple[dict[str, str], dict[str, str]]:
    """The names that a room exports with their modules: for type checkers, and for Python."""
    tree = ast.parse((CONNECT / room / "__init__.py").read_text("utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.If)]
    assert len(found) == 1, f"{room}/__init__.py: one `if TYPE_CHECKING:` with an `else:`"
    typed = {
        alias.asname or alias.name: str(node.module).removeprefix(f"herdmesh.connect.{room}.")
        for node in found[0].body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    (assigned,) = (node.value for node in found[0].orelse if isinstance(node, ast.Assign))
    assert isinstance(assigned, ast.Call)
    loaded: dict[str, tuple[str, ...]] = ast.literal_eval(assigned.args[1])
    return typed, {name: module for module, names in loaded.items() for name in names}


@pytest.mark.parametrize("room", ROOMS)
def test_type_checkers_and_python_see_the_same_exports(room: str) -> None:
    typed, loaded = _lists(room)
    assert typed == loaded
    assert typed


def _shipped() -> Iterator[tuple[Path, str]]:
    for pattern in ("libs/*/src/herdmesh/**/*.py", "services/*/src/herdmesh/**/*.py", "cli/src/herdmesh/**/*.py"):
        for path in ROOT.glob(pattern):
            if "/herdmesh/api/" not in path.as_posix():
                yield path, path.read_text("utf-8")


def test_other_rooms_import_an_exported_name_from_its_package() -> None:
    offered = {room: _lists(room)[1] for room in ROOMS}
    found: list[str] = []
    for path, text in _shipped():
        inside = path.relative_to(CONNECT).parts[0] if path.is_relative_to(CONNECT) else ""
        for room, module, names in _IMPORT.findall(text):
            if room == inside or room not in offered:
                continue
            imported = re.findall(r"\w+(?= as |\s*,|\s*\)|\s*$)", names)
            found += [f"{path}: {room}.{name}" for name in imported if offered[room].get(name) == module]
    assert not found, "write: from herdmesh.connect.<room> import <name>"


def test_importing_a_package_loads_none_of_its_modules() -> None:
    code = "import sys\n" + "".join(f"import herdmesh.connect.{room}\n" for room in ROOMS)
    code += "print([one for one in sys.modules if one.startswith('herdmesh.connect.') and one.count('.') > 2])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_no_folder_has_more_modules_than_a_reader_can_survey() -> None:
    sizes = {folder: len([*folder.glob("*.py")]) for folder in {path.parent for path, _ in _shipped()}}
    assert len(sizes) > 80
    large = {str(folder.relative_to(ROOT)): size for folder, size in sizes.items() if size - 1 > FOLDER_MODULES_MAX}
    assert not large, "modules besides __init__.py: split the folder by what it owns"
