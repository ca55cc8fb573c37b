"""A Kafka cluster that exists already, for `herd up --bootstrap-servers`.

Owns the reading of the client settings (`--command-config`: a properties file as Kafka's own tools take it), the check
that a broker answers, the replication factor that fits the cluster, and the environment with which the services reach
it. Starts and changes nothing in the cluster; the services create their topics.

Invariant: a setting of the file that has no effect here is named in `ignored`.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from herdmesh.devstack.errors import AccessUnusable, KafkaUnusable
from herdmesh.devstack.readiness import broker_count

REPLICATION_FACTOR_MAX: Final = 3
"""Connect's default for its own topics and for dead letter queues."""
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ExistingKafka:
    """Addresses of a cluster, and Java's names of the settings of TLS and login."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    ignored: tuple[str, ...] = ()
    """Settings of the file that have no effect here."""
    file: Path | None = None
    """The file of the settings."""

    @staticmethod
    def of(bootstrap: str, command_config: Path | None) -> ExistingKafka:
        """Read the settings. Raises `KafkaUnusable`."""
        servers = ",".join(part.strip() for part in bootstrap.split(","))
        if command_config is None:
            return ExistingKafka(servers)
        # These modules take a tenth of the start time of any command, and few commands read such a file.
        from herdmesh.connect.clients import client_access, is_access
        from herdmesh.connect.config import redacted
        from herdmesh.connect.errors import ConfigError
        from herdmesh.connect.java import PropertiesError, parse

        try:
            read = {key: one.value.strip() for key, one in parse(command_config.read_bytes()).items()}
        except OSError as error:
            raise KafkaUnusable(f"--command-config {command_config} cannot be read: {error.strerror}") from error
        except PropertiesError as error:
            raise KafkaUnusable(f"--command-config {command_config}, line {error.line}: {error}") from error
        used = {key: value for key, value in read.items() if is_access(key)}
        try:
            ignored = client_access("admin", used).ignored
        except ConfigError as error:
            fix = f"; {error.fix}" if error.fix else ""
            raise KafkaUnusable(f"--command-config {command_config}: {redacted(str(error))}{fix}") from error
        unused = sorted({*ignored, *(read.keys() - used.keys() - {"bootstrap.servers"})})
        return ExistingKafka(servers, used, tuple(unused), command_config.resolve())

    @property
    def access(self) -> Mapping[str, str]:
        """Login and encryption under librdkafka's names; may hold secrets."""
        from herdmesh.connect.clients import client_access

        return client_access("admin", self.properties).config

    def count_brokers(self) -> int:
        """Wait for a broker and return the number of brokers in the cluster. Blocks for up to 12 s.

        Raises `KafkaUnusable` with the client's last message.
        """
        errors: deque[str] = deque(maxlen=1)
        deadline_s = time.monotonic() + _PATIENCE_S
        try:
            while (count := broker_count(self.bootstrap, self.access, errors.append)) == 0:
                if time.monotonic() > deadline_s:
                    reason = f": {errors[0]}" if errors else ""
                    raise KafkaUnusable(
                        f"no broker answers at {self.bootstrap}{reason}. Start Kafka, or correct --bootstrap-servers "
                        "and the security.protocol, ssl.* and sasl.* of --command-config."
                    )
        except AccessUnusable as error:
            raise KafkaUnusable(f"the settings of --command-config cannot be used: {error}") from error
        return count

    def environment(self) -> dict[str, str]:
        """Environment of the services, added to settings that this process has: stores take librdkafka's names,
        workers Connect's.
        """
        if not self.properties:
            return {}
        added = {"HERDMESH_KAFKA_CLIENT_CONFIGS": self.access, "HERDMESH_WORKER_PROPERTIES": self.properties}
        return {
            name: ",".join(filter(None, (os.environ.get(name, ""), _pairs(settings))))
            for name, settings in added.items()
        }


def fitting_replication_factor(brokers: int) -> int:
    """The replication factor for a cluster of so many brokers."""
    return max(1, min(REPLICATION_FACTOR_MAX, brokers))


def _pairs(settings: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}".replace(",", "\\,") for name, value in settings.items())
