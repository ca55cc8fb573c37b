"""Plugins that are wrong in many ways, one case a line: each is refused at once, or fails once, with the cause in its
text, and the plugins beside it are found.
"""

from __future__ import annotations

import py_compile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from herdmesh.connect.config.config_def import ConfigDef, ConfigKey, FieldViolation, Importance, Type
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi.connector import SinkConnector, SinkTask, SourceConnector, SourceTask
from herdmesh.engine.runtime.failure import classify
from herdmesh.worker.effects.plugins import folder_scan, plugin_folders
from herdmesh.worker.effects.plugins.plugins import discover
from herdmesh.worker.plugin_messages import Answer, Call
from herdmesh.worker.plugin_process import PluginConnectors
from tests.support.plugin_environments import Environment

HERE = "services.worker.tests.test_plugin_kinds"
OWN = plugin_folders.OwnLibraries({}, ("herdmesh",))

PLUGIN = """
from herdmesh.sdk import ConfigDef, SinkConnector
class P(SinkConnector):
    class_name, version = "org.example.{name}", "1"
    {aliases}
    @classmethod
    def config_def(cls): return ConfigDef()
    def task_class(self): return "x:Y"
    def task_configs(self, max_tasks): return []
"""

#: Code of the module when it is imported, and the expected reason: "" = the plugin is found.
IMPORTS = {
    "recursion": ("def f(): f()\nf()", "maximum recursion depth exceeded"),
    "stack": ("import sys\nsys.setrecursionlimit(60)\nraise ValueError('deep')", "ValueError"),
    "mute": ("class E(Exception):\n    def __str__(self): raise SystemExit(1)\nraise E", "text cannot be formatted"),
    "aborts": ("import os\nos.abort()", "killed by SIGABRT"),
    "lines": ("import os\nos.closerange(3, 256)\nraise ValueError", "importing it ended its process ("),
    "odd": ("import locale, os, signal, sys, threading, time\nfor fd in (0, 1, 2): os.close(fd)\nos.chdir('/')\n"
            "os.umask(0o777)\nlocale.setlocale(locale.LC_ALL, 'C')\n"
            "sys.stdout = sys.stderr = None\nthreading.Thread(target=time.sleep, args=(3600,)).start()\n", ""),
    "prints": ("import threading\ndef go():\n    while True: print('x')\n"
               "threading.Thread(target=go, daemon=True).start()\n", ""),
}  # fmt: skip


def test_a_plugin_whose_import_fails_is_refused_and_affects_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_scan, "ANSWER_S", 50.0)  # before a call times out; otherwise this machine is only busy
    for name, (text, says) in IMPORTS.items():
        body = text if says else text + PLUGIN.format(name=name, aliases="")
        Environment(tmp_path / name).install(name, "1", {f"{name}.py": body + "\n"}, connectors=[f"P = {name}:P"])
    sourceless = Environment(tmp_path / "sourceless").install("pyc", "1", {}, connectors=["P = pyc:P"])
    source = tmp_path / "pyc.py"
    source.write_text(PLUGIN.format(name="sourceless", aliases=""))
    py_compile.compile(str(source), cfile=str(sourceless.packages / "pyc.pyc"))
    ends = Environment(tmp_path / "ends").install("ends", "1", {"ends.py": ""}, connectors=["P = ends:P"])
    (ends.packages / "ends.pth").write_text("import sys; sys.exit(5)\n")
    named = ["A = ", "B = os:path", "C = ..:P"]
    Environment(tmp_path / "named").install("named", "1", {}, connectors=named)
    for name in ("first", "second"):
        body = PLUGIN.format(name="Twice", aliases="aliases = ('JsonConverter', 'Filter', 'Mine')")
        Environment(tmp_path / name).install(name, "1", {f"{name}.py": body}, connectors=[f"P = {name}:P"])
    taken = PLUGIN.replace("org.example.{name}", "org.apache.kafka.connect.json.JsonConverter").format(aliases="")
    Environment(tmp_path / "taken").install("taken", "1", {"taken.py": taken}, connectors=["P = taken:P"])
    with capture_logs() as logs:
        found = discover(str(tmp_path))
    found.close()
    refused: dict[str, list[str]] = {}
    for one in logs:
        if one["event"] == "plugin_refused":
            refused.setdefault(Path(one["folder"]).name, []).append(one["why"])
    assert found.folders is not None
    assert found.folders.being_scanned() == [], "none is late"
    for name, (_, says) in IMPORTS.items():
        if says:
            assert any(says in why for why in refused[name]), (name, refused[name])
        else:
            assert found.registry.versions(f"org.example.{name}") == ["1"], (name, refused.get(name))
    assert "SIGKILL" not in refused["lines"][0], "it is told how it ended, not how the worker ended it"
    assert found.registry.versions("org.example.sourceless") == ["1"]
    assert "ends.pth" in refused["ends"][0] or "SystemExit: 5" in refused["ends"][0]
    assert len(refused["named"]) == len(named)
    assert "is not of the form module:Class" in refused["named"][0]
    assert found.registry.versions("Mine") == ["1"]
    assert found.registry.class_named("JsonConverter") is not None
    assert refused["taken"] == ["a transformation, predicate or converter has this name"]


def test_bad_links_and_locked_folders_affect_no_other_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = Environment(tmp_path / "p" / "good").install("boom", "1", {}, connectors=["B = boom:B"])
    (tmp_path / "p" / "loop").symlink_to(tmp_path / "p" / "loop")
    (tmp_path / "p" / "up").symlink_to(tmp_path / "p")
    (tmp_path / "p" / "broken").symlink_to(tmp_path / "nowhere")
    bad = Environment(tmp_path / "p" / "bad").install("boom", "1", {}, connectors=["no equals sign"])
    locked = tmp_path / "p" / "locked"
    is_dir = Path.is_dir

    def seen(path: Path) -> bool:  # root may read anything
        if path.name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return is_dir(path)

    locked.mkdir()
    monkeypatch.setattr(Path, "is_dir", seen)
    found, refused = plugin_folders.find(f"{tmp_path / 'p'},{locked}", OWN)
    assert [one.imports.folder for one in found] == [str(good.folder)]
    why = {one.folder: one.why for one in refused}
    assert "Permission denied" in why[str(locked)]
    assert "entry_points.txt of boom 1 has a line that is not name = module:Class" in why[str(bad.folder)]


class Good(SinkConnector):
    class_name, version = "org.example.Good", "1"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_class(self) -> str:
        return "x:Y"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return []


class GoodSource(SourceConnector):
    class_name, version = "org.example.GoodSource", "1"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_class(self) -> str:
        return "x:Y"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return []


def returns(value: Any) -> Callable[..., Any]:
    return lambda *_: value


def raises(error: BaseException) -> Callable[..., Any]:
    def method(*_: Any) -> Any:
        raise error

    return method


async def coroutine(*_: Any) -> Any:
    return None


def generator(*_: Any) -> Any:
    yield None


def key(**changed: Any) -> Any:
    one = ConfigKey("port", Type.INT, 1, Importance.LOW, "Port.")
    for name, value in changed.items():
        object.__setattr__(one, name, value)
    return ConfigDef(one)


class Unmade(ConfigError):
    """As written by an author who forgets what the base class needs."""

    def __init__(self) -> None:
        pass

    def __str__(self) -> str:
        return str(1 / 0)


#: Attributes of a connector class, the call, and the expected text of its error.
ANSWERS: list[tuple[type[Any], dict[str, Any], str, tuple[Any, ...], str]] = [
    (Good, {"config_def": classmethod(returns(None))}, "describe", ("1",), "config_def returned None (NoneType)"),
    (Good, {"config_def": classmethod(returns({}))}, "describe", ("1",), "config_def returned {} (dict)"),
    (Good, {"config_def": classmethod(raises(SystemExit(3)))}, "describe", ("1",), "SystemExit: 3"),
    (Good, {"config_def": classmethod(returns(key(default=object())))}, "describe", ("1",), "the key port of"),
    (Good, {"config_def": classmethod(returns(key(type="INT")))}, "describe", ("1",), "the key port of"),
    (Good, {"version": 3}, "describe", ("1",), 'version is 3 (int): write a string, as "1.0"'),
    (Good, {"version": returns("1.0")}, "describe", ("1",), "version is <function"),
    (Good, {"aliases": "Good"}, "describe", ("1",), "aliases is 'Good' (str): write a tuple of strings"),
    (Good, {"aliases": (1,)}, "describe", ("1",), "aliases has 1 (int)"),
    (Good, {"class_name": None}, "describe", ("1",), "class_name is None (NoneType)"),
    (Good, {"class_name": "a\ud83d"}, "describe", ("1",), "class_name is 'a\\ud83d' (str)"),
    (SinkConnector, {}, "describe", ("1",), "Odd has no config_def, task_class, task_configs: define it"),
    (Good, {"start": coroutine}, "describe", ("1",), "Odd.start is a coroutine, which nobody awaits"),
    (Good, {"stop": generator}, "describe", ("1",), "Odd.stop is a generator, which nobody iterates"),
    (Good, {"task_class": returns(None)}, "task_class", (), "task_class returned None (NoneType)"),
    (Good, {"task_class": returns(Good)}, "task_class", (), f'return its name, "{HERE}:Good"'),
    (Good, {"task_configs": returns(None)}, "task_configs", (1,), "task_configs returned None (NoneType)"),
    (Good, {"task_configs": raises(KeyboardInterrupt())}, "task_configs", (1,), "KeyboardInterrupt"),
    (Good, {"validate": returns(None)}, "validate", ({},), "validate returned None (NoneType): return a list of"),
    (Good, {"validate": returns(["bad"])}, "validate", ({},), "validate returned a list with 'bad' (str)"),
    (Good, {"warnings": returns({"a": 1})}, "warnings", ({},), "warnings returned {'a': 1} (dict)"),
    (GoodSource, {"exactly_once_support": returns("yes")}, "exactly_once_support", ({},), "returned 'yes' (str)"),
    (Good, {"validate": returns([ConfigError("bad", field=cast("Any", None))])}, "validate", ({},),
     "validate returned a ConfigError whose field is None (NoneType)"),
    (Good, {"warnings": returns([FieldViolation("a", cast("Any", 5))])}, "warnings", ({},),
     "warnings returned a FieldViolation whose message is 5 (int)"),
    (Good, {"task_configs": raises(ConfigError("x" * 10_000_000, field=cast("Any", 7), fix=cast("Any", ["a"])))},
     "task_configs", (1,), "characters left out"),
    (Good, {"task_configs": raises(Unmade())}, "task_configs", (1,), "its text cannot be formatted: ZeroDivisionError"),
    (Good, {"alter_offsets": returns(None)}, "alter_offsets", ({}, []), "alter_offsets returned None (NoneType)"),
    (GoodSource, {"alter_offsets": returns("yes")}, "alter_offsets", ({}, []), "alter_offsets returned 'yes' (str)"),
    (GoodSource, {"offsets_at": returns(5)}, "offsets_at", ({}, 0, []), "offsets_at returned 5 (int)"),
    (GoodSource, {"offsets_at": returns([({}, {}, {})])}, "offsets_at", ({}, 0, []), "returned [({}, {}, {})]"),
    (GoodSource, {"offsets_at": returns([("p", 3)])}, "offsets_at", ({}, 0, []), "offsets_at returned [('p', 3)]"),
    (Good, {"alter_offsets": raises(MemoryError())}, "alter_offsets", ({}, []), "MemoryError"),
]  # fmt: skip


class Odd:
    """Set by a case: the class that the entry point names."""


@pytest.mark.parametrize(("base", "has", "what", "arguments", "says"), ANSWERS, ids=range(len(ANSWERS)))
def test_a_wrong_return_value_is_one_failure_that_names_it(
    monkeypatch: pytest.MonkeyPatch, base: type[Any], has: dict[str, Any], what: str, arguments: tuple[Any, ...],
    says: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(f"{HERE}.Odd", type("Odd", (base,), has))
    said: list[Any] = []
    connectors = PluginConnectors(said.append)
    connectors.execute(Call(number=1, what=what, entry=f"{HERE}:Odd", arguments=arguments))
    (answer,) = said
    assert isinstance(answer, Answer)
    assert answer.failure is not None
    assert says in answer.failure.message
    packed = msgspec.json.encode(answer)
    assert len(packed) < 200_000
    assert msgspec.json.decode(packed, type=Answer).failure == answer.failure, "a worker can read it"


class Sink(SinkTask):
    def start(self, config: Any, context: Any) -> None: ...
    def put(self, batch: Any) -> None: ...
    def flush(self) -> None: ...


class Source(SourceTask):
    def start(self, config: Any, context: Any) -> None: ...
    def poll(self) -> None: ...


@pytest.mark.parametrize(("base", "method"), [(Sink, "put"), (Sink, "flush"), (Sink, "start"), (Source, "poll"),
                                              (Source, "commit"), (Source, "stop")])  # fmt: skip
@pytest.mark.parametrize("written", [coroutine, generator])
def test_a_task_class_whose_method_would_never_run_is_refused(
    monkeypatch: pytest.MonkeyPatch, base: type[Any], method: str, written: Callable[..., Any]
) -> None:
    """Its records would be committed without being processed."""
    monkeypatch.setattr(f"{HERE}.Odd", type("Odd", (base,), {method: written}))
    make: Any = vars(import_module("herdmesh.engine.run"))["_new"]
    with pytest.raises(Exception, match=f"Odd.{method} is a {written.__name__}, which nobody") as refused:
        make(f"{HERE}:Odd", SinkTask if base is Sink else SourceTask)
    assert classify(refused.value)[2].value == "BAD_CONFIG"
