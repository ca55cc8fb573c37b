"""Settings of a service: one frozen object, read once at start from environment and flags.

Owns their reading (`HERDMESH_<NAME>`, `--name value` or `--name=value`, a dotenv file named by HERDMESH_ENV_FILE)
and their display. Owns only the settings that all services share.

Invariant: flags win over the environment, the environment over the file, the file over defaults; a secret
(`pydantic.SecretStr`) appears neither in `redacted()` nor in an error.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from enum import StrEnum
from importlib.metadata import version
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class LogFormat(StrEnum):
    """Format of a service's log lines."""

    JSON = "json"
    """One JSON object a line, for collectors."""
    TEXT = "text"
    """One line of text, for people."""


_WILDCARDS = ("", "*", "0.0.0.0", "::", "0:0:0:0:0:0:0:0")


class ServiceSettings(BaseSettings):
    """Base of every service's settings. Subclass it, add fields with `Field(description=...)`, call `load()`."""

    model_config = SettingsConfigDict(
        frozen=True,
        env_prefix="HERDMESH_",
        extra="ignore",
        cli_avoid_json=True,
        cli_hide_none_type=True,
        hide_input_in_errors=True,  # the invalid input may be a part of a secret
    )

    listen: str = Field(description="host:port to serve gRPC on; port 0 = any free port")
    metrics: bool = Field(default=True, description="serve /metrics, /healthz and /readyz on the port + 1000")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error"
    )
    log_format: Literal["json", "text"] = Field(
        default="json", description="json (one object a line) or text (for people); log lines go to standard output"
    )

    @field_validator("log_level", "log_format", mode="before")
    @classmethod
    def _ignore_case(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @classmethod
    def load(cls, arguments: Sequence[str] | None = None) -> Self:
        """Read all settings; `arguments` default to those of the process. Raises pydantic.ValidationError naming the
        field.

        `--help` prints the settings and exits, `--version` the release.
        """
        given = sys.argv[1:] if arguments is None else list(arguments)
        if "--version" in given:
            print(f"{cls.__module__.rpartition('.')[0]} {version('herdmesh-core')}")  # all parts have one version
            raise SystemExit(0)
        env_file = os.environ.get("HERDMESH_ENV_FILE")
        # The CLI source is an init argument of BaseSettings that its type does not show for subclasses.
        read: Any = cls
        return read(_cli_parse_args=_normalized(cls, given), _env_file=env_file)

    def redacted(self) -> dict[str, Any]:
        """Every setting by name, with secrets replaced by stars, for the log at start."""
        return self.model_dump(mode="json")


class AdvertisedSettings(ServiceSettings):
    """Settings of a service that publishes its address, which must therefore name one host (0.0.0.0 does not)."""

    advertised_address: str = Field(
        default="", description="host:port under which others reach this service; empty = the listen address"
    )

    @model_validator(mode="after")
    def _advertise_an_address_that_others_can_reach(self) -> Self:
        name = "advertised_address" if self.advertised_address else "listen"
        address = self.advertised_address or self.listen
        if is_wildcard(address):
            raise ValueError(
                f"{name} is {address}, which is not an address that another host can reach: set advertised_address "
                "(HERDMESH_ADVERTISED_ADDRESS) to the name or IP address of this host and the port"
            )
        return self

    def address(self, port: int) -> str:
        """The published address; `port` is the listening port."""
        return self.advertised_address or f"{_host(self.listen)}:{port}"

    def local_address(self, port: int) -> str:
        """The address for processes of this host."""
        return f"127.0.0.1:{port}" if is_wildcard(self.listen) else f"{_host(self.listen)}:{port}"


def is_wildcard(address: str) -> bool:
    """True for a host:port whose host stands for every interface, such as 0.0.0.0, [::] or none."""
    return _host(address).strip("[]") in _WILDCARDS


def _host(address: str) -> str:
    return address.rpartition(":")[0]


TOPIC_NAME_MAX = 249
"""Maximum length in characters, by Kafka's own rule."""


def name_value_pairs(text: str) -> dict[str, str]:
    r"""`name=value,name=value` as a dict; a comma that belongs to a value is written `\,`. Raises ValueError."""
    pairs: dict[str, str] = {}
    for pair in re.split(r"(?<!\\),", text):
        name, equals, value = pair.replace("\\,", ",").partition("=")
        if not pair.strip():
            continue
        if not equals or not name.strip():
            raise ValueError("it is not of the form name=value,name=value")
        pairs[name.strip()] = value.strip()
    return pairs


def topic_name(text: str, longest: int = TOPIC_NAME_MAX) -> str:
    """Check a topic name by Kafka's rules and return it. Raises ValueError with the reason."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]+", text) or text in (".", ".."):
        raise ValueError(f"{text!r} is not a topic name: only letters, digits, dot, underscore and hyphen are allowed")
    if len(text) > longest:
        raise ValueError(f"a topic name has at most {longest} characters here")
    return text


def _normalized(settings: type[BaseSettings], arguments: Sequence[str]) -> list[str]:
    """`--group-id x` and `--group_id x` are the same; a bool flag without a value is true."""
    result: list[str] = []
    for position, argument in enumerate(arguments):
        if not argument.startswith("--"):
            result.append(argument)
            continue
        name, equals, value = argument.partition("=")
        name = "--" + name[2:].replace("-", "_")
        result.append(name + equals + value)
        field = settings.model_fields.get(name[2:])
        following = arguments[position + 1] if position + 1 < len(arguments) else "--"
        if field is not None and field.annotation is bool and not equals and following.startswith("--"):
            result.append("true")
    return result
