"""The plugin folders of a worker, each asked what is in it: when the worker starts, and again when it may have changed.

Owns the asking: one thread and one process for each folder that is asked, how long a worker that starts waits for them,
and the look for folders that are new, or that failed and whose files changed since. What a folder is, `plugin_folders`
knows; which of what was found can be used beside each other, whoever makes the registry.

Invariants: what was found stays, and is asked no more, so no running connector is touched by a look; a folder that
hangs keeps no other waiting, nor the process from ending; a folder whose files do not change is not asked again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from herdmesh.connect import plugins
from herdmesh.connect.builtin import PluginClass
from herdmesh.connect.plugins import PluginDescriptor, PluginRegistry
from herdmesh.worker.effects.plugin_folders import (
    OwnLibraries,
    PluginEntry,
    PluginFolder,
    RefusedFolder,
    find,
    own_libraries,
    signatures,
)
from herdmesh.worker.effects.plugin_processes import PluginProcess
from herdmesh.worker.effects.remote_authored import remote_authored
from herdmesh.worker.effects.remote_connectors import remote_class

FoundPlugin = PluginDescriptor | PluginClass

ANSWER_S: Final = 20.0
"""How long a worker that starts waits for its plugin folders. One imported in some seconds each, on a busy machine."""
LOOK_S: Final = 5.0
"""Between two looks at the files of the folders. What has changed is asked once two looks see it alike: an installer
that is at work is let finish."""
_PAUSE_MAX_S: Final = 60.0
"""At most so long between two tries of a folder that changes all the time and fails each time."""
_AT_A_TIME: Final = 8
_SLOT_S: Final = 5.0
"""A folder that takes longer is taken for one that waits, and needs no processor."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Folder:
    """What is known of one, by where it really is."""

    found: dict[PluginEntry, FoundPlugin] = field(default_factory=dict[PluginEntry, FoundPlugin])
    #: nothing failed: it is not looked at any more.
    is_whole: bool = False
    is_asked: bool = False
    #: of its files, when it was last asked or refused.
    asked_of: str = ""
    #: of its files, at the last look.
    seen: str = ""
    tries: int = 0
    not_before_s: float = 0.0


class AskedFolders:
    """Used from any thread."""

    def __init__(
        self,
        plugin_path: str,
        joined: Callable[[list[FoundPlugin]], PluginRegistry],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask them all, and wait until they have answered, or `ANSWER_S` are over. `joined`: the registry of all that
        is there and of this."""
        self.tell: Callable[[], object] = _nothing
        """Called each time that the registry knows more."""
        self._plugin_path = plugin_path
        self._joined = joined
        self._clock_s = clock_s
        self._own: OwnLibraries = own_libraries()
        self._changed = threading.Condition()
        self._folders: dict[str, _Folder] = {}
        self._processes: list[PluginProcess] = []
        self._slots = threading.Semaphore(max(_AT_A_TIME, os.cpu_count() or 1))
        self._closed = threading.Event()
        self._registry: PluginRegistry | None = None
        seen = signatures(plugin_path)
        for place, text in seen.items():
            self._folders[place] = _Folder(seen=text)
        self._ask([*seen])
        self.wait(ANSWER_S)
        with self._changed:
            self._registry = joined(self._found())
            late = self.asked()
        for place in late:
            _log.warning(
                "plugin_folder_late", folder=place,
                why=f"it did not say within {ANSWER_S:g} s what is in it; the worker serves without it, and goes on "
                "asking",
                fix="look what its modules do when they are imported: they may wait for something",
            )  # fmt: skip
        threading.Thread(target=self._look_on, name="plugin folders", daemon=True).start()

    def registry(self) -> PluginRegistry:
        """Of all that is found; it comes to know what is found later."""
        assert self._registry is not None
        return self._registry

    def asked(self) -> list[str]:
        """The folders that have not answered yet."""
        return [place for place, folder in self._folders.items() if folder.is_asked]

    def processes(self) -> list[PluginProcess]:
        """Of the folders that were asked, each started when it is asked something."""
        with self._changed:
            return [*self._processes]

    def wait(self, seconds: float) -> None:
        """Until all that were asked have answered, or that time is over."""
        with self._changed:
            self._changed.wait_for(lambda: not self.asked(), seconds)

    def close(self) -> None:
        """End the processes, and look no more."""
        self._closed.set()
        for one in self.processes():
            one.close()

    def look(self) -> None:
        """Ask again what is new, or failed and changed since."""
        now_s = self._clock_s()
        due: list[str] = []
        for place, text in signatures(self._plugin_path).items():
            with self._changed:
                folder = self._folders.setdefault(place, _Folder())
                is_settled, folder.seen = folder.seen == text, text
                if folder.is_whole or folder.is_asked or not is_settled or text == folder.asked_of:
                    continue
                if now_s >= folder.not_before_s:
                    folder.tries += 1
                    folder.not_before_s = now_s + min(LOOK_S * 2**folder.tries, _PAUSE_MAX_S)
                    due.append(place)
        if due:
            self._ask(due)

    def _look_on(self) -> None:
        while not self._closed.wait(LOOK_S):
            try:
                self.look()
            except Exception:  # noqa: BLE001 - a file system may answer anything, and does so again or not
                _log.exception("plugin_folders_not_looked_at", plugin_path=self._plugin_path)

    def _found(self) -> list[FoundPlugin]:
        return [one for folder in self._folders.values() for one in folder.found.values()]

    def _ask(self, places: Sequence[str]) -> None:
        """Read these folders and have each asked in a daemon thread of its own. A few at a time, as they use the
        processor."""
        folders, refused = find(self._plugin_path, self._own)
        with self._changed:
            for place in places:
                self._folders[place].asked_of = self._folders[place].seen
        for one in refused:
            if os.path.realpath(one.folder) in places or not self._registry:
                _tell_refused(one)
        for one in folders:
            place = os.path.realpath(one.imports.folder)
            if place not in places:
                continue
            process = PluginProcess(one.imports)
            with self._changed:
                self._folders[place].is_asked = True
                self._processes.append(process)
            name = f"plugins of {one.imports.folder}"
            threading.Thread(target=self._ask_one, args=(place, one, process), name=name, daemon=True).start()

    def _ask_one(self, place: str, folder: PluginFolder, process: PluginProcess) -> None:
        known = self._folders[place]
        entries = [entry for entry in folder.entries if entry not in known.found]
        answer: dict[PluginEntry, FoundPlugin] = {}
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
                answer = _described(folder, entries, process)
            finally:
                timer.cancel()
                free()
        finally:
            self._answered(known, folder, answer)

    def _answered(self, known: _Folder, folder: PluginFolder, answer: dict[PluginEntry, FoundPlugin]) -> None:
        with self._changed:
            before = known.found
            # of a release that another one took the place of, nothing is left
            known.found = {entry: one for entry, one in before.items() if entry in folder.entries} | answer
            known.is_whole, known.is_asked = len(known.found) == len(folder.entries), False
            is_more = known.found.keys() != before.keys() and self._registry is not None
            if is_more and self._registry is not None:
                self._registry.become(self._joined(self._found()))
            self._changed.notify_all()
        if is_more:
            self.tell()


def _nothing() -> None:
    return


def _tell_refused(one: RefusedFolder) -> None:
    _log.warning("plugin_folder_refused", folder=one.folder, why=one.why, fix=one.fix)


def _described(
    folder: PluginFolder, entries: Sequence[PluginEntry], process: PluginProcess
) -> dict[PluginEntry, FoundPlugin]:
    """The plugins of a folder that can be imported."""
    found: dict[PluginEntry, FoundPlugin] = {}
    for entry in entries:
        described: FoundPlugin
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
                fix="mend it in the folder: the worker sees that its files changed, and asks again",
            )  # fmt: skip
            process.rest()  # what it began may hang, or hold what the next one needs
            continue
        found[entry] = described
    process.rest()
    for one in found.values():
        _log.info(
            "plugin_found", folder=folder.imports.folder, version=one.version,
            plugin=one.class_name if isinstance(one, PluginDescriptor) else one.name,
            other_versions_in_it=list(folder.differing),
        )  # fmt: skip
    return found
