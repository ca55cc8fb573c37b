"""What the sides have besides their own: our workers the SDK's connectors (`lines`), Java's a sink for databases.

Owns the two folders and the settings that name them. Invariant: nothing is installed; both folders are gone with the
bench's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bench.connectors import lines
from herdmesh.devstack.jars import ensure_jars

JDBC_JARS = "jdbc-sink"
"""Debezium's sink with PostgreSQL's driver: a plugin, not a class path."""
CONNECTORS = (
    lines.BatchLinesSource, lines.RecordLinesSource, lines.BatchLinesSink, lines.RecordLinesSink,
)  # fmt: skip
_ROOT = Path(__file__).parents[2]


def our_environment(folder: Path) -> dict[str, str]:
    """Of processes that are to find `CONNECTORS` as if they were installed. Makes the folder."""
    info = folder / "herdmesh_bench_lines-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: herdmesh-bench-lines\nVersion: 1.0\n")
    entries = "".join(f"{one.__name__} = {one.__module__}:{one.__name__}\n" for one in CONNECTORS)
    (info / "entry_points.txt").write_text(f"[herdmesh.connectors]\n{entries}")
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(_ROOT), *([before] if before else [])])}


def java_settings(folder: Path) -> Mapping[str, str]:
    """Of a worker that is to find the sink for databases, as its users install it: a folder of jars in the plugin path,
    apart from the class path. Makes the folder, fetches the jars. Raises JarsUnavailable."""
    place = folder / JDBC_JARS
    place.mkdir(parents=True)
    for jar in map(Path, ensure_jars(JDBC_JARS).split(os.pathsep)):
        (place / jar.name).symlink_to(jar)
    return {"plugin.path": str(folder)}
