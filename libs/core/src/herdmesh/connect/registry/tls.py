"""TLS options of a registry: `schema.registry.ssl.*`, from PEM files or PEM text.

Owns the definitions of these options and `TlsSettings`, their typed values. Names: Confluent's client accepts Kafka's
`ssl.*` with the prefix `schema.registry.`. Java's own stores (JKS, PKCS12) are refused, with the command that converts
one into PEM.

Invariant: files are read when the first request is made, so that a config can also be validated where they are missing.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any

from herdmesh.connect.config import ConfigKey, Importance, Type, one_of
from herdmesh.connect.errors import ConfigError

_PREFIX = "schema.registry.ssl."
_LOW = Importance.LOW

TLS_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey(f"{_PREFIX}truststore.location", Type.STRING, "", _LOW,
              "PEM file with the trusted authorities; if unset, the system's."),
    ConfigKey(f"{_PREFIX}truststore.certificates", Type.PASSWORD, "", _LOW, "The same as PEM text."),
    ConfigKey(f"{_PREFIX}truststore.type", Type.STRING, "JKS", _LOW, "PEM, the only supported type."),
    ConfigKey(f"{_PREFIX}keystore.location", Type.STRING, "", _LOW,
              "PEM file with the client's key and certificates."),
    ConfigKey(f"{_PREFIX}keystore.type", Type.STRING, "JKS", _LOW, "PEM, the only supported type."),
    ConfigKey(f"{_PREFIX}key.password", Type.PASSWORD, "", _LOW, "Password of the client's key."),
    ConfigKey(f"{_PREFIX}endpoint.identification.algorithm", Type.STRING, "https", _LOW,
              "https: the registry's certificate must match its host name. Empty: host names are not checked.",
              one_of("https", "")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Trusted authorities and the client's certificate. Empty text = the system's authorities, no client
    certificate."""

    authorities_file: str = ""
    authorities: str = field(default="", repr=False)
    own_file: str = ""
    own_password: str = field(default="", repr=False)
    checks_host: bool = True


def tls_settings(parsed: dict[str, Any]) -> TlsSettings:
    """Create from parsed options. Raises ConfigError for a store that is not PEM."""
    for store, command in (
        ("truststore", "keytool -list -rfc -keystore {path} > ca.pem"),
        ("keystore", "openssl pkcs12 -in {path} -out own.pem"),
    ):
        path, kind = parsed[f"{_PREFIX}{store}.location"], parsed[f"{_PREFIX}{store}.type"].upper()
        if path and kind != "PEM":
            raise ConfigError.for_value(
                f"{_PREFIX}{store}.type", kind, f"a {store} must be a PEM file here",
                fix=f"`{command.format(path=path)}`, then {_PREFIX}{store}.location=that file and "
                f"{_PREFIX}{store}.type=PEM",
            )  # fmt: skip
    return TlsSettings(
        parsed[f"{_PREFIX}truststore.location"],
        parsed[f"{_PREFIX}truststore.certificates"],
        parsed[f"{_PREFIX}keystore.location"],
        parsed[f"{_PREFIX}key.password"],
        parsed[f"{_PREFIX}endpoint.identification.algorithm"] == "https",
    )


def context(settings: TlsSettings) -> ssl.SSLContext:
    """The TLS context for connections. Raises ConfigError for files that are missing or not PEM."""
    at = "truststore.location" if settings.authorities_file else "truststore.certificates"
    try:
        made = ssl.create_default_context(cafile=settings.authorities_file or None, cadata=settings.authorities or None)
        if settings.own_file:
            at = "keystore.location"
            made.load_cert_chain(settings.own_file, password=settings.own_password or None)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ConfigError(f"{_PREFIX}{at} cannot be used: {error}", field=f"{_PREFIX}{at}", fix="write PEM") from error
    made.check_hostname = settings.checks_host
    return made
