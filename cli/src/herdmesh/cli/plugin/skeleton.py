"""A working connector package, generated from templates.

Owns its names and the list of its files. The templates are the `.tmpl` files beside this module; a test shows that the
package passes its own tests.

Invariant: no existing file is overwritten.
"""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Final

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TAKEN: Final = frozenset(("herdmesh", "test", "tests", "pytest"))


class SkeletonRefused(Exception):
    """A name or a folder that cannot be used. The message has the reason, `fix` the next step."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Skeleton:
    """One package to write."""

    name: str
    """Name of the distribution, and of its folder."""
    kind: str
    """source or sink."""

    @property
    def module(self) -> str:
        """The name of the package to import."""
        return self.name.replace("-", "_")

    @property
    def class_name(self) -> str:
        """The connector's class: `OrdersSource` for orders and for orders-source."""
        words = self.name.removesuffix(f"-{self.kind}").split("-")
        return "".join(word.capitalize() for word in [*words, self.kind])

    def files(self) -> dict[str, str]:
        """Path in the package's folder, and text, of each file."""
        places = {
            "pyproject.toml": "pyproject.toml",
            "README.md": f"README_{self.kind}.md",
            f"src/{self.module}/__init__.py": "__init__.py",
            f"src/{self.module}/connector.py": f"{self.kind}.py",
            "tests/conftest.py": "conftest.py",
            f"tests/test_{self.module}.py": f"test_{self.kind}.py",
        }
        names = {"name": self.name, "module": self.module, "class_name": self.class_name, "kind": self.kind}
        return {path: Template(_text(template)).substitute(names) for path, template in places.items()}


def write(skeleton: Skeleton, parent: Path) -> Path:
    """Write the package into a new folder in `parent`; returns that folder.

    Raises:
        SkeletonRefused: a name that no package can have, or a folder that exists.
        OSError: the folder cannot be written.
    """
    if not _NAME.fullmatch(skeleton.name):
        raise SkeletonRefused(
            f"{skeleton.name} is not a valid name of a package", "Use lower-case letters, digits and hyphens."
        )
    module = skeleton.module
    if keyword.iskeyword(module) or module in sys.stdlib_module_names or module in _TAKEN:
        raise SkeletonRefused(f"a module named {module} would hide Python's own, or ours", "Choose another name.")
    folder = parent / skeleton.name
    if folder.exists():
        raise SkeletonRefused(f"{folder} exists", "Choose another name, or another --dir.")
    for path, text in skeleton.files().items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return folder


def _text(template: str) -> str:
    return (resources.files("herdmesh.cli.plugin") / f"{template}.tmpl").read_text(encoding="utf-8")
