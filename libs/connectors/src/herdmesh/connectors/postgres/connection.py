"""Connection to a PostgreSQL server, and the translation of its errors, for all connectors of this family.

Owns the keys `connection.*` of Confluent's JDBC connectors, and which errors are transient. The URL, TLS included:
`jdbc_url`.

Invariant: all errors are Connect's: RetriableError when the server is away, busy or shutting down; ConfigError with its
key when the config must change. No message contains a password.
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
    waits,
)
from herdmesh.sdk.validators import at_least

_log = logging.getLogger(__name__)

_ATTEMPTS = "connection.attempts"
_BACKOFF = "connection.backoff.ms"
#: A server that has gone without a word is noticed within a minute.
_CONNECTION = {
    "connect_timeout": "10",
    "application_name": "herdmesh",
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}

Connection = psycopg.Connection[tuple[Any, ...]]


def connection_keys(group: str = "Database") -> tuple[ConfigKey, ...]:
    """The keys of a connection, as Confluent's JDBC connectors define them. URL first; more may follow after them."""
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
    """Where a database is, and who asks."""

    host: str
    """One, or several with commas between, which are tried in turn."""
    port: str
    """As many as hosts, or one for all."""
    database: str
    user: str
    password: str = dataclass_field(default="", repr=False)
    parameters: Mapping[str, str] = dataclass_field(default_factory=dict[str, str])
    """libpq's other settings, in its words: `sslmode`, `sslrootcert`, `options`, `application_name`, ..."""

    @property
    def place(self) -> str:
        """`host:port/database`, for messages."""
        hosts = self.host.split(",")
        ports = self.port.split(",") * (1 if "," in self.port else len(hosts))
        return f"{','.join(map(':'.join, zip(hosts, ports, strict=False)))}/{self.database}"

    def libpq(self) -> dict[str, str]:
        """All of it as libpq's keywords."""
        given = {
            "host": self.host, "port": self.port, "dbname": self.database, "user": self.user,
            "password": self.password, **self.parameters,
        }  # fmt: skip
        return {name: value for name, value in given.items() if value}


def connection_settings(config: Config) -> ConnectionSettings:
    """What `connection.*` comes to. Raises ConfigError whose field is the key.

    The user is `connection.user`, else the URL's; the password likewise. Without either user it is refused: the system
    user of a worker is nobody a database should know.
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
        raise ConfigError(f"{USER}: who is to log in is neither there nor in {URL}", field=USER, fix="name a role")
    named = ("host", "port", "dbname", "user", "password")
    host, port, database, user, password = (found.pop(name, "") for name in named)
    return ConnectionSettings(host or "localhost", port or str(jdbc_url.PORT), database or user, user, password, found)


def is_of_another(config: Config) -> bool:
    """True of another database's URL."""
    url = (config.get(URL) or "").strip()
    return url.startswith("jdbc:") and not url.startswith("jdbc:postgresql:")


def refuse_others(config: Config, instead: str) -> None:
    """Raises ConfigError for another database's URL, which Confluent's classes take too; its fix is `instead`."""
    if is_of_another(config):
        kind = kind_of(config.get(URL) or "") or "this"
        raise ConfigError(
            f"{URL}: this connector speaks to PostgreSQL only, and {kind} is something else", field=URL, fix=instead
        )


def warnings_of_connection(config: Config) -> list[FieldViolation]:
    """Keys and parts of the URL that have no effect here, each with why. Raises as `connection_settings`."""
    connection_settings(config)
    found = [
        FieldViolation(key, f"{key} has no effect: a server that is away is asked again until it is back",
                       "leave it out")
        for key in (_ATTEMPTS, _BACKOFF) if key in config
    ]  # fmt: skip
    for name in jdbc_url.without_effect((config.get(URL) or "").strip()):
        message = f"{URL}: {name} has no effect: it is of the Java driver's own workings"
        found.append(FieldViolation(URL, message, "leave it out"))
    return found


def connect(settings: ConnectionSettings, *, autocommit: bool = True, **more: Any) -> Connection:
    """A new connection, that knows texts as UTF-8. `more` goes to `psycopg.connect`.

    Raises RetriableError when the server is away or takes nobody now; ConfigError when it refuses us or the settings.
    """
    given: dict[str, Any] = {**_CONNECTION, **settings.libpq(), **more, "client_encoding": "utf8"}
    try:
        with waits.on(server(settings), "to take a connection"):
            return psycopg.connect(autocommit=autocommit, **given)
    except psycopg.Error as error:
        raise _not_connected(settings, error) from error


def server(settings: ConnectionSettings) -> str:
    """As waits name it: `PostgreSQL 127.0.0.1:5432`."""
    return f"PostgreSQL {settings.place}"


@contextmanager
def errors_translated(doing: str, *, field: str = "") -> Generator[None]:
    """Whatever psycopg raises within becomes an error of Connect's: `translated`."""
    try:
        yield
    except psycopg.Error as error:
        raise translated(error, doing, field=field) from error


def translated(error: psycopg.Error, doing: str, *, field: str = "") -> ConnectError:
    """What a server's error means. `doing`: what failed, as in "cannot read public.orders". `field`: the key to change
    where it is a matter of the config.

    RetriableError, ConfigError or ConnectError, as `sqlstates` has it of statements that write no records.
    """
    message = f"{doing}: {said(error)}"
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


def said(error: psycopg.Error) -> str:
    """The server's words, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


#: What libpq and the server say to those who need another config. The words are looked for as they are in English: the
#: error of a connection that came to nothing has no code. A server that says them otherwise is asked again and again.
_REFUSALS: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern), key, fix)
    for pattern, key, fix in (
        (r"password authentication failed|no password supplied|empty password", PASSWORD, "write the user's password"),
        (r"role .* does not exist|is not permitted to log in", USER, "name a role that may log in"),
        (r"database .* does not exist", URL, "name a database that exists"),
        (r"permission denied for database", USER, "grant CONNECT on the database"),
        (r"no pg_hba\.conf entry|pg_hba\.conf rejects", URL,
         "let the worker's host in (pg_hba.conf), or use another user or TLS"),
        (r"server does not support SSL", URL, "switch TLS on in the server, or write sslmode=disable"),
        (r"certificate verify failed|root certificate file|does not match host name|certificate file|"
         r"private key file|sslmode value|invalid .* value", URL, "mend the URL's ssl settings"),
        (r"authentication method .* not supported|requires? SSL|channel binding", URL, "see the message"),
    )
)  # fmt: skip


def _not_connected(settings: ConnectionSettings, error: psycopg.Error) -> ConnectError:
    said = " ".join(str(error).removeprefix("connection failed: ").split())
    for pattern, key, fix in _REFUSALS:
        if pattern.search(said):
            return ConfigError(f"{key}: PostgreSQL at {settings.place} refuses: {said}", field=key, fix=fix)
    if isinstance(error, psycopg.ProgrammingError):  # libpq cannot read its settings
        return ConfigError(f"{URL}: {said}", field=URL, fix=f"write it like {jdbc_url.EXAMPLE}")
    message = f"PostgreSQL at {settings.place} takes no connection now: {said}"
    return RetriableError(message, waits_for=server(settings))


def make_missing(connection: Connection, statement: str, parameters: tuple[()] | None = None) -> None:
    """Execute a definition that says IF NOT EXISTS, as another session may at the same moment: the server looks first,
    and may then be told that it is there by now, in words that depend on how far the other one is.

    Args:
        parameters: () of a statement that has %% for each %.

    Raises psycopg.Error: anything else; DuplicateObject for a type of a table's name, which is no table's.
    """
    try:
        connection.execute(statement.encode(), parameters)
    except (errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateColumn):
        _log.info("another task was first: %s", statement)
    except errors.DuplicateObject:  # a table has a type of its name, and that may have been found first
        connection.execute(statement.encode(), parameters)


def quoted(*names: str) -> str:
    """Names as SQL has them: `"schema"."table"`."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def literal(text: str) -> str:
    """A text as SQL has it, whatever `standard_conforming_strings` says."""
    doubled = text.replace("'", "''")
    return f" E'{doubled.replace(chr(92), chr(92) * 2)}'" if "\\" in doubled else f"'{doubled}'"
