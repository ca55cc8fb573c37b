"""Import order of a process that runs one plugin.

Owns the order: Python's own library, then Herdmesh and its requirements as installed here, then the plugin's virtual
environment, then everything else that is installed here. Finds no plugins and checks none (the worker does, before any
is used).

Invariant: after `enter`, a module in the plugin's environment is imported from there, unless its distribution is one of
`own`: modules of those are never imported from the environment, not even later.
"""

from __future__ import annotations

import importlib
import importlib.abc
import site
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from herdmesh.connect.spi import PluginImports


class _OwnFirst(importlib.abc.MetaPathFinder):
    """Finder of the modules that stay this installation's; it precedes every finder that searches the plugin's
    environment.
    """

    def __init__(self, imports: PluginImports, own_path: Sequence[str]) -> None:
        self.folder = imports.folder
        self._own = frozenset(imports.own)
        self._own_path = list(own_path)
        self.plugin_path: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a top-level module; a package finds its own submodules."""
        if path is not None or fullname not in self._own:
            return None
        spec = PathFinder.find_spec(fullname, self._own_path)
        if spec is not None and spec.origin is None and spec.submodule_search_locations is not None:
            # A namespace, such as `google`: this installation's part comes first, the plugin's part is added.
            spec.submodule_search_locations = [*spec.submodule_search_locations, *_below(fullname, self.plugin_path)]
        return spec


def enter(imports: PluginImports) -> None:
    """Set the import order of this process for the plugin, once for the life of the process.

    Raises RuntimeError in a process that imports from another plugin.
    """
    for finder in sys.meta_path:
        if isinstance(finder, _OwnFirst):
            if finder.folder != imports.folder:
                raise RuntimeError(f"this process imports from {finder.folder}, not from {imports.folder}")
            return
    own_path = list(sys.path)
    finder = _OwnFirst(imports, own_path)
    sys.meta_path.insert(0, finder)
    site.addsitedir(imports.site_packages, set())  # includes its .pth files: a plugin may be installed as editable
    added = [entry for entry in sys.path if entry not in own_path]
    finder.plugin_path.extend(added)
    _forget(added, frozenset(imports.own))
    for name in imports.own:
        _add_to_namespace(name, added)
    library = _standard_library()
    # As in any environment, no module of it hides one of Python itself; everything else here comes after it.
    first = [entry for entry in own_path if entry in library]
    sys.path[:] = [*first, *added, *(entry for entry in own_path if entry not in library)]
    importlib.invalidate_caches()


def _forget(added: Iterable[str], own: frozenset[str]) -> None:
    """Remove imported modules that the plugin has itself and Herdmesh does not require."""
    top_level = {name.partition(".")[0] for name in sys.modules}
    foreign = top_level - own - sys.stdlib_module_names - {"__main__"}
    brought = {name for name in foreign if any(_has(Path(entry), name) for entry in added)}
    for name in list(sys.modules):
        if name.partition(".")[0] in brought:
            del sys.modules[name]


def _has(folder: Path, name: str) -> bool:
    files = (f"{name}{suffix}" for suffix in (".py", *EXTENSION_SUFFIXES))
    return (folder / name).is_dir() or any((folder / file).is_file() for file in files)


def _add_to_namespace(name: str, added: Iterable[str]) -> None:
    """Add the plugin's folders to a namespace that is imported already. From then on it no longer follows
    `sys.path`."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and isinstance(spec, ModuleSpec) and spec.origin is None and hasattr(module, "__path__"):
        module.__path__ = [*module.__path__, *_below(name, added)]


def _below(name: str, folders: Iterable[str]) -> list[str]:
    return [str(Path(folder) / name) for folder in folders if (Path(folder) / name).is_dir()]


def _standard_library() -> set[str]:
    library = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    return library | {str(Path(entry) / "lib-dynload") for entry in library}
