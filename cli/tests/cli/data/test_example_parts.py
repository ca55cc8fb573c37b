"""Tests of the parts of `herd example` that need no cluster: pages, their run, and the servers beside it."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from herdmesh.cli.app import app
from herdmesh.cli.errors import CommandError
from herdmesh.cli.example import session
from herdmesh.cli.example.page import Example, examples, find, matches
from herdmesh.cli.example.surroundings import surroundings

_PAGE = """\
# Title

A summary
of two lines.

First text:

```sh
echo one > file
cat file
```

```text
o...e
```

```sh
cat file && false
```

## Clean up

```sh
test -e absent
rm file
```
"""


def shown_by(example: Example, folder: Path) -> tuple[list[tuple[str, str]], CommandError | None]:
    """Everything that a run prints, and its error."""
    printed: list[tuple[str, str]] = []
    try:
        session.run_example(example, folder, {"PATH": "/usr/bin:/bin"}, lambda kind, text: printed.append((kind, text)))
    except CommandError as error:
        return printed, error
    return printed, None


def test_a_failed_example_prints_what_it_did_and_cleans_up(tmp_path: Path) -> None:
    printed, error = shown_by(Example("x", _PAGE), tmp_path)
    assert printed == [
        ("text", "First text:"),
        ("command", "echo one > file\ncat file"),
        ("output", "one"),
        ("command", "cat file && false"),
        ("output", "one"),
    ]
    assert error is not None
    assert "exit code 1" in error.message
    assert not (tmp_path / "file").exists(), "the second line of Clean up runs though the first one fails"


def test_an_output_that_never_comes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "WAIT_S", 0.5)
    printed, error = shown_by(Example("x", _PAGE.replace("o...e", "two")), tmp_path)
    assert printed[-1] == ("output", "one")
    assert error is not None
    assert "its output is not yet\ntwo" in error.message


def test_every_page_has_a_title_a_summary_steps_and_a_clean_up() -> None:
    assert [one.name for one in examples()] == [
        "cdc-to-topic-to-table", "datagen-to-postgres", "file-to-parquet", "http-with-dead-letters"
    ]  # fmt: skip
    for one in examples():
        steps = list(one.steps())
        assert one.title
        assert one.summary.endswith(".")
        assert [step.cleans_up for step in steps] == [False] * (len(steps) - 1) + [True]
        assert sum(step.output is not None for step in steps) > 3
    assert find("cdc-to-topic-to-table").needs == ["PostgreSQL"]
    assert find("http-with-dead-letters").needs == ["an HTTP receiver"]
    listed = CliRunner().invoke(app, ["example", "list"]).stdout
    assert all(one.name in listed for one in examples())


def test_a_misspelt_name_is_answered_with_the_nearest_one() -> None:
    failed = CliRunner().invoke(app, ["example", "run", "file-to-parket"])
    assert failed.exit_code == 3
    assert "did you mean file-to-parquet?" in failed.output


def test_dots_stand_for_any_text() -> None:
    assert matches("a  \nb 17 c\n", "a\nb ... c")
    assert not matches("a\nb 17 d\n", "a\nb ... c")


def test_the_receiver_refuses_negative_quantities_and_ends_with_the_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RECEIVER_URL", raising=False)
    with surroundings(find("http-with-dead-letters"), tmp_path / "x", {}) as environment:
        url = environment["RECEIVER_URL"]
        with urllib.request.urlopen(url, data=b'{"qty":1}', timeout=30) as answer:
            assert answer.status == 204
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, data=b'{"qty":-1}', timeout=30)
        assert refused.value.code == 422
        refused.value.close()
        assert (tmp_path / "x" / "received.txt").read_text() == '{"qty":1}\n'
        receivers = [one for one in psutil.Process().children() if "herdmesh.cli.example.receiver" in one.cmdline()]
        assert len(receivers) == 1
    assert not receivers[0].is_running()


@pytest.mark.postgres
def test_an_example_gets_a_postgresql_of_its_own_with_psql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGHOST", raising=False)
    ask = ["psql", "-Atc", "SHOW wal_level"]
    with surroundings(find("cdc-to-topic-to-table"), tmp_path / "x", {}) as environment:
        done = subprocess.run(ask, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == "logical\n"
    gone = subprocess.run([str(tmp_path / "x/bin/psql"), *ask[1:]], env=environment, capture_output=True, check=False)
    assert gone.returncode != 0, "the server is stopped"
