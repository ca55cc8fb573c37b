"""Installation of a Spark with jars for Delta and Iceberg, beside
the worker's: fetched once, as an operator would install it.

Owns its version and folder. Invariant: the folder that `home` returns was installed completely.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from herdmesh.devstack.jars import cache_dir

VERSION: Final = "4.1.2"
_INSTALL_S: Final = 900


def install_arguments(folder: str) -> list[str]:
    """Return pip's arguments that install it to a folder."""
    return ["install", "--no-deps", "--target", folder, f"pyspark=={VERSION}"]


def home() -> Path:
    """Return its folder; install it if it is missing (490 MB). Raises pip's error."""
    folder = cache_dir() / f"pyspark-{VERSION}"
    if not folder.exists():
        fresh = folder.with_name(f"{folder.name}-{os.getpid()}")
        try:
            pip = (sys.executable, "-m", "pip", *install_arguments(str(fresh)), "-q")
            subprocess.run(pip, check=True, timeout=_INSTALL_S)
            os.rename(fresh, folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return folder / "pyspark"
