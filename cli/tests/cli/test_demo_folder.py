"""Tests of the demo: its folder is emptied only if it is a demo's, removed afterwards or described; its document."""

from __future__ import annotations

from pathlib import Path

import pytest

from herdmesh.cli.demo import folder
from herdmesh.cli.demo.show import Outcome
from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.layout import StackLayout, StackState


def of_a_demo(data_dir: Path) -> Path:
    StackLayout(data_dir / folder.STACK).write_state(StackState())
    (data_dir / folder.PARQUET).mkdir()
    return data_dir


def test_only_a_demos_folder_or_an_empty_one_is_emptied(tmp_path: Path) -> None:
    folder.empty(tmp_path / "absent")
    folder.empty(of_a_demo(tmp_path / "demo"))
    assert not (tmp_path / "demo").exists()
    (tmp_path / "home").mkdir()
    folder.empty(tmp_path / "home")
    letter = tmp_path / "home" / "letter.txt"
    letter.parent.mkdir()
    letter.write_text("mine")
    with pytest.raises(DevstackError, match="name an empty folder with --data"):
        folder.empty(tmp_path / "home")
    assert letter.read_text() == "mine"
    with pytest.raises(DevstackError):
        folder.empty(letter)


def test_nothing_remains_but_what_others_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    alone = of_a_demo(tmp_path / ".herd" / "demo")
    assert folder.remove(alone).startswith(".herd/demo was removed; `herd demo --keep`")
    assert not (tmp_path / ".herd").exists()
    beside = of_a_demo(tmp_path / ".herd" / "demo")
    (tmp_path / ".herd" / "stack.json").write_text("{}")
    folder.remove(beside)
    assert [one.name for one in (tmp_path / ".herd").iterdir()] == ["stack.json"]


def test_kept_files_are_named_with_the_command_that_uses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = list(folder.kept(tmp_path / ".herd" / "demo"))
    assert lines[0] == "Parquet  .herd/demo/flights.parquet"
    assert "herd up --data .herd/demo/stack" in lines[2]
    assert next(iter(folder.kept(Path("/elsewhere")))) == "Parquet  /elsewhere/flights.parquet"


def test_the_document_of_a_demo_says_whether_every_record_is_there_once() -> None:
    exact = Outcome(loaded=10, rows=10, distinct_ids=10, take_over_s=2.34567, sink_s=4.0)
    assert exact.document() == {
        "result": "exact", "loaded": 10, "rows": 10, "distinct_ids": 10, "take_over_s": 2.346, "records_per_second": 2,
    }  # fmt: skip
    assert Outcome(loaded=10, rows=11, distinct_ids=10).document()["result"] == "different"
