"""The Kafka cluster that a command talks to: its address, and the settings of clients for it.

Owns the reading of `--command-config`. The address is found by `herdmesh.cli.mesh.contexts`. Creates no client.

Invariant: no address is guessed. A command without one fails and names the ways to give one, because a guess could
change another cluster's topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.markup import escape

from herdmesh.cli.display.output import err
from herdmesh.cli.errors import EXIT_CODES, EXIT_USAGE, CommandError
from herdmesh.cli.mesh import contexts
from herdmesh.connect.clients import client_settings
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.java import PropertiesError, parse
from herdmesh.kafka.client_settings import NO_AUTO_CREATION

_SERVERS: Final = "bootstrap.servers"


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """The address of a cluster, where it was found, and Java's client properties for it."""

    bootstrap_servers: str
    origin: str
    """The option, variable, file, context or folder that names the address."""
    name: str
    """The cluster for a message: its address, with the context or folder that names it."""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    file: str = ""
    """The file of the properties; "" = none."""

    def client_config(self, client: str) -> dict[str, Any]:
        """Settings of librdkafka for a client of that kind (`admin`, `consumer`, `producer`). Prints a warning for each
        property without an effect. Raises CommandError for a property that cannot be used.
        """
        prefix = f"{client}."
        try:
            found = client_settings(client, {f"{prefix}{name}": one for name, one in self.properties.items()}, {})
        except ConfigError as error:
            text = str(error).replace(prefix, "")
            raise CommandError(
                "CONFIG_INVALID", f"{self.file}: {text}", error.fix.replace(prefix, ""), EXIT_CODES["CONFIG_INVALID"]
            ) from None
        for warning in found.warnings:
            err.print(f"[yellow]warning[/] {escape(f'{self.file}: {warning.message}'.replace(prefix, ''))}")
        return {**NO_AUTO_CREATION, **found.config, _SERVERS: self.bootstrap_servers, "client.id": "herd"}


def find_kafka(bootstrap_servers: str | None, command_config: Path | None, *, is_change: bool = False) -> KafkaAccess:
    """The cluster of a command, as `contexts.find_kafka_target` finds it, with the properties of `--command-config` or
    else of the context. Raises CommandError when none is named, and for a change of one that is only a guess.
    """
    properties = {} if command_config is None else _read(command_config)
    target = contexts.find_kafka_target(bootstrap_servers, properties.pop(_SERVERS, ""))
    file = "" if command_config is None else str(command_config)
    if not file and target.command_config:
        file = target.command_config
        properties = _read(Path(file))
        properties.pop(_SERVERS, None)
    if is_change:
        contexts.kafka_change(target, _tell)
    origins = {
        "option": "--bootstrap-servers",
        "environment": contexts.KAFKA_ENV,
        "file": file,
        "context": f"context {target.name}",
        "folder": f"the stack in {contexts.DEFAULT_DATA_DIR}",
    }
    return KafkaAccess(target.address, origins[target.source], target.text(), properties, file)


def _tell(line: str) -> None:
    err.print(f"[dim]{escape(line)}[/]", soft_wrap=True)


def _read(path: Path) -> dict[str, str]:
    try:
        return {name: one.value for name, one in parse(path.read_bytes()).items()}
    except OSError as error:
        raise CommandError("USAGE", f"{path}: cannot be read: {error.strerror}", exit_code=EXIT_USAGE) from None
    except PropertiesError as error:
        raise CommandError("USAGE", f"{path}: line {error.line}: {error}", "Correct that line.", EXIT_USAGE) from None
