"""A real registry, for the contract suite and the bench: Apicurio Registry's process, in memory, on a free port.

Owns its life: unpacked and started once, configured to keep Avro's subjects backward compatible as Confluent's
does by default, ended with its process. The archive is checked and cached as the jars are (`deploy/jars`, group
`registry`), but fetched with Maven: Ivy requires the parent that its description names and nobody has published. 3.0.9
is the last release that runs on Java 17.
"""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

from herdmesh.devstack.java import find_java
from herdmesh.devstack.ports import free_ports
from tests.support.maven_archive import maven_archive

_ARTIFACT = "io.apicurio:apicurio-registry-app:3.0.9:tar.gz:all"
_STARTS_S = 90.0


@contextmanager
def real_registry() -> Generator[str]:
    """The address of its Confluent-compatible API. Raises JarsUnavailable when it is not in the cache and cannot be
    fetched, and TimeoutError, with its log, when it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="herdmesh-registry-") as folder:
        with tarfile.open(maven_archive("registry", _ARTIFACT)) as archive:
            archive.extractall(folder, filter="data")
        (jar,) = Path(folder).glob("*-runner.jar")
        ports, log = free_ports(2), Path(folder, "log")
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
