"""Tests of the end of a command in a pipe: nobody reads any more, or Ctrl-C comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERD = [sys.executable, "-m", "herdmesh.cli"]


@pytest.mark.parametrize(
    "line",
    [
        ["paths"],
        ["paths", "-o", "json"],
        ["example", "list"],
        ["example", "list", "-o", "csv"],
        ["transform", "-c", "chain.json", "records"],
    ],
    ids=" ".join,
)
def test_a_closed_pipe_ends_a_command_silently(line: list[str], tmp_path: Path) -> None:
    (tmp_path / "chain.json").write_text("{}")
    (tmp_path / "records").write_text("a\n" * 10_000)
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([*HERD, *line], cwd=tmp_path, stdout=write_end, stderr=subprocess.PIPE, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr.decode()) == (141, "")


def test_ctrl_c_ends_a_command_that_waits_for_input_with_130(tmp_path: Path) -> None:
    (tmp_path / "chain.json").write_text("{}")
    process = subprocess.Popen(
        [*HERD, "transform", "-c", "chain.json"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"a\n" * 1_000)  # a whole batch: its output shows that the command reads on
    process.stdin.flush()
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"Traceback" not in errors
