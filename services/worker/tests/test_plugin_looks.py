"""Plugin folders that change while a worker runs: mended, new, released anew, broken or gone, and the reports about
that.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi.connector import ConnectorContext
from herdmesh.worker.effects.plugins import folder_scan
from herdmesh.worker.effects.plugins.folder_scan import ScannedFolders
from herdmesh.worker.effects.plugins.plugins import Plugins, discover
from services.worker.tests.test_plugin_kinds import PLUGIN
from tests.support.plugin_environments import Environment, greet


@pytest.fixture
def own_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are checked only when the test does so, and changed files count as stable at once."""
    monkeypatch.setattr(folder_scan, "LOOK_S", 3600.0)
    monkeypatch.setattr(folder_scan, "STILL_S", 0.0)
    monkeypatch.setattr(folder_scan, "ANSWER_S", 60.0)


@pytest.mark.usefixtures("own_looks")
def test_mended_and_new_folders_are_found_and_unchanged_ones_are_not_scanned_again(tmp_path: Path) -> None:
    broken = Environment(tmp_path / "broken").install("late", "1", {"late.py": "x = 1\n"}, connectors=["P = late:P"])
    greet(tmp_path / "greet", "1.0", "1")
    found = discover(str(tmp_path))
    folders = found.folders
    assert isinstance(folders, ScannedFolders)
    told: list[int] = []
    found.when_changed(lambda: told.append(1))
    before = found.registry.find("Greet")
    folders.look()
    folders.look()
    assert folders.being_scanned() == [], "nothing changed"
    (broken.packages / "late.py").write_text(PLUGIN.format(name="Late", aliases=""))
    Environment(tmp_path / "more").install(
        "more", "1", {"more.py": PLUGIN.format(name="More", aliases="")}, connectors=["P = more:P"]
    )
    (tmp_path / "greet" / "notes").write_text("data that a plugin wrote beside its code\n")
    folders.look()
    assert {Path(one).name for one in folders.being_scanned()} <= {"broken", "more"}
    folders.wait(60)
    assert found.registry.versions("org.example.Late") == found.registry.versions("org.example.More") == ["1"]
    assert found.registry.find("Greet").connector is before.connector
    assert told
    assert folders.refused() == []
    found.close()


@pytest.mark.usefixtures("own_looks")
def test_unusable_plugins_are_listed_with_folder_cause_and_next_step_until_mended(tmp_path: Path) -> None:
    """Also in the error for an unknown class."""
    text = "raise RuntimeError('no libfoo ' + 'x' * 10_000_000)\n"
    broken = Environment(tmp_path / "p" / "broken").install("bad", "1", {"bad.py": text}, connectors=["P = bad:P"])
    Environment(tmp_path / "p" / "other", "python2.7").install("boom", "1", {}, connectors=["B = boom:B"])
    taken = PLUGIN.replace("org.example.{name}", "org.apache.kafka.connect.json.JsonConverter").format(aliases="")
    Environment(tmp_path / "p" / "taken").install("taken", "1", {"taken.py": taken}, connectors=["P = taken:P"])
    found = discover(f"{tmp_path / 'p'},{tmp_path / 'nothing'}")
    listed = Plugins(found)
    told = {Path(one.folder).name: one for one in listed.refused()}
    assert told.keys() == {"broken", "other", "taken", "nothing"}
    assert told["broken"].plugin == "bad:P"
    assert told["broken"].why.startswith("RuntimeError: no libfoo xxx")
    assert len(told["broken"].why) < 1_100
    assert "the worker detects the change" in told["broken"].fix
    assert told["other"].why.startswith("it is an environment of python2.7")
    assert told["taken"].why == "a transformation, predicate or converter has this name"
    assert all(one.fix for one in told.values())
    with pytest.raises(ConfigError) as unknown:
        found.registry.find("Bad")
    assert "plugins that cannot be used: " in unknown.value.fix
    assert "and 3 more; `herd get plugins` lists them" in unknown.value.fix
    (broken.packages / "bad.py").write_text(PLUGIN.format(name="Bad", aliases=""))
    assert found.folders is not None
    found.folders.look()
    found.folders.wait(60)
    assert {Path(one.folder).name for one in listed.refused()} == {"other", "taken", "nothing"}
    found.close()


@pytest.mark.usefixtures("own_looks")
def test_a_config_with_an_unknown_plugin_triggers_a_scan_of_the_folders(tmp_path: Path) -> None:
    greet(tmp_path / "greet", "1.0", "1")
    found = discover(str(tmp_path))
    listed = Plugins(found)
    told: list[list[str]] = []
    found.when_changed(lambda: told.append(found.registry.versions("org.example.New")))
    new = Environment(tmp_path / "new").install(
        "new", "1", {"new.py": PLUGIN.format(name="New", aliases="")}, connectors=["P = new:P"]
    )
    known: dict[str, str | None] = {"connector.class": "Greet", "connector.plugin.version": "1.0"}
    listed.catch_up({**known, "transforms": "m", "transforms.m.type": "Louder"}, {})
    assert told == [], "nothing is missing"
    listed.catch_up({**known, "connector.class": "org.example.New"}, {})
    assert found.registry.versions("org.example.New") == ["1"]
    assert told == [["1"]], "told before whoever asked goes on"
    (new.packages / "new.py").write_text(PLUGIN.format(name="New", aliases="").replace('"1"', '"2.0"'))
    listed.catch_up({"connector.class": "org.example.New", "connector.plugin.version": "2.0"}, {})
    assert found.registry.versions("org.example.New") == ["2.0"]
    listed.catch_up({"connector.class": "org.example.Nowhere"}, {})
    assert told == [["1"], ["2.0"]]
    found.close()


@pytest.mark.usefixtures("own_looks")
def test_a_new_release_is_used_by_the_next_start_and_running_connectors_keep_theirs(tmp_path: Path) -> None:
    environment = greet(tmp_path / "greet", "1.0", "1")
    found = discover(str(tmp_path))
    assert found.folders is not None
    old = found.registry.find("Greet").load()
    old.context = ConnectorContext(lambda: None, lambda _: None)
    old.start({"word": "RUNS"})
    info = environment.packages / "greet-1.0.dist-info"
    info.rename(environment.packages / "greet-2.0.dist-info")
    code = environment.packages / "greet.py"
    code.write_text(code.read_text().replace('version = "1.0"', 'version = "2.0"'))
    metadata_of = environment.packages / "greet-2.0.dist-info" / "METADATA"
    metadata_of.write_text(metadata_of.read_text().replace("Version: 1.0", "Version: 2.0"))
    with capture_logs() as logs:
        found.folders.look()
        found.folders.wait(60)
    assert any(one["event"] == "plugin_folder_changed" for one in logs)
    assert found.registry.versions("Greet") == ["2.0"]
    assert old.task_configs(1)[0]["said"] == "RUNS 1", "in the process it was started in"
    replaced, new = found.folders.processes()
    for _ in range(3):
        assert not replaced.rest_if_idle()
    old.stop()
    assert not replaced.rest_if_idle(), "it may be between two messages"
    assert replaced.rest_if_idle()
    assert new.rest_if_idle()
    found.close()


@pytest.mark.usefixtures("own_looks")
def test_a_working_folder_stays_known_when_it_breaks_or_is_removed(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "p").install(
        "p", "1", {"p.py": PLUGIN.format(name="P", aliases="")}, connectors=["P = p:P"]
    )
    found = discover(str(tmp_path))
    assert found.folders is not None
    told: list[int] = []
    found.when_changed(lambda: told.append(1))
    (environment.packages / "p.py").write_text("import nowhere_to_be_found\n")
    found.folders.look()
    found.folders.wait(60)
    assert found.registry.versions("org.example.P") == ["1"], "a connector of it may run"
    assert [one.plugin for one in found.folders.refused()] == ["p:P"]
    assert told == [1]
    environment.folder.rename(tmp_path.with_name("away"))
    found.folders.look()
    assert any("the folder is missing" in one.why for one in found.folders.refused())
    assert told == [1, 1]
    found.close()


def test_a_broken_installed_package_does_not_prevent_a_worker_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = "import sys\nsys.exit(7)\n"
    wrong = PLUGIN.format(name="Wrong", aliases="aliases = 'Wrong'")
    right = PLUGIN.format(name="Right", aliases="")
    environment = Environment(tmp_path / "here").install(
        "beside", "1.0", {"of_exit.py": broken, "of_wrong.py": wrong, "of_right.py": right},
        connectors=["A = of_exit:P", "B = of_wrong:P", "C = of_right:P", "D = of_right:Nowhere"],
        transformations=["E = of_exit:E"],
    )  # fmt: skip
    monkeypatch.setattr(sys, "path", [str(environment.packages), *sys.path])
    found = discover("")
    assert found.registry.versions("org.example.Right") == ["1"]
    told = {one.plugin: one for one in Plugins(found).refused()}
    assert told.keys() == {"of_exit:P", "of_wrong:P", "of_right:Nowhere", "of_exit:E"}
    assert "SystemExit: 7" in told["of_exit:P"].why
    assert "aliases is 'Wrong' (str): write a tuple of strings" in told["of_wrong:P"].why
    assert {one.folder for one in told.values()} == {"beside, installed beside Herdmesh"}
