"""One Java Connect 4.3.1 distributed worker for side-by-side runs.

Owns the process, its settings and its REST calls. Invariant: it shares the broker with Herdmesh and nothing else.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from herdmesh.devstack.jars import ensure_jars
from herdmesh.devstack.java import find_java

_START_TIMEOUT_S = 60.0


class JavaConnect:
    """A running worker. `with JavaConnect(bootstrap, folder, port) as java: java.create(...)`."""

    def __init__(self, bootstrap: str, folder: Path, port: int) -> None:
        self._folder = folder
        self._url = f"http://127.0.0.1:{port}"
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "java-connect",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "config.storage.topic": "java-connect-configs",
            "status.storage.topic": "java-connect-status",
            "offset.storage.topic": "java-connect-offsets",
            "config.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "listeners": f"HTTP://127.0.0.1:{port}",
            "rest.advertised.host.name": "127.0.0.1",
            # without this a connector may not set max.poll.records, which Java needs for its best figures
            "connector.client.config.override.policy": "All",
        }
        self._properties = folder / "worker.properties"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> JavaConnect:
        classpath = ensure_jars("connect")
        with (self._folder / "connect.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(str(find_java().executable), "-Xms256M", "-Xmx2G", "-XX:+UseG1GC", "-cp", classpath),
                    *("org.apache.kafka.connect.cli.ConnectDistributed", str(self._properties)),
                ],
                stdout=log,
                stderr=log,
            )
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                self._request("GET", "/connectors")
                return self
            except (OSError, urllib.error.HTTPError):
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    tail = (self._folder / "connect.log").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"Java Connect does not serve:\n{tail}") from None
                time.sleep(0.2)

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def create(self, name: str, config: dict[str, str]) -> None:
        self._request("PUT", f"/connectors/{name}/config", config)

    def delete(self, name: str) -> None:
        self._request("DELETE", f"/connectors/{name}")

    def _request(self, method: str, path: str, body: dict[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        deadline_s = time.monotonic() + 20.0
        while True:
            request = urllib.request.Request(
                self._url + path, method=method, data=data, headers={"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=30) as reply:
                    text = reply.read()
                    return json.loads(text) if text else None
            except urllib.error.HTTPError as error:
                # 409 while it rebalances: every script of Connect's users has this loop
                if error.code != 409 or time.monotonic() > deadline_s:
                    raise
                time.sleep(0.2)
