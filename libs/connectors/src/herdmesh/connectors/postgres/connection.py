"""Connection to a PostgreSQL server, and the translation
of its errors, for all connectors of this family.

Owns the keys `connection.*` of Confluent's JDBC connectors, and
which errors are transient. The URL, TLS included: `jdbc_url`.

Invariant: all errors are Connect's: UnreachableError when the server accepts no connections, RetriableError when it is
busy or shutting down, ConfigError with its key when the config must change. No message contains a password.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, assert_never

import psycopg
from psycopg import errors

from herdmesh.connect.config import kind_of
from herdmesh.connectors.postgres import jdbc_url
from herdmesh.connectors.postgres.sqlstates import Meaning, meaning_of
from herdmesh.connectors.table_source.settings import PASSWORD, URL, USER, login_keys
from herdmesh.sdk import (
    Config,
    ConfigError,
    ConfigKey,
    ConnectError,
    FieldViolation,
    Importance,
    RetriableError,
    Type,
    UnreachableError,
    waits,
)
from herdmesh.sdk.validators import at_least

_log = logging.getLogger(__name__)

_ATTEMPTS = "connection.attempts"
_BACKOFF = "connection.backoff.ms"
#: TCP keep-alives that detect a dead server within a minute.
_CONNECTION = {
    "connect_timeout": "10",
    "application_name": "herdmesh",
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}

Connection = psycopg.Connection[tuple[Any, ...]]


def connection_keys(group: str = "Database") -> tuple[ConfigKey, ...]:
    """Return the keys of a connection, as Confluent's JDBC connectors
    define them, the URL first; a connector may append further keys.
    """
    low = Importance.LOW
    return (
        *login_keys(
            f"JDBC connection URL, {jdbc_url.EXAMPLE}, or libpq's own, postgresql://host:5432/database.", group
        ),
        ConfigKey(_ATTEMPTS, Type.INT, 3, low, "Maximum number of attempts to retrieve a valid JDBC connection. Must "
                  "be a positive integer.", at_least(1), group, 4, "SHORT", "JDBC connection attempts"),
        ConfigKey(_BACKOFF, Type.LONG, 10_000, low, "Backoff time in milliseconds between connection attempts.", None,
                  group, 5, "SHORT", "JDBC connection backoff in milliseconds"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Address of a database, and the login."""

    host: str
    """One host, or several separated by commas, which are tried in turn."""
    port: str
    """As many ports as hosts, or one for all."""
    database: str
    user: str
    password: str = dataclass_field(default="", repr=False)
    parameters: Mapping[str, str] = dataclass_field(default_factory=dict[str, str])
    """Further settings of libpq, under its names: `sslmode`,
    `sslrootcert`, `options`, `application_name`, ...
    """

    @property
    def place(self) -> str:
        """`host:port/database`, for messages."""
        hosts = self.host.split(",")
        ports = self.port.split(",") * (1 if "," in self.port else len(hosts))
        return f"{','.join(map(':'.join, zip(hosts, ports, strict=False)))}/{self.database}"

    def libpq(self) -> dict[str, str]:
        """Return all settings as libpq's keywords."""
        given = {
            "host": self.host, "port": self.port, "dbname": self.database, "user": self.user,
            "password": self.password, **self.parameters,
        }  # fmt: skip
        return {name: value for name, value in given.items() if value}


def connection_settings(config: Config) -> ConnectionSettings:
    """Read the keys `connection.*`. Raises ConfigError whose field is the key.

    The user is `connection.user`, else the URL's; so is the password. A config without a user is refused, because the
    system user of a worker should have no role in a database.
    """
    url = (config.get(URL) or "").strip()
    if not url:
        raise ConfigError(
            f'Missing required configuration "{URL}" which has no default value.', field=URL, fix=f"set {URL}"
        )
    found = jdbc_url.read(URL, url)
    found["user"] = (config.get(USER) or "").strip() or found.get("user", "")
    found["password"] = config.get(PASSWORD) or found.get("password", "")
    if not found["user"]:
        raise ConfigError(f"{USER}: no user is set, neither here nor in {URL}", field=USER, fix="name a role")
    named = ("host", "port", "dbname", "user", "password")
    host, port, database, user, password = (found.pop(name, "") for name in named)
    return ConnectionSettings(host or "localhost", port or str(jdbc_url.PORT), database or user, user, password, found)


def is_of_another(config: Config) -> bool:
    """True if the URL is of another database."""
    url = (config.get(URL) or "").strip()
    return url.startswith("jdbc:") and not url.startswith("jdbc:postgresql:")


def refuse_others(config: Config, instead: str) -> None:
    """Raise ConfigError for another database's URL, which Confluent's classes accept; its fix is `instead`."""
    if is_of_another(config):
        kind = kind_of(config.get(URL) or "") or "this"
        raise ConfigError(f"{URL}: this connector supports PostgreSQL only, not {kind}", field=URL, fix=instead)


def warnings_of_connection(config: Config) -> list[FieldViolation]:
    """Return a warning for each key and part of the URL without
    effect, with the reason. Raises like `connection_settings`.
    """
    connection_settings(config)
    found = [
        FieldViolation(key, f"{key} has no effect: an unreachable server is retried without a limit",
                       "leave it out")
        for key in (_ATTEMPTS, _BACKOFF) if key in config
    ]  # fmt: skip
    for name in jdbc_url.without_effect((config.get(URL) or "").strip()):
        message = f"{URL}: {name} has no effect: it configures the Java driver itself"
        found.append(FieldViolation(URL, message, "leave it out"))
    return found


def connect(settings: ConnectionSettings, *, autocommit: bool = True, **more: Any) -> Connection:
    """Open a connection with UTF-8 as its encoding. `more` goes to `psycopg.connect`.

    Raises UnreachableError when the server cannot be reached or accepts no
    connections now; ConfigError when it refuses the login or the settings.
    """
    given: dict[str, Any] = {**_CONNECTION, **settings.libpq(), **more, "client_encoding": "utf8"}
    try:
        with waits.on(server(settings), "connecting"):
            return psycopg.connect(autocommit=autocommit, **given)
    except psycopg.Error as error:
        raise _not_connected(settings, error) from error


def server(settings: ConnectionSettings) -> str:
    """Return the server's name in waits: `PostgreSQL 127.0.0.1:5432`."""
    return f"PostgreSQL {settings.place}"


@contextmanager
def errors_translated(doing: str, *, field: str = "") -> Generator[None]:
    """Translate errors of psycopg within the context with `translated`."""
    try:
        yield
    except psycopg.Error as error:
        raise translated(error, doing, field=field) from error


def translated(error: psycopg.Error, doing: str, *, field: str = "") -> ConnectError:
    """Translate a server's error. `doing`: what failed, as in "cannot read public.orders". `field`: the key to change
    for an error of the config.

    Returns RetriableError, ConfigError or ConnectError, as
    `sqlstates` classifies errors of statements that write no records.
    """
    message = f"{doing}: {message_of(error)}"
    meaning = meaning_of(error)
    match meaning:
        case Meaning.PASSES:
            return RetriableError(message)
        case Meaning.CONFIG:
            fix = "grant it" if isinstance(error, errors.InsufficientPrivilege) else ""
            return ConfigError(message, field=field, fix=fix)
        case Meaning.RECORD | Meaning.OTHER:
            return ConnectError(message)
        case _:
            assert_never(meaning)


def message_of(error: psycopg.Error) -> str:
    """Return the server's message, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


#: Messages of libpq and the server that require another config. They are matched in English, because the error of a
#: failed connection attempt has no code. With a server that uses another language, the connection attempt is retried.
_REFUSALS: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern), key, fix)
    for pattern, key, fix in (
        (r"password authentication failed|no password supplied|empty password", PASSWORD, "write the user's password"),
        (r"role .* does not exist|is not permitted to log in", USER, "name a role that may log in"),
        (r"database .* does not exist", URL, "name a database that exists"),
        (r"permission denied for database", USER, "grant CONNECT on the database"),
        (r"no pg_hba\.conf entry|pg_hba\.conf rejects", URL,
         "allow the worker's host in pg_hba.conf, or use another user or TLS"),
        (r"server does not support SSL", URL, "switch TLS on in the server, or write sslmode=disable"),
        (r"certificate verify failed|root certificate file|does not match host name|certificate file|"
         r"private key file|sslmode value|invalid .* value", URL, "correct the ssl settings in the URL"),
        (r"authentication method .* not supported|requires? SSL|channel binding", URL, "see the message"),
    )
)  # fmt: skip


def _not_connected(settings: ConnectionSettings, error: psycopg.Error) -> ConnectError:
    said = " ".join(str(error).removeprefix("connection failed: ").split())
    for pattern, key, fix in _REFUSALS:
        if pattern.search(said):
            return ConfigError(
                f"{key}: PostgreSQL at {settings.place} refuses the connection: {said}", field=key, fix=fix
            )
    if isinstance(error, psycopg.ProgrammingError):  # libpq cannot read its settings
        return ConfigError(f"{URL}: {said}", field=URL, fix=f"write it like {jdbc_url.EXAMPLE}")
    message = f"PostgreSQL at {settings.place} accepts no connections now: {said}"
    return UnreachableError(message, waits_for=server(settings))


def make_missing(connection: Connection, statement: str, parameters: tuple[()] | None = None) -> None:
    """Execute a definition with IF NOT EXISTS while another session may execute the same: the server checks first, and
    may still fail because the object exists by then, with an error that depends on the progress of the other session.

    Args:
        parameters: () of a statement that has %% for each %.

    Raises psycopg.Error: any other error; DuplicateObject for a type with the table's name that belongs to no table.
    """
    try:
        connection.execute(statement.encode(), parameters)
    except (errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateColumn):
        _log.info("another task ran this statement first: %s", statement)
    except errors.DuplicateObject:  # a table has a type of the same name, which the server may have found first
        connection.execute(statement.encode(), parameters)


def quoted(*names: str) -> str:
    """Quote names for SQL: `"schema"."table"`."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def literal(text: str) -> str:
    """Return a text as an SQL literal, for either value of `standard_conforming_strings`."""
    doubled = text.replace("'", "''")
    return f" E'{doubled.replace(chr(92), chr(92) * 2)}'" if "\\" in doubled else f"'{doubled}'"
