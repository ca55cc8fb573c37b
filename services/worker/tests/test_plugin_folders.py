"""Reading of plugin folders without importing their modules, and the folders that are refused, with the reasons."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from herdmesh.worker.effects.plugins import plugin_folders
from herdmesh.worker.effects.plugins.plugin_folders import OwnLibraries, own_libraries
from tests.support.plugin_environments import Environment, greet

OWN = OwnLibraries({"msgspec": "0.22.0", "pyarrow": "26.0.1", "herdmesh-connectors": "0.1.0"}, ("herdmesh", "msgspec"))
BOOM = {"boom.py": 'raise RuntimeError("imported")\n'}
ENTRY = ["Boom = boom:Boom"]


def test_environments_are_found_at_each_depth_and_nothing_is_imported(tmp_path: Path) -> None:
    alone = Environment(tmp_path / "alone").install("boom", "1", BOOM, connectors=ENTRY)
    for version in ("1", "2"):
        Environment(tmp_path / "many" / "boom" / version).install("boom", version, BOOM, connectors=ENTRY)
    (tmp_path / "many" / "README").write_text("no plugin")
    found, refused = plugin_folders.find(f"{alone.folder}, {tmp_path / 'many'},,{alone.folder}", OWN)
    assert refused == []
    assert [Path(one.imports.folder).relative_to(tmp_path).as_posix() for one in found] == [
        "alone", "many/boom/1", "many/boom/2",
    ]  # fmt: skip
    assert [(one.value, one.distribution, one.version) for one in found[2].entries] == [("boom:Boom", "boom", "2")]
    assert found[0].imports.site_packages == str(alone.packages)
    assert "boom" not in sys.modules


def test_unusable_folders_are_refused_with_the_reason_and_the_rest_is_found(tmp_path: Path) -> None:
    Environment(tmp_path / "other", "python2.7").install("boom", "1", BOOM, connectors=ENTRY)
    Environment(tmp_path / "none").install("tool", "1", {"tool.py": ""})
    (tmp_path / "jars").mkdir()
    good = Environment(tmp_path / "good").install("boom", "1", BOOM, connectors=ENTRY)
    names = ("other", "none", "jars", "missing", "good")
    found, refused = plugin_folders.find(",".join(str(tmp_path / name) for name in names), OWN)
    assert [one.imports.folder for one in found] == [str(good.folder)]
    why = {Path(one.folder).name: one.why for one in refused}
    mine = f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert why == {
        "jars": "the folder has no virtual environment",
        "missing": "there is no such folder",
        "other": f"it is an environment of python2.7, and this worker runs {mine}",
        "none": "no distribution in it has an entry point of the group herdmesh.connectors, nor of "
        "herdmesh.transformations, herdmesh.predicates, herdmesh.converters",
    }
    assert all(one.fix for one in refused)


def test_a_requirement_that_herdmeshs_library_does_not_meet_is_refused_with_both_versions(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "old")
    environment.install("boom", "1", BOOM, connectors=ENTRY, requires=["helper>=3"])
    environment.install("helper", "3.1", {}, requires=["PyArrow<20,>=15", 'msgspec<0.1; extra == "fast"'])
    environment.install("pyarrow", "19.0", {})
    found, refused = plugin_folders.find(str(environment.folder), OWN)
    assert found == []
    (one,) = refused
    assert "helper 3.1 requires PyArrow<20,>=15" in one.why
    assert "PyArrow 26.0.1" in one.why
    assert "helper" in one.fix
    assert "26.0.1" in one.fix


def test_another_version_of_a_library_that_is_not_required_is_listed_and_not_refused(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "new")
    environment.install("boom", "1", BOOM, connectors=ENTRY, requires=["pyarrow>=15", "msgspec"])
    environment.install("pyarrow", "27.0", {}, requires=["msgspec<0.1"])  # of the copy that is not used
    datagen = ["Datagen = herdmesh.connectors.datagen.connector:Datagen"]
    environment.install("herdmesh_connectors", "0.2.0", {}, connectors=datagen)
    (found,), refused = plugin_folders.find(str(environment.folder), OWN)
    assert refused == []
    assert set(found.differing) == {"pyarrow 27.0 (runs with 26.0.1)", "herdmesh_connectors 0.2.0 (runs with 0.1.0)"}
    assert [entry.name for entry in found.entries] == ["Boom"], "not Herdmesh's own"


@pytest.mark.parametrize("distribution", ["herdmesh-core", "pyspark", "pyarrow", "msgspec", "protobuf", "grpcio"])
def test_own_libraries_are_herdmeshs_and_what_they_require(distribution: str) -> None:
    own = own_libraries()
    assert distribution in own.versions
    assert {"herdmesh", "pyspark", "pyarrow", "msgspec", "google", "grpc"} <= set(own.modules)
    assert "pytest" not in own.versions


def test_the_test_plugin_is_found(tmp_path: Path) -> None:
    greet(tmp_path / "greet", "1.0", "1")
    (found,), refused = plugin_folders.find(str(tmp_path), own_libraries())
    assert refused == []
    assert found.differing[0].startswith("msgspec 0.0.1 (runs with ")


def test_unreadable_folders_are_refused_and_the_rest_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker with `lost+found` or an interrupted installation in its plugin folder starts."""
    good = Environment(tmp_path / "good").install("boom", "1", BOOM, connectors=ENTRY)
    half = Environment(tmp_path / "half").install("boom", "1", BOOM, connectors=ENTRY)
    (half.packages / "~tool-1.dist-info").mkdir()
    locked = tmp_path / "lost+found"
    locked.mkdir()
    is_file = Path.is_file

    def seen(path: Path) -> bool:  # root may read anything
        if path.parent == locked:
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", seen)
    found, refused = plugin_folders.find(str(tmp_path), OWN)
    assert str(good.folder) in [one.imports.folder for one in found]
    why = {Path(one.folder).name: one.why for one in refused}
    assert "Permission denied" in why["lost+found"]
    assert "cannot be read" in why["half"]
