"""The class-data archive of Spark's JVM, with which a worker starts in half the processor time (6.5 s to 3.4 s).

Owns the path of this Python environment's archive and the JVM options that use it, not creating it
(`python -m herdmesh.worker.spark`). Invariant: the archive only saves time. A JVM that cannot use it (another build,
other jars, another class path) starts without it and logs nothing, as every worker does when there is no archive.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import pyspark

#: Without these options, a JVM that cannot use the archive writes warnings to the worker's log.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def archive_path() -> Path:
    """The archive's path for this environment, the Java that Spark uses and this Spark version; the file may be
    missing."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    java = java.resolve()
    built_ns = java.stat().st_mtime_ns if java.is_file() else 0
    identity = f"{java} {built_ns} {pyspark.__version__}"
    return Path(sys.prefix, "share", "herdmesh", f"spark-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsa")


def use_options() -> str:
    """JVM options that use the archive; "" when there is none."""
    archive = archive_path()
    return f'-Xshare:auto "-XX:SharedArchiveFile={archive}" {_QUIET}' if archive.is_file() else ""


def write_options(fresh: Path) -> str:
    """JVM options that write the archive `fresh` when the JVM exits in order."""
    return f'"-XX:ArchiveClassesAtExit={fresh}" {_QUIET}'
