"""An environment with the other end of the supported Pythons, for `make test`: 3.13 where `.venv` has an older one,
else 3.11.

Owns `.venv/other`: the packages that the command line, the core and the control plane need, in the pinned versions,
without Spark (450 MB; `make dist-check` has it on every Python), and the sources of this checkout. The compiled part of
the core serves every Python 3.

    python -m tests.install.other_python     makes it, unless it is there for the same pins or there is no such Python
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

from deploy.dist import ROOT, distributions, project_file
from tests.install import pythons

OLDEST: Final = (3, 11)
NEWEST: Final = (3, 13)
FOLDER: Final = ROOT / ".venv" / "other"
_PINS: Final = ROOT / "deploy" / "requirements.txt"
_MADE_FROM: Final = FOLDER / "made-from"
_DISTRIBUTIONS: Final = ("cli", "libs/core")
_FOR_TESTS: Final = (
    "hypothesis",
    "packaging",
    "psycopg[binary]",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "pytest-xdist",
)


def other_version() -> str:
    """`3.13` or `3.11`."""
    major, minor = OLDEST if sys.version_info[:2] >= NEWEST else NEWEST
    return f"{major}.{minor}"


def interpreter() -> Path | None:
    """The environment's Python; None where it was not made."""
    python = FOLDER / "bin" / "python"
    return python if python.exists() and _MADE_FROM.is_file() else None


def make(python: str) -> None:
    """Make the environment anew. Raises CalledProcessError."""
    subprocess.run([python, "-m", "venv", "--clear", str(FOLDER)], check=True)
    pip = [str(FOLDER / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-c", str(_PINS), *_requirements()], check=True)
    (site,) = FOLDER.glob("lib/python*/site-packages")
    sources = [folder / "src" for folder in distributions() if (folder / "src").is_dir()]
    (site / "herdmesh-sources.pth").write_text("".join(f"{folder}\n" for folder in sources))
    _MADE_FROM.write_text(_key(python))


def _requirements() -> list[str]:
    wanted = [one for name in _DISTRIBUTIONS for one in project_file(ROOT / name)["project"]["dependencies"]]
    return [*(one for one in wanted if not one.startswith("herdmesh")), *_FOR_TESTS]


def _key(python: str) -> str:
    text = "\n".join([python, _PINS.read_text(), *_requirements()])
    return hashlib.sha256(text.encode()).hexdigest()


def main() -> int:
    """Make the environment when needed; 0 also where there is no such Python."""
    python = pythons.find(other_version())
    if python is None:
        print(f"no Python {other_version()} was found: its tests are skipped")
        return 0
    if interpreter() is not None and _MADE_FROM.read_text() == _key(python):
        return 0
    print(f"Making {FOLDER.relative_to(ROOT)} with {python}")
    make(python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
