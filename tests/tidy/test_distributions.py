"""The distributions as a release: one version, one licence, ranges that others can install, pins in `deploy/` alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from deploy.dist import ROOT, distributions, project_file

FOLDERS = {folder.relative_to(ROOT).as_posix(): folder for folder in distributions()}
PROJECTS: dict[str, dict[str, Any]] = {name: project_file(folder)["project"] for name, folder in FOLDERS.items()}
NAMES = {project["name"] for project in PROJECTS.values()}
VERSION = PROJECTS["meta"]["version"]
ONE_VERSION_ONLY = {"confluent-kafka"}
"""Packages whose private parts are called: `herdmesh.kafka.librdkafka`."""


def requirements(project: dict[str, Any]) -> list[Requirement]:
    """Requirements of the distribution and its extras."""
    extras = project.get("optional-dependencies", {}).values()
    return [Requirement(one) for one in (*project["dependencies"], *(one for extra in extras for one in extra))]


def pinned() -> dict[str, str]:
    """deploy/requirements.txt: the version of each package, by its normalized name."""
    lines = (ROOT / "deploy" / "requirements.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if "==" in line]
    return {normalized(name): version for name, version in pairs}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_distributions_are_found_by_searching_the_tree() -> None:
    assert {"cli", "libs/connectors", "libs/core", "libs/sdk", "meta", "services/worker"} <= set(FOLDERS)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_distribution_has_the_releases_version_licence_and_python(name: str) -> None:
    project = PROJECTS[name]
    assert project["version"] == VERSION
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert (FOLDERS[name] / "LICENSE").samefile(ROOT / "LICENSE")
    assert project["requires-python"] == ">=3.11"
    assert {f"Programming Language :: Python :: {one}" for one in ("3.11", "3.12", "3.13")} <= set(
        project["classifiers"]
    )
    assert (FOLDERS[name] / project["readme"]).is_file()


@pytest.mark.parametrize("name", FOLDERS)
def test_a_distribution_requires_ranges_that_include_the_pinned_version(name: str) -> None:
    """Exact versions are in deploy/ alone, and the tests run with them."""
    versions = pinned()
    for one in requirements(PROJECTS[name]):
        if one.name in NAMES:
            assert one.extras or str(one.specifier) == f"~={VERSION}", f"{one}: not this release's"
            continue
        exact = any(part.operator in ("==", "===") for part in one.specifier)
        assert exact == (one.name in ONE_VERSION_ONLY and bool(str(one.specifier))), str(one)
        assert one.specifier.contains(versions[normalized(one.name)], prereleases=True), str(one)


def test_the_meta_package_installs_every_distribution() -> None:
    assert {one.name for one in requirements(PROJECTS["meta"])} >= NAMES - {"herdmesh"}


def test_the_meta_package_has_the_commands_of_its_parts() -> None:
    """`uv tool install herdmesh` and `pipx install herdmesh` give a user the commands of the named package alone."""
    parts = {name: PROJECTS[name].get("scripts", {}) for name in PROJECTS if name != "meta"}
    assert PROJECTS["meta"]["scripts"] == {name: where for scripts in parts.values() for name, where in scripts.items()}


def test_the_changelog_has_the_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1].split(" ")[0] == VERSION


def test_a_release_has_the_files_of_a_public_project() -> None:
    for name in ("LICENSE", "SECURITY.md", ".github/ISSUE_TEMPLATE/config.yml", "docs/how-to/install.md"):
        assert Path(ROOT, name).is_file(), name
