"""Search for the interpreters of the supported Pythons: in PATH, else among those that pyenv installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

VERSIONS: Final = ("3.11", "3.12", "3.13")


def find(version: str) -> str | None:
    """An interpreter of this version, such as `3.13`, that runs; None when there is none."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [shutil.which(name), *map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/{name}")))]
    return next((one for one in candidates if one is not None and _runs(one)), None)


def _runs(python: str) -> bool:
    """False for a shim of a version that is not chosen here."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
