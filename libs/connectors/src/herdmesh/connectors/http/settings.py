"""Settings of an HTTP sink: target and form of requests, and their retries.

Owns reading the config and the rules between keys. The keys: `keys`; building requests: `requests`; sending them:
`client`. Opens no connection and reads no file.

Invariant: a key of the Java connectors in `keys` is honoured, refused or named in a warning; no repr shows a secret.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from herdmesh.connect.config import keep_secret, parse_value, without_user
from herdmesh.connect.spi import ConnectorKind
from herdmesh.connectors.common import warned_settings
from herdmesh.connectors.http import keys
from herdmesh.sdk import Config, ConfigError, FieldViolation


@dataclass(frozen=True, slots=True)
class OAuth2:
    """Settings for fetching an access token."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    in_header: bool
    scope: str
    token_property: str


@dataclass(frozen=True, slots=True)
class Framing:
    """Framing of the values of a batch in one body."""

    prefix: bytes
    separator: bytes
    suffix: bytes


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The parsed config of an HTTP sink."""

    url: UrlTemplate
    method: str
    headers: Mapping[str, str] = field(repr=False)
    """All headers but those of a single request; includes Authorization, except OAuth2's."""
    oauth2: OAuth2 | None
    timeout_s: int
    batch_records_max: int
    """1 = each record in its own request."""
    framing: Framing
    """Empty if records are not batched."""
    splits: bool
    as_text: bool
    """Send text and bytes as they are instead of as JSON."""
    gzip: bool
    retries: int
    retry_backoff_s: float
    retry_on: frozenset[int]
    on_null: str
    connections: int
    trusted_file: str
    own_key_file: str
    own_key_password: str = field(repr=False)
    checks_host: bool = True
    key_defaults: bool = True
    value_defaults: bool = True
    """From the task's context: send a null as the default of its schema, if there is one."""


@dataclass(frozen=True, slots=True)
class UrlTemplate:
    """A URL whose path and query may have `${topic}` and `${key}`."""

    parts: tuple[str, ...]
    """Text and, at every odd place, a variable's name."""

    @property
    def by_key(self) -> bool:
        """Return whether each key has its own URL."""
        return "key" in self.parts[1::2]

    @property
    def by_topic(self) -> bool:
        """Return whether each topic has its own URL."""
        return "topic" in self.parts[1::2]

    @property
    def is_fixed(self) -> bool:
        """Return whether all records have the same URL."""
        return len(self.parts) == 1

    def filled(self, values: Mapping[str, str]) -> str:
        """Return the URL with these values, which must be quoted already."""
        return "".join(values[part] if at % 2 else part for at, part in enumerate(self.parts))


def settings_of(config: Config) -> HttpSettings:
    """Read the config. Raises ConfigError whose field is the key."""
    values = _values(config)
    java = (config.get("connector.class") or "").strip()
    batch_max = _batch_records_max(values, java)
    framing = _framing(values, batch_max, java)
    return HttpSettings(
        url=_template(values[keys.URL], config),
        method=values[keys.METHOD].upper(),
        headers=_headers(values, batch_max, framing),
        oauth2=_oauth2(values),
        timeout_s=values[keys.TIMEOUT_S],
        batch_records_max=batch_max,
        framing=framing,
        splits=values[keys.SPLIT],
        as_text=_as_text(values),
        gzip=values[keys.COMPRESSION] == "gzip",
        retries=values[keys.RETRIES],
        retry_backoff_s=values[keys.BACKOFF_MS] / 1000,
        retry_on=keys.statuses_of(keys.RETRY_ON, values[keys.RETRY_ON]),
        on_null=_on_null(values),
        connections=values[keys.CONNECTIONS],
        trusted_file=values[keys.TRUSTED] or "",
        own_key_file=values[keys.OWN_KEY] or "",
        own_key_password=values[keys.OWN_KEY_PASSWORD] or "",
        checks_host=values[keys.CHECK_HOST] == "https",
    )


def warnings_of(config: Config) -> list[FieldViolation]:
    """Return a warning for each key of the Java connectors that has no effect here, with the reason."""
    without_effect = dict(keys.WITHOUT_EFFECT)
    if _is_one_each(config):
        one_each = "each record is sent in a request of its own; batching.enabled=true sends several in one"
        without_effect |= dict.fromkeys((keys.PREFIX, keys.SEPARATOR, keys.SUFFIX, keys.AS_ARRAY), one_each)
        if (config.get(keys.BATCH_MAX) or "1").strip() != "1":
            without_effect[keys.BATCH_MAX] = one_each
    silent = {name: (why, ("", "false")) for name, why in without_effect.items()}
    own = {*keys.KEYS.keys, *keys.REFUSED}
    return warned_settings(config, own, ConnectorKind.SINK, silent, java="http-sink")


def _is_one_each(config: Config) -> bool:
    """Return whether each record has its own request; False also if the rest of the config is invalid."""
    try:
        return settings_of(config).framing == Framing(b"", b"", b"")
    except ConfigError:
        return False


def not_built(config: Config) -> list[ConfigError]:
    """Return an error for every key that requests an unsupported feature."""
    return [
        ConfigError(f"{name} is not supported: {fix}", field=name, fix=fix)
        for name, fix in keys.REFUSED.items()
        if (config.get(name) or "").strip()
    ]


def _values(config: Config) -> dict[str, Any]:
    """Return the typed values under our names."""
    for problem in not_built(config):
        raise problem
    ours: dict[str, str | None] = dict(config)
    for theirs, name in keys.SYNONYMS.items():
        value = ours.pop(theirs, None)
        if value is None or not value.strip():
            continue
        if (ours.get(name) or "").strip():
            raise ConfigError(f"{theirs} and {name} mean the same", field=theirs, fix="write one of them")
        if name == keys.AUTHORIZATION:
            value = value.strip().lower()
            if value not in keys.TYPES:
                fix = f"write {keys.AUTHORIZATION}=static and {keys.STATIC}=Bearer and the token"
                raise ConfigError.for_value(
                    theirs, value, f"must be one of {', '.join(keys.TYPES)}", fix=fix if value == "bearer" else ""
                )
        ours[name] = value
        parse_value(theirs, value, keys.KEYS.keys[theirs].type)  # registers a secret under either name
    return keys.KEYS.parse(ours)


def _required(values: Mapping[str, Any], key: str, why: str = "which has no default value") -> str:
    if not values[key]:
        raise ConfigError(f'Missing required configuration "{key}" {why}.', field=key, fix=f"write {key}")
    return values[key]


_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def _template(url: str | None, config: Config) -> UrlTemplate:
    is_ours = (config.get(keys.URL) or "").strip() or not config.get("http.api.url")
    key = keys.URL if is_ours else "http.api.url"
    text = _required({key: url}, key)
    _check_url(key, text, _VARIABLE.sub("x", text))
    place = len(text) - len(text.split("://", 1)[1].partition("/")[2])
    if "$" in text[:place]:
        raise ConfigError.for_value(key, without_user(text), "a variable is allowed in the path or the query only")
    parts = tuple(_VARIABLE.split(text))
    for name in parts[1::2]:
        if name not in ("topic", "key"):
            why, fix = f"there is no variable ${{{name}}}", "write ${topic} or ${key}"
            raise ConfigError.for_value(key, without_user(text), why, fix=fix)
    return UrlTemplate(parts)


def _check_url(key: str, text: str, checked: str) -> None:
    try:
        found = urlsplit(checked)
        usable = found.scheme in ("http", "https") and bool(found.hostname) and (found.port or 1) > 0
    except ValueError:
        usable, found = False, urlsplit("")
    if found.username is not None or found.password is not None:
        # Do not show the text itself: it has a password in it.
        fix = f"write {keys.AUTHORIZATION}=basic, {keys.USER} and {keys.PASSWORD}"
        raise ConfigError(f"{key}: a URL may not have a user or a password in it", field=key, fix=fix)
    if not usable or any(char <= " " for char in text):
        why, fix = "must be a URL of http or https", "write https://host:port/path"
        raise ConfigError.for_value(key, without_user(text), why, fix=fix)


def _batch_records_max(values: Mapping[str, Any], java: str) -> int:
    most, enabled = values[keys.BATCH_MAX], values[keys.BATCHING]
    if enabled is None:
        return 1 if java == keys.AIVENS else most or 1
    return (most or keys.BATCH_MAX_DEFAULT) if enabled else 1


_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}


def _unescaped(key: str, text: str) -> bytes:
    def one(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise ConfigError.for_value(key, text, f"unknown escape {match[0]}", fix=r"write \n, \r, \t or \\")
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.?)", one, text).encode()


def _framing(values: Mapping[str, Any], batch_max: int, java: str) -> Framing:
    defaults = ("", ",", "") if java == keys.CONFLUENTS else ("", "\\n", "\\n")
    if values[keys.AS_ARRAY]:
        defaults = ("[", ",", "]")
    given = [values[key] for key in (keys.PREFIX, keys.SEPARATOR, keys.SUFFIX)]
    if values[keys.AS_ARRAY]:
        for key, text in zip((keys.PREFIX, keys.SEPARATOR, keys.SUFFIX), given, strict=True):
            if text is not None:
                raise ConfigError(
                    f"{key} cannot be combined with {keys.AS_ARRAY}=true", field=key, fix="leave one of them out"
                )
        if values[keys.FORMAT] == "string":
            raise ConfigError.for_value(
                keys.AS_ARRAY, "true", f"with {keys.FORMAT}=string a value is text, not JSON", fix="write false"
            )
    if batch_max == 1 and not values[keys.BATCHING]:
        return Framing(b"", b"", b"")
    parts = [
        _unescaped(key, default if text is None else text)
        for key, text, default in zip((keys.PREFIX, keys.SEPARATOR, keys.SUFFIX), given, defaults, strict=True)
    ]
    return Framing(*parts)


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Set by the sink or by HTTP itself.
_OWN_HEADERS = frozenset(
    ("content-length", "transfer-encoding", "host", "connection", "content-encoding", "idempotency-key",
     "herdmesh-offsets")
)  # fmt: skip


def _pairs(key: str, texts: list[str], *, secret: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        name, value = name.strip(), value.strip()
        shown = text if not secret else name if colon else "***"
        if not colon or not _HEADER_NAME.fullmatch(name):
            raise ConfigError.for_value(key, shown, "must be name:value", fix="write name:value")
        if name.lower() in _OWN_HEADERS:
            raise ConfigError.for_value(key, shown, f"the header {name} is set by the sink", fix="leave it out")
        if name.lower() in (one.lower() for one in found):
            raise ConfigError.for_value(key, shown, f"the header {name} is set twice", fix="leave one out")
        _check_header(key, value)
        if secret:
            keep_secret((value,))
        found[name] = value
    return found


def _check_header(key: str, value: str) -> None:
    if not value.isascii() or any(char < " " or char == "\x7f" for char in value):
        raise ConfigError(f"{key}: a header has printable ASCII characters only", field=key, fix="encode the value")


def _headers(values: Mapping[str, Any], batch_max: int, framing: Framing) -> dict[str, str]:
    found = _pairs(keys.ADDITIONAL, values[keys.ADDITIONAL] or [], secret=False)
    secret = [one for one in (values[keys.SECRET_HEADERS] or "").split(",") if one.strip()]
    for name, value in _pairs(keys.SECRET_HEADERS, secret, secret=True).items():
        if name.lower() in (one.lower() for one in found):
            raise ConfigError(f"{keys.SECRET_HEADERS}: the header {name} is set twice", field=keys.SECRET_HEADERS)
        found[name] = value
    named = {name.lower() for name in found}
    content_type = values[keys.CONTENT_TYPE]
    if content_type and "content-type" in named:
        raise ConfigError(f"{keys.CONTENT_TYPE}: the header is also set in {keys.ADDITIONAL}", field=keys.CONTENT_TYPE)
    if "content-type" not in named:
        found["Content-Type"] = content_type or _content_type(values, batch_max, framing)
        _check_header(keys.CONTENT_TYPE, found["Content-Type"])
    authorization = _authorization(values)
    if (authorization or values[keys.AUTHORIZATION] == "oauth2") and "authorization" in named:
        message = f"{keys.AUTHORIZATION}: the header Authorization is also set as an additional header"
        fix = f"write {keys.AUTHORIZATION}=none or leave the header out"
        raise ConfigError(message, field=keys.AUTHORIZATION, fix=fix)
    if authorization:
        found["Authorization"] = authorization
    return found


def _content_type(values: Mapping[str, Any], batch_max: int, framing: Framing) -> str:
    if values[keys.FORMAT] == "string":
        return "text/plain; charset=utf-8"
    if batch_max > 1 and not framing.prefix and framing.separator == b"\n":
        return "application/x-ndjson"
    return "application/json"


def _authorization(values: Mapping[str, Any]) -> str:
    kind = values[keys.AUTHORIZATION]
    if kind == "static":
        value = _required(values, keys.STATIC, f"that {keys.AUTHORIZATION}=static needs")
        _check_header(keys.STATIC, value)
        keep_secret((value.partition(" ")[2],))  # also mask the token of `Bearer TOKEN` alone
        return value
    if kind == "basic":
        user = _required(values, keys.USER, f"that {keys.AUTHORIZATION}=basic needs")
        password = _required(values, keys.PASSWORD, f"that {keys.AUTHORIZATION}=basic needs")
        encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
        keep_secret((encoded,))
        return f"Basic {encoded}"
    return ""


def _oauth2(values: Mapping[str, Any]) -> OAuth2 | None:
    if values[keys.AUTHORIZATION] != "oauth2":
        return None
    why = f"that {keys.AUTHORIZATION}=oauth2 needs"
    url = _required(values, keys.TOKEN_URL, why)
    _check_url(keys.TOKEN_URL, url, url)
    return OAuth2(
        url,
        _required(values, keys.CLIENT_ID, why),
        _required(values, keys.CLIENT_SECRET, why),
        values[keys.TOKEN_MODE].upper() == "HEADER",
        values[keys.SCOPE] or "",
        values[keys.TOKEN_PROPERTY] or "access_token",
    )


def _as_text(values: Mapping[str, Any]) -> bool:
    """Default as in Aiven's and Confluent's connectors: text, except that a JSON array contains JSON."""
    return values[keys.FORMAT] == "string" or (values[keys.FORMAT] is None and not values[keys.AS_ARRAY])


def _on_null(values: Mapping[str, Any]) -> str:
    chosen = values[keys.ON_NULL]
    if chosen == "delete" and "${key}" not in values[keys.URL]:
        why = f"{keys.URL} does not identify the record to delete"
        raise ConfigError.for_value(keys.ON_NULL, chosen, why, fix=f"put ${{key}} into {keys.URL}")
    return chosen
