"""The Kafka cluster that a command talks to: its address, and the settings of clients for it.

Owns the order in which an address is looked for, and the reading of `--command-config`. Creates no client.

Invariant: no address is guessed. A command without one fails and names the ways to give one, because a guess could
change another cluster's topics.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.markup import escape

from herdmesh.cli.display.output import err
from herdmesh.cli.errors import EXIT_CODES, EXIT_USAGE, CommandError
from herdmesh.cli.mesh.contexts import DEFAULT_DATA_DIR
from herdmesh.connect.clients import client_settings
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.java import PropertiesError, parse
from herdmesh.devstack.layout import StackLayout
from herdmesh.kafka.client_settings import NO_AUTO_CREATION

ADDRESS_ENV: Final = "HERDMESH_BOOTSTRAP_SERVERS"
_SERVERS: Final = "bootstrap.servers"


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """The address of a cluster, where it was found, and Java's client properties for it."""

    bootstrap_servers: str
    origin: str
    """The option, variable, file or folder that names the address."""
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


def find_kafka(bootstrap_servers: str | None, command_config: Path | None) -> KafkaAccess:
    """The cluster of `--bootstrap-servers`, else HERDMESH_BOOTSTRAP_SERVERS, else `bootstrap.servers` of the
    properties, else the stack in ./.herd. Raises CommandError when none of them names one.
    """
    properties = {} if command_config is None else _read(command_config)
    file = "" if command_config is None else str(command_config)
    in_file = properties.pop(_SERVERS, "")
    state = StackLayout(DEFAULT_DATA_DIR).read_state()
    candidates = (
        (bootstrap_servers, "--bootstrap-servers"),
        (os.environ.get(ADDRESS_ENV), ADDRESS_ENV),
        (in_file, file),
        (state.bootstrap_servers if state is not None else "", f"the stack in {DEFAULT_DATA_DIR}"),
    )
    for address, origin in candidates:
        if address and address.strip():
            return KafkaAccess(address.strip(), origin, properties, file)
    raise CommandError(
        "USAGE",
        f"no Kafka is known: there is no stack in {DEFAULT_DATA_DIR} of this folder, and no address was given",
        f"`herd up --detach` starts one here; --bootstrap-servers HOST:PORT or {ADDRESS_ENV} names another.",
        EXIT_USAGE,
    )


def _read(path: Path) -> dict[str, str]:
    try:
        return {name: one.value for name, one in parse(path.read_bytes()).items()}
    except OSError as error:
        raise CommandError("USAGE", f"{path}: cannot be read: {error.strerror}", exit_code=EXIT_USAGE) from None
    except PropertiesError as error:
        raise CommandError("USAGE", f"{path}: line {error.line}: {error}", "Correct that line.", EXIT_USAGE) from None
