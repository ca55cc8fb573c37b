"""Everything this worker can load: found when it starts, and as messages, what hello and ListPlugins tell.

Owns what is taken of the plugin folders (`plugin_folders`) beside what is installed, and the messages. The list and the
search by name and version are the registry's (`herdmesh.connect.plugins`).

Invariants: what is listed can be described, by its class name and by each alias. No plugin folder, whatever is in it,
keeps a worker from starting: what cannot be taken is left out, and the log says why.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.connect import plugins
from herdmesh.connect.builtin import PluginClass, builtin_classes, installed_classes, third_party_classes
from herdmesh.connect.plugins import PluginDescriptor, PluginRegistry
from herdmesh.connect.versions import rank
from herdmesh.worker.effects.plugin_folders import PluginFolder, find, own_libraries
from herdmesh.worker.effects.plugin_processes import PluginProcess
from herdmesh.worker.effects.remote_authored import remote_authored
from herdmesh.worker.effects.remote_connectors import remote_class
from herdmesh.worker.effects.validation import describe

ANSWER_S: Final = 20.0
"""How long a worker that starts waits for its plugin folders. One imported in some seconds each, on a busy machine."""
_AT_A_TIME: Final = 8

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """What a worker found when it started."""

    registry: PluginRegistry
    processes: tuple[PluginProcess, ...] = ()
    """Of plugin folders, started when one is asked something."""
    late: LateFolders | None = None
    """Folders that did not answer in time, if there were any."""

    def when_more(self, tell: Callable[[], object]) -> None:
        """Have `tell` called, in any thread, each time that `registry` knows more plugins than when it was found."""
        if self.late is not None:
            self.late.tell = tell

    def close(self) -> None:
        """End the processes."""
        for one in self.processes:
            one.close()


def discover(plugin_path: str) -> Found:
    """What is installed, and what is in the folders of a `plugin.path`. Imports the former here and the latter in
    processes of their own, so it takes a second or two with folders, and is called in a thread.

    Raises TypeError, ValueError: of what is installed, as `herdmesh.connect.plugins` does.
    """
    here = plugins.installed()
    others = [*third_party_classes(), *installed_classes()]
    if not plugin_path.strip():
        return Found(PluginRegistry(here, others))
    folders, refused = find(plugin_path, own_libraries())
    for one in refused:
        _log.warning("plugin_folder_refused", folder=one.folder, why=one.why, fix=one.fix)
    processes = [PluginProcess(folder.imports) for folder in folders]
    asked = _Asked(folders, processes)
    registry = _registry(here, others, asked.wait(ANSWER_S))
    missing = asked.missing()
    for folder in missing:
        _log.warning(
            "plugin_folder_late", folder=folder.imports.folder,
            why=f"it did not say within {ANSWER_S:g} s what is in it; the worker serves without it, and goes on asking",
            fix="look what its modules do when they are imported: they may wait for something",
        )  # fmt: skip
    late = LateFolders(asked, registry, lambda found: _registry(here, others, found)) if missing else None
    return Found(registry, tuple(processes), late)


class _Asked:
    """All folders, each asked in a daemon thread of its own: one that hangs keeps no other waiting, nor the process
    from ending. A few at a time, as they use the processor."""

    def __init__(self, folders: Sequence[PluginFolder], processes: Sequence[PluginProcess]) -> None:
        self.changed = threading.Condition()
        self._folders = folders
        self._answers: dict[int, list[PluginDescriptor | PluginClass]] = {}
        self._slots = threading.Semaphore(max(_AT_A_TIME, os.cpu_count() or 1))
        for number, (folder, process) in enumerate(zip(folders, processes, strict=True)):
            threading.Thread(
                target=self._ask,
                args=(number, folder, process),
                name=f"plugins of {folder.imports.folder}",
                daemon=True,
            ).start()

    def wait(self, seconds: float) -> list[PluginDescriptor | PluginClass]:
        """What is found when all have answered, or that time is over."""
        with self.changed:
            self.changed.wait_for(lambda: len(self._answers) == len(self._folders), seconds)
            return self.found()

    def found(self) -> list[PluginDescriptor | PluginClass]:
        """What is found so far, in the order of the folders."""
        return [one for number in sorted(self._answers) for one in self._answers[number]]

    def missing(self) -> list[PluginFolder]:
        """Those that have not answered."""
        return [folder for number, folder in enumerate(self._folders) if number not in self._answers]

    def _ask(self, number: int, folder: PluginFolder, process: PluginProcess) -> None:
        answer: list[PluginDescriptor | PluginClass] = []
        try:
            with self._slots:
                answer = _described(folder, process)
        finally:
            with self.changed:
                self._answers[number] = answer
                self.changed.notify_all()


class LateFolders:
    """Waits for folders that were late, and has the registry know what they bring."""

    def __init__(
        self,
        asked: _Asked,
        registry: PluginRegistry,
        joined: Callable[[list[PluginDescriptor | PluginClass]], PluginRegistry],
    ) -> None:
        self.tell: Callable[[], object] = _nothing
        """Called when there are more."""
        self._asked = asked
        self._registry = registry
        self._joined = joined
        threading.Thread(target=self._join, name="late plugins", daemon=True).start()

    def _join(self) -> None:
        known = len(self._asked.found())
        while missing := self._asked.missing():
            count = len(missing)
            with self._asked.changed:
                self._asked.changed.wait_for(lambda count=count: len(self._asked.missing()) < count)
            found = self._asked.found()
            if len(found) > known:
                known = len(found)
                self._registry.become(self._joined(found))
                self.tell()


def _nothing() -> None:
    return


def _registry(
    here: Sequence[PluginDescriptor], others: Sequence[PluginClass], found: Sequence[PluginDescriptor | PluginClass]
) -> PluginRegistry:
    connectors = _without_clashes(here, [one for one in found if isinstance(one, PluginDescriptor)])
    authored = [one for one in found if isinstance(one, PluginClass)]
    return PluginRegistry(connectors, [*others, *_with_free_names(connectors, others, authored)])


def _described(folder: PluginFolder, process: PluginProcess) -> list[PluginDescriptor | PluginClass]:
    """The plugins of a folder that can be imported."""
    found: list[PluginDescriptor | PluginClass] = []
    for entry in folder.entries:
        described: PluginDescriptor | PluginClass
        try:
            if entry.group == plugins.ENTRY_POINT_GROUP:
                described = plugins.describe(remote_class(process, entry.value, entry.version))
                described = replace(described, imports=folder.imports)
            else:
                described = remote_authored(process, entry.value, entry.version, folder.imports)
        except Exception as error:  # noqa: BLE001 - importing an author's code may raise anything
            _log.warning(
                "plugin_refused", folder=folder.imports.folder, plugin=entry.value, why=str(error),
                distribution=f"{entry.distribution} {entry.version}",
            )  # fmt: skip
            process.rest()  # what it began may hang, or hold what the next one needs
            continue
        found.append(described)
    process.rest()
    for one in found:
        _log.info(
            "plugin_found", folder=folder.imports.folder, plugin=_name(one), version=one.version,
            other_versions_in_it=list(folder.differing),
        )  # fmt: skip
    return found


def _name(one: PluginDescriptor | PluginClass) -> str:
    return one.class_name if isinstance(one, PluginDescriptor) else one.name


def _with_free_names(
    connectors: Iterable[PluginDescriptor], others: Iterable[PluginClass], found: Sequence[PluginClass]
) -> list[PluginClass]:
    """Transformations, predicates and converters of folders beside all else: one whose name is taken is left out, an
    alias that somebody has is nobody's. Several may have one name, as long as they are one class, in versions, or in
    folders, of its own."""
    taken = {name for one in connectors for name in (one.class_name, *one.aliases)}
    connects = [*builtin_classes(), *(one for one in others if one.author is None)]
    taken |= {name for one in connects for name in (one.name, *one.aliases)}
    installed = {name: one.name for one in others if one.author is not None for name in (one.name, *one.aliases)}
    owners: dict[str, set[str]] = {}
    for one in found:
        for name in (one.name, *one.aliases):
            owners.setdefault(name, {installed.get(name, one.name)}).add(one.name)
    kept: list[PluginClass] = []
    for one in found:
        folder = one.imports.folder if one.imports is not None else ""
        if one.name in taken or installed.get(one.name, one.name) != one.name:
            _log.warning("plugin_refused", folder=folder, plugin=one.name, why="another plugin is called so too")
            continue
        free = tuple(name for name in one.aliases if name not in taken and owners[name] == {one.name})
        if len(free) < len(one.aliases):
            dropped = sorted(set(one.aliases) - set(free))
            _log.warning("plugin_alias_taken", plugin=one.name, folder=folder, aliases=dropped)
        kept.append(replace(one, aliases=free))
    return kept


def _without_clashes(here: Sequence[PluginDescriptor], found: Iterable[PluginDescriptor]) -> list[PluginDescriptor]:
    """All that can stand beside each other. As in Connect: of one class in one version, that of a folder wins over what
    is installed, and the folder that comes last by name over the others; an alias that is somebody else's name or alias
    too is nobody's. What is installed keeps its names."""
    taken: dict[tuple[str, tuple[tuple[int, int, str], ...]], PluginDescriptor] = {}
    kept = {name: one.class_name for one in here for name in (one.class_name, *one.aliases)}
    for one in [*here, *sorted(found, key=_folder)]:
        key = one.class_name, tuple(rank(one.version))
        kinds = {other.kind for (name, _), other in taken.items() if name == one.class_name}
        owner = kept.get(one.class_name, one.class_name)
        if kinds - {one.kind} or owner != one.class_name:
            why = (
                f"{owner} is called so too"
                if owner != one.class_name
                else "one of its name moves records the other way"
            )
            _log.warning("plugin_refused", folder=_folder(one), connector=one.class_name, why=why)
            continue
        if key in taken:
            _log.warning("plugin_twice", connector=one.class_name, version=one.version, used=_folder(one),
                         not_used=_folder(taken[key]) or "installed")  # fmt: skip
        taken[key] = one
    classes: dict[str, set[str]] = {}
    for one in taken.values():
        for name in (one.class_name, *one.aliases):
            classes.setdefault(name, set()).add(one.class_name)
    out: list[PluginDescriptor] = []
    for one in taken.values():
        free = [name for name in one.aliases if len(classes[name]) == 1 or kept.get(name) == one.class_name]
        if len(free) < len(one.aliases):
            dropped = sorted(set(one.aliases) - set(free))
            _log.warning("plugin_alias_taken", connector=one.class_name, folder=_folder(one), aliases=dropped)
        out.append(replace(one, aliases=tuple(free)))
    return out


def _folder(one: PluginDescriptor) -> str:
    return one.imports.folder if one.imports is not None else ""


class Plugins:
    """The plugins of a worker."""

    def __init__(self, registry: PluginRegistry) -> None:
        self._registry = registry

    def all(self) -> list[connector_pb2.Plugin]:
        """All plugins in Connect's order: sinks, sources, transformations, predicates, converters, header converters,
        each sorted by class. A class that converts both values and headers is listed as both."""
        return [
            connector_pb2.Plugin(
                class_name=one.class_name,
                aliases=one.aliases,
                kind=connector_pb2.PluginKind.Value(f"PLUGIN_KIND_{one.kind.name}"),
                version=one.version,
            )
            for one in self._registry.all()
        ]

    def fields(self, name: str) -> list[worker_service_pb2.ConfigField]:
        """The config definition of a plugin by class name or alias: its own keys first, then, of a connector, those
        that every connector has and it does not redefine. Raises ConfigError for a name that nothing has."""
        return describe(name, self._registry)
