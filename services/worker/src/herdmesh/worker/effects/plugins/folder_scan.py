"""Scan of the worker's plugin folders: at the worker's start, and again when a folder has changed.

Owns the scan: one thread and one process per folder, how long a starting worker waits for them, the periodic check for
new folders and changed files, and the reasons why folders cannot be used. `plugin_folders` defines what a folder is;
the builder of the registry decides which plugins can be used together.

Invariants: a running connector stays in the process in which it was started, whatever happens to its folder. A hanging
folder delays no other folder, nor the end of the process. A folder whose files do not change is not scanned again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from herdmesh.connect.plugins import PluginRegistry, plugin_registry
from herdmesh.connect.spi import PluginClass, PluginDescriptor
from herdmesh.worker.effects.plugins.plugin_folders import (
    OwnLibraries,
    PluginEntry,
    PluginFolder,
    RefusedPlugin,
    Signature,
    find,
    own_libraries,
    signatures,
)
from herdmesh.worker.effects.plugins.plugin_processes import PluginProcess
from herdmesh.worker.effects.plugins.remote_authored import remote_authored
from herdmesh.worker.effects.plugins.remote_connectors import remote_class

FoundPlugin = PluginDescriptor | PluginClass
Joined = tuple[PluginRegistry, Sequence[RefusedPlugin]]
"""The registry of all plugins that can be used together, and the plugins that are refused."""

ANSWER_S: Final = 20.0
"""How long a starting worker waits for its plugin folders. Importing one took several seconds on a busy machine."""
LOOK_S: Final = 5.0
"""Interval between checks of the folders' files."""
STILL_S: Final = 0.5
"""A changed folder is scanned once its files have not changed for so long, so that a running installer can finish."""
_PAUSE_MAX_S: Final = 60.0
"""Longest backoff between scans of a folder that changes all the time."""
_AT_A_TIME: Final = 8
_SLOT_S: Final = 5.0
"""A scan that takes longer is assumed to wait without using the processor, and frees its slot."""
_MEND: Final = "correct it in the folder: the worker detects the change and loads the folder again"

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Folder:
    """State of one folder, which is identified by its resolved path."""

    found: dict[PluginEntry, FoundPlugin] = field(default_factory=dict[PluginEntry, FoundPlugin])
    refused: list[RefusedPlugin] = field(default_factory=list[RefusedPlugin])
    #: nothing failed in the last scan.
    is_whole: bool = False
    is_asked: bool = False
    #: the scan takes longer than a starting worker waits.
    is_late: bool = False
    is_gone: bool = False
    #: signature of its files at the last scan. None = never scanned.
    asked_of: Signature | None = None
    asked_s: float = 0.0
    #: signature of its files at the last check, and the time since which it is the same.
    seen: Signature | None = None
    seen_s: float = 0.0
    tries: int = 0
    not_before_s: float = 0.0
    #: process in which its plugins are described and started.
    process: PluginProcess | None = None

    @property
    def is_changed(self) -> bool:
        """Whether its files differ from those of the last scan. For a folder without failures only code counts."""
        if self.asked_of is None or self.seen is None or not self.is_whole:
            return self.seen != self.asked_of
        return self.seen.code != self.asked_of.code


class ScannedFolders:
    """Scanner of all plugin folders. Thread-safe."""

    def __init__(
        self,
        plugin_path: str,
        joined: Callable[[list[FoundPlugin]], Joined],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Scan all folders and wait for the results, at most `ANSWER_S`. `joined` builds the registry with the plugins
        found.
        """
        self.tell: Callable[[], object] = _nothing
        """Callback after each change of the registry or of the refused plugins."""
        self._plugin_path = plugin_path
        self._joined = joined
        self._clock_s = clock_s
        self._own: OwnLibraries = own_libraries()
        self._changed = threading.Condition()
        self._looking = threading.Lock()
        self._folders: dict[str, _Folder] = {}
        self._processes: list[PluginProcess] = []
        #: processes of replaced releases; each ends when nothing runs in it any more.
        self._replaced: list[PluginProcess] = []
        self._slots = threading.Semaphore(max(_AT_A_TIME, os.cpu_count() or 1))
        self._closed = threading.Event()
        self._registry: PluginRegistry | None = None
        self._refused_folders: list[RefusedPlugin] = []
        self._not_joined: Sequence[RefusedPlugin] = ()
        seen = signatures(plugin_path)
        for place, signature in seen.items():
            self._folders[place] = _Folder(seen=signature)
        self._scan([*seen])
        self.wait(ANSWER_S)
        with self._changed:
            self._registry, self._not_joined = joined(self._found())
            for folder in self._folders.values():
                folder.is_late = folder.is_asked
            late = self.being_scanned()
        for place in late:
            _log.warning("plugin_folder_late", folder=place, why=_late(place).why, fix=_late(place).fix)
        threading.Thread(target=self._check_periodically, name="plugin folders", daemon=True).start()

    def registry(self) -> PluginRegistry:
        """The registry of all plugins found; plugins found later are added to it."""
        assert self._registry is not None
        return self._registry

    def refused(self) -> list[RefusedPlugin]:
        """Plugins and folders that cannot be used now."""
        with self._changed:
            found = [*self._refused_folders, *self._not_joined]
            for place, folder in self._folders.items():
                found += folder.refused
                if folder.is_gone and folder.found:
                    found.append(_gone(place))
                if folder.is_late and folder.is_asked:
                    found.append(_late(place))
        return sorted(set(found), key=lambda one: (one.folder, one.plugin, one.why))

    def being_scanned(self) -> list[str]:
        """Folders whose scan has not ended."""
        return [place for place, folder in self._folders.items() if folder.is_asked]

    def processes(self) -> list[PluginProcess]:
        """Processes of the scanned folders; each is started by the first call to it."""
        with self._changed:
            return [*self._processes]

    def wait(self, seconds: float) -> None:
        """Wait until all scans have ended, except late ones, or the time is over."""

        def is_answered() -> bool:
            return not any(one.is_asked and not one.is_late for one in self._folders.values())

        with self._changed:
            self._changed.wait_for(is_answered, seconds)

    def close(self) -> None:
        """End the processes and stop checking."""
        self._closed.set()
        for one in self.processes():
            one.close()

    def catch_up(self, seconds: float) -> None:
        """Check now, and wait until new and changed folders are scanned or the time is over. Used when a caller names
        an unknown plugin, which may have been installed a moment ago.
        """
        until_s = time.monotonic() + seconds
        while True:
            is_at_work = self.look(at_once=True)
            self.wait(max(0.0, until_s - time.monotonic()))
            if not is_at_work or time.monotonic() >= until_s or self._closed.wait(STILL_S):
                return

    def look(self, *, at_once: bool = False) -> bool:
        """Scan new and changed folders; with `at_once`, without the backoff of folders that failed. Return True while
        some files are still being changed.
        """
        with self._looking:
            due, is_at_work, is_news = self._due(at_once=at_once)
            before = self._refused_folders
            if due:
                self._scan(due)
            is_news = is_news or self._refused_folders != before
        if is_news:
            self.tell()
        return is_at_work

    def _due(self, *, at_once: bool) -> tuple[list[str], bool, bool]:
        """Folders to scan; whether other files are being changed; whether the callback must be called."""
        there = signatures(self._plugin_path)
        due: list[str] = []
        is_at_work = is_news = False
        with self._changed:
            now_s = self._clock_s()
            for place, folder in self._folders.items():
                is_gone, is_late = place not in there, folder.is_asked and now_s - folder.asked_s > ANSWER_S
                is_news = is_news or (is_gone and not folder.is_gone) or (is_late and not folder.is_late)
                folder.is_gone, folder.is_late = is_gone, is_late or (folder.is_asked and folder.is_late)
            for place, signature in there.items():
                folder = self._folders.setdefault(place, _Folder())
                if folder.seen != signature:
                    folder.seen, folder.seen_s = signature, now_s
                if folder.is_asked or not folder.is_changed:
                    continue
                if now_s - folder.seen_s < STILL_S:
                    is_at_work = True
                elif at_once or now_s >= folder.not_before_s:
                    calm = now_s > folder.not_before_s + _PAUSE_MAX_S
                    folder.tries = 1 if calm else folder.tries + 1
                    folder.not_before_s = now_s + min(LOOK_S * 2**folder.tries, _PAUSE_MAX_S)
                    due.append(place)
        return due, is_at_work, is_news

    def _check_periodically(self) -> None:
        while not self._closed.wait(LOOK_S):
            try:
                self.look()
                self._replaced = [one for one in self._replaced if not one.rest_if_idle()]
            except Exception:  # noqa: BLE001 - a file system may fail in any way, persistently or not
                _log.exception("plugin_folder_check_failed", plugin_path=self._plugin_path)

    def _found(self) -> list[FoundPlugin]:
        return [one for folder in self._folders.values() for one in folder.found.values()]

    def _scan(self, places: Sequence[str]) -> None:
        """Read these folders and scan each in a daemon thread of its own. Only a few run at a time, as they use the
        processor.
        """
        folders, refused = find(self._plugin_path, self._own)
        with self._changed:
            told_before, self._refused_folders = self._refused_folders, refused
            for place in places:
                known = self._folders[place]
                known.asked_of, known.asked_s, known.is_whole, known.refused = known.seen, self._clock_s(), False, []
        for one in refused:
            if one not in told_before:
                _log.warning("plugin_folder_refused", folder=one.folder, why=one.why, fix=one.fix)
        for one in folders:
            place = os.path.realpath(one.imports.folder)
            if place not in places:
                continue
            process = PluginProcess(one.imports)
            with self._changed:
                self._folders[place].is_asked = True
                self._processes.append(process)
            name = f"plugins of {one.imports.folder}"
            threading.Thread(target=self._scan_folder, args=(place, one, process), name=name, daemon=True).start()

    def _scan_folder(self, place: str, folder: PluginFolder, process: PluginProcess) -> None:
        answer: dict[PluginEntry, FoundPlugin] = {}
        refused: list[RefusedPlugin] = []
        held = threading.Lock()

        def free() -> None:
            if held.acquire(blocking=False):
                self._slots.release()

        try:
            self._slots.acquire()
            timer = threading.Timer(_SLOT_S, free)
            timer.daemon = True
            timer.start()
            try:
                answer, refused = _described(folder, process)
            finally:
                timer.cancel()
                free()
        finally:
            self._on_scanned(self._folders[place], folder, process, answer, refused)

    def _on_scanned(
        self,
        known: _Folder,
        folder: PluginFolder,
        process: PluginProcess,
        answer: dict[PluginEntry, FoundPlugin],
        refused: list[RefusedPlugin],
    ) -> None:
        with self._changed:
            before = known.found
            # Plugins that worked before the files changed stay known, because their connectors run. Plugins that the
            # new release no longer has are removed.
            known.found = {entry: one for entry, one in before.items() if entry in folder.entries} | answer
            known.is_whole, known.refused = not refused, refused
            if answer:
                if known.process is not None:
                    self._replaced.append(known.process)
                known.process = process
            is_late = self._registry is not None
            if self._registry is not None:
                registry, self._not_joined = self._joined(self._found())
                self._registry.become(registry)
        if is_late:
            if before and answer:
                _log.info(
                    "plugin_folder_changed", folder=folder.imports.folder,
                    fix="running connectors keep the code they were started with; `herd restart` uses the new one",
                )  # fmt: skip
            self.tell()
        with self._changed:  # after the callback, so that waiting callers can use the plugins
            known.is_asked = known.is_late = False
            self._changed.notify_all()


def _nothing() -> None:
    return


def _late(place: str) -> RefusedPlugin:
    return RefusedPlugin(
        place,
        f"its scan did not end within {ANSWER_S:g} s; the worker serves without it, and the scan continues",
        "find out what its modules do on import: they may wait for something",
    )


def _gone(place: str) -> RefusedPlugin:
    return RefusedPlugin(
        place, "the folder is missing, so none of its plugins can be started", "put it back, or restart the worker"
    )


def _described(
    folder: PluginFolder, process: PluginProcess
) -> tuple[dict[PluginEntry, FoundPlugin], list[RefusedPlugin]]:
    """The plugins of a folder that can be imported, and those that cannot."""
    found: dict[PluginEntry, FoundPlugin] = {}
    refused: list[RefusedPlugin] = []
    for entry in folder.entries:
        described: FoundPlugin
        try:
            if entry.group == plugin_registry.ENTRY_POINT_GROUP:
                described = plugin_registry.describe(remote_class(process, entry.value, entry.version))
                described = replace(described, imports=folder.imports)
            else:
                described = remote_authored(process, entry.value, entry.version, folder.imports)
        except Exception as error:  # noqa: BLE001 - importing an author's code may raise anything
            ended = process.ended()
            why = f"importing it ended its process ({ended})" if ended else str(error) or type(error).__name__
            refused.append(RefusedPlugin(folder.imports.folder, why, _MEND, entry.value))
            _log.warning(
                "plugin_refused", folder=folder.imports.folder, plugin=entry.value, why=why,
                distribution=f"{entry.distribution} {entry.version}", fix=_MEND,
            )  # fmt: skip
            process.rest()  # code it started may hang, or hold a resource that the next plugin needs
            continue
        found[entry] = described
    process.rest()
    for one in found.values():
        _log.info(
            "plugin_found", folder=folder.imports.folder, version=one.version,
            plugin=one.class_name if isinstance(one, PluginDescriptor) else one.name,
            other_versions_in_it=list(folder.differing),
        )  # fmt: skip
    return found, refused
