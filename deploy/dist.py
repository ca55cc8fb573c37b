"""Builder of every distribution of this checkout as a wheel in `dist/`: `make dist`, or `python deploy/dist.py
[FOLDER]`.

Owns the list of distributions (each folder whose pyproject.toml can be built), and the files that a wheel must contain.
Builds with the tools of this environment, so nothing is fetched. `build/` folders are removed before and after:
setuptools would put modules into a wheel that the tree no longer has.

The wheel of herdmesh-core has compiled code: it is for one platform and every Python 3 (libs/core/setup.py). All others
are for any platform.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Data that a wheel needs, and that is not in the distribution's own folder.
_NEEDED = {
    "herdmesh-cli": ("herdmesh/devstack/pinned_jars/ivy.xml", "herdmesh/cli/demo/flights.csv.zip"),
    "herdmesh-core": ("_native.so",),
}


def distributions(root: Path = ROOT) -> list[Path]:
    """The folders of all distributions, sorted."""
    found = [path for pattern in ("*/pyproject.toml", "*/*/pyproject.toml") for path in root.glob(pattern)]
    return sorted(path.parent for path in found if "build-system" in project_file(path.parent))


def project_file(folder: Path) -> dict[str, Any]:
    """The distribution's pyproject.toml."""
    return tomllib.loads((folder / "pyproject.toml").read_text())


def build(out: Path) -> list[Path]:
    """Empty `out` and build all wheels into it. Raises CalledProcessError, with pip's output on standard error."""
    folders = distributions()
    shutil.rmtree(out, ignore_errors=True)
    _remove_builds(folders)
    try:
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
        options = ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(out)]
        subprocess.run([*pip, *options, *map(str, folders)], check=True)
    finally:
        _remove_builds(folders)
    return sorted(out.glob("*.whl"))


def missing(wheel: Path) -> Iterator[str]:
    """The files that the wheel should contain but does not."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    distribution = wheel.name.partition("-")[0].replace("_", "-")
    for needed in ("/licenses/LICENSE", *_NEEDED.get(distribution, ())):
        if not any(name.endswith(needed) for name in names):
            yield f"{wheel.name} has no {needed}"


def _remove_builds(folders: Sequence[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder / "build", ignore_errors=True)


def main() -> int:
    """Build all wheels, and print them."""
    out = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else ROOT / "dist"
    wheels = build(out)
    for wheel in wheels:
        print(f"{wheel.stat().st_size / 1_000_000:8.2f} MB  {wheel.name}")
    lacking = [one for wheel in wheels for one in missing(wheel)]
    for one in lacking:
        print(one, file=sys.stderr)
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
