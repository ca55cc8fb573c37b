"""Tests of the shortcut for JVM starts: written once, shared, and never an obstacle."""

from __future__ import annotations

import os
from pathlib import Path

from herdmesh.devstack import class_archive
from herdmesh.devstack.java import Java


def test_the_archive_is_written_first_and_used_afterwards(tmp_path: Path) -> None:
    java = Java(tmp_path / "java", 17)
    java.executable.touch()
    archive = class_archive.archive_path(java, os.pathsep.join([str(tmp_path / "broker-1" / "a.jar"), "b.jar"]))
    fresh = tmp_path / "data" / "broker.jsa"
    assert archive.parent == tmp_path
    assert f"-XX:ArchiveClassesAtExit={fresh}" in class_archive.jvm_options(archive, fresh)

    class_archive.keep(fresh, archive)  # the JVM wrote none
    assert not archive.exists()
    fresh.parent.mkdir()
    fresh.write_bytes(b"classes")
    class_archive.keep(fresh, archive)
    assert archive.read_bytes() == b"classes"
    assert not fresh.exists()
    assert f"-XX:SharedArchiveFile={archive}" in class_archive.jvm_options(archive, fresh)


def test_another_java_has_another_archive(tmp_path: Path) -> None:
    (tmp_path / "one").touch()
    (tmp_path / "two").touch()
    jar = str(tmp_path / "broker-1" / "a.jar")
    one, two = (class_archive.archive_path(Java(tmp_path / name, 17), jar) for name in ("one", "two"))
    assert one != two


def test_an_unwritable_cache_is_no_error(tmp_path: Path) -> None:
    fresh = tmp_path / "broker.jsa"
    fresh.write_bytes(b"classes")
    class_archive.keep(fresh, tmp_path / "gone" / "broker.jsa")
    assert not (tmp_path / "gone").exists()
