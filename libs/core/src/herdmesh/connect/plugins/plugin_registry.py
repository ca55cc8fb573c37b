"""Plugin registry: the connectors of this process, and the classes that a config can name, by name and version.

Owns discovery of the connectors that are installed here, through the entry point group `herdmesh.connectors`, and the
lookup by name and version; `builtin` and `spi.custom_plugins` find the other kinds. The worker searches plugin folders
and passes descriptors of the same types. Owns no instance.

Invariant: a name finds at most one class, and a class has each version once; two connectors with the same name are an
error at discovery, not later. Without a requested version, the latest is found (KIP-891).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata

from herdmesh.connect.config import (
    WRITE_YOUR_OWN,
    LeftOut,
    RawConfig,
    VersionRange,
    advice,
    connector_advice,
    loaded_entry,
    not_there,
    rank,
    version_range,
)
from herdmesh.connect.converters import converter_names
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins.builtin import builtin_classes, installed_classes, third_party_classes
from herdmesh.connect.spi import (
    AuthoredPlugin,
    Connector,
    PluginClass,
    PluginDescriptor,
    PluginImports,
    PluginKind,
    checked_class,
    checked_definition,
)
from herdmesh.connect.transforms import PREDICATES, TRANSFORMATIONS

ENTRY_POINT_GROUP = "herdmesh.connectors"
PLUGIN_VERSION = "connector.plugin.version"


@dataclass(frozen=True, slots=True)
class ListedPlugin:
    """One line of the list of plugins. A class of two kinds has two lines, as in Connect."""

    class_name: str
    kind: PluginKind
    version: str
    aliases: tuple[str, ...]


def describe(connector: type[Connector]) -> PluginDescriptor:
    """The descriptor of a connector class."""
    return PluginDescriptor(connector.class_name, connector.aliases, connector.kind, connector.version, connector)


def installed(left_out: LeftOut | None = None) -> list[PluginDescriptor]:
    """The connectors that are installed here, in no particular order.

    Without `left_out`, raises TypeError when an entry point names no connector, ConfigError for a class with invalid
    attributes, and any exception of the import.
    """
    found: list[PluginDescriptor] = []
    for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
        try:
            found.append(_described(entry))
        except Exception as error:  # importing an author's code may raise anything
            if left_out is None:
                raise
            left_out(entry, error)
    return found


def _described(entry: metadata.EntryPoint) -> PluginDescriptor:
    loaded = loaded_entry(entry)
    if not (isinstance(loaded, type) and issubclass(loaded, Connector)):
        raise TypeError(f"entry point {entry.name} = {entry.value} names no Connector")
    checked_class(loaded)
    checked_definition(loaded)
    return describe(loaded)


class PluginRegistry:
    """The plugins that a process can use."""

    def __init__(self, plugins: Iterable[PluginDescriptor], others: Iterable[PluginClass] = ()) -> None:
        """`others` are classes in addition to these and Connect's own. Raises ValueError when two connectors have the
        same name, or one class has the same version twice.
        """
        self.left_out: Callable[[], str] = str
        """Text added to the advice for an unknown class: plugins that exist and cannot be used."""
        self._connectors = sorted(plugins, key=lambda plugin: (plugin.class_name, rank(plugin.version)))
        self._by_name: dict[str, list[PluginDescriptor]] = {}
        """Connectors, oldest version first."""
        for plugin in self._connectors:
            for name in dict.fromkeys((plugin.class_name, *plugin.aliases)):
                others_called_so = self._by_name.setdefault(name, [])
                for other in others_called_so:
                    if other.class_name != plugin.class_name or rank(other.version) == rank(plugin.version):
                        raise ValueError(f"both {other.connector} and {plugin.connector} are called {name}")
                others_called_so.append(plugin)
        classes = sorted([*builtin_classes(), *others], key=lambda cls: (cls.author is not None, rank(cls.version)))
        self._concrete = [cls for cls in classes if not cls.abstract]
        self._classes: dict[str, list[PluginClass]] = {}
        """Classes, oldest version first; plugin folders may have several of one version."""
        for cls in classes:
            for name in dict.fromkeys((cls.name, *cls.aliases)):
                called_so = self._classes.setdefault(name, [])
                if name in self._by_name or any(other.name != cls.name or not other.author for other in called_so):
                    raise ValueError(f"{cls.name} is called {name}, and so is another plugin")
                called_so.append(cls)

    def become(self, other: PluginRegistry) -> None:
        """Take over the contents of the other registry, because more plugins were found."""
        self._connectors, self._by_name = other._connectors, other._by_name
        self._concrete, self._classes = other._concrete, other._classes

    @classmethod
    def discover(cls) -> PluginRegistry:
        """Every connector that is installed here. Raises as `installed`."""
        return cls(installed(), [*third_party_classes(), *installed_classes()])

    def all(self) -> list[ListedPlugin]:
        """All plugins in Connect's order: by kind (sinks, sources, transformations, predicates, converters, header
        converters), then by class and version."""
        connectors = [
            ListedPlugin(one.class_name, PluginKind(one.kind.value), one.version, one.aliases)
            for one in self._connectors
        ]
        others = [
            ListedPlugin(cls.name, kind, cls.version, cls.aliases) for cls in self._concrete for kind in cls.kinds
        ]
        order = list(PluginKind)
        return sorted([*connectors, *others], key=lambda one: (order.index(one.kind), one.class_name))

    def names(self, kind: PluginKind) -> list[str]:
        """The classes of a kind, sorted, as choices for a form."""
        return sorted({cls.name for cls in self._concrete if kind in cls.kinds})

    def class_named(self, name: str, wanted: VersionRange | None = None) -> PluginClass | None:
        """The class of that name or alias, including abstract ones, in its latest version among those `wanted`; None =
        there is no such class.
        """
        connectors = self._by_name.get(name)
        if connectors is None:
            of_name = self._classes.get(name, ())
            return next((one for one in reversed(of_name) if wanted is None or wanted.contains(one.version)), None)
        connector = _latest(connectors, wanted)
        if connector is None:
            return None
        definition = connector.connector.config_def()
        kinds = (PluginKind(connector.kind.value),)
        return PluginClass(connector.class_name, kinds, definition, connector.aliases, connector.version)

    def versions(self, name: str) -> list[str]:
        """The existing versions of the class of that name or alias, oldest first."""
        if name in self._by_name:
            return [plugin.version for plugin in self._by_name[name]]
        return list(dict.fromkeys(one.version for one in self._classes.get(name, ())))

    def authored(self, name: str, version: str | None) -> type[AuthoredPlugin] | None:
        """`authored.FindAuthored` for all plugins that this worker can use."""
        found = self.class_named(name, version_range(version))
        if found is None and name in self._classes:
            there = self.versions(name)
            fix = f"leave it out, or write {' or '.join(there)}"
            raise ConfigError(not_there(self._classes[name][-1].name, version_range(version), there), fix=fix)
        return None if found is None else found.author

    def environment(self, config: RawConfig, worker: RawConfig) -> PluginImports | None:
        """The plugin folder that a task of this config imports from: its connector's, or that of a transformation,
        predicate or converter which the config names, or that of a converter which the worker's settings name where the
        config names none. None = all of them are installed here.

        Raises:
            ConfigError: the connector cannot be found; two of them are in two folders, which one process cannot join.
        """
        name, version = config.get("connector.class") or "", config.get(PLUGIN_VERSION)
        name = self.serving(str(name), config)
        found, whose = self.find(name, None if version is None else str(version)).imports, "the connector"
        for field, name, version in named_classes(config, worker):
            try:
                chosen = self.class_named(name, version_range(version))
            except ConfigError:
                continue  # the version is malformed: validation reports it, and so does a run
            if chosen is None or chosen.imports is None:
                continue
            same = [one for one in self._classes[chosen.name] if one.version == chosen.version]
            if found is None:
                found, whose = chosen.imports, field
            elif not any(one.imports is None or one.imports.folder == found.folder for one in same):
                raise ConfigError(
                    f"{chosen.name} {chosen.version} is in the plugin folder {chosen.imports.folder}, and {whose} is "
                    f"from {found.folder}: a task is one process, and that has the libraries of one folder",
                    field=field,
                    fix=f"install it into {found.folder} too, or choose an installed version",
                )
        return found

    def names_authored(self, config: RawConfig, worker: RawConfig) -> bool:
        """Whether a task of this config uses a transformation, predicate or converter that is an author's, or unknown
        here. `worker` has the converters that a connector does not name itself.
        """
        for _, name, version in named_classes(config, worker):
            try:
                found = self.class_named(name, version_range(version))
            except ConfigError:
                return True
            if found is None or found.author is not None or found.imports is not None:
                return True
        return False

    def full_name(self, name: str) -> str | None:
        """The class's full name; None = there is none (`config.KnownClasses`)."""
        found = self.class_named(name)
        return None if found is None else found.name

    def class_advice(self, field: str, name: str) -> str:
        """Advice for an unknown class at `field` (`transforms.a.type`, `value.converter`); "" = no known class is
        similar.
        """
        families = {"transforms": TRANSFORMATIONS, "predicates": PREDICATES}
        return advice(name, families.get(field.partition(".")[0]) or converter_names(field))

    def find(self, name: str, version: str | None = None) -> PluginDescriptor:
        """The connector of that class name or alias, in the latest version that `version` allows
        (`connector.plugin.version`; None = any).

        Raises:
            ConfigError: no such connector (field `connector.class`, with those that exist), or no such version (field
                `connector.plugin.version`, with those that exist).
        """
        plugins = self._by_name.get(name)
        if plugins is None:
            known = ", ".join(dict.fromkeys((*plugin.aliases, plugin.class_name)[0] for plugin in self._connectors))
            raise ConfigError(
                f"Failed to find any class that implements Connector and which name matches {name}, "
                f"available connectors are: {known}",
                field="connector.class",
                fix=(connector_advice(name, self._by_name) or f"use one of: {known}; or {WRITE_YOUR_OWN}")
                + self.left_out(),
            )
        there = self.versions(name)
        fix = f"leave it out, or write {' or '.join(there)}"
        try:
            wanted = version_range(version)
        except ConfigError as error:
            raise ConfigError(str(error), field=PLUGIN_VERSION, fix=fix) from error
        found = _latest(plugins, wanted)
        if found is None:
            raise ConfigError(not_there(plugins[0].class_name, wanted, there), field=PLUGIN_VERSION, fix=fix)
        return found

    def serving(self, name: str, config: RawConfig) -> str:
        """The name of the connector that serves a config with this `connector.class`: the name itself, or that of
        another connector (`Connector.served_by`). Raises ConfigError as `find`.
        """
        return self.find(name).connector.served_by(config) or name


def named_classes(config: RawConfig, worker: RawConfig) -> Iterator[tuple[str, str, str | None]]:
    """The classes that a config, or the worker's settings for it, names besides the connector: key, name and requested
    version. Malformed values are skipped; validation reports them."""
    for family in ("transforms", "predicates"):
        aliases = config.get(family)
        for alias in dict.fromkeys(aliases.split(",")) if isinstance(aliases, str) else ():
            prefix = f"{family}.{alias.strip()}."
            name, version = config.get(f"{prefix}type"), config.get(f"{prefix}plugin.version")
            if isinstance(name, str):
                yield f"{prefix}type", name.strip(), None if version is None else str(version)
    for field in ("key.converter", "value.converter", "header.converter"):
        source = config if config.get(field) is not None else worker
        name, version = source.get(field), source.get(f"{field}.plugin.version")
        if isinstance(name, str):
            yield field, name.strip(), None if version is None else str(version)


def _latest(plugins: Iterable[PluginDescriptor], wanted: VersionRange | None) -> PluginDescriptor | None:
    found = [plugin for plugin in plugins if wanted is None or wanted.contains(plugin.version)]
    return found[-1] if found else None
