"""What the sides have besides their own: our workers the SDK's connectors (`lines`), Java's a sink for databases.

Owns the two folders and the settings that name them. Invariant: nothing is installed; both folders are gone with the
bench's own.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

from bench.connectors import lines
from tests.support.maven_archive import maven_archive

_DEBEZIUM = "io.debezium:debezium-connector-jdbc:3.6.0.Final:tar.gz:plugin"
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


def debezium() -> Path:
    """Its archive. Raises JarsUnavailable."""
    return maven_archive("debezium-jdbc", _DEBEZIUM)


def java_settings(folder: Path) -> Mapping[str, str]:
    """Of a worker that is to find the sink for databases, as its users install it: unpacked into a folder of the plugin
    path. Makes the folder. Raises JarsUnavailable."""
    folder.mkdir(parents=True)
    with tarfile.open(debezium()) as archive:
        archive.extractall(folder, filter="data")
    return {"plugin.path": str(folder)}
