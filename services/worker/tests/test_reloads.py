"""Repeated lookup of values: the relevant keys of a connector and of a task, and failures of a provider."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from herdmesh.connect.config import redaction
from herdmesh.connect.config_providers.base import ConfigData, ConfigProvider
from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connectors.file_stream.source.connector import FileStreamSource
from herdmesh.session.model import UnitId
from herdmesh.worker.effects.runs.reloads import Reloads, Values
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state import events, instructions
from herdmesh.worker.state.model import TaskSpec

TASK = UnitId("c", 0)


@pytest.fixture(autouse=True)
def _secrets_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_secrets", redaction.Secrets())


class Rotating(ConfigProvider):
    """Provider with values that a test changes, and a ttl of 2 s."""

    def __init__(self) -> None:
        self.values = {"one": "first-of-one", "two": "first-of-two", "mask": "first-of-mask"}
        self.sealed = False

    def get(self, path: str, keys: frozenset[str]) -> ConfigData:
        if self.sealed:
            raise RuntimeError("the vault is sealed")
        return ConfigData({key: self.values[key] for key in keys}, 2_000)


CONNECTOR: dict[str, str | None] = {
    "name": "c",
    "connector.class": "FileStreamSource",
    "topic": "t",
    "file": "f",
    "password.one": "${v:one}",
    "password.two": "${v:two}",
    "transforms.m.replacement": "${v:mask}",
}


def with_vault() -> tuple[RunSpecs, Rotating]:
    vault = Rotating()
    specs = RunSpecs(WorkerSettings(), PluginRegistry([describe(FileStreamSource)]))
    specs.providers = ConfigProviders({"v": vault})
    return specs, vault


def run(specs: RunSpecs, task_config: dict[str, str | None], **more: str) -> Values:
    spec = TaskSpec({**CONNECTOR, **more}, task_config, 2)
    specs.run_spec(TASK, spec, "r", commit_scope=None)
    given = specs.values(TASK)
    assert given is not None
    return given


def test_a_task_depends_on_its_own_config_and_on_the_connectors_keys_that_runs_read() -> None:
    specs, vault = with_vault()
    given = run(specs, {"password": "${v:one}"})
    assert given.ttl_ms == 2_000
    assert not given.differ(specs.values_now(given))
    vault.values["two"] = "second-of-two"
    assert not given.differ(specs.values_now(given)), "of another task"
    assert Values(given.configs[:1]).differ(specs.values_now(Values(given.configs[:1]))), "the connector has all"
    vault.values["mask"] = "second-of-mask"
    assert given.differ(specs.values_now(given)), "each run transforms"
    given = run(specs, {"password": "${v:one}"})
    vault.values["one"] = "second-of-one"
    assert given.differ(specs.values_now(given))


@pytest.mark.parametrize(("action", "ttl_ms"), [("none", None), (" None ", None), ("Restart", 2_000)])
def test_config_action_reload_none_prevents_restarts(action: str, ttl_ms: int | None) -> None:
    specs, _ = with_vault()
    assert run(specs, {}, **{"config.action.reload": action}).ttl_ms == ttl_ms


async def test_the_result_of_a_lookup_does_not_show_the_values() -> None:
    specs, vault = with_vault()
    run(specs, {"password": "${v:one}"})
    told: asyncio.Queue[events.Event] = asyncio.Queue()
    reloads = Reloads(specs.values, specs.values_now, told.put)
    check = instructions.CheckValues(TASK, "r")
    reloads.check(check)
    assert await told.get() == events.ValuesChecked(TASK, "r", changed=False, ttl_ms=2_000)
    vault.values["one"] = "second-of-one"
    reloads.check(check)
    assert await told.get() == events.ValuesChecked(TASK, "r", changed=True, ttl_ms=2_000)
    vault.sealed = True
    reloads.check(check)
    assert await told.get() == events.ValuesUnknown(TASK, "r")
    reloads.check(instructions.CheckValues(UnitId("d", 0), "r"))
    assert await told.get() == events.ValuesUnknown(UnitId("d", 0), "r"), "no run of it is remembered"
    await reloads.close()


async def test_values_of_a_failed_lookup_count_as_changed_once_it_succeeds(tmp_path: Path) -> None:
    properties = "config.providers=file,config.providers.file.class=File,config.providers.file.param.ttl.ms=2000"
    specs = RunSpecs(WorkerSettings(worker_properties=properties), PluginRegistry([describe(FileStreamSource)]))  # pyright: ignore[reportArgumentType] - as text
    config: dict[str, str | None] = {**CONNECTOR, "password.one": f"${{file:{tmp_path}/s:pw}}"}
    config = {key: value for key, value in config.items() if not str(value).startswith("${v")}
    spec = TaskSpec(config, {}, 1)
    with pytest.raises(ConfigError, match="Could not read properties"):
        specs.run_spec(TASK, spec, "r", commit_scope=None)
    given = specs.values(TASK)
    assert given is not None
    assert given.ttl_ms == 2_000
    told: asyncio.Queue[events.Event] = asyncio.Queue()
    reloads = Reloads(specs.values, specs.values_now, told.put)
    reloads.check(instructions.CheckValues(TASK, "r"))
    assert await told.get() == events.ValuesUnknown(TASK, "r")
    with pytest.raises(ConfigError):
        specs.without_class(TASK, spec)
    (tmp_path / "s").write_text("pw=there-at-last\n")
    reloads.check(instructions.CheckValues(TASK, "r"))
    assert await told.get() == events.ValuesChecked(TASK, "r", changed=True, ttl_ms=2_000)
    assert specs.without_class(TASK, spec).connector_config["password.one"] == "there-at-last"
    await reloads.close()
