"""Tests of the shortcut for new folders: one complete copy is kept, and every folder copied from it is a cluster of its
own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from herdmesh.devstack import _broker_config as config
from herdmesh.devstack import blank_folder

PORTS = config.Ports(9092, 9093)
IDENTITY = "#\n#Mon Nov 23 09:13:09 UTC 2026\nnode.id=1\ndirectory.id=dddd\nversion=1\ncluster.id=cccc\n"


@pytest.fixture
def kafka_made(tmp_path: Path) -> Path:
    return made(tmp_path / "kafka-made")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "broker-1-0123.formatted"


def made(folder: Path, identity: str = IDENTITY) -> Path:
    folder.mkdir()
    (folder / "meta.properties").write_text(identity)
    (folder / "bootstrap.checkpoint").write_bytes(b"\x00\xfffeatures")
    return folder


def test_a_copy_is_a_cluster_of_its_own(tmp_path: Path, kafka_made: Path, kept: Path) -> None:
    blank_folder.keep(kafka_made, kept)
    for name in ("one", "two"):
        assert blank_folder.copy(kept, tmp_path / name, f"cluster-{name}", f"folder-{name}")
        told = (tmp_path / name / "meta.properties").read_text().splitlines()
        assert told == ["node.id=1", f"directory.id=folder-{name}", "version=1", f"cluster.id=cluster-{name}"]
        assert (tmp_path / name / "bootstrap.checkpoint").read_bytes() == b"\x00\xfffeatures"
        assert config.cluster_id(tmp_path / name) == f"cluster-{name}"


def test_without_a_kept_folder_nothing_is_copied(tmp_path: Path, kept: Path) -> None:
    assert not blank_folder.copy(kept, tmp_path / "new", "c", "d")
    assert not (tmp_path / "new").exists()


def test_a_folder_without_the_expected_ids_is_not_copied(tmp_path: Path, kept: Path) -> None:
    blank_folder.keep(made(tmp_path / "older", "node.id=1\nversion=1\ncluster.id=cccc\n"), kept)
    assert not blank_folder.copy(kept, tmp_path / "new", "c", "d")
    assert not (tmp_path / "new").exists()


def test_a_copy_that_cannot_be_written_leaves_nothing(tmp_path: Path, kafka_made: Path, kept: Path) -> None:
    blank_folder.keep(kafka_made, kept)
    assert not blank_folder.copy(kept, tmp_path / "gone" / "new", "c", "d")


def test_a_folder_with_other_files_is_not_kept(kafka_made: Path, kept: Path) -> None:
    (kafka_made / "__cluster_metadata-0").mkdir()
    blank_folder.keep(kafka_made, kept)
    assert not kept.exists()


def test_the_first_kept_folder_stays(tmp_path: Path, kafka_made: Path, kept: Path) -> None:
    blank_folder.keep(kafka_made, kept)
    blank_folder.keep(made(tmp_path / "later", IDENTITY + "more=1\n"), kept)
    assert (kept / "meta.properties").read_text() == IDENTITY
    assert [found.name for found in tmp_path.glob("*.new")] == []


def test_an_unwritable_cache_is_no_error(tmp_path: Path, kafka_made: Path) -> None:
    blank_folder.keep(kafka_made, tmp_path / "gone" / "broker-1.formatted")
    assert not (tmp_path / "gone").exists()


def test_one_folder_is_kept_for_each_jar_set_and_configuration_on_any_port(tmp_path: Path) -> None:
    def path(jars: str, folder: str, **settings: str) -> Path:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        properties = tmp_path / "format.properties"
        config.write_server_properties(properties, tmp_path / folder, PORTS, named)
        classpath = os.pathsep.join([str(tmp_path / jars / "a.jar"), "b.jar"])
        return blank_folder.kept_path(classpath, properties, tmp_path / folder)

    usual = path("broker-1", "one")
    assert usual.parent == tmp_path
    assert usual.name.startswith("broker-1-")
    assert path("broker-1", "two") == usual
    guarded = {"listeners": "GUARDED://127.0.0.1:1", "advertised_listeners": "GUARDED://127.0.0.1:1"}
    assert path("broker-1", "one", **guarded) == usual
    others = [path("broker-2", "one"), path("broker-1", "one", node_id="2"), path("broker-1", "one", log_dirs="/x")]
    assert len({usual, *others}) == 4
