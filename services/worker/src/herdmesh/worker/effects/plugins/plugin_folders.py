"""Contents of the plugin folders (`plugin.path`), read from the installers' metadata: no plugin module is imported.

Owns the rules for reading a folder, and for refusing one: it belongs to another Python, has no plugins, or has
requirements that contradict Herdmesh's own. A plugin shares its process with Herdmesh, so of each library that Herdmesh
requires the process has one version: the one installed here (`herdmesh.connect.plugins.plugin_imports`).

Invariant: each virtual environment below a folder of the path is either found or refused, with a reason.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from herdmesh.connect.plugins import ENTRY_POINT_GROUP
from herdmesh.connect.spi import GROUPS, PluginImports

_ROOTS: Final = ("herdmesh-core", "herdmesh-sdk", "herdmesh-worker", "herdmesh-connectors")
_MARK: Final = "pyvenv.cfg"
_DEPTH_MAX: Final = 2
_FILES_MAX: Final = 50_000
"""Limit of the files checked in one environment."""
_CACHES: Final = frozenset({"__pycache__", "bin"})
_CODE: Final = (".py", ".pyc", ".so", ".pth", _MARK)
_INSTALLERS: Final = (".dist-info", ".egg-info")
_PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True)
class OwnLibraries:
    """Herdmesh and everything it requires, as installed here."""

    versions: dict[str, str]
    """Versions by normalized name of the distribution."""
    modules: tuple[str, ...]
    """Their top-level modules, sorted."""


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """One plugin, from its distribution's metadata."""

    group: str
    """Group of entry points, which names the kind of plugin."""
    name: str
    value: str
    """Location of its class: `module:Class`."""
    distribution: str
    version: str
    """Version of the distribution."""


@dataclass(frozen=True, slots=True)
class PluginFolder:
    """One virtual environment with plugins."""

    imports: PluginImports
    entries: tuple[PluginEntry, ...]
    differing: tuple[str, ...]
    """Libraries of the environment that are replaced by Herdmesh's version, which the plugin's requirements allow."""


@dataclass(frozen=True, slots=True)
class RefusedPlugin:
    """A folder or plugin that is not used, and the reason."""

    folder: str
    why: str
    fix: str
    plugin: str = ""
    """"" = nothing in the folder is used."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Two texts that change with the files of an environment (names, sizes and times)."""

    files: str
    """Covers all files."""
    code: str
    """Covers modules and installers' metadata, but not data that a plugin may write beside its code."""


def own_libraries() -> OwnLibraries:
    """Read the installed distributions. Takes some hundred milliseconds."""
    found: dict[str, metadata.Distribution] = {}
    wanted = [(name, frozenset[str]()) for name in _ROOTS]
    while wanted:
        name, extras = wanted.pop()
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # required by an unused extra, or Herdmesh itself comes from a folder on PYTHONPATH
        if found.setdefault(canonicalize_name(name), distribution) is not distribution:
            continue
        wanted += [(one.name, frozenset(one.extras)) for one in _requirements(distribution, extras)]
    modules = {module for one in found.values() for module in _modules(one)}
    versions = {name: one.version for name, one in found.items()}
    return OwnLibraries(versions, tuple(sorted({*modules, "herdmesh"})))


def find(plugin_path: str, own: OwnLibraries) -> tuple[list[PluginFolder], list[RefusedPlugin]]:
    """The environments in the folders of a `plugin.path`, in its order, and the refused ones."""
    found: list[PluginFolder] = []
    refused: list[RefusedPlugin] = []
    environments: dict[str, Path] = {}  # by resolved path: a symbolic link to an environment is not a second one
    for text in filter(None, map(str.strip, plugin_path.split(","))):
        folder = Path(text).absolute()
        below: list[Path] = []
        try:
            is_folder = folder.is_dir()
        except OSError as error:
            refused.append(_locked(folder, error))
            continue
        for one in _environments(folder, _DEPTH_MAX) if is_folder else ():
            if isinstance(one, RefusedPlugin):
                refused.append(one)
            else:
                below.append(one)
        if not below:
            why = "the folder has no virtual environment" if is_folder else "there is no such folder"
            refused.append(
                RefusedPlugin(text, why, f"create one: {_PYTHON} -m venv, then install the connector with its pip")
            )
        for one in below:
            environments.setdefault(os.path.realpath(one), one)
    for environment in environments.values():
        one = _read_any(environment, own)
        if isinstance(one, PluginFolder):
            found.append(one)
        else:
            refused.append(one)
    return found, refused


def _environments(folder: Path, depth: int) -> Iterator[Path | RefusedPlugin]:
    try:
        if (folder / _MARK).is_file():
            yield folder
            return
        within = sorted(folder.iterdir()) if depth else []
    except OSError as error:  # for example lost+found, which belongs to root
        yield _locked(folder, error)
        return
    for below in within:
        try:
            is_folder = below.is_dir()
        except OSError as error:  # a link to something the worker may not read: its siblings are still found
            yield _locked(below, error)
            continue
        if is_folder:
            yield from _environments(below, depth - 1)


def _locked(folder: Path, error: OSError) -> RefusedPlugin:
    return RefusedPlugin(str(folder), f"it cannot be read: {error}", "let the worker read it, or move it")


def signatures(plugin_path: str) -> dict[str, Signature]:
    """Signature of each environment below the folders of a `plugin.path`, by its resolved path. Python's cache files do
    not count. Only lists files: some milliseconds for an environment of a thousand files.
    """
    found: dict[str, Signature] = {}
    for text in filter(None, map(str.strip, plugin_path.split(","))):
        for one in _environments(Path(text).absolute(), _DEPTH_MAX):
            if isinstance(one, Path):
                place = os.path.realpath(one)
                found.setdefault(place, _signature(place))
    return found


def _signature(environment: str) -> Signature:
    all_files, code = blake2b(digest_size=16), blake2b(digest_size=16)
    left = _FILES_MAX
    for folder, folders, files in os.walk(environment):
        folders[:] = sorted(one for one in folders if one not in _CACHES)
        is_installers = folder.endswith(_INSTALLERS)
        for name in sorted(files):
            try:
                about = os.stat(os.path.join(folder, name))
            except OSError:
                continue  # a broken link, or removed meanwhile
            line = f"{folder}/{name} {about.st_size} {about.st_mtime_ns}\n".encode(errors="surrogateescape")
            all_files.update(line)
            if is_installers or name.endswith(_CODE):
                code.update(line)
            left -= 1
            if not left:
                return Signature(all_files.hexdigest(), code.hexdigest())
    return Signature(all_files.hexdigest(), code.hexdigest())


def _read_any(environment: Path, own: OwnLibraries) -> PluginFolder | RefusedPlugin:
    try:
        return _read(environment, own)
    except Exception as error:  # noqa: BLE001 - metadata of an interrupted installation may raise anything
        why = f"what is installed in it cannot be read: {type(error).__name__}: {error}"
        return RefusedPlugin(str(environment), why, "create the environment again")


def _read(environment: Path, own: OwnLibraries) -> PluginFolder | RefusedPlugin:
    packages = environment / "lib" / _PYTHON / "site-packages"
    if not packages.is_dir():
        others = ", ".join(sorted(one.parent.name for one in environment.glob("lib/*/site-packages"))) or "no Python"
        return RefusedPlugin(
            str(environment), f"it is an environment of {others}, and this worker runs {_PYTHON}",
            f"create it with {_PYTHON} -m venv",
        )  # fmt: skip
    # Its copies of Herdmesh and of Herdmesh's requirements are not used, so their versions and requirements do not
    # matter.
    there = list(metadata.distributions(path=[str(packages)]))
    brought = [one for one in there if canonicalize_name(one.name) not in own.versions]
    entries = tuple(
        PluginEntry(group, entry.name, entry.value, one.name, one.version)
        for one in brought
        for group in (ENTRY_POINT_GROUP, *GROUPS)
        for entry in _entry_points(one).select(group=group)
    )
    if not entries:
        return RefusedPlugin(
            str(environment), f"no distribution in it has an entry point of the group {ENTRY_POINT_GROUP}, nor of "
            f"{', '.join(GROUPS)}",
            f"install a plugin with {environment / 'bin' / 'pip'}",
        )  # fmt: skip
    for one in brought:
        for wanted in _requirements(one, frozenset()):
            has = own.versions.get(canonicalize_name(wanted.name))
            if has is not None and not wanted.specifier.contains(has, prereleases=True):
                return RefusedPlugin(
                    str(environment),
                    f"{one.name} {one.version} requires {wanted}, and a connector runs in one process with Herdmesh, "
                    f"which is installed with {wanted.name} {has}",
                    f"install a release of {one.name} that works with {wanted.name} {has}",
                )
    differing = tuple(
        f"{one.name} {one.version} (runs with {has})"
        for one in there
        if (has := own.versions.get(canonicalize_name(one.name), one.version)) != one.version
    )
    return PluginFolder(PluginImports(str(environment), str(packages), own.modules), entries, differing)


def _entry_points(distribution: metadata.Distribution) -> metadata.EntryPoints:
    try:
        return distribution.entry_points
    except Exception as error:
        named = f"{distribution.name} {distribution.version}"
        raise ValueError(f"entry_points.txt of {named} has a line that is not name = module:Class ({error})") from error


def _requirements(distribution: metadata.Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    """Requirements of the distribution on this machine, including those of its extras."""
    for text in distribution.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue  # metadata older than the standard format; its installer had to guess too
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": one}) for one in extras or {""}):
            yield requirement


def _modules(distribution: metadata.Distribution) -> Iterator[str]:
    """The top-level modules of the distribution; none if it was installed as editable."""
    for file in distribution.files or ():
        first = file.parts[0]
        if len(file.parts) > 1 and first.isidentifier() and first != "__pycache__":
            yield first
        elif len(file.parts) == 1 and file.suffix in (".py", ".so", ".pyd"):
            yield first.partition(".")[0]
