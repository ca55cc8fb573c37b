"""Lazy re-exports of a package: a name that its `__init__` offers is imported from its module at the first use.

Owns the `__getattr__` (PEP 562) of the packages below `herdmesh.connect`. Does not choose the names: each `__init__`
lists them twice, for type checkers and for Python, and `tests/tidy/test_rooms.py` compares the two lists.

A service of the control plane must not pay for the numpy columns in the same package as `Schema`, so importing a
package loads none of its modules. `from herdmesh.connect.model import Schema` looks the name up once, while the
importing module loads; nothing is looked up per record.

Invariant: the package's attribute is the object in the module, whichever module imports it first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """Create the `__getattr__` of a package.

    Args:
        package: its full name, `__name__` in its `__init__`.
        modules: module below the package (`schemas`, `avro.options`) -> its names that the package exports.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def __getattr__(name: str) -> object:  # noqa: N807 - the name that Python calls
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
