"""Tests of `herd apply` of several connectors: all are checked first; a bad one prevents all, or with --keep-going only
itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from typer import Exit

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import connector_pb2 as connectors
from herdmesh.api.worker.v1 import worker_service_pb2 as worker_service
from herdmesh.cli.batch.connector_files import read_all
from herdmesh.cli.commands import apply as command
from herdmesh.cli.display.output import Format
from herdmesh.cli.errors import from_reason
from herdmesh.cli.runner import run
from tests.support.batch_herder import BatchHerder

GOOD = {"connector.class": "X", "tasks.max": "1"}


class Herder(BatchHerder):
    """A herder that refuses configs with `tasks.max` 0 and records the applied ones."""

    UpdateConnector = messages.UpdateConnectorRequest
    ValidateConfig = messages.ValidateConfigRequest

    def __init__(self) -> None:
        super().__init__()
        self.applied: list[str] = []
        self.request_ids: dict[str, set[str]] = {}
        self._lost_at = ""
        self._losses = 1_000
        self._refuses = ""

    async def call(self, _method: Any, request: Any) -> Any:
        values = request.config.entries
        wrong = values["tasks.max"].text == "0"
        if isinstance(request, messages.ValidateConfigRequest):
            field = worker_service.ConfigField(name="tasks.max", errors=["must be at least 1"], fixes=["write 1"])
            shown = worker_service.ConfigValidation(error_count=int(wrong), fields=[field] if wrong else [])
            return messages.ValidateConfigResponse(validation=shown)
        self.request_ids.setdefault(request.name, set()).add(request.request_id)
        if request.name == self._lost_at and self._losses:
            self._losses -= 1
            raise from_reason("NO_LEADER", "nobody leads")
        if request.name == self._refuses:
            raise from_reason("REVISION_MISMATCH", "somebody changed it")
        self.applied.append(request.name)
        warning = worker_service.ConfigWarning(name="x", message="x has no effect: none", fix="leave it out")
        connector = connectors.Connector(name=request.name, config=common.Properties(entries=values))
        return messages.UpdateConnectorResponse(
            created=True, connector=connector, warnings=[warning] if "x" in values else []
        )


Apply = Callable[..., tuple[int, str]]


@pytest.fixture
def herder() -> Herder:
    return Herder()


@pytest.fixture
def apply(herder: Herder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Apply:
    """A function that applies files and returns the exit code and the output."""

    def with_herder(output: Format, _: str | None, work: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        run(output, lambda: work(herder))

    monkeypatch.setattr(command, "with_herder", with_herder)

    def applied(*files: str, keep_going: bool = False, output: Format = Format.TABLE) -> tuple[int, str]:

        code = 0
        try:
            command.apply(list(files), keep_going=keep_going, output=output)
        except Exit as end:
            code = end.exit_code
        told = capfd.readouterr()
        return code, told.out + told.err

    return applied


def _files(folder: Path, **configs: Any) -> list[str]:
    for name, config in configs.items():
        text = config if isinstance(config, str) else json.dumps({"name": name, "config": config})
        (folder / f"{name}.json").write_text(text)
    return [str(folder / f"{name}.json") for name in configs]


BAD = {"b": {**GOOD, "tasks.max": "0"}, "c": "{", "d": {"tasks.max": "1"}}


def test_one_bad_config_prevents_all_and_every_bad_one_is_named(tmp_path: Path, apply: Apply, herder: Herder) -> None:
    code, told = apply(*_files(tmp_path, a=GOOD, **BAD, e=GOOD))
    assert code != 0
    assert herder.applied == []
    assert "nothing was applied" in told
    for file, says in (
        ("b.json", "must be at least 1 (write 1)"),
        ("c.json", "not JSON"),
        ("d.json", "connector.class"),
    ):
        assert any(file in line and says in line for line in told.splitlines()), (file, told)
    assert "tasks.max" in told
    assert not any(f"{name}.json" in told for name in "ae")


def test_keep_going_applies_the_good_configs(tmp_path: Path, apply: Apply, herder: Herder) -> None:
    code, told = apply(*_files(tmp_path, a=GOOD, **BAD, e=GOOD), keep_going=True)
    assert code != 0
    assert herder.applied == ["a", "e"]
    assert "2 applied" in told
    assert all(f"{name}.json" in told for name in BAD)


def test_good_configs_are_applied_with_exit_code_0(tmp_path: Path, apply: Apply, herder: Herder) -> None:
    code, _ = apply(*_files(tmp_path, a=GOOD, b=GOOD))
    assert (code, herder.applied) == (0, ["a", "b"])


def test_two_files_of_one_name_are_refused(tmp_path: Path, apply: Apply, herder: Herder) -> None:
    first, second = _files(tmp_path, a=GOOD, b={**GOOD, "name": "a"})
    Path(second).write_text(json.dumps({"name": "a", "config": GOOD}))
    code, told = apply(first, second)
    assert (code, herder.applied) == (2, [])
    assert "b.json: connector a is in" in told


def test_an_error_of_one_does_not_keep_the_others_from_being_applied(
    tmp_path: Path, apply: Apply, herder: Herder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(herder, "_refuses", "b")
    code, told = apply(*_files(tmp_path, a=GOOD, b=GOOD, c=GOOD))
    assert (code, herder.applied) == (4, ["a", "c"])
    assert "connector b: somebody changed it; 2 applied" in " ".join(told.split())


def test_a_batch_is_sent_again_until_a_leader_takes_it(
    tmp_path: Path, apply: Apply, herder: Herder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(herder, "_lost_at", "b")
    monkeypatch.setattr(herder, "_losses", 1)
    code, _ = apply(*_files(tmp_path, a=GOOD, b=GOOD, c=GOOD))
    assert (code, herder.applied) == (0, ["a", "c", "b"])
    assert len(herder.request_ids["b"]) == 1


def test_without_a_leader_each_connector_that_was_not_applied_is_named(
    tmp_path: Path, apply: Apply, herder: Herder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(herder, "_lost_at", "b")
    code, told = apply(*_files(tmp_path, a=GOOD, b=GOOD, c=GOOD))
    assert (code, herder.applied) == (6, ["a", "c"])
    assert "connector b: nobody leads; 2 applied" in " ".join(told.split())


def test_a_setting_without_its_effect_is_reported_as_a_warning(apply: Apply, tmp_path: Path) -> None:
    (file,) = _files(tmp_path, a={**GOOD, "x": "1"})
    code, told = apply(file)
    assert code == 0
    assert "warning: connector a: x has no effect: none (leave it out)" in told
    _, told = apply(file, output=Format.JSON)
    document, _ = json.JSONDecoder().raw_decode(told[told.index("{") :])
    assert document["warnings"] == [{"name": "x", "message": "x has no effect: none", "fix": "leave it out"}]


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ('{"name": "a\\ud800", "connector.class": "X"}', '"name" of'),
        ('{"name": "a", "connector.class": "X", "file": "\\udfff"}', "file has half"),
        ('{"name": "a", "connector.class": "X", "\\ud800": "y"}', "\\ud800"),
    ],
)
def test_a_lone_surrogate_is_refused_with_its_key(tmp_path: Path, document: str, named: str) -> None:
    file = tmp_path / "c.json"
    file.write_text(document)
    given, bad = read_all([str(file)])
    assert given == []
    assert named in bad[0][1].message
    assert "lone surrogate" in bad[0][1].message


def test_names_that_differ_only_in_surrounding_blanks_are_equal(tmp_path: Path) -> None:
    for number, name in enumerate((" a", "a")):
        (tmp_path / str(number)).write_text(json.dumps({"name": name, "connector.class": "X"}))
    given, bad = read_all([str(tmp_path / "0"), str(tmp_path / "1")])
    assert [one.name for one in given] == [" a"]
    assert "connector a is in" in bad[0][1].message
