"""Scratch folders: removed by their owner, swept after a killed owner, never removed under a live one."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from herdmesh import scratch
from herdmesh.scratch import ScratchFolder

PREFIX = "herd-test-"
OWNER = f"""
import sys
from herdmesh.scratch import ScratchFolder
folder = ScratchFolder("{PREFIX}")
(folder.path / "blockmgr").mkdir()
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this process and its children."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_a_closed_folder_is_removed_with_its_contents(temporary: Path) -> None:
    with ScratchFolder(PREFIX) as folder:
        (folder.path / "file").write_text("text")
        assert list(temporary.iterdir()) == [folder.path]
    folder.close()
    assert not list(temporary.iterdir())


def test_the_folder_of_a_killed_owner_is_swept_and_others_are_left(temporary: Path) -> None:
    """By the prefix, and only when no live process holds its lock."""
    (temporary / "herd-testimony").mkdir()
    living = ScratchFolder(PREFIX)
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        path = Path(owner.stdout.readline().decode().strip())
        scratch.remove_abandoned(PREFIX)
        assert path.is_dir()
        owner.kill()
        assert owner.wait() == -signal.SIGKILL
    assert path.is_dir()
    scratch.remove_abandoned(PREFIX)
    assert set(temporary.iterdir()) == {temporary / "herd-testimony", living.path}
    living.close()


def test_temporary_files_of_libraries_can_be_put_into_a_folder(temporary: Path) -> None:
    with ScratchFolder(PREFIX) as folder:
        with scratch.temporary_files_in(folder.path):
            made = Path(tempfile.mkdtemp())
        assert made.parent == folder.path
        other = Path(tempfile.mkdtemp())
        assert other.parent == temporary
