"""Options of every user of a schema registry.

Owns the definitions and `RegistrySettings`, their typed values. The options of a format are beside its converter.
Names, types and defaults are those of Confluent's `AbstractKafkaSchemaSerDeConfig` and `SchemaRegistryClientConfig`.

Invariant: an unsupported option is refused, with the key to change; none is accepted and ignored. Passwords are known
to `redaction` before a request is made, and are not part of any address that a text may show.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from herdmesh.connect.config import (
    REQUIRED,
    ConfigKey,
    Importance,
    Type,
    Validator,
    at_least,
    keep_secret,
    one_of,
    without_user,
)
from herdmesh.connect.config.redaction import HIDDEN
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.registry.subjects import DEFAULT, STRATEGIES, Strategy
from herdmesh.connect.registry.tls import TLS_KEYS, TlsSettings, tls_settings

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_STRATEGY = one_of(*STRATEGIES)


def _only_empty(field: str, value: Any) -> None:
    if value:
        raise ConfigError.for_value(field, value, "this is not supported", fix="leave it out")


_NOT_DONE = Validator("must be empty", _only_empty)

REGISTRY_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("schema.registry.url", Type.LIST, REQUIRED, _HIGH,
              "Comma-separated list of URLs of schema registry instances to register or look up schemas with."),
    ConfigKey("max.schemas.per.subject", Type.INT, 1000, _LOW,
              "The maximum number of schemas that are cached for each direction.", at_least(1)),
    ConfigKey("auto.register.schemas", Type.BOOLEAN, True, _MEDIUM,
              "Whether a schema that the registry does not know is registered; if false, it must exist there."),
    ConfigKey("normalize.schemas", Type.BOOLEAN, False, _MEDIUM,
              "Whether the registry normalizes schemas, which ignores insignificant order."),
    ConfigKey("use.latest.version", Type.BOOLEAN, False, _LOW,
              "Whether values are written with the subject's latest schema; used if auto.register.schemas=false."),
    ConfigKey("latest.compatibility.strict", Type.BOOLEAN, True, _LOW,
              "With use.latest.version: whether the latest schema must be backward compatible with the value's."),
    ConfigKey("latest.cache.ttl.sec", Type.LONG, -1, _LOW,
              "How long the latest version of a subject is cached; -1 = without a limit."),
    ConfigKey("use.schema.id", Type.INT, -1, _LOW,
              "The id of the schema that values are written with; used if auto.register.schemas=false. -1 = none."),
    ConfigKey("id.compatibility.strict", Type.BOOLEAN, True, _LOW,
              "With use.schema.id: whether that schema must be backward compatible with the value's."),
    ConfigKey("key.subject.name.strategy", Type.STRING, DEFAULT, _MEDIUM,
              "How the subject of a key's schema is named.", _STRATEGY),
    ConfigKey("value.subject.name.strategy", Type.STRING, DEFAULT, _MEDIUM,
              "How the subject of a value's schema is named.", _STRATEGY),
    ConfigKey("basic.auth.credentials.source", Type.STRING, "URL", _MEDIUM,
              "Source of user and password: the URL, or basic.auth.user.info.", one_of("URL", "USER_INFO")),
    ConfigKey("basic.auth.user.info", Type.PASSWORD, "", _MEDIUM,
              "user:password, with basic.auth.credentials.source=USER_INFO."),
    ConfigKey("bearer.auth.token", Type.PASSWORD, "", _MEDIUM,
              "A token sent to the registry instead of user and password."),
    ConfigKey("bearer.auth.credentials.source", Type.STRING, "STATIC_TOKEN", _MEDIUM,
              "Source of the token: bearer.auth.token.", one_of("STATIC_TOKEN")),
    ConfigKey("http.connect.timeout.ms", Type.INT, 60000, _LOW, "Timeout of a connection attempt.", at_least(1)),
    ConfigKey("http.read.timeout.ms", Type.INT, 60000, _LOW, "Timeout of a response.", at_least(1)),
    ConfigKey("max.retries", Type.INT, 3, _LOW, "Maximum number of retries of a request.", at_least(0)),
    ConfigKey("retries.wait.ms", Type.INT, 1000, _LOW, "Wait before the first retry; doubled after each.",
              at_least(0)),
    ConfigKey("retries.max.wait.ms", Type.INT, 20000, _LOW, "Maximum wait before a retry.", at_least(0)),
    ConfigKey("proxy.host", Type.STRING, "", _LOW, "Host of the HTTP proxy to the registry."),
    ConfigKey("proxy.port", Type.INT, -1, _LOW, "Its port."),
    *TLS_KEYS,
    *(
        ConfigKey(name, Type.STRING, "", _LOW, "Refused: this is not supported.", _NOT_DONE)
        for name in ("use.schema.guid", "use.latest.with.metadata", "rule.executors", "rule.actions")
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Addresses, logins and rules for a registry. Times are in milliseconds, that of the latest version in seconds."""

    urls: tuple[str, ...]
    user: tuple[str, str] | None = field(default=None, repr=False)
    bearer_token: str = field(default="", repr=False)
    connect_timeout_ms: int = 60_000
    read_timeout_ms: int = 60_000
    retries: int = 3
    wait_ms: int = 1000
    max_wait_ms: int = 20_000
    remembered: int = 1000
    auto_register: bool = True
    normalize: bool = False
    use_latest: bool = False
    strict_latest: bool = True
    latest_ttl_s: int = -1
    schema_id: int = -1
    strict_id: bool = True
    proxy: str = ""
    tls: TlsSettings = field(default_factory=TlsSettings)


def registry_settings(parsed: dict[str, Any]) -> RegistrySettings:
    """Create from parsed options. Raises ConfigError with the invalid key."""
    urls, user = _urls(parsed["schema.registry.url"])
    if parsed["basic.auth.credentials.source"] == "USER_INFO":
        name, colon, password = parsed["basic.auth.user.info"].partition(":")
        if not colon or not name:
            raise ConfigError(
                "basic.auth.credentials.source=USER_INFO needs basic.auth.user.info=user:password",
                field="basic.auth.user.info", fix="write user:password",
            )  # fmt: skip
        user = name, password
    keep_secret(user[1:] if user is not None else ())
    token = parsed["bearer.auth.token"]
    if token and user is not None:
        raise ConfigError(
            "bearer.auth.token and user:password exclude each other", field="bearer.auth.token", fix="keep one of them"
        )
    return RegistrySettings(
        urls, user, token, parsed["http.connect.timeout.ms"], parsed["http.read.timeout.ms"], parsed["max.retries"],
        parsed["retries.wait.ms"], parsed["retries.max.wait.ms"], parsed["max.schemas.per.subject"],
        parsed["auto.register.schemas"], parsed["normalize.schemas"], parsed["use.latest.version"],
        parsed["latest.compatibility.strict"], parsed["latest.cache.ttl.sec"],
        parsed["use.schema.id"], parsed["id.compatibility.strict"], _proxy(parsed), tls_settings(parsed),
    )  # fmt: skip


def subject_strategy(parsed: dict[str, Any], *, is_key: bool) -> Strategy:
    """The strategy for subject names."""
    return STRATEGIES[parsed[f"{'key' if is_key else 'value'}.subject.name.strategy"]]


def _urls(given: list[str]) -> tuple[tuple[str, ...], tuple[str, str] | None]:
    """The addresses without user and password, and the user and password of the first address that has them (source
    URL).
    """
    urls: list[str] = []
    user: tuple[str, str] | None = None
    for url in given:
        parts, bare = _split(url.strip()), without_user(url.strip())
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or bare == HIDDEN:
            raise ConfigError.for_value(
                "schema.registry.url", bare, "not an address",
                fix="write http://host:port, several with commas; in a password / is %2F, ? is %3F, @ is %40",
            )  # fmt: skip
        if parts.username is not None and user is None:
            user = unquote(parts.username), unquote(parts.password or "")
        urls.append(bare.rstrip("/"))
    if not urls:
        raise ConfigError("schema.registry.url names no registry", field="schema.registry.url", fix="write an address")
    return tuple(urls), user


def _split(url: str) -> SplitResult | None:
    """Split a URL; None = it is unreadable, for example an address with an unclosed bracket."""
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _proxy(parsed: dict[str, Any]) -> str:
    host, port = parsed["proxy.host"].strip(), parsed["proxy.port"]
    if host and not 0 < port < 65536:
        raise ConfigError.for_value("proxy.port", port, "proxy.host needs a port", fix="write the proxy's port")
    return f"http://{host}:{port}" if host else ""
