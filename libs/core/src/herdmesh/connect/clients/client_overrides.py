"""Client overrides of connectors: `producer.override.*`, `consumer.override.*`, `admin.override.*`.

Owns the override policies (docs/reference/connect/configs.md, section 7), the clients of each kind of connector, and
the definitions of Kafka's client options (`client_keys.jsonl`: those of Kafka 4.3.1, read when first needed).
Translation for librdkafka: `librdkafka_settings`.

Invariant: every override for a client of the connector is checked against the worker's policy.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from herdmesh.connect.config import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    ConfigValue,
    Importance,
    RawConfig,
    Type,
    parse_value,
)
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.model import hash_map_order
from herdmesh.connect.spi import PluginKind

OVERRIDE_POLICY = "connector.client.config.override.policy"
OVERRIDE_ALLOWLIST = "connector.client.config.override.allowlist"
"""The worker's properties for the policy's name, and for the options that Allowlist allows."""
CLIENTS = ("producer", "consumer", "admin")
_PACKAGE = "org.apache.kafka.connect.connector.policy."
_SUFFIX = "ConnectorClientConfigOverridePolicy"
_PRINCIPAL = frozenset({"sasl.jaas.config", "sasl.mechanism", "security.protocol"})
_FULL_CLASS_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_][\w$]*)+")
_NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class OverridePolicy:
    """Policy for the client options that connectors may set. `allowed` None = all options."""

    name: str
    allowed: Collection[str] | None

    def validate(self, options: Mapping[str, Any]) -> list[ConfigValue]:
        """Each overridden option with its problems."""
        found: list[ConfigValue] = []
        for name, value in options.items():
            one = ConfigValue(name, value)
            if self.allowed is not None and name not in self.allowed:
                one.add(
                    f"The '{self.name}' policy does not allow '{name}' to be overridden in the connector "
                    "configuration.",
                    "leave it out, or change the workers' connector_client_config_override_policy",
                )
            found.append(one)
        return found


ALLOW_ALL = OverridePolicy("All", None)
"""Connect's default."""


def override_policy(name: str, allowlist: Collection[str] = ()) -> OverridePolicy:
    """The policy that a worker's setting names, by alias, simple name or Java class; `allowlist` has the options that
    Allowlist allows.

    Raises ConfigError when there is no such policy.
    """
    short = name.strip().removeprefix(_PACKAGE).removesuffix(_SUFFIX)
    allowed = {"All": None, "None": _NOTHING, "Principal": _PRINCIPAL, "Allowlist": frozenset(allowlist)}
    if short not in allowed:
        raise ConfigError.for_value(OVERRIDE_POLICY, name, "no such policy", fix=f"use one of {', '.join(allowed)}")
    return OverridePolicy(short, allowed[short])


def policy_of(worker: RawConfig) -> OverridePolicy:
    """The policy of a worker's properties. Raises ConfigError when there is no such policy."""
    allowlist = str(worker.get(OVERRIDE_ALLOWLIST) or "").split(",")
    return override_policy(str(worker.get(OVERRIDE_POLICY) or ALLOW_ALL.name), [name.strip() for name in allowlist])


def check_overrides(kind: PluginKind, config: RawConfig, policy: OverridePolicy) -> None:
    """Check the overrides again when a connector starts, as the policy may have changed since it was created. Raises
    ConfigError with Connect's text; its `field` is the first override that is not allowed."""
    if policy.allowed is None:
        return
    prefixes = [f"{client}.override." for client in clients_of(kind, config, exactly_once=True)]
    denied = [
        name
        for name in config
        for prefix in prefixes
        if name.startswith(prefix) and name.removeprefix(prefix) not in policy.allowed
    ]
    if denied:
        message = f"Client Config Overrides not allowed: {', '.join(denied)} (policy {policy.name})"
        raise ConfigError(message, field=denied[0], fix="leave them out of the connector's config")


def clients_of(kind: PluginKind, config: RawConfig, *, exactly_once: bool) -> list[str]:
    """The kinds of clients that the connector has, in the order in which Connect reports them
    (docs/reference/connect/configs.md, section 7).
    """
    if kind is PluginKind.SINK:
        dead_letters = bool(_text(config, "errors.deadletterqueue.topic.name"))
        return ["producer", "consumer", "admin"] if dead_letters else ["consumer"]
    own_offsets = exactly_once or bool(_text(config, "offsets.storage.topic"))
    creates = any(name.startswith("topic.creation.") for name in config)
    used = {"producer": True, "consumer": own_offsets, "admin": creates or own_offsets}
    return [client for client in CLIENTS if used[client]]


def validate_overrides(
    client: str, config: RawConfig, policy: OverridePolicy
) -> list[tuple[ConfigKey | None, ConfigValue]]:
    """Each override of one kind of client, under its full name, with its definition where Kafka has one.

    Raises ConfigError when a known option cannot be parsed, as Connect does; its `field` is the full name.
    """
    prefix = f"{client}.override."
    definition = client_keys(client).keys
    all_names = hash_map_order(config, copied=True)
    names = [full.removeprefix(prefix) for full in all_names if full.startswith(prefix) and full != prefix]
    options: dict[str, Any] = {}
    for name in hash_map_order(names, copied=True):
        raw, key = config[prefix + name], definition.get(name)
        try:
            options[name] = raw if key is None else parse_value(name, raw, key.type, _CLIENT_CLASSES)
        except ConfigError as error:
            raise ConfigError(str(error), field=prefix + name, fix=error.fix) from error
    ordered = {name: options[name] for name in hash_map_order(options)}
    return [(definition.get(value.name), value) for value in policy.validate(ordered)]


class _ClientClasses:
    """Java classes of Kafka's clients. They do not exist here, so any text in the form of a full class name passes."""

    def full_name(self, name: str) -> str | None:
        return name if _FULL_CLASS_NAME.fullmatch(name) else None

    def class_advice(self, field: str, name: str) -> str:
        return "write the full name of a Java class"


_CLIENT_CLASSES = _ClientClasses()


@functools.cache
def client_keys(client: str) -> ConfigDef:
    """The options of Kafka's Java client of that kind. Without validators: Connect does not apply them here."""
    lines = resources.files("herdmesh.connect.clients").joinpath("client_keys.jsonl").read_text(encoding="utf-8")
    rows = [row for line in lines.splitlines() if client in (row := json.loads(line))["clients"]]
    return ConfigDef(*map(_client_key, rows))


def _client_key(row: Mapping[str, Any]) -> ConfigKey:
    kind = Type(row["type"])
    default = parse_value(row["name"], row["default"], kind) if "default" in row else REQUIRED
    return ConfigKey(row["name"], kind, default, Importance(row["importance"]), row["doc"])


def _text(config: RawConfig, name: str) -> str:
    value = config.get(name)
    return value.strip() if isinstance(value, str) else ""
