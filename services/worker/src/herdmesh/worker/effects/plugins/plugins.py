"""Plugins that this worker can load, found at its start and later, and their messages for hello and ListPlugins.

Owns the selection of plugins from folders (`plugin_folders`, scanned by `folder_scan`) beside the installed ones, and
the messages. The registry has the list and the search by name and version
(`herdmesh.connect.plugins.plugin_registry`).

Invariants: every listed plugin can be described, by its class name and by each alias. No content of a plugin folder
prevents a worker from starting: unusable plugins are left out, and the log gives the reason.
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
from herdmesh.worker.effects.plugins.folder_scan import FoundPlugin, Joined, ScannedFolders
from herdmesh.worker.effects.plugins.plugin_folders import RefusedPlugin
from herdmesh.worker.effects.plugins.validation import describe

_KINDS: Final = WireEnum(connector_pb2.PluginKind, PluginKind)
_CATCH_UP_S: Final = 10.0
"""How long a caller who names an unknown plugin waits for new or changed folders."""
_RENAME: Final = "give it another class_name"
_REINSTALL: Final = "correct or uninstall the package, and restart the worker"
_LEFT_OUT_CHARS_MAX: Final = 200
_WHY_CHARS_MAX, _REFUSED_MAX = 1_000, 100
"""Limits of the one message to the herder that has all refused plugins."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """Plugins that a worker found at its start, and those it finds later."""

    registry: PluginRegistry
    folders: ScannedFolders | None = None
    """None = there is no `plugin.path`."""
    installed_refused: tuple[RefusedPlugin, ...] = ()
    """Plugins that are installed beside Herdmesh and cannot be used."""

    def when_changed(self, tell: Callable[[], object]) -> None:
        """Call `tell`, from any thread, after each change of the plugins in `registry` or of the refused ones."""
        if self.folders is not None:
            self.folders.tell = tell

    def close(self) -> None:
        """End the processes of plugin folders and stop checking the folders."""
        if self.folders is not None:
            self.folders.close()


def discover(plugin_path: str) -> Found:
    """The installed plugins, and those in the folders of a `plugin.path`. Imports the former here and the latter in
    processes of their own, so it takes a second or two with folders; call it in a thread. Folders that are late, new,
    or mended after a failure join later.

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
    folders = ScannedFolders(plugin_path, lambda found: _registry(here, others, found))
    registry = folders.registry()
    registry.left_out = lambda: _left_out([*refused, *folders.refused()])
    return Found(registry, folders, tuple(refused))


def _left_out(refused: Sequence[RefusedPlugin]) -> str:
    """Suffix for errors about an unknown class: the folder that has it may be among the refused ones."""
    if not refused:
        return ""
    first = refused[0]
    named = f"{first.folder} ({first.plugin})" if first.plugin else first.folder
    why = shortened(redacted(first.why), _LEFT_OUT_CHARS_MAX)
    more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    return escaped(f"; plugins that cannot be used: {named}: {why}{more}; `herd get plugins` lists them")


def _registry(here: Sequence[PluginDescriptor], others: Sequence[PluginClass], found: Sequence[FoundPlugin]) -> Joined:
    """The registry of all plugins that can be used together. No content of a folder prevents the worker from
    starting."""
    refused: list[RefusedPlugin] = []
    try:
        return _joined(here, others, found, refused), refused
    except Exception:  # noqa: BLE001 - an unforeseen conflict: find the plugins that cause it
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
    """The transformations, predicates and converters of folders that can be added. One whose name is taken is refused;
    an alias with several owners belongs to none. Several may share a name if they are one class, in different versions
    or folders.
    """
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
            _refuse(refused, one, "another plugin has this name", _RENAME)
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
    """The connectors that can be used together. As in Connect: for one class in one version, a folder wins over the
    installed one, and the folder that is last by name wins over the others; an alias that is also another plugin's name
    or alias belongs to none. Installed connectors keep their names, and so do installed transformations, predicates and
    converters (`of_other_kinds`).
    """
    taken: dict[tuple[str, tuple[tuple[int, int, str], ...]], PluginDescriptor] = {}
    kept = {name: one.class_name for one in here for name in (one.class_name, *one.aliases)}
    for one in [*here, *sorted(found, key=_folder)]:
        key = one.class_name, tuple(rank(one.version))
        kinds = {other.kind for (name, _), other in taken.items() if name == one.class_name}
        owner = kept.get(one.class_name, one.class_name)
        why = ""
        if owner != one.class_name:
            why = f"{owner} has this name"
        elif one.class_name in of_other_kinds:
            why = "a transformation, predicate or converter has this name"
        elif kinds - {one.kind}:
            why = "a connector of this name has the other direction (source or sink)"
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
        """Whether more plugins may be found later."""
        return self._folders is not None

    def all(self) -> list[connector_pb2.Plugin]:
        """All plugins in Connect's order: sinks, sources, transformations, predicates, converters, header converters,
        each sorted by class. A class that converts both values and headers is listed as both.
        """
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
        """Unusable plugins, installed or in folders, with the secrets that this process knows redacted."""
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
        """If a config names an unknown plugin or version, check the plugin folders now and wait up to 10 s for new and
        changed ones. `worker` has the classes that the worker's settings name. Blocks.
        """
        if self._folders is not None and not all(map(self._has, _named(config, worker))):
            self._folders.catch_up(_CATCH_UP_S)

    def _has(self, named: tuple[str, str | None]) -> bool:
        name, version = named
        try:
            return self._registry.class_named(name, version_range(version)) is not None
        except ConfigError:
            return True  # not a valid version range: validation refuses it in any case

    def fields(self, name: str) -> list[worker_service_pb2.ConfigField]:
        """The config definition of a plugin by class name or alias: its own keys first, then, for a connector, the
        common keys that it does not redefine. Raises ConfigError for an unknown name.
        """
        return describe(name, self._registry)


def _named(config: Properties, worker: Properties) -> Iterator[tuple[str, str | None]]:
    """The plugins named in a config, each with the requested version; names that are config references are left out."""
    connector, version = config.get("connector.class"), config.get(PLUGIN_VERSION)
    steps = ((name, version) for _, name, version in named_classes(config, worker))
    for name, wanted in ((connector or "", version), *steps):
        if name.strip() and "${" not in name:
            yield name.strip(), wanted
