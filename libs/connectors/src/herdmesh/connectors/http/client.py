"""HTTP client of one task: one attempt at one request, and
the meaning of its outcome for the request's records.

Owns the connections, authorization and reading responses. Retries: `partition_lanes`.

    2xx                                           the receiver has the records
    a status of retry.on.status.codes, no answer  Busy: the same request may work later
    another 4xx                                   RequestRefused: the receiver does not accept these records
    3xx, 401, 403, 407; 404, 405, 410 of a URL    ConfigError: no request can work before the configuration, or the
    that is the same for all records              receiver, is changed

Without a response the outcome is unknown: the receiver may have
the records, and gets them again with the same Idempotency-Key.

Invariant: an attempt ends within the time-out for each of its steps; no message contains a secret.
"""

from __future__ import annotations

import ssl
import threading
import time
from typing import Any, Final

import httpx
import msgspec

from herdmesh.connect.config import http_place, keep_secret, without_user
from herdmesh.connect.registry import retry_after_s
from herdmesh.connectors.http.keys import (
    AUTHORIZATION,
    CLIENT_SECRET,
    OWN_KEY,
    TOKEN_PROPERTY,
    TOKEN_URL,
    TRUSTED,
    URL,
)
from herdmesh.connectors.http.requests import HttpRequest
from herdmesh.connectors.http.settings import HttpSettings, OAuth2
from herdmesh.sdk import ConfigError, DataError, RetriableError, UnreachableError

_ANSWER_BYTES_MAX = 65_536
"""Maximum bytes of a response that are read, so that its
connection can be reused; a longer response is cut off.
"""
_TOLD_CHARS = 300
"""Maximum characters of a response in a message."""
_TOKEN_EARLY_S = 30.0
_TOKEN_S_DEFAULT = 3_600.0
_UNAUTHORIZED = 401
_NOT_ALLOWED: Final = frozenset((401, 403, 407))
_NO_PLACE: Final = frozenset((404, 405, 410))
_BROKEN: Final = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
"""Errors of a kept-alive connection that the receiver has closed meanwhile."""


class Busy(RetriableError):
    """A failed attempt that may be retried. `wait_s`: the delay that the receiver requested; None = none.
    `is_broken`: the connection broke, perhaps because the receiver closed an idle connection.
    """

    def __init__(self, message: str, wait_s: float | None = None, *, is_broken: bool = False) -> None:
        super().__init__(message)
        self.wait_s = wait_s
        self.is_broken = is_broken


class NoResponse(Busy, UnreachableError):
    """A failed attempt without a response: the receiver is down or cannot be reached."""


class RequestRefused(DataError):
    """The receiver refuses the records of a request. `too_large`: the request has too many of them."""

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


class HttpClient:
    """Client for the requests of one task. Thread-safe; each request blocks its calling thread."""

    def __init__(self, settings: HttpSettings, connector: str) -> None:
        """Raises ConfigError for TLS files that cannot be used."""
        self._settings = settings
        self._connector = connector
        self._http = httpx.Client(
            headers={
                "User-Agent": "herdmesh",
                "Accept-Encoding": "identity",
            },  # and no header that must be hidden from a token server
            verify=_tls(settings),
            trust_env=False,  # the config alone decides, as with Java's client
            follow_redirects=False,
            timeout=httpx.Timeout(settings.timeout_s),
            limits=httpx.Limits(max_connections=settings.connections, max_keepalive_connections=settings.connections),
        )
        self._tokens = None
        if settings.oauth2 is not None:
            self._tokens = _Tokens(settings.oauth2, self._http, settings.timeout_s)

    @property
    def receiver(self) -> str:
        """The receiver's name in waits: `HTTP host:port`."""
        return http_place(self._settings.url.parts[0])

    def send(self, request: HttpRequest) -> None:
        """Return once the receiver has the records. Raises Busy, RequestRefused or ConfigError."""
        body = request.body(self._settings)
        headers = {**self._settings.headers, **request.headers(self._connector, self._settings)}
        status, text, wait_s = self._attempt(request, body, headers)
        if status == _UNAUTHORIZED and self._tokens is not None:
            self._tokens.forget()
            status, text, wait_s = self._attempt(request, body, headers)
        if not 200 <= status < 300:
            raise self._unwanted(request, status, text, wait_s)

    def close(self) -> None:
        """Close all connections and break requests in progress."""
        self._http.close()

    def _attempt(self, request: HttpRequest, body: bytes, headers: dict[str, str]) -> tuple[int, str, float | None]:
        if self._tokens is not None:
            headers = {**headers, "Authorization": f"Bearer {self._tokens.token()}"}
        try:
            return _exchange(self._http, request.method, request.url, self._settings.timeout_s, headers, content=body)
        except httpx.InvalidURL as error:
            raise RequestRefused(f"{request}: its URL is not valid: {error}") from error
        except (httpx.HTTPError, RuntimeError, ssl.SSLError) as error:  # RuntimeError: the client is closed
            raise _no_answer(f"{request.method} {shown(request.url)}", error) from error

    def _unwanted(self, request: HttpRequest, status: int, text: str, wait_s: float | None) -> Exception:
        """Return the error for a response with a status other than 2xx."""
        said = f"{request.method} {shown(request.url)} answered HTTP {status}{f': {text}' if text else ''}"
        if status in self._settings.retry_on:
            return Busy(said, wait_s)
        if status in _NOT_ALLOWED:
            return ConfigError(
                f"{said}; the receiver rejected the authorization", field=AUTHORIZATION, fix="correct the credentials"
            )
        if status < 400:
            return ConfigError(
                f"{said}; a redirect is not followed", field=URL, fix="write the address that the redirect names"
            )
        if status in _NO_PLACE and self._settings.url.is_fixed:
            return ConfigError(f"{said}; the receiver has nothing at this URL", field=URL, fix="correct the URL")
        return RequestRefused(f"{request}: {said}", too_large=status == 413)


class _Tokens:
    """Cache of the access token; fetches a token if there is none or it expires soon."""

    def __init__(self, settings: OAuth2, http: httpx.Client, timeout_s: float) -> None:
        self._settings = settings
        self._http = http
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._token = ""
        self._until_s = 0.0

    def token(self) -> str:
        """Return a valid token. Raises Busy, or ConfigError when the server refuses to issue one."""
        with self._lock:
            if not self._token or time.monotonic() >= self._until_s:
                self._ask()
            return self._token

    def forget(self) -> None:
        """Discard the token, because the receiver refused it."""
        with self._lock:
            self._token = ""

    def _ask(self) -> None:
        settings = self._settings
        form = {"grant_type": "client_credentials"}
        if settings.scope:
            form["scope"] = settings.scope
        auth: Any = None
        if settings.in_header:
            auth = httpx.BasicAuth(settings.client_id, settings.client_secret)
        else:
            form |= {"client_id": settings.client_id, "client_secret": settings.client_secret}
        asked = f"the access token of {shown(settings.url)}"
        try:
            status, text, wait_s = _exchange(
                self._http, "POST", settings.url, self._timeout_s, {}, data=form, auth=auth, told=_ANSWER_BYTES_MAX
            )
        except (httpx.HTTPError, RuntimeError, ssl.SSLError) as error:
            raise _no_answer(asked, error) from error
        if status in (400, 401, 403):
            message = f"{asked}: HTTP {status}; the server rejected the client id or its secret"
            raise ConfigError(message, field=CLIENT_SECRET, fix="correct oauth2.client.id and oauth2.client.secret")
        if status != 200:
            raise Busy(f"{asked}: HTTP {status}", wait_s)
        try:
            answer = msgspec.json.decode(text.encode(), type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{asked} is not a JSON object", field=TOKEN_URL) from error
        found = answer.get(settings.token_property)
        if not isinstance(found, str) or not found:
            raise ConfigError(f"{asked} has no string '{settings.token_property}'", field=TOKEN_PROPERTY)
        keep_secret((found,))
        lasts_s = answer.get("expires_in")
        lasts_s = float(lasts_s) if isinstance(lasts_s, int | float) else _TOKEN_S_DEFAULT
        self._token, self._until_s = found, time.monotonic() + max(lasts_s - _TOKEN_EARLY_S, lasts_s / 2)


def _exchange(
    http: httpx.Client, method: str, url: str, timeout_s: float, headers: dict[str, str],
    *, told: int = _TOLD_CHARS, **more: Any,
) -> tuple[int, str, float | None]:  # fmt: skip
    """Send a request and read the response: status, the first
    `told` characters of its text, and the requested retry delay.
    """
    end_s = time.monotonic() + timeout_s
    with http.stream(method, url, headers=headers, **more) as response:
        read = bytearray()
        try:
            for piece in response.iter_raw():
                read += piece
                if (
                    len(read) > _ANSWER_BYTES_MAX or time.monotonic() > end_s
                ):  # the receiver may send byte by byte, without end
                    break
        except httpx.HTTPError:
            pass  # the status is enough
        text = " ".join(read.decode("utf-8", "replace").split())
        return response.status_code, text[:told], retry_after_s(response.headers.get("Retry-After"), time.time())


def _no_answer(what: str, error: Exception) -> Exception:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ConfigError(
                f"{what}: the certificate is not trusted: {cause.verify_message}", field=TRUSTED,
                fix="name a PEM file with the certificate of the authority that signed it",
            )  # fmt: skip
        cause = cause.__cause__ or cause.__context__
    return NoResponse(f"{what} got no response: {error or type(error).__name__}", is_broken=isinstance(error, _BROKEN))


def shown(url: str) -> str:
    """Return a URL for messages: without its query, which may have secrets."""
    return without_user(url).partition("#")[0].partition("?")[0]


def _tls(settings: HttpSettings) -> ssl.SSLContext | bool:
    """Return the TLS context. Raises ConfigError for files that are missing or not PEM."""
    urls = [settings.url.parts[0], settings.oauth2.url if settings.oauth2 else ""]
    if not any(url.startswith("https:") for url in urls):
        return False  # loading the certificate authorities takes 50 ms
    at = TRUSTED
    try:
        made = ssl.create_default_context(cafile=settings.trusted_file or None)
        if settings.own_key_file:
            at = OWN_KEY
            made.load_cert_chain(settings.own_key_file, password=settings.own_key_password or None)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ConfigError(f"{at} cannot be used: {error}", field=at, fix="name a PEM file") from error
    made.check_hostname = settings.checks_host
    return made
