"""Archives that Maven fetches, checked and cached as the jars are (`deploy/jars/<group>.sha256`, one archive a group).

For archives that Ivy cannot fetch, because a description names a missing parent, and for plugins that come whole.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from herdmesh.devstack.errors import JarsUnavailable
from herdmesh.devstack.jars import ensure_jars

_FETCH_S = 600.0


def maven_archive(group: str, artifact: str) -> Path:
    """The archive of that group.

    Args:
        artifact: `organisation:name:version:extension:classifier`, pinned.

    Raises:
        JarsUnavailable: it is not in the cache, and cannot be fetched.
    """

    def fetch(_group: str, folder: Path) -> None:
        _fetch(artifact, folder)

    return Path(ensure_jars(group, fetch=fetch))


def _fetch(artifact: str, folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise JarsUnavailable(f"{artifact} is fetched with Maven (mvn), which is not installed: install it")
    folder.mkdir(parents=True)
    maven = ["mvn", "-q", "-B", "dependency:get"]
    done = subprocess.run(
        [*maven, f"-Dartifact={artifact}", "-Dtransitive=false"],
        cwd=folder.parent, capture_output=True, text=True, errors="replace", timeout=_FETCH_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise JarsUnavailable(f"Maven could not fetch {artifact}: {done.stdout[-1_000:]}")
    organisation, name, version, extension, classifier = artifact.split(":")
    kept = Path.home() / ".m2" / "repository" / Path(*organisation.split(".")) / name / version
    shutil.copy(kept / f"{name}-{version}-{classifier}.{extension}", folder)
