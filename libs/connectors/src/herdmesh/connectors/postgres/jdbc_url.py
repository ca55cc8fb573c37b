"""Translation of a database URL, in the Java driver's form or libpq's, to libpq's settings.

Owns the translation of each parameter: those with the same meaning here, those of the Java driver's internals, which
have no effect, and the refusal of all others.

Invariant: a parameter about the security of a connection (TLS, login) is obeyed or refused, never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote

import psycopg
from psycopg import conninfo

from herdmesh.connect.config import kind_of
from herdmesh.sdk import ConfigError

PORT: Final = 5432
EXAMPLE: Final = "jdbc:postgresql://host:5432/database"
_JDBC = "jdbc:postgresql:"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.]*")
_WHOSE_AT: Final = "it has an @ that does not separate user and password from the host"
_ESCAPES: Final = "in a user, password or name write %40 for @, %2F for /, %3F for ?, %26 for &, %25 for %"


def read(key: str, url: str) -> dict[str, str]:
    """Return libpq's settings in a URL: `host`, `port`, `dbname`,
    `user`, `password`, `sslmode`, ..., if it has them.

    Raises ConfigError with field `key`, the URL's key, for another database's URL, and for an unsupported parameter.
    """
    try:
        if url.startswith(("postgresql://", "postgres://")):
            return _of_libpq(url)
        if url.startswith(_JDBC):
            return _of_jdbc(url.removeprefix(_JDBC))
        kind = kind_of(url) or "this"  # do not show the URL: it may contain a password
        raise _Unusable(f"this connector supports PostgreSQL only, not {kind}", f"write {EXAMPLE}")
    except _Unusable as error:
        message, fix = error.args
        raise ConfigError(f"{key}: {message}", field=key, fix=fix) from error.__cause__


def without_effect(url: str) -> list[str]:
    """Return the URL's parameters without effect here."""
    if not url.startswith(_JDBC):
        return []
    query = url.partition("?")[2]
    return [name for name, _ in parse_qsl(query, keep_blank_values=True) if name in _WITHOUT_EFFECT]


class _Unusable(Exception):
    """Error in a URL, and its fix."""


def _of_libpq(url: str) -> dict[str, str]:
    try:
        found = conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        # libpq quotes the part that it cannot parse: a password, or the whole URL.
        said = re.sub('".*"', "...", " ".join(str(error).split()))
        raise _Unusable(f"it cannot be parsed: {said}", f"write {EXAMPLE}; in a password, % is %25") from None
    settings = {name: str(value) for name, value in found.items() if value is not None}
    # libpq ends a user at the first @, and a host at the first /: the rest of a password then becomes a host or a
    # database.
    path = url.partition("://")[2].partition("/")[2].partition("?")[0]
    if "@" in path or "@" in settings.get("host", ""):
        raise _Unusable(_WHOSE_AT, _ESCAPES)
    if any(port and not port.isdecimal() for port in settings.get("port", "").split(",")):
        raise _Unusable("the port is not a number", f"{_ESCAPES}; write it like {EXAMPLE}")
    return settings


#: Parameters of the Java driver, and libpq's names with the same meaning.
_SAME = {
    "user": "user",
    "password": "password",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslpassword": "sslpassword",
    "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout",
    "loginTimeout": "connect_timeout",
    "options": "options",
    "gssEncMode": "gssencmode",
    "channelBinding": "channel_binding",
    "kerberosServerName": "krbsrvname",
    "requireAuth": "require_auth",
}
_SESSIONS = {
    "any": "any", "primary": "primary", "master": "primary", "secondary": "standby", "slave": "standby",
    "preferSecondary": "prefer-standby", "preferSlave": "prefer-standby",
}  # fmt: skip
#: Parameters about the Java driver's rows, statements, logs and threads.
_WITHOUT_EFFECT = frozenset((
    "adaptiveFetch", "adaptiveFetchMaximum", "adaptiveFetchMinimum", "allowEncodingChanges", "assumeMinServerVersion",
    "autosave", "binaryTransfer", "binaryTransferDisable", "binaryTransferEnable", "cancelSignalTimeout",
    "cleanupSavepoints", "databaseMetadataCacheFields", "databaseMetadataCacheFieldsMiB", "defaultRowFetchSize",
    "disableColumnSanitiser", "escapeSyntaxCallMode", "groupStartupParameters", "hideUnprivilegedObjects",
    "hostRecheckSeconds", "logServerErrorDetail", "logUnclosedConnections", "loggerFile", "loggerLevel",
    "maxResultBuffer", "maxSendBufferSize", "preferQueryMode", "preparedStatementCacheQueries",
    "preparedStatementCacheSizeMiB", "prepareThreshold", "protocolVersion", "quoteReturningIdentifiers",
    "reWriteBatchedInserts", "readOnly", "readOnlyMode", "receiveBufferSize", "sendBufferSize", "socketTimeout",
    "sslResponseTimeout", "stringtype", "tcpNoDelay", "unknownLength", "xmlFactoryFactory",
))  # fmt: skip


def _of_jdbc(rest: str) -> dict[str, str]:
    """Return libpq's settings in the text after `jdbc:postgresql:`, parsed as the driver does:
    `//host:port,host/database?...`, `//host/`, `database`, `/`.
    """
    address, _, query = rest.partition("?")
    if "@" in address:  # do not show any part: each may contain a password
        raise _Unusable(
            "a user before the host is not allowed", f"write connection.user and connection.password; {_ESCAPES}"
        )
    found: dict[str, str] = {}
    if address.startswith("//"):
        hosts, _, database = address.removeprefix("//").partition("/")
        found |= _hosts_of(hosts)
    else:
        database = address.removeprefix("/")
    found["dbname"] = unquote(database)
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in parameters.items():
        if name in _SAME:
            found.setdefault(_SAME[name], value)
        elif name not in _WITHOUT_EFFECT:
            found |= _special(name, value, parameters)
    if found.get("sslkey", "").endswith(".pk8"):
        raise _Unusable(
            "sslkey is a PKCS-8 key of the Java driver, and this connector reads PEM",
            "`openssl pkcs8 -inform DER -in client.pk8 -out client.key`, then sslkey=client.key",
        )
    return found


def _special(name: str, value: str, parameters: Mapping[str, str]) -> dict[str, str]:
    """Return libpq's settings for a parameter that is not just renamed."""
    match name:
        case "ssl":  # without a mode the Java driver checks the server's certificate and name
            wanted = value.lower() in ("", "true")
            return {"sslmode": "verify-full"} if wanted and "sslmode" not in parameters else {}
        case "currentSchema":
            quoted = ",".join(one.strip() for one in value.split(","))
            return {"options": f"{parameters.get('options', '')} -c search_path={_escaped(quoted)}".strip()}
        case "tcpKeepAlive":
            return {"keepalives": "1" if value.lower() == "true" else "0"}
        case "loadBalanceHosts":
            return {"load_balance_hosts": "random" if value.lower() == "true" else "disable"}
        case "targetServerType" if value in _SESSIONS:
            return {"target_session_attrs": _SESSIONS[value]}
        case _:
            known = ", ".join(sorted({*_SAME, "currentSchema", "ssl", "targetServerType", "tcpKeepAlive"}))
            if _may_be_of_a_secret(name, parameters):
                asked, fix = "a parameter after a password", f"leave it out; if it belongs to the password: {_ESCAPES}"
            else:
                asked, fix = (f"{name}={value}" if name == "targetServerType" else name), "leave it out"
            raise _Unusable(f"{asked} is not supported", f"{fix}; supported: {known}")


def _may_be_of_a_secret(name: str, parameters: Mapping[str, str]) -> bool:
    """Return whether a parameter may be part of a password: one with an & or a ? in it seems to end there."""
    before = list(parameters)[: list(parameters).index(name)]
    return not _NAME.fullmatch(name) or any("password" in one.lower() for one in before)


def _escaped(text: str) -> str:
    """Escape a value within libpq's `options`."""
    return re.sub(r"([\\ ])", r"\\\1", text)


def _hosts_of(text: str) -> dict[str, str]:
    """Return `host:port,host:port` as libpq's settings; an IPv6 address is in brackets."""
    hosts: list[str] = []
    ports: list[str] = []
    for one in filter(None, text.split(",")):
        match = re.fullmatch(r"(\[[^\]]+\]|[^:@/]+)(?::(\d+))?", one)
        if match is None:
            raise _Unusable("the part before the database is not host:port", f"write it like {EXAMPLE}")
        hosts.append(match[1].strip("[]"))
        ports.append(match[2] or str(PORT))
    return {"host": ",".join(hosts), "port": ",".join(ports)} if hosts else {}
