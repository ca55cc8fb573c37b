"""References in a connector's config, in the worker: resolved for the author's code, and never in what is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from herdmesh.connect import redaction
from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins import PluginRegistry, describe
from herdmesh.engine.failure import classify
from herdmesh.worker.connectors.file_stream import FileStreamSource
from herdmesh.worker.effects.plan import planned_task_configs
from herdmesh.worker.effects.specs import RunSpecs
from herdmesh.worker.effects.validation import validate
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state.model import TaskSpec, UnitId

SECRET = "se-cret-in-a-file"
REGISTRY = PluginRegistry([describe(FileStreamSource)])


@pytest.fixture(autouse=True)
def _secrets_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_secrets", redaction.Secrets())


@pytest.fixture
def config(tmp_path: Path) -> dict[str, str | None]:
    (tmp_path / "s.properties").write_text(f"pw={SECRET}\n")
    return {
        "name": "c",
        "connector.class": "FileStreamSource",
        "topic": "t",
        "file": f"/data/${{file:{tmp_path}/s.properties:pw}}",
        "batch.size": f"${{file:{tmp_path}/s.properties:pw}}",
    }


def specs() -> RunSpecs:
    properties = "config.providers=file,config.providers.file.class=File"
    return RunSpecs(WorkerSettings(worker_properties=properties), REGISTRY)  # pyright: ignore[reportArgumentType] - as text


def test_task_configs_are_made_of_values_and_stored_with_references(config: dict[str, str | None]) -> None:
    del config["batch.size"]
    (task,) = planned_task_configs(specs(), config, 1)
    assert task["file"] == config["file"]
    assert SECRET not in str(task)


def test_a_run_gets_the_values_and_is_told_which_are_secret(config: dict[str, str | None]) -> None:
    del config["batch.size"]
    made = specs()
    unit, spec = UnitId("c", 0), TaskSpec(config, config, 1)
    run = made.run_spec(unit, spec, "r", has_committed=False)
    assert run.task_config["file"] == f"/data/{SECRET}"
    assert SECRET in run.secrets
    Path(str(config["file"]).split(":")[1]).unlink()
    assert made.without_class(unit, spec).task_config["file"] == f"/data/{SECRET}"  # the provider is not asked again
    with pytest.raises(ConfigError, match="Could not read properties"):
        made.run_spec(unit, spec, "r2", has_committed=False)


def test_validation_judges_the_value_and_shows_the_reference(config: dict[str, str | None]) -> None:
    made = specs()
    answer = validate(config, REGISTRY, WorkerSettings().worker_config(), made.providers)
    fields = {one.name: one for one in answer.fields}
    assert fields["batch.size"].value == config["batch.size"]
    assert "***" in str(fields["batch.size"].errors)
    assert SECRET not in str(answer)
    unknown = validate(config, REGISTRY, {}, ConfigProviders({}))
    told = {one.name: str(one.errors) for one in unknown.fields if one.errors}
    assert "no config provider file" in told["file"]


def test_what_a_failure_says_has_no_secret(config: dict[str, str | None]) -> None:
    specs().providers.resolve(config)
    message, trace, _ = classify(RuntimeError(f"login with {SECRET} refused"))
    assert "login with *** refused" in message
    assert SECRET not in trace
