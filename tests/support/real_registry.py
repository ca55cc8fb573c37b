"""A real registry, for the contract suite and the bench: Apicurio Registry's process, in memory, on a free port.

Owns its life: unpacked and started once, asked to keep Avro's subjects backward compatible as Confluent's
does by default, ended with its process. The archive is checked and cached as the jars are (`deploy/jars`, group
`registry`), but fetched with Maven: Ivy wants the parent that its description names and nobody has published. 3.0.9 is
the last release that Java 17 runs.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

from herdmesh.devstack.errors import JarsUnavailable
from herdmesh.devstack.jars import ensure_jars
from herdmesh.devstack.java import find_java

_NAME, _VERSION = "apicurio-registry-app", "3.0.9"
_ARTIFACT = f"io.apicurio:{_NAME}:{_VERSION}:tar.gz:all"
_FETCH_S = 600.0
_STARTS_S = 90.0


@contextmanager
def real_registry() -> Generator[str]:
    """The address of its Confluent-compatible API. Raises JarsUnavailable when it is not in the cache and cannot be
    fetched, and TimeoutError, with its log, when it does not come up."""
    with tempfile.TemporaryDirectory(prefix="herdmesh-registry-") as folder:
        with tarfile.open(ensure_jars("registry", fetch=_fetch)) as archive:
            archive.extractall(folder, filter="data")
        (jar,) = Path(folder).glob("*-runner.jar")
        ports, log = _free_ports(2), Path(folder, "log")
        command = [str(find_java().executable), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1",
                   f"-Dquarkus.http.port={ports[0]}", f"-Dquarkus.management.port={ports[1]}",
                   "-jar", str(jar)]  # fmt: skip
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
        try:
            address = f"http://127.0.0.1:{ports[0]}/apis/ccompat/v7"
            _wait(process, address, log)
            httpx.put(f"{address}/config", json={"compatibility": "BACKWARD"}).raise_for_status()
            yield address
        finally:
            process.terminate()
            process.wait(timeout=30)


def _fetch(group: str, folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise JarsUnavailable("a real registry is fetched with Maven (mvn), which is not installed: install it")
    folder.mkdir(parents=True)
    maven = ["mvn", "-q", "-B", "dependency:get"]
    done = subprocess.run(
        [*maven, f"-Dartifact={_ARTIFACT}", "-Dtransitive=false"],
        cwd=folder.parent, capture_output=True, text=True, errors="replace", timeout=_FETCH_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise JarsUnavailable(f"Maven could not fetch {_ARTIFACT} ({group}): {done.stdout[-1_000:]}")
    kept = Path.home() / ".m2" / "repository" / "io" / "apicurio" / _NAME / _VERSION / f"{_NAME}-{_VERSION}-all.tar.gz"
    shutil.copy(kept, folder)


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    end_s = time.monotonic() + _STARTS_S
    while time.monotonic() < end_s and process.poll() is None:
        try:
            if httpx.get(f"{address}/subjects").is_success:
                return
        except httpx.TransportError:
            pass  # not yet
        time.sleep(0.25)
    raise TimeoutError(f"the registry did not come up: {log.read_text(errors='replace')[-2_000:]}")
