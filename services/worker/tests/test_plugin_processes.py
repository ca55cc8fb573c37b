"""Connectors of plugin folders, called in processes of their own: two versions that need two versions of one
library."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import structlog
from structlog.testing import capture_logs

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError, RetriableError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.connect.spi.connector import Config, Connector, ConnectorContext, SinkConnector
from herdmesh.connect.spi.waits import Wait
from herdmesh.engine.runtime.errors import TaskFailed
from herdmesh.engine.runtime.failure import classify
from herdmesh.session.model import UnitId
from herdmesh.worker.effects.offsets.offsets import Offsets
from herdmesh.worker.effects.plugins import folder_scan, validation
from herdmesh.worker.effects.plugins.connectors import ConnectorHost
from herdmesh.worker.effects.plugins.plugins import Found, Plugins, discover
from herdmesh.worker.effects.plugins.task_configs import planned_task_configs
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.plugin_requests import PAUSE_S
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state import events, instructions
from herdmesh.worker.state.model import TaskSpec
from tests.support.plugin_environments import GREET, Environment, greet

VERSION = "connector.plugin.version"
CONFIG: dict[str, str | None] = {"name": "g", "connector.class": "Greet", "topics": "t", "file": "f"}
WAIT_S = 30.0


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    """Two versions side by side, and unusable plugins beside them."""
    folder = tmp_path_factory.mktemp("plugins")
    greet(folder / "greet" / "1.0", "1.0", "1")
    greet(folder / "greet" / "2.0", "2.0", "2")
    broken = Environment(folder / "broken")
    broken.install("broken", "1", {"broken.py": "import no_such_module\n"}, connectors=["Broken = broken:Broken"])
    found = discover(str(folder))
    yield found
    found.close()


@pytest.fixture
def registry(found: Found) -> PluginRegistry:
    return found.registry


def answered(registry: PluginRegistry, config: Config) -> worker_service_pb2.ConfigValidation:
    worker = WorkerSettings().worker_config()
    return validation.validate(config, registry, worker, ConfigProviders.of(worker))


def errors(result: worker_service_pb2.ConfigValidation) -> dict[str, list[str]]:
    return {field.name: list(field.errors) for field in result.fields if field.errors}


def test_all_versions_are_listed_and_none_is_imported_in_the_worker(registry: PluginRegistry) -> None:
    listed = [one for one in Plugins(Found(registry)).all() if one.class_name == GREET]
    assert [(one.version, list(one.aliases), one.kind) for one in listed] == [
        ("1.0", ["Greet"], connector_pb2.PLUGIN_KIND_SINK), ("2.0", ["Greet"], connector_pb2.PLUGIN_KIND_SINK),
    ]  # fmt: skip
    assert registry.find("FileStreamSink").imports is None, "what is installed is there too"
    assert {"greet", "tinylib", "broken", "other"}.isdisjoint(sys.modules)


@pytest.mark.parametrize(("wanted", "tinylib"), [("1.0", "1"), ("2.0", "2"), (None, "2"), ("[1.0,2.0)", "1")])
def test_a_config_is_validated_in_its_versions_process(
    registry: PluginRegistry, wanted: str | None, tinylib: str
) -> None:
    config = {**CONFIG, VERSION: wanted, "word": "quiet"} if wanted else {**CONFIG, "word": "quiet"}
    assert errors(answered(registry, config)) == {"word": [f"quiet is not loud enough for tinylib {tinylib}"]}
    config["word"] = "LOUD"
    result = answered(registry, config)
    assert errors(result) == {}
    fields = {field.name: field for field in result.fields}
    assert fields["file"].documentation == f"For tinylib {tinylib}."
    assert list(fields["word"].recommended_values) == [tinylib, "f"]
    assert [(one.name, one.message) for one in result.warnings] == [("word", f"said with tinylib {tinylib}")]
    assert errors(answered(registry, {**config, "file": "nowhere"})) == {"file": ["nowhere is no file"]}


def test_a_missing_version_is_an_error_of_its_field(registry: PluginRegistry) -> None:
    told = errors(answered(registry, {**CONFIG, VERSION: "3.0"}))[VERSION]
    assert told == [
        f"Plugin {GREET} not found that matches the version range [3.0,3.0], available versions: [1.0, 2.0]"
    ]


class Heard:
    """Replacement of standard error that keeps what other threads write."""

    def __init__(self) -> None:
        self.text = ""
        self.said = threading.Event()

    def write(self, text: str) -> int:
        self.text += text
        if "the key is" in self.text:
            self.said.set()
        return len(text)


def test_secrets_of_a_validated_config_are_in_no_output_of_the_plugins_process(
    registry: PluginRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker keeps no secrets of a validation: the plugin's output is redacted in the plugin's process."""
    (tmp_path / "secret").write_text("swordfish-1")
    worker: dict[str, str | None] = {
        **WorkerSettings().worker_config(),
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    }
    config = {**CONFIG, "file": "print", "key": f"${{file:{tmp_path}:secret}}"}
    providers = ConfigProviders.of(worker)
    heard = Heard()
    monkeypatch.setattr(sys, "stderr", heard)
    try:
        result = validation.validate(config, registry, worker, providers)
        assert heard.said.wait(WAIT_S)
    finally:
        providers.close()
    assert errors(result) == {}
    assert "the key is ***" in heard.text
    assert "swordfish-1" not in heard.text


@pytest.mark.parametrize(("wanted", "tinylib"), [("1.0", "1"), ("2.0", "2")])
def test_task_configs_and_the_runs_imports_are_those_of_the_version(
    registry: PluginRegistry, wanted: str, tinylib: str
) -> None:
    specs = RunSpecs(WorkerSettings(), registry)
    config = {**CONFIG, VERSION: wanted, "word": "HI"}
    made = planned_task_configs(specs, config, 2)
    assert made == 2 * [{"file": "f", "said": f"HI {tinylib}", "task.class": "greet:GreetTask", "topics": "t"}]
    assert specs.version(config) == wanted
    spec = specs.run_spec(UnitId("g", 0), TaskSpec(config, made[0], 2), "run", commit_scope=None)
    assert spec.task_class == "greet:GreetTask"
    assert spec.imports is not None
    assert Path(spec.imports.folder).name == wanted


LOUDER: dict[str, str | None] = {"transforms": "l", "transforms.l.type": "Louder"}
STREAM: dict[str, str | None] = {
    "name": "s",
    "connector.class": "FileStreamSink",
    "topics": "t",
    "file": "/f",
    **LOUDER,
}
STEP_VERSION = "transforms.l.plugin.version"


@pytest.mark.parametrize(("wanted", "tinylib"), [("1.0", "1"), (None, "2"), ("[1.0,2.0)", "1")])
def test_a_folders_transformation_is_validated_in_its_process_and_imported_by_runs(
    registry: PluginRegistry, wanted: str | None, tinylib: str
) -> None:
    """Of a connector that is installed: by its definition, its rules, and the errors of its `configure`."""
    config = {**STREAM, STEP_VERSION: wanted} if wanted else STREAM
    result = answered(registry, config)
    assert errors(result) == {}
    fields = {field.name: field for field in result.fields}
    assert fields["transforms.l.mark"].documentation == f"For tinylib {tinylib}."
    assert list(fields[STEP_VERSION].recommended_values) == ["1.0", "2.0"]
    assert errors(answered(registry, {**config, "transforms.l.mark": "!!"})) == {
        "transforms.l.mark": [f"!! is too long for tinylib {tinylib}"]
    }
    assert errors(answered(registry, {**config, "transforms.l.mark": "?"})) == {
        "transforms.l.mark": [f"no questions in tinylib {tinylib}"]
    }
    spec = RunSpecs(WorkerSettings(), registry).run_spec(
        UnitId("s", 0), TaskSpec(config, {"file": "/f"}, 1), "run", commit_scope=None
    )
    assert spec.imports is not None
    assert Path(spec.imports.folder).name == f"{tinylib}.0"
    assert "greet" not in sys.modules


def test_a_task_with_plugins_of_two_folders_or_a_missing_version_is_refused(registry: PluginRegistry) -> None:
    greeting = {**CONFIG, **LOUDER, VERSION: "1.0"}
    (said,) = errors(answered(registry, greeting))["transforms.l.type"]
    assert "org.example.Louder 2.0 is in the plugin folder" in said
    assert "a task is one process" in said
    assert errors(answered(registry, {**greeting, STEP_VERSION: "1.0"})) == {}
    told = errors(answered(registry, {**STREAM, STEP_VERSION: "3.0"}))
    assert "available versions: [1.0, 2.0]" in told[STEP_VERSION][0]
    told = errors(answered(registry, {**STREAM, STEP_VERSION: "[1.0"}))
    assert told.keys() == {"transforms.l.type", STEP_VERSION}, "what is no version is told at its key alone"
    listed = [one for one in Plugins(Found(registry)).all() if one.class_name == "org.example.Louder"]
    assert [(one.version, one.kind) for one in listed] == [
        ("1.0", connector_pb2.PLUGIN_KIND_TRANSFORMATION), ("2.0", connector_pb2.PLUGIN_KIND_TRANSFORMATION),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "raised", "says", "error_class"),
    [
        ("trouble", TaskFailed, "no such table", ErrorClass.UNKNOWN),
        ("away", RetriableError, "the table is away", ErrorClass.RETRIABLE),
        ("dies", TaskFailed, "exit code 3", ErrorClass.RETRIABLE),
    ],
)
def test_an_error_of_the_authors_code_is_raised_in_the_worker_in_its_class(
    registry: PluginRegistry, file: str, raised: type[Exception], says: str, error_class: ErrorClass
) -> None:
    with pytest.raises(raised, match=says) as caught:
        planned_task_configs(RunSpecs(WorkerSettings(), registry), {**CONFIG, "file": file}, 1)
    message, trace, found = classify(caught.value)
    assert says in message
    assert found is error_class
    if file == "trouble":
        assert "greet.py" in trace
        assert "task_configs" in trace


def test_alter_offsets_runs_in_the_plugins_process(registry: PluginRegistry) -> None:
    connector = registry.find("Greet").load()
    assert isinstance(connector, SinkConnector)
    assert connector.alter_offsets(CONFIG, {("t", 0): 5, ("t", 1): None}) is True
    assert connector.alter_offsets(CONFIG, {("t", 0): 6}) is False


def test_a_running_connector_requests_new_task_configs(registry: PluginRegistry) -> None:
    asked = threading.Event()
    connector = registry.find("Greet", "1.0").load()
    connector.context = ConnectorContext(asked.set)
    connector.start({**CONFIG, "file": "asks"})
    try:
        assert asked.wait(WAIT_S)
        assert connector.task_configs(1) == [{"file": "asks", "said": "HELLO 1"}]
    finally:
        connector.stop()


def test_a_connector_that_requests_in_a_loop_sends_few_messages(registry: PluginRegistry) -> None:
    """20,000 requests were as many messages, all of which the worker read."""
    asked: queue.SimpleQueue[None] = queue.SimpleQueue()
    connector = registry.find("Greet", "1.0").load()
    connector.context = ConnectorContext(lambda: asked.put(None))
    begun_s = time.monotonic()
    connector.start({**CONFIG, "file": "asks in a loop"})
    asked.get(timeout=WAIT_S)
    asked.get(timeout=WAIT_S)  # requests after the first are sent, too
    connector.stop()
    assert asked.qsize() <= 1 + (time.monotonic() - begun_s) / PAUSE_S


def test_a_running_connector_ends_itself_as_failed_and_reads_committed_offsets(registry: PluginRegistry) -> None:
    failed: queue.SimpleQueue[Exception] = queue.SimpleQueue()
    context = ConnectorContext(lambda: None, failed.put, lambda partitions: [{"of": one} for one in partitions])

    def started(file: str) -> Connector:
        connector = registry.find("Greet", "1.0").load()
        connector.context = context
        connector.start({**CONFIG, "file": file})
        return connector

    connector = started("fails")
    error = failed.get(timeout=WAIT_S)
    assert isinstance(error, ConfigError)
    assert (str(error), error.field, error.fix) == ("the table is gone", "file", "make it")
    connector.stop()
    connector = started("offsets")
    (made,) = connector.task_configs(1)
    assert made["said"] == "[{'of': {'p': 1}}, {'of': None}] 1"
    connector.stop()

    def away(_: object) -> list[Mapping[str, Any] | None]:
        raise TaskFailed("Kafka does not answer", ErrorClass.UNREACHABLE)

    context = ConnectorContext(lambda: None, failed.put, away)
    with pytest.raises(TaskFailed, match="Kafka does not answer") as caught:
        started("offsets")
    assert caught.value.error_class is ErrorClass.UNREACHABLE


def test_a_running_connectors_wait_is_reported_until_it_ends_or_the_process_dies(
    registry: PluginRegistry,
) -> None:
    context = ConnectorContext(lambda: None, lambda _error: None)
    connector = registry.find("Greet", "1.0").load()
    connector.context = context
    connector.start({**CONFIG, "file": "waits"})

    def shown(*, begun: bool) -> Wait | None:
        deadline_s = time.monotonic() + WAIT_S
        while ((wait := context.waits.shown()) is None) is begun:
            assert time.monotonic() < deadline_s, wait
            time.sleep(0.02)
        return wait

    wait = shown(begun=True)
    assert wait is not None
    assert (wait.waits_for, wait.message, wait.tries) == ("PostgreSQL db:5432", "no room", 1)
    connector.task_configs(1)
    assert shown(begun=False) is None
    connector.stop()
    again = registry.find("Greet", "1.0").load()
    again.context = context
    again.start({**CONFIG, "file": "waits"})
    assert shown(begun=True) is not None
    (killed,) = _processes("1.0")
    os.kill(killed, signal.SIGKILL)
    assert shown(begun=False) is None


async def test_a_killed_process_fails_its_connectors_and_later_starts_get_a_new_one(found: Found) -> None:
    """The other version's process lives on; the connector has the error until it is started anew."""
    told: asyncio.Queue[events.Event] = asyncio.Queue()
    specs = RunSpecs(WorkerSettings(), found.registry)
    host = ConnectorHost(specs, Offsets(specs, None), told.put)

    async def said(kind: type[Any]) -> Any:
        async with asyncio.timeout(WAIT_S):
            while not isinstance(event := await told.get(), kind):
                pass
        return event

    async def start(name: str, version: str) -> None:
        host.start(instructions.StartConnector(name, 1, {**CONFIG, VERSION: version}))
        assert (await said(events.ConnectorStarted)).failure is None

    async def configs(name: str) -> events.TaskConfigsMade:
        host.make_task_configs(instructions.MakeTaskConfigs(name, 2, {**CONFIG}, 1))
        return await said(events.TaskConfigsMade)

    try:
        await start("one", "1.0")
        await start("two", "2.0")
        (killed,) = _processes("1.0")
        os.kill(killed, signal.SIGKILL)
        failure = (await said(events.ConnectorRaised)).failure
        assert "killed by SIGKILL" in failure.message
        assert failure.error_class is ErrorClass.RETRIABLE
        assert (await configs("two")).failure is None
        host.stop(instructions.StopConnector("one", 3))
        await said(events.ConnectorStopped)
        await start("one", "1.0")
        assert (await configs("one")).failure is None
        assert _processes("1.0") != [killed]
    finally:
        await host.close()


def test_a_plugins_process_ends_with_its_worker(tmp_path: Path) -> None:
    """A killed worker announces nothing."""
    greet(tmp_path / "1.0", "1.0", "1")
    script = (
        "import sys; from herdmesh.worker.effects.plugins.plugins import discover\n"
        "connector = discover(sys.argv[1]).registry.find('Greet').load()\n"
        "connector.start({'file': 'f'})\n"
        "print('started', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        said = ""
        while "started" not in said:
            said = worker.stdout.readline()
            assert said, "it ended before it had started"
        children = psutil.Process(worker.pid).children()
        assert len(children) == 1
        worker.kill()
        _, alive = psutil.wait_procs(children, WAIT_S)
        assert not alive


def test_a_signal_to_all_processes_of_the_worker_ends_no_connector(registry: PluginRegistry) -> None:
    """Ctrl-C, or `systemctl stop`: the worker gets it too, and stops its connectors itself."""
    connector = registry.find("Greet", "1.0").load()
    connector.start(CONFIG)
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            for pid in _processes("1.0"):
                os.kill(pid, number)
            assert connector.task_configs(1) == [{"file": "f", "said": "HELLO 1"}]
    finally:
        connector.stop()


def test_the_death_of_a_process_is_detected_while_its_forked_child_lives_on(tmp_path: Path) -> None:
    module = """
import os, signal
from herdmesh.sdk import ConfigDef, SinkConnector
class Forks(SinkConnector):
    class_name, aliases, version = "org.example.Forks", (), "1"
    config_def = classmethod(lambda cls: ConfigDef())
    def task_class(self):
        child = os.fork()
        if not child:
            signal.pause()
        with open(os.environ["FORKED"], "w") as file:
            file.write(str(child))
        os._exit(3)
    def task_configs(self, max_tasks): return []
"""
    Environment(tmp_path / "forks").install("forks", "1", {"forks.py": module}, connectors=["Forks = forks:Forks"])
    forked = tmp_path / "forked"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORKED", str(forked))
        found = discover(str(tmp_path / "forks"))
        try:
            assert found.folders is not None
            with pytest.raises(TaskFailed, match="exit code 3"):
                found.folders.processes()[0].line().call("task_class", "forks:Forks", timeout_s=WAIT_S)
        finally:
            found.close()
            os.kill(int(forked.read_text()), signal.SIGKILL)


def test_plugins_that_cannot_be_imported_are_left_out_and_logged_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        folder_scan, "_log", structlog.get_logger()
    )  # another test may have made it keep its processors
    broken = Environment(tmp_path / "broken")
    broken.install("broken", "1", {"broken.py": "import no_such_module\n", "other.py": "Other = dict\n"},
                   connectors=["Broken = broken:Broken", "Other = other:Other"])  # fmt: skip
    with capture_logs() as logs:
        found = discover(f"{tmp_path / 'nothing'},{broken.folder}")
    try:
        assert [one.class_name for one in found.registry.all() if "roken" in one.class_name] == []
        assert found.registry.find("FileStreamSink").imports is None
    finally:
        found.close()
    said = str(logs)
    for text in ("no_such_module", "other:Other names no SourceConnector", "there is no such folder"):
        assert text in said


def test_a_folder_wins_over_the_installed_version_and_a_taken_alias_belongs_to_none(tmp_path: Path) -> None:
    """A folder takes no name from installed plugins, except that of its own class."""
    module = """
from herdmesh.sdk import ConfigDef, SinkConnector
class One(SinkConnector):
    class_name, aliases, version = "org.example.One", ("Both", "FileStreamSink", "One"), "1"
    config_def = classmethod(lambda cls: ConfigDef())
    def task_class(self): return "one:Task"
    def task_configs(self, max_tasks): return []
class Two(One):
    class_name, aliases, version = "org.example.Two", ("Both",), "1"
class Taker(One):
    class_name, aliases, version = "FileStreamSink", (), "9"
"""
    names = [f"{name} = one:{name}" for name in ("One", "Two", "Taker")]
    for folder in ("a", "b"):
        Environment(tmp_path / folder).install("one", "1", {"one.py": module}, connectors=names)
    found = discover(str(tmp_path))
    try:
        one, two = (found.registry.find(f"org.example.{name}") for name in ("One", "Two"))
        assert (one.aliases, two.aliases) == (("One",), ())
        assert one.imports is not None
        assert Path(one.imports.folder).name == "b"
        assert (
            found.registry.find("FileStreamSink").class_name == "org.apache.kafka.connect.file.FileStreamSinkConnector"
        )
        with pytest.raises(ConfigError, match="which name matches Both"):
            found.registry.find("Both")
    finally:
        found.close()


def test_a_folders_transformation_takes_no_name_of_another_plugin(tmp_path: Path) -> None:
    module = """
from herdmesh.sdk import RecordTransformation
class One(RecordTransformation):
    class_name, aliases = "org.example.One", ("Both", "JsonConverter", "One")
    def apply(self, record): return record
class Two(One):
    class_name, aliases = "org.example.Two", ("Both",)
class Taker(One):
    class_name, aliases = "org.apache.kafka.connect.transforms.Filter", ()
"""
    names = [f"{name} = one:{name}" for name in ("One", "Two", "Taker")]
    for folder in ("a", "b"):
        Environment(tmp_path / folder).install("one", "1", {"one.py": module}, transformations=names)
    found = discover(str(tmp_path))
    try:
        one, two = (found.registry.class_named(f"org.example.{name}") for name in ("One", "Two"))
        assert one is not None
        assert two is not None
        assert (one.aliases, two.aliases, one.version) == (("One",), (), "1")
        own = found.registry.class_named("org.apache.kafka.connect.transforms.Filter")
        assert own is not None
        assert own.author is None
        assert found.registry.class_named("Both") is None
    finally:
        found.close()


def test_without_plugin_folders_no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Any:
        raise AssertionError("nothing is to be read")

    monkeypatch.setattr("herdmesh.worker.effects.plugins.folder_scan.own_libraries", never)
    found = discover(" ")
    assert found.folders is None
    assert found.registry.find("FileStreamSink").imports is None


def _processes(version: str) -> list[int]:
    """Child processes for plugins of that folder name."""
    children = psutil.Process().children()
    return [one.pid for one in children if any(f"/{version}" in part for part in one.cmdline())]
