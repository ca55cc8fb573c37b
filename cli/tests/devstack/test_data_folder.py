"""Tests of the data folder: names beyond ASCII, folders that cannot be used, damaged files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from herdmesh.cli.app import app
from herdmesh.connect.java import parse
from herdmesh.devstack._broker_config import Ports, property_text, write_server_properties
from herdmesh.devstack.errors import DataFolderUnusable, StackAlreadyRunning
from herdmesh.devstack.layout import StackLayout, StackState
from herdmesh.devstack.supervision.folder_lock import FolderLock


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1))
def test_java_reads_a_value_as_it_was_written(value: str) -> None:
    text = f"key={property_text(value)}\n"
    assert parse(text.encode("ascii"))["key"].value == value.lstrip(" \t\f")


def test_a_folder_beyond_ascii_is_in_server_properties(tmp_path: Path) -> None:
    path, folder = tmp_path / "server.properties", tmp_path / "mitü 雪"
    write_server_properties(path, folder, Ports(9092, 9093), {})
    assert parse(path.read_bytes())["log.dirs"].value == str(folder)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("not a folder")
    return path


@pytest.mark.parametrize("below", ["", "below"])
@pytest.mark.parametrize("options", [(), ("--detach",)])
def test_up_in_an_unusable_folder_says_why(file: Path, below: str, options: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["up", "--data", str(file / below), *options], catch_exceptions=False)
    assert done.exit_code == 1
    assert f"{file / below} cannot be used as the data folder" in done.stderr
    assert "--data DIR names a folder" in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.parametrize("options", [(), ("--detach",)])
def test_up_on_a_full_disk_says_so_before_anything_starts(tmp_path: Path, options: tuple[str, ...]) -> None:
    """The log of the supervisor could not hold the reason: "the supervisor ended early"."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / ".space").symlink_to("/dev/full")
    done = CliRunner().invoke(app, ["up", "--data", str(tmp_path), *options], catch_exceptions=False)
    assert done.exit_code == 1
    assert f"{tmp_path} cannot be used as the data folder: No space left on device" in done.stderr
    assert "on a disk with space" in done.stderr


def test_down_in_an_unusable_folder_finds_nothing(file: Path) -> None:
    done = CliRunner().invoke(app, ["down", "--data", str(file / "below")], catch_exceptions=False)
    assert done.exit_code == 0
    assert f"nothing runs in {file / 'below'}" in done.output


def test_a_state_file_that_is_a_folder_is_reported(tmp_path: Path) -> None:
    layout = StackLayout(tmp_path)
    layout.state_file.mkdir()
    with pytest.raises(DataFolderUnusable, match=r"cannot be used as the data folder: .*stack\.json"):
        layout.read_state()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"services": [{"pid": 1}]}'])
def test_a_damaged_state_file_counts_as_none(tmp_path: Path, text: str) -> None:
    layout = StackLayout(tmp_path)
    layout.state_file.write_text(text)
    assert layout.read_state() is None


def test_the_state_of_a_copied_folder_is_not_the_copys(tmp_path: Path) -> None:
    """Its processes are those of the first folder. A moved folder keeps its own."""
    first, copy, moved = (tmp_path / name for name in ("first", "copy", "moved"))
    StackLayout(first).write_state(StackState(herder="h:1"))
    shutil.copytree(first, copy)
    assert StackLayout(copy).read_state() is None
    first.rename(moved)
    state = StackLayout(moved).read_state()
    assert state is not None
    assert state.herder == "h:1"


def test_nothing_is_written_for_a_folder_that_was_removed(tmp_path: Path) -> None:
    layout = StackLayout(tmp_path / "data")
    layout.create()
    assert layout.is_in_place()
    shutil.rmtree(layout.data_dir)
    assert not layout.is_in_place()
    with pytest.raises(DataFolderUnusable, match="No such file"):
        layout.write_state(StackState())
    assert not layout.data_dir.exists()


def test_a_lock_is_held_by_one_and_ends_with_its_process(tmp_path: Path) -> None:
    layout = StackLayout(tmp_path)
    holder = "import sys; from pathlib import Path; from herdmesh.devstack.layout import StackLayout; "
    holder += "from herdmesh.devstack.supervision.folder_lock import FolderLock; "
    holder += "lock = FolderLock(StackLayout(Path(sys.argv[1]))); lock.take(); print('held', flush=True); input()"
    command = [sys.executable, "-c", holder, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(StackAlreadyRunning, match=f"in use by process {process.pid}"), FolderLock(layout):
            pass
        process.kill()
    with FolderLock(layout), pytest.raises(StackAlreadyRunning, match=f"in use by process {os.getpid()}"):
        FolderLock(layout).take()
    with FolderLock(layout):
        pass


def test_a_lock_is_taken_on_a_full_disk(tmp_path: Path) -> None:
    """Without its pid: `herd down` could not stop anything there."""
    layout = StackLayout(tmp_path)
    layout.lock_file.symlink_to("/dev/full")
    with FolderLock(layout):
        pass


def test_paths_lists_what_is_where(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["paths", "--data", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    for log in ("supervisor", "config-store", "status-store", "herder", "worker-1"):
        assert str(tmp_path / "logs" / f"{log}.log") in done.stdout
    assert str(tmp_path / "broker" / "broker.log") in done.stdout
    assert "herdmesh/contexts.json" in done.stdout
