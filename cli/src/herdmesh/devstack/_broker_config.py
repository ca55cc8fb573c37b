"""Configuration of a development broker: server.properties, logging, ports. Owns no process.

Every listener is on 127.0.0.1. Values differ from Kafka's defaults only where one node on one machine needs it; each
has its reason beside it.
"""

from __future__ import annotations

import base64
import json
import os
import uuid
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from herdmesh.devstack.ports import HOST, free_port

#: Time without heartbeats after which a killed store is replaced. Kafka's own minimum is 6 s, for networks; here there
#: is none.
ELECTION_SESSION_MS = 3_000

_FIXED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    # A typo in a topic name must be an error here as it is in production.
    "auto.create.topics.enable": "false",
    # One node: nothing to replicate to, and few partitions so that a start is fast.
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": str(ELECTION_SESSION_MS),
    # After kill -9 the controller refuses the same broker (DUPLICATE_BROKER_REGISTRATION) until its old session ends.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # One node: nobody needs a record every half second which says that there is nothing new.
    "metadata.max.idle.interval.ms": "5000",
    # After kill -9 each partition's indexes are created anew at their maximum size. The default of 10 MiB takes 11 s of
    # processor time for 900 partitions, this one 7; with it a segment ends at some 350 MB, because its time index is
    # full.
    "log.index.size.max.bytes": "1048576",
    # The default buffer alone is a quarter of this heap.
    "log.cleaner.dedupe.buffer.size": "16777216",
    "num.network.threads": "2",
    "num.io.threads": "4",
}

_LOG4J = """\
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n
"""
# Hundreds of lines per start, or a line per partition: useful only for debugging Kafka itself.
_QUIET_LOGGERS = (
    "org.apache.kafka.common.config.AbstractConfig",
    "org.apache.kafka.common.utils.AppInfoParser",
    "org.apache.kafka.image",
    "org.apache.kafka.metadata.bootstrap",
    "org.apache.kafka.storage.internals.log",
    "org.apache.kafka.server.metrics",
    "kafka.cluster.Partition",
    "kafka.server.metadata",
    "state.change.logger",
)


class PortTaken(Exception):
    """Another process bound one of the chosen ports first: choose again."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The two ports of a node."""

    client: int
    controller: int


def write_server_properties(path: Path, log_dir: Path, ports: Ports, extra: Mapping[str, str]) -> None:
    """Write server.properties; `extra` overrides the settings here, except that its listeners are added to those
    here."""
    client, controller = f"PLAINTEXT://{HOST}:{ports.client}", f"CONTROLLER://{HOST}:{ports.controller}"
    values = {
        **_FIXED,
        "log.dirs": str(log_dir),
        "controller.quorum.voters": f"1@{HOST}:{ports.controller}",
        **extra,
        "listeners": ",".join([client, controller, *_given(extra, "listeners")]),
        "advertised.listeners": ",".join([client, *_given(extra, "advertised.listeners")]),
    }
    path.write_text("".join(f"{key}={property_text(value)}\n" for key, value in values.items()), encoding="ascii")


def write_log_config(data_dir: Path) -> str:
    """Write the log4j2 configuration into `data_dir` and return the JVM option that names it."""
    quiet = [f"logger.q{n}.name={name}\nlogger.q{n}.level=warn\n" for n, name in enumerate(_QUIET_LOGGERS)]
    path = data_dir / "log4j2.properties"
    path.write_text(_LOG4J + "".join(quiet))
    return f"-Dlog4j2.configurationFile={path}"


def new_id() -> str:
    """A random id of a cluster or folder in Kafka's form: 16 bytes, URL-safe base64. Never starts with a dash, which
    would mark an option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def cluster_id(log_dir: Path) -> str:
    """The cluster id that a folder was formatted with."""
    for line in (log_dir / "meta.properties").read_text().splitlines():
        key, _, value = line.partition("=")
        if key == "cluster.id":
            return value
    return ""


def choose_ports(data_dir: Path, preferred: int, avoid: Collection[int]) -> Ports:
    """The folder's own ports if free, else the preferred ones if free, else any. `preferred` 0 means any."""
    remembered = remembered_ports(data_dir)
    client_wishes = [remembered.client] if remembered else []
    controller_wishes = [remembered.controller] if remembered else []
    if preferred:
        client_wishes.append(preferred)
        controller_wishes.append(preferred + 1)
    client = free_port(client_wishes, avoid)
    return Ports(client, free_port(controller_wishes, {*avoid, client}))


def remembered_ports(data_dir: Path) -> Ports | None:
    """The ports on which the folder was last served. A damaged file counts as none."""
    try:
        return Ports(**json.loads((data_dir / "ports.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def remember_ports(data_dir: Path, ports: Ports) -> None:
    """Store the ports for the next start, in one step."""
    fresh = data_dir / "ports.json.new"
    fresh.write_text(json.dumps(asdict(ports)))
    os.replace(fresh, data_dir / "ports.json")


def _given(extra: Mapping[str, str], name: str) -> list[str]:
    return [extra[name]] if name in extra else []


def property_text(value: str) -> str:
    """A value as it is written into a properties file. Java reads such a file as ISO-8859-1, so every other character
    is written as its UTF-16 code units: a folder named mitü is found only that way.
    """
    text = value.replace("\\", "\\\\").replace("\n", "\\n")
    return "".join(one if one.isascii() else _code_units(one) for one in text)


def _code_units(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
