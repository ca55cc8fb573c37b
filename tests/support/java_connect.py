"""One Java Connect 4.3.1 distributed worker: its process, its settings and its REST calls.

Owns the process and the worker's folder (settings, log). Owns neither the broker nor the topics: they are named after
the group (`topics`), so that stores of ours can read the same three.

Invariant: no process it started outlives `stop` or `kill`, and a call is repeated only where Connect itself reports
that it was rejected because of a rebalance.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from confluent_kafka.admin import AdminClient

from herdmesh.devstack import class_archive
from herdmesh.devstack.jars import ensure_jars
from herdmesh.devstack.java import find_java
from herdmesh.devstack.ports import free_port

QUICK_JVM = ("-Xms64M", "-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For tests: the JVM starts in half the time, and its later speed does not matter."""

QUICK_CLIENTS = {
    # closing a consumer waits for its fetch to be answered, which takes so long where there are no new records
    "fetch.max.wait.ms": "100",
    "consumer.fetch.max.wait.ms": "100",
    # a consumer learns by its next heartbeat that another joined its group
    "consumer.heartbeat.interval.ms": "200",
}
"""Settings for tests whose worker does many things one after the other: clients that stop and join at once."""

CONNECT_JARS = "connect"
"""Connect's own."""
AVRO_JARS = "connect-avro"
"""Connect's own with Apicurio's Avro converter."""
MIRROR_JARS = "connect-mirror"
"""That with MirrorMaker's connectors."""

EXACTLY_ONCE = {"exactly.once.source.support": "enabled"}

_START_TIMEOUT_S = 60.0
_LEFT_TIMEOUT_S = 45.0
_STOP_TIMEOUT_S = 15.0
_REBALANCE_TIMEOUT_S = 60.0
#: texts of Connect's 409 and 500 answers for calls that succeed a moment later
#: (docs/reference/connect/rest-api.md, section 1.2)
_REBALANCING = ("rebalance", "stale configuration", "no known leader")

DISCARDED = re.compile(r".* Discarding config update record with invalid key: (.+)")
"""The error that it logs for a record whose key it does not know."""

_LOG4J = """\
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d{HH:mm:ss.SSS}] %p %c{1}: %m%n
logger.config.name=org.apache.kafka.common.config.AbstractConfig
logger.config.level=warn
logger.reflections.name=org.reflections
logger.reflections.level=error
"""


class RestError(Exception):
    """A refusal by Connect's REST API; `status` is the HTTP status, the text is Connect's message."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(f"{status}: {message}")


@dataclass(frozen=True, slots=True)
class Topics:
    """The three topics of a Connect cluster."""

    config: str
    status: str
    offsets: str

    @classmethod
    def of(cls, group: str) -> Topics:
        return cls(f"{group}-configs", f"{group}-status", f"{group}-offsets")


class JavaConnect:
    """A worker that is its whole cluster. `with JavaConnect(bootstrap, folder) as java: java.put_config(...)`.

    `group` is its `group.id` and names its topics; `settings` win over the ones here; `jars` is the group of its
    class path; the port is any free one and stays the same over restarts, as it is part of a worker's id. Calls block.
    """

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        *,
        group: str = "java-connect",
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = QUICK_JVM,
        jars: str = CONNECT_JARS,
    ) -> None:
        self.group = group
        self.topics = Topics.of(group)
        port = free_port()
        self.worker_id = f"127.0.0.1:{port}"
        self.log_path = folder / "connect.log"
        self._looking = threading.Lock()
        self._kept: http.client.HTTPConnection | None = None
        self._folder = folder
        self._jvm = tuple(jvm)
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        values = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "config.storage.topic": self.topics.config,
            "status.storage.topic": self.topics.status,
            "offset.storage.topic": self.topics.offsets,
            "config.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "offset.storage.partitions": "5",
            "listeners": f"HTTP://{self.worker_id}",
            "rest.advertised.host.name": "127.0.0.1",
            # without this a connector may not set max.poll.records, which Java needs for its best figures
            "connector.client.config.override.policy": "All",
            # the only plugins are those on the class path
            "plugin.discovery": "service_load",
            **(settings or {}),
        }
        self._properties = folder / "worker.properties"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        self._log4j = folder / "log4j2.properties"
        self._log4j.write_text(_LOG4J)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- the process

    def start(self) -> None:
        """Start it and return when its herder has completed its first tick."""
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        """Start it without waiting."""
        java, classpath = find_java(), ensure_jars(self._jars)
        self._archive = class_archive.archive_path(java, classpath)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(java.executable), *self._jvm),
                    *class_archive.jvm_options(self._archive, self._fresh_archive),
                    *(f"-Dlog4j2.configurationFile={self._log4j}", "-cp", classpath),
                    *("org.apache.kafka.connect.cli.ConnectDistributed", str(self._properties)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_ready(self) -> None:
        """Wait until it reports that it is healthy. Raises RuntimeError with the end of its log."""
        assert self._process is not None
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                self._once("GET", "/health", None)
                return
            except (OSError, RestError):
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    self.kill()
                    raise RuntimeError(f"Java Connect does not serve:\n{self.log()[-2000:]}") from None
                time.sleep(0.1)

    def stop(self) -> bool:
        """Send SIGTERM, and wait until it has ended; True when it ended by itself (or had ended already).

        Now and then it does not: Jetty's own shutdown hook and Connect's stop the REST server at once, and both wait
        for ever before the herder is stopped (log: "Unable to destroy", STARTED). It is killed then, having committed
        nothing in the stop.
        """
        if self._process is None:
            return True
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._process = None
        class_archive.keep(self._fresh_archive, self._archive)
        return True

    def kill(self) -> None:
        """Send SIGKILL, and wait until it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int | None:
        """Its process id; None when it does not run."""
        return None if self._process is None else self._process.pid

    def log(self) -> str:
        """Everything it has logged, over all its lives."""
        return self.log_path.read_text(errors="replace")

    def errors(self) -> list[str]:
        """The error lines of its log, over all its lives."""
        return [one for one in self.log().splitlines() if re.match(r"\[[\d:.]+\] (ERROR|FATAL) ", one)]

    # -- actions of a user

    def create(self, name: str, config: Mapping[str, str], initial_state: str | None = None) -> Any:
        """POST /connectors: refused when it exists."""
        body: dict[str, Any] = {"name": name, "config": dict(config)}
        if initial_state is not None:
            body["initial_state"] = initial_state
        return self.request("POST", "/connectors", body)

    def put_config(self, name: str, config: Mapping[str, str]) -> Any:
        """PUT .../config: creates or replaces."""
        return self.request("PUT", f"{_path(name)}/config", dict(config))

    def patch_config(self, name: str, changes: Mapping[str, str | None]) -> Any:
        """PATCH .../config: None removes a property."""
        return self.request("PATCH", f"{_path(name)}/config", dict(changes))

    def pause(self, name: str) -> None:
        self.request("PUT", f"{_path(name)}/pause")

    def resume(self, name: str) -> None:
        self.request("PUT", f"{_path(name)}/resume")

    def stop_connector(self, name: str) -> None:
        self.request("PUT", f"{_path(name)}/stop")

    def restart(self, name: str, *, include_tasks: bool = False, only_failed: bool = False) -> Any:
        query = f"includeTasks={str(include_tasks).lower()}&onlyFailed={str(only_failed).lower()}"
        return self.request("POST", f"{_path(name)}/restart?{query}")

    def restart_task(self, name: str, task: int) -> None:
        self.request("POST", f"{_path(name)}/tasks/{task}/restart")

    def delete(self, name: str) -> None:
        self.request("DELETE", _path(name))

    def set_cluster_logger(self, logger: str, level: str) -> None:
        """Set the level of a logger on every worker of the cluster (KIP-976)."""
        self.request("PUT", f"/admin/loggers/{logger}?scope=cluster", {"level": level})

    # -- views of a user

    def connectors(self) -> dict[str, dict[str, Any]]:
        """Info and status of every connector that has both, by name."""
        return self.request("GET", "/connectors?expand=info&expand=status")

    def names(self) -> list[str]:
        return sorted(self.request("GET", "/connectors"))

    def status(self, name: str) -> dict[str, Any] | None:
        """Its status; None when there is none."""
        try:
            return self.request("GET", f"{_path(name)}/status")
        except RestError as error:
            if error.status != 404:
                raise
            return None

    def task_configs(self, name: str) -> list[dict[str, str]]:
        return [one["config"] for one in self.request("GET", f"{_path(name)}/tasks")]

    def active_topics(self, name: str) -> list[str]:
        return sorted(self.request("GET", f"{_path(name)}/topics")[name]["topics"])

    # -- calls

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Make one call, repeated while Connect rebalances: every script of its users has this loop. Raises
        RestError.
        """
        deadline_s = time.monotonic() + _REBALANCE_TIMEOUT_S
        while True:
            try:
                return self._once(method, path, body)
            except RestError as error:
                rebalancing = error.status in (409, 500) and any(word in str(error) for word in _REBALANCING)
                if not rebalancing or time.monotonic() > deadline_s:
                    raise
                time.sleep(0.1)

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        if method == "GET":
            status, text = self._get(path)
        else:
            with contextlib.closing(self._connection()) as connection:
                status, text = _called(connection, method, path, body)
        if status < 400:
            return json.loads(text) if text else None
        said = text.decode(errors="replace")
        try:
            said = json.loads(said)["message"]
        except (ValueError, KeyError, TypeError):
            pass  # an error page that is not Connect's own
        raise RestError(status, said)

    def _get(self, path: str) -> tuple[int, bytes]:
        """Make a GET over one kept connection: most calls are polls, and connecting costs the worker more than
        answering. A call that failed because that connection had closed is repeated.
        """
        with self._looking:
            kept, self._kept = self._kept, None
            found = None
            if kept is not None:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    found = _called(kept, "GET", path)
            if found is None:
                kept = self._connection()
                found = _called(kept, "GET", path)
            self._kept = kept
            return found

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.worker_id, timeout=30)

    @property
    def _fresh_archive(self) -> Path:
        return self._folder / "classes.jsa"


def _called(
    connection: http.client.HTTPConnection, method: str, path: str, body: Mapping[str, Any] | None = None
) -> tuple[int, bytes]:
    """Status and text of the answer."""
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, {"Content-Type": "application/json"})
    with connection.getresponse() as reply:
        return reply.status, reply.read()


def _path(connector: str) -> str:
    return f"/connectors/{urllib.parse.quote(connector, safe='')}"


async def until_left(bootstrap: str, group: str) -> None:
    """Wait until the group has no member, for a killed worker as long as its session lasts. Raises TimeoutError."""
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})

    def members() -> int:  # by the call that knows groups of every protocol, Connect's too
        return sum(len(found.members) for found in admin.list_groups(group, _LEFT_TIMEOUT_S))

    async with asyncio.timeout(_LEFT_TIMEOUT_S):
        left = await asyncio.to_thread(members)
        while left:
            await asyncio.sleep(0.1)
            left = await asyncio.to_thread(members)
