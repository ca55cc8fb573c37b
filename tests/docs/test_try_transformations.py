"""docs/how-to/try-transformations.md as printed: its files, its command, its output."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from herdmesh.cli.commands.transform import alone
from tests.docs.blocks import blocks


def test_the_command_prints_the_output_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, records, command, output = (block.text for block in blocks("docs/how-to/try-transformations.md"))
    monkeypatch.chdir(tmp_path)
    Path("chain.json").write_text(config)
    Path("records.jsonl").write_text(records)
    done = CliRunner().invoke(alone, shlex.split(command)[1:])
    assert (done.stdout + done.stderr, done.exit_code) == (output, 1)
