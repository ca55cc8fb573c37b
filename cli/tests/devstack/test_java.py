"""Tests of the choice of Java, and of the errors when none is usable. The javas are small scripts that print a
version.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from herdmesh.devstack.errors import JavaMissing, JavaTooOld
from herdmesh.devstack.java import find_java


def _java(folder: Path, says: str) -> Path:
    folder.mkdir(parents=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "21" 2023-09-19 LTS', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
    ],
)
def test_the_java_in_path_is_used(tmp_path: Path, says: str, version: int) -> None:
    java = _java(tmp_path / "bin", says)
    found = find_java()
    assert (found.executable, found.version) == (java, version)


def test_java_home_has_priority_over_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(tmp_path / "bin", 'openjdk version "21.0.1"')
    java = _java(tmp_path / "home" / "bin", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java().executable == java


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(tmp_path / "bin", 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(JavaMissing, match=r"JAVA_HOME is .*gone, but there is no bin/java"):
        find_java()


def test_the_error_without_java_names_what_to_install() -> None:
    with pytest.raises(JavaMissing, match=r"No java in PATH[\s\S]*apt install openjdk-17"):
        find_java()


@pytest.mark.parametrize(
    ("says", "version"), [('openjdk version "11.0.2" 2019-01-15', "11"), ('java version "1.8.0_392"', "8")]
)
def test_an_old_java_is_named_with_its_version(tmp_path: Path, says: str, version: str) -> None:
    _java(tmp_path / "bin", says)
    with pytest.raises(JavaTooOld, match=rf"bin/java is Java {version}; 17 or newer is needed"):
        find_java()


def test_a_java_that_only_requests_an_installation_counts_as_missing(tmp_path: Path) -> None:
    _java(tmp_path / "bin", "The operation could not be completed. Unable to locate a Java Runtime.")
    with pytest.raises(JavaMissing, match="Unable to locate a Java Runtime"):
        find_java()
