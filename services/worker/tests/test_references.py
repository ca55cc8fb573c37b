"""References in a connector's config, in the worker: resolved for the author's code, and never in what is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from herdmesh.connect import redaction
from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins import PluginRegistry, describe
from herdmesh.engine.failure import classify
from herdmesh.worker import wire
from herdmesh.worker.connectors.file_stream import FileStreamSource
from herdmesh.worker.effects.plan import planned_task_configs
from herdmesh.worker.effects.specs import RunSpecs
from herdmesh.worker.effects.validation import validate
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state.model import Condition, Failure, TaskSpec, UnitId

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


def test_what_the_workers_own_properties_refer_to_is_a_secret_of_every_run(tmp_path: Path) -> None:
    (tmp_path / "w.properties").write_text("rack=rack-of-the-worker\n")
    properties = "config.providers=file,config.providers.file.class=File,"
    properties += f"consumer.client.rack=${{file:{tmp_path}/w.properties:rack}}"
    made = RunSpecs(WorkerSettings(worker_properties=properties), REGISTRY)  # pyright: ignore[reportArgumentType] - as text
    config: dict[str, str | None] = {"connector.class": "FileStreamSource", "topic": "t", "file": "f"}
    run = made.run_spec(UnitId("c", 0), TaskSpec(config, config, 1), "r", has_committed=False)
    assert run.worker_config["consumer.client.rack"] == "rack-of-the-worker"
    assert "rack-of-the-worker" in run.secrets


def test_no_text_of_a_message_has_a_secret(config: dict[str, str | None]) -> None:
    specs().providers.resolve(config)
    failure = Failure(f"no {SECRET}", f"Traceback ... {SECRET}")
    assert SECRET not in str(wire.failure_to(failure))
    assert wire.trace_to(failure) == "Traceback ... ***"
    assert wire.trace_to(Failure(f"no {SECRET}")) == "no ***"
    assert wire.trace_to(None) is None
    told = wire.condition_to(Condition("RESTARTING", f"after: no {SECRET}", 1_500))
    assert (told.message, told.since.ToMilliseconds()) == ("after: no ***", 1_500)


@pytest.mark.parametrize("key", ["connector.class", "tasks.max", "tasks.max.enforce", "herdmesh.restart.attempts.max"])
def test_what_the_herder_reads_is_to_be_written_out(tmp_path: Path, key: str) -> None:
    (tmp_path / "s").write_text(
        "connector.class=FileStreamSource\ntasks.max.enforce=true\ntasks.max=1\nherdmesh.restart.attempts.max=1\n"
    )
    config: dict[str, str | None] = {"name": "c", "connector.class": "FileStreamSource", "topic": "t", "file": "f"}
    config[key] = f"${{file:{tmp_path}/s:{key}}}"
    answer = validate(config, REGISTRY, WorkerSettings().worker_config(), specs().providers)
    told = {one.name: list(one.errors) for one in answer.fields if one.errors}
    assert any("no reference can stand here: the herder reads it" in message for message in told[key])
    (field,) = (one for one in answer.fields if one.name == key)
    assert field.value == config[key]
    assert answer.class_name == config["connector.class"]
