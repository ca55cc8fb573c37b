"""Plugins of the sides: the SDK's connectors (`lines`) for our workers, a sink for databases for Java's.

Owns the two folders and the settings that name them. Invariant: nothing is installed; both folders are removed with the
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
    """Environment in which processes find `CONNECTORS` as if they were installed. Creates the folder."""
    info = folder / "herdmesh_bench_lines-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: herdmesh-bench-lines\nVersion: 1.0\n")
    entries = "".join(f"{one.__name__} = {one.__module__}:{one.__name__}\n" for one in CONNECTORS)
    (info / "entry_points.txt").write_text(f"[herdmesh.connectors]\n{entries}")
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(_ROOT), *([before] if before else [])])}


def debezium() -> Path:
    """The archive of Debezium's sink. Raises JarsUnavailable."""
    return maven_archive("debezium-jdbc", _DEBEZIUM)


def java_settings(folder: Path) -> Mapping[str, str]:
    """Settings with which a worker finds the sink for databases, unpacked into a folder of the plugin path as users
    install it. Creates the folder. Raises JarsUnavailable.
    """
    folder.mkdir(parents=True)
    with tarfile.open(debezium()) as archive:
        archive.extractall(folder, filter="data")
    return {"plugin.path": str(folder)}
