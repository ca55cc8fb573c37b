"""Plugins that this worker can load, found when it starts and later, and as messages for hello and ListPlugins.

Owns what is taken of the plugin folders (`plugin_folders`, asked by `folder_scan`) beside what is installed, and the
messages. The list and the search by name and version are the registry's (`herdmesh.connect.plugins.plugin_registry`).

Invariants: what is listed can be described, by its class name and by each alias. No plugin folder, whatever is in it,
keeps a worker from starting: what cannot be taken is left out, and the log says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Final

import structlog

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.connect.config import escaped, rank, redacted, version_range
from herdmesh.connect.errors import ConfigError, error_text
from herdmesh.connect.plugins import (
    PLUGIN_VERSION,
    PluginRegistry,
    builtin_classes,
    installed_classes,
    named_classes,
    plugin_registry,
    third_party_classes,
)
from herdmesh.connect.spi import PluginClass, PluginDescriptor, PluginKind
from herdmesh.engine.runtime import Properties, shortened
from herdmesh.rpc.enums import WireEnum
from herdmesh.worker.effects.plugins.folder_scan import AskedFolders, FoundPlugin, Joined
from herdmesh.worker.effects.plugins.plugin_folders import RefusedPlugin
from herdmesh.worker.effects.plugins.validation import describe

_KINDS: Final = WireEnum(connector_pb2.PluginKind, PluginKind)
_CATCH_UP_S: Final = 10.0
"""How long a caller who names a plugin that is not known waits for folders that are new or have changed."""
_RENAME: Final = "give it another class_name"
_REINSTALL: Final = "correct or uninstall the package, and restart the worker"
_LEFT_OUT_CHARS_MAX: Final = 200
_WHY_CHARS_MAX, _REFUSED_MAX = 1_000, 100
"""Of what is told the herder, in one message, with everything else."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """What a worker found when it started, and goes on finding."""

    registry: PluginRegistry
    folders: AskedFolders | None = None
    """None = there is no `plugin.path`."""
    installed_refused: tuple[RefusedPlugin, ...] = ()
    """What is installed beside Herdmesh and cannot be used."""

    def when_changed(self, tell: Callable[[], object]) -> None:
        """Have `tell` called, in any thread, each time that `registry` knows other plugins, or others are refused."""
        if self.folders is not None:
            self.folders.tell = tell

    def close(self) -> None:
        """End the processes of plugin folders, and look at none any more."""
        if self.folders is not None:
            self.folders.close()


def discover(plugin_path: str) -> Found:
    """What is installed, and what is in the folders of a `plugin.path`. Imports the former here and the latter in
    processes of their own, so it takes a second or two with folders, and is called in a thread. Folders that are late,
    new, or failed and were mended since, join later.

    Raises ValueError: two connectors that are installed beside Herdmesh have one name.
    """
    refused: list[RefusedPlugin] = []

    def left_out(entry: metadata.EntryPoint, error: Exception) -> None:
        distribution = entry.dist.name if entry.dist is not None else "a package"
        where, why = f"{distribution}, installed beside Herdmesh", error_text(error) or type(error).__name__
        refused.append(RefusedPlugin(where, why, _REINSTALL, entry.value))
        _log.warning("plugin_refused", folder=where, plugin=entry.value, why=why, fix=_REINSTALL)

    here = plugin_registry.installed(left_out)
    others = [*third_party_classes(), *installed_classes(left_out)]
    if not plugin_path.strip():
        registry = PluginRegistry(here, others)
        registry.left_out = lambda: _left_out(refused)
        return Found(registry, installed_refused=tuple(refused))
    folders = AskedFolders(plugin_path, lambda found: _registry(here, others, found))
    registry = folders.registry()
    registry.left_out = lambda: _left_out([*refused, *folders.refused()])
    return Found(registry, folders, tuple(refused))


def _left_out(refused: Sequence[RefusedPlugin]) -> str:
    """For whoever names a class that is not known: the plugin folder that has it may be one of these."""
    if not refused:
        return ""
    first = refused[0]
    named = f"{first.folder} ({first.plugin})" if first.plugin else first.folder
    why = shortened(redacted(first.why), _LEFT_OUT_CHARS_MAX)
    more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    return escaped(f"; plugins that cannot be used: {named}: {why}{more}; `herd get plugins` lists them")


def _registry(here: Sequence[PluginDescriptor], others: Sequence[PluginClass], found: Sequence[FoundPlugin]) -> Joined:
    """All that can stand beside each other. What a folder brings keeps no worker from starting, whatever it is."""
    refused: list[RefusedPlugin] = []
    try:
        return _joined(here, others, found, refused), refused
    except Exception:  # noqa: BLE001 - some of it was not thought of: it is found out which
        kept: list[FoundPlugin] = []
        broken: list[RefusedPlugin] = []
        for one in found:
            try:
                _joined(here, others, [*kept, one], [])
            except Exception as error:  # noqa: BLE001 - as above
                _refuse(broken, one, str(error) or type(error).__name__, "mend the package")
            else:
                kept.append(one)
        return _joined(here, others, kept, broken), broken


def _joined(
    here: Sequence[PluginDescriptor],
    others: Sequence[PluginClass],
    found: Sequence[FoundPlugin],
    refused: list[RefusedPlugin],
) -> PluginRegistry:
    of_other_kinds = {name for one in [*builtin_classes(), *others] for name in (one.name, *one.aliases)}
    connectors = [one for one in found if isinstance(one, PluginDescriptor)]
    kept = _without_clashes(here, connectors, of_other_kinds, refused)
    authored = [one for one in found if isinstance(one, PluginClass)]
    return PluginRegistry(kept, [*others, *_with_free_names(kept, others, authored, refused)])


def _refuse(refused: list[RefusedPlugin], one: FoundPlugin, why: str, fix: str) -> None:
    folder = one.imports.folder if one.imports is not None else ""
    refused.append(RefusedPlugin(folder, why, fix, _name(one)))
    _log.warning("plugin_refused", folder=folder, plugin=_name(one), why=why, fix=fix)


def _name(one: PluginDescriptor | PluginClass) -> str:
    return one.class_name if isinstance(one, PluginDescriptor) else one.name


def _with_free_names(
    connectors: Iterable[PluginDescriptor],
    others: Iterable[PluginClass],
    found: Sequence[PluginClass],
    refused: list[RefusedPlugin],
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
            _refuse(refused, one, "another plugin is called so too", _RENAME)
            continue
        free = tuple(name for name in one.aliases if name not in taken and owners[name] == {one.name})
        if len(free) < len(one.aliases):
            dropped = sorted(set(one.aliases) - set(free))
            _log.warning("plugin_alias_taken", plugin=one.name, folder=folder, aliases=dropped)
        kept.append(replace(one, aliases=free))
    return kept


def _without_clashes(
    here: Sequence[PluginDescriptor],
    found: Iterable[PluginDescriptor],
    of_other_kinds: set[str],
    refused: list[RefusedPlugin],
) -> list[PluginDescriptor]:
    """All that can stand beside each other. As in Connect: of one class in one version, that of a folder wins over what
    is installed, and the folder that comes last by name over the others; an alias that is somebody else's name or alias
    too is nobody's. What is installed keeps its names, and so do transformations, predicates and converters that are
    there anyway (`of_other_kinds`)."""
    taken: dict[tuple[str, tuple[tuple[int, int, str], ...]], PluginDescriptor] = {}
    kept = {name: one.class_name for one in here for name in (one.class_name, *one.aliases)}
    for one in [*here, *sorted(found, key=_folder)]:
        key = one.class_name, tuple(rank(one.version))
        kinds = {other.kind for (name, _), other in taken.items() if name == one.class_name}
        owner = kept.get(one.class_name, one.class_name)
        why = ""
        if owner != one.class_name:
            why = f"{owner} is called so too"
        elif one.class_name in of_other_kinds:
            why = "a transformation, predicate or converter is called so too"
        elif kinds - {one.kind}:
            why = "one of its name moves records the other way"
        if why:
            _refuse(refused, one, why, _RENAME)
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
        free = [name for name in free if name not in of_other_kinds or kept.get(name) == one.class_name]
        if len(free) < len(one.aliases):
            dropped = sorted(set(one.aliases) - set(free))
            _log.warning("plugin_alias_taken", connector=one.class_name, folder=_folder(one), aliases=dropped)
        out.append(replace(one, aliases=tuple(free)))
    return out


def _folder(one: PluginDescriptor) -> str:
    return one.imports.folder if one.imports is not None else ""


class Plugins:
    """The plugins of a worker."""

    def __init__(self, found: Found) -> None:
        self._registry = found.registry
        self._folders = found.folders
        self._installed_refused = found.installed_refused

    @property
    def has_folders(self) -> bool:
        """Whether more may be found."""
        return self._folders is not None

    def all(self) -> list[connector_pb2.Plugin]:
        """All plugins in Connect's order: sinks, sources, transformations, predicates, converters, header converters,
        each sorted by class. A class that converts both values and headers is listed as both."""
        return [
            connector_pb2.Plugin(
                class_name=one.class_name,
                aliases=one.aliases,
                kind=_KINDS.to_wire(one.kind),
                version=one.version,
            )
            for one in self._registry.all()
        ]

    def refused(self) -> list[connector_pb2.RefusedPlugin]:
        """What is installed or in plugin folders and cannot be used, without the secrets that this process knows."""
        found = [*self._installed_refused, *(self._folders.refused() if self._folders is not None else ())]
        return [
            connector_pb2.RefusedPlugin(
                folder=escaped(one.folder),
                plugin=escaped(one.plugin),
                why=escaped(shortened(redacted(one.why), _WHY_CHARS_MAX)),
                fix=escaped(one.fix),
            )
            for one in found[:_REFUSED_MAX]
        ]

    def catch_up(self, config: Properties, worker: Properties) -> None:
        """Where a config names a plugin, or a version, that is not known, look at the plugin folders now, and wait, 10
        s at most, for those that are new or have changed. `worker` is what the worker's settings name. Blocks."""
        if self._folders is not None and not all(map(self._has, _named(config, worker))):
            self._folders.catch_up(_CATCH_UP_S)

    def _has(self, named: tuple[str, str | None]) -> bool:
        name, version = named
        try:
            return self._registry.class_named(name, version_range(version)) is not None
        except ConfigError:
            return True  # no version is written so: it is refused, whatever there is

    def fields(self, name: str) -> list[worker_service_pb2.ConfigField]:
        """The config definition of a plugin by class name or alias: its own keys first, then, of a connector, those
        that every connector has and it does not redefine. Raises ConfigError for a name that nothing has."""
        return describe(name, self._registry)


def _named(config: Properties, worker: Properties) -> Iterator[tuple[str, str | None]]:
    """The plugins of a config, each with the version asked for; not one that a reference stands for."""
    connector, version = config.get("connector.class"), config.get(PLUGIN_VERSION)
    steps = ((name, version) for _, name, version in named_classes(config, worker))
    for name, wanted in ((connector or "", version), *steps):
        if name.strip() and "${" not in name:
            yield name.strip(), wanted
