"""A formatted Kafka folder without a record, cached beside the jars for all clones: a broker's new folder is a copy of
it with ids of its own. Formatting takes a JVM and 0.8 s of processor time.

Owns one such folder per jar set and configuration, copied from the first folder of that kind that Kafka formatted.
Formats nothing itself.

Invariant: a cached folder is complete or absent; the cluster id and directory id of a copy are unique.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from herdmesh.devstack._broker_config import property_text

_IDENTITY = "meta.properties"
#: The second file of a formatted folder: the initial levels of Kafka's features.
_FEATURES = "bootstrap.checkpoint"
#: Settings that formatting does not store, and that differ from broker to broker.
_ADDRESSES = ("listeners=", "advertised.listeners=")


def kept_path(classpath: str, properties: Path, folder: Path) -> Path:
    """Path of the cached counterpart of `folder`, formatted by these jars with these server.properties."""
    lines = properties.read_text().replace(property_text(str(folder)), "").splitlines()
    told = "\n".join(line for line in lines if not line.startswith(_ADDRESSES))
    jars = Path(classpath.split(os.pathsep)[0]).parent
    return jars.with_name(f"{jars.name}-{hashlib.sha256(told.encode()).hexdigest()[:16]}.formatted")


def copy(kept: Path, folder: Path, cluster_id: str, directory_id: str) -> bool:
    """Create `folder`, which must not exist, as a copy. Returns False when nothing is cached, or the copy fails."""
    try:
        identity, features = (kept / _IDENTITY).read_text(), (kept / _FEATURES).read_bytes()
    except (OSError, ValueError):
        return False
    ids = {"cluster.id": cluster_id, "directory.id": directory_id}
    lines = [f"{key}={ids.pop(key, value)}" for key, _, value in _entries(identity)]
    if ids:
        return False
    try:
        folder.mkdir()
        _write(folder / _FEATURES, features)
        _write(folder / _IDENTITY, "".join(f"{line}\n" for line in lines).encode())
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        return False
    return True


def keep(folder: Path, kept: Path) -> None:
    """Cache a copy of a folder that was just formatted, in one step. A folder with unknown files is not cached."""
    if sorted(found.name for found in folder.iterdir()) != sorted((_IDENTITY, _FEATURES)):
        return
    beside = kept.with_suffix(f".{os.getpid()}.new")
    try:
        beside.mkdir()
        for name in (_IDENTITY, _FEATURES):
            _write(beside / name, (folder / name).read_bytes())
        os.rename(beside, kept)
    except OSError:  # another process was first, or a read-only cache: works as without this module
        shutil.rmtree(beside, ignore_errors=True)


def _entries(identity: str) -> list[tuple[str, str, str]]:
    return [line.partition("=") for line in identity.splitlines() if not line.startswith("#")]


def _write(path: Path, content: bytes) -> None:
    """Write and sync to disk before the folder gets its name: even after a power failure a folder with a name is
    complete.
    """
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
