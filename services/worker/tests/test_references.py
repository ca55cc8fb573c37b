"""References in a connector's config, in the worker: resolved for the author's code, and never in any response."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from herdmesh.connect.config import redaction
from herdmesh.connect.config.config_def import ConfigDef, ConfigKey, Importance, Type
from herdmesh.connect.config.redaction import redacted, redacted_value
from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.builtin import third_party_classes
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connect.spi.connector import Config
from herdmesh.connectors.file_stream.source.connector import FileStreamSource
from herdmesh.engine.runtime.errors import TaskFailed
from herdmesh.engine.runtime.failure import classify
from herdmesh.session import wire as session_wire
from herdmesh.session.model import Condition, Failure, UnitId
from herdmesh.worker import wire
from herdmesh.worker.effects.plugins.task_configs import planned_task_configs
from herdmesh.worker.effects.plugins.validation import validate
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state.model import TaskSpec

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


def test_task_configs_are_made_from_values_and_stored_with_references(config: dict[str, str | None]) -> None:
    del config["batch.size"]
    (task,) = planned_task_configs(specs(), config, 1)
    assert task["file"] == config["file"]
    assert SECRET not in str(task)


def test_a_run_gets_the_values_and_the_set_of_secrets(config: dict[str, str | None]) -> None:
    del config["batch.size"]
    made = specs()
    unit, spec = UnitId("c", 0), TaskSpec(config, config, 1)
    run = made.run_spec(unit, spec, "r", commit_scope=None)
    assert run.task_config["file"] == f"/data/{SECRET}"
    assert SECRET in run.secrets
    Path(str(config["file"]).split(":")[1]).unlink()
    assert made.without_class(unit, spec).task_config["file"] == f"/data/{SECRET}"  # the provider is not queried again
    with pytest.raises(ConfigError, match="Could not read properties"):
        made.run_spec(unit, spec, "r2", commit_scope=None)


def test_validation_checks_the_value_and_shows_the_reference(config: dict[str, str | None]) -> None:
    made = specs()
    answer = validate(config, REGISTRY, WorkerSettings().worker_config(), made.providers)
    fields = {one.name: one for one in answer.fields}
    assert fields["batch.size"].value == config["batch.size"]
    assert "***" in str(fields["batch.size"].errors)
    assert SECRET not in str(answer)
    unknown = validate(config, REGISTRY, {}, ConfigProviders({}))
    told = {one.name: str(one.errors) for one in unknown.fields if one.errors}
    assert "no config provider file" in told["file"]


def test_a_failures_text_has_no_secret(config: dict[str, str | None]) -> None:
    specs().providers.resolve(config)
    message, trace, _ = classify(RuntimeError(f"login with {SECRET} refused"))
    assert "login with *** refused" in message
    assert SECRET not in trace


def test_resolved_values_of_the_workers_properties_are_secrets_of_every_run(tmp_path: Path) -> None:
    (tmp_path / "w.properties").write_text("rack=rack-of-the-worker\n")
    properties = "config.providers=file,config.providers.file.class=File,"
    properties += f"consumer.client.rack=${{file:{tmp_path}/w.properties:rack}}"
    made = RunSpecs(WorkerSettings(worker_properties=properties), REGISTRY)  # pyright: ignore[reportArgumentType] - as text
    config: dict[str, str | None] = {"connector.class": "FileStreamSource", "topic": "t", "file": "f"}
    run = made.run_spec(UnitId("c", 0), TaskSpec(config, config, 1), "r", commit_scope=None)
    assert run.worker_config["consumer.client.rack"] == "rack-of-the-worker"
    assert "rack-of-the-worker" in run.secrets


def test_no_text_of_a_message_has_a_secret(config: dict[str, str | None]) -> None:
    specs().providers.resolve(config)
    failure = Failure(f"no {SECRET}", f"Traceback ... {SECRET}")
    assert SECRET not in str(session_wire.failure_to(failure))
    assert wire.trace_to(failure) == "Traceback ... ***"
    assert wire.trace_to(Failure(f"no {SECRET}")) == "no ***"
    assert wire.trace_to(None) is None
    told = session_wire.condition_to(Condition("RESTARTING", f"after: no {SECRET}", 1_500))
    assert (told.message, told.since.ToMilliseconds()) == ("after: no ***", 1_500)


@pytest.mark.parametrize("key", ["connector.class", "tasks.max", "tasks.max.enforce", "herdmesh.restart.attempts.max"])
def test_references_in_keys_that_the_herder_reads_are_refused(tmp_path: Path, key: str) -> None:
    (tmp_path / "s").write_text(
        "connector.class=FileStreamSource\ntasks.max.enforce=true\ntasks.max=1\nherdmesh.restart.attempts.max=1\n"
    )
    config: dict[str, str | None] = {"name": "c", "connector.class": "FileStreamSource", "topic": "t", "file": "f"}
    config[key] = f"${{file:{tmp_path}/s:{key}}}"
    answer = validate(config, REGISTRY, WorkerSettings().worker_config(), specs().providers)
    told = {one.name: list(one.errors) for one in answer.fields if one.errors}
    assert any("the herder reads this key and cannot resolve a reference" in message for message in told[key])
    (field,) = (one for one in answer.fields if one.name == key)
    assert field.value == config[key]
    assert answer.class_name == config["connector.class"]


class WithPassword(FileStreamSource):
    """A connector with a password of its own, which its error shows."""

    aliases = ("WithPassword",)

    @classmethod
    def config_def(cls) -> ConfigDef:
        return super().config_def().extended(ConfigKey("login", Type.PASSWORD, "", Importance.LOW, "."))

    def start(self, config: Config) -> None:
        raise RuntimeError(f"login {config['login']} refused at {config.get('file')}")


class Talkative(WithPassword):
    """Connector that shows the whole config in every call, as a log line would."""

    aliases = ("Talkative",)
    said: ClassVar[list[str]] = []

    def validate(self, config: Config) -> Sequence[ConfigError]:
        self.said.append(redacted(str(config)))
        if config["file"] == "raise":
            raise RuntimeError(f"login {config['login']} refused")
        return super().validate(config)

    def sign(self, task_config: Config) -> str | None:
        self.said.append(redacted(str(task_config)))
        raise RuntimeError(f"login {task_config['login']} refused")

    def task_class(self) -> str:
        raise RuntimeError("login class-pw refused")


def test_literal_passwords_in_a_config_are_secrets_of_its_runs() -> None:
    made = RunSpecs(WorkerSettings(), PluginRegistry([describe(WithPassword)]))
    config: dict[str, str | None] = {
        "connector.class": "WithPassword", "topic": "t", "file": "http://u:ur%40l-pw@h/f", "login": "lo-gin-pw",
        "value.converter": "Avro", "value.converter.schema.registry.url": "http://a:first-pw@h,https://b:se@cond@h:1/x",
    }  # fmt: skip
    run = made.run_spec(UnitId("c", 0), TaskSpec(config, config, 1), "r", commit_scope=None)
    assert set(run.secrets) == {"ur%40l-pw", "ur@l-pw", "lo-gin-pw", "first-pw", "se@cond"}
    with pytest.raises(RuntimeError) as refused:
        planned_task_configs(made, config, 1)
    message, trace, _ = classify(refused.value)
    assert "login *** refused at http://u:***@h/f" in message
    assert "-pw" not in trace


def test_validation_shows_no_literal_password() -> None:
    """Connect hides those of type PASSWORD; it shows those in URLs."""
    plugins = PluginRegistry([describe(Talkative)], third_party_classes())
    config: dict[str, str | None] = {
        "name": "c", "connector.class": "Talkative", "topic": "t", "value.converter.max.retries": "many-pw",
        "file": "http://u:pw@h/f?me@there", "login": "many-pw",
        "value.converter": "Avro", "value.converter.schema.registry.url": "http://a:url-pw@h,https://b:x@h:1/x",
        "value.converter.basic.auth.user.info": "me:info-pw", "value.converter.bearer.auth.token": "bear-pw",
    }  # fmt: skip
    answer = validate(config, plugins, WorkerSettings().worker_config(), ConfigProviders({}))
    fields = {one.name: one for one in answer.fields}
    assert fields["file"].value == "http://u:***@h/f?me@there"
    assert fields["login"].value == "[hidden]"
    assert fields["value.converter.schema.registry.url"].value == "http://a:***@h,https://b:***@h:1/x"
    assert fields["value.converter.basic.auth.user.info"].value == "[hidden]"
    as_written = 'value: "many-pw"'
    assert "-pw" not in str(answer).replace(as_written, ""), "of a key that is no password a value is shown"
    assert "Invalid value *** for configuration max.retries" in str(fields["value.converter.max.retries"].errors)
    said = Talkative.said.pop()
    assert "'login': '***'" in said
    assert "http://a:***@h" in said
    assert "url-pw" not in said
    as_it_is = redacted_value({"config": [*config.values()]})
    assert as_it_is == {"config": [*config.values()]}, "nobody's validation takes words out of the texts of others"


def test_an_authors_error_in_a_validation_has_no_secrets() -> None:
    config: dict[str, str | None] = {
        "name": "c", "connector.class": "Talkative", "topic": "t", "file": "raise", "login": "raised-pw",
    }  # fmt: skip
    with pytest.raises(TaskFailed, match=r"RuntimeError: login \*\*\* refused") as raised:
        validate(config, PluginRegistry([describe(Talkative)]), WorkerSettings().worker_config(), ConfigProviders({}))
    assert "raised-pw" not in classify(raised.value)[1]


def test_a_worker_with_only_the_task_redacts_its_configs_literal_passwords() -> None:
    def spec(password: str) -> TaskSpec:
        config: dict[str, str | None] = {"connector.class": "Talkative", "topic": "t", "file": "f"}
        return TaskSpec(config, {**config, "login": password}, 1)

    made = RunSpecs(WorkerSettings(), PluginRegistry([describe(Talkative)]))
    assert made.sign(UnitId("c", 0), spec("sign-pw")) is None
    assert "'login': '***'" in Talkative.said.pop()
    with pytest.raises(RuntimeError) as raised:
        made.run_spec(UnitId("c", 0), spec("class-pw"), "r", commit_scope=None)
    assert classify(raised.value)[0] == "RuntimeError: login *** refused"


def test_passwords_in_urls_are_redacted_also_when_a_reference_cannot_be_resolved() -> None:
    made = specs()
    config: dict[str, str | None] = {
        "connector.class": "FileStreamSource", "topic": "${nobody:x}", "file": "http://u:be-side-pw@h/f",
    }  # fmt: skip
    with pytest.raises(ConfigError, match="no config provider nobody"):
        made.run_spec(UnitId("c", 0), TaskSpec(config, {}, 1), "r", commit_scope=None)
    assert redacted("at be-side-pw") == "at ***"
    known = made.values(UnitId("c", 0))
    assert known is not None
    assert known.secrets == {"be-side-pw"}
